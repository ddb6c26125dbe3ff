"""The rank by stability: components that come back in halves of the rows."""

import itertools
from dataclasses import replace
from threading import Event

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest
from plain import even_priors
from suites import mostly_long

import bayesnmf
from bayesnmf import MAP, VI, Dirichlet, Gamma, Priors, plots
from bayesnmf.data.conversion import as_counts
from bayesnmf.inference.alignment import cosine
from bayesnmf.studies.selection import by_stability
from bayesnmf.studies.selection.by_stability import draw_again, split_rows
from bayesnmf.studies.selection.criterion import Candidate, SelectionPlan
from bayesnmf.studies.stability.runs import seed_of

POINTS = {"method": "map", "options": MAP(tol=1e-5)}


def drawn(seed=2):
    priors = Priors(Gamma(1.0, 0.02), Dirichlet(0.3))
    return as_counts(bayesnmf.simulate("gamma_poisson", (60, 15), 3, priors=priors, seed=seed).counts)


def test_halves_share_no_row_and_differ():
    counts = as_counts(np.arange(1, 22).reshape(7, 3))
    parts = split_rows(counts, 6, 3)
    kept = [set(part.row_names) for part in parts]
    for one, other in zip(kept[::2], kept[1::2], strict=True):
        assert not one & other
        assert one | other == set(counts.row_names)
    assert [len(one) for one in kept] == [3, 4, 3, 4, 3, 4]
    assert len({frozenset(one) for one in kept}) == 6
    for one in kept:  # neither the first rows nor the last
        assert one not in (set(counts.row_names[: len(one)]), set(counts.row_names[-len(one) :]))
    assert len(split_rows(counts, 5, 3)) == 5


def test_resampled_counts_vary_around_those_observed_as_poisson_counts_do():
    counts = as_counts(np.repeat([[400, 0, 25]], 300, axis=0))
    parts = [part.matrix.toarray() for part in draw_again(counts, 5, 3)]
    drawn = np.concatenate(parts)
    assert drawn[:, 1].max() == 0
    np.testing.assert_allclose(
        drawn[:, [0, 2]].mean(axis=0), [400, 25], rtol=0.02
    )  # five standard errors: 0.65 %, 2.6 %
    np.testing.assert_allclose(drawn[:, [0, 2]].var(axis=0), [400, 25], rtol=0.2)  # five standard errors: 18 %
    assert len({part.tobytes() for part in parts}) == 5


def test_a_component_of_few_rows_comes_back_in_resampled_counts_but_not_in_halves():
    """One of three has counts in a single row, which half of the halves lack."""
    rng = np.random.default_rng(0)
    components = np.kron(np.eye(3), np.ones(3)) / 3
    loadings = rng.gamma(1.0, 200.0, (24, 3)) * [1.0, 1.0, 0.0]
    loadings[7, 2] = 2000.0
    settings = {
        "ranks": (3,),
        "criterion": "stability",
        "halves": 6,
        "check": False,
        "method": "map",
        "options": MAP(tol=1e-3),
    }
    counts = rng.poisson(loadings @ components)
    halves = bayesnmf.select(counts, **settings)
    again = bayesnmf.select(counts, resample="counts", **settings)
    assert halves.best is None
    assert again.best.rank == 3
    assert [each.table["recurrent"].item() for each in (halves, again)] == [2, 3]
    assert "6 resampled counts" in repr(again)


def test_stability_matches_fits_of_halves_of_the_rows():
    counts = drawn()
    settings = {"method": "map", "seed": 3, "options": MAP(tol=1e-4)}
    found = bayesnmf.select(counts, ranks=(1, 3), criterion="stability", halves=6, check=False, **settings)
    overall = counts.feature_totals / counts.total
    whole, cosines = bayesnmf.fit(counts, rank=3, **settings), np.empty((6, 3))
    for number, part in enumerate(split_rows(counts, 6, 3)):
        options = MAP(tol=1e-4, threads=1)
        half = bayesnmf.fit(part, rank=3, method="map", seed=seed_of(3, number), options=options)
        similarity = cosine(half.components - overall, whole.components - overall)
        cosines[number] = max(  # over all ways to match them
            (similarity[list(order), np.arange(3)] for order in itertools.permutations(range(3))),
            key=lambda matched: matched.sum(),
        )
    line = found.table.loc[("gamma_poisson", 3)]
    assert line["least"] == (cosines > 0.75).mean(axis=0).min()
    np.testing.assert_allclose(line["closeness"], cosines.mean(axis=0).min(), rtol=1e-9)
    np.testing.assert_allclose(found.scores[("gamma_poisson", 3)], cosines.min(axis=1), rtol=1e-9)
    assert (line["fits"], line["converged"]) == (7, 7)
    assert found.table.loc[("gamma_poisson", 1), "least"] == 1
    assert found.best.rank == 3
    assert found.one_standard_error == found.best
    assert "6 halves of the rows" in repr(found)
    ax = plots.selection(found)
    np.testing.assert_allclose(ax.containers[0].lines[0].get_ydata(), found.table["least"])
    plt.close("all")


@pytest.mark.parametrize(("level", "sharpness"), mostly_long([(300, 50.0), (20, 50.0), (20, 1.0), (5, 1.0)], [3]))
def test_noise_has_no_stable_components(level, sharpness):
    """Components that describe noise share their profile, so that cosines of the components themselves are near 1."""
    rng = np.random.default_rng([level, int(sharpness)])
    noise = rng.poisson(rng.gamma(2.0, 6.0 * level, (40, 1)) * rng.dirichlet(np.full(12, sharpness)))
    found = bayesnmf.select(noise, ranks=(1, 2, 5), criterion="stability", seed=1, **POINTS)
    assert found.best.rank == 1
    assert not any("smallest that was tried" in caution for caution in found.cautions)


@pytest.mark.parametrize("seed", mostly_long(range(3)))
def test_noise_of_entries_is_no_stable_component(seed):
    """Thinned counts prefer more components, as both parts of an entry share its excess. (Of seed 3, none is.)"""
    rng = np.random.default_rng([7, seed])
    means = rng.gamma(0.7, 140, (40, 3)) @ rng.dirichlet(np.full(20, 0.4), 3)
    noisy = rng.poisson(means * rng.gamma(5.0, 0.2, means.shape))
    options = MAP(start="svd", tol=1e-5)
    for criterion, rank in (("heldout", 5), ("stability", 3)):
        found = bayesnmf.select(
            noisy, ranks=(3, 5), method="map", criterion=criterion, seed=seed, options=options, check=False
        )
        assert found.best.rank == rank


def test_the_largest_rank_whose_components_all_come_back_is_best():
    index = pd.MultiIndex.from_product([["a", "b"], [2, 3, 4]], names=["model", "rank"])
    table = pd.DataFrame({"least": [1.0, 0.8, 0.79, 1.0, 0.9, 1.0], "empty": [0, 0, 0, 0, 0, 1]}, index=index)
    table["closeness"] = [0.9, 0.9, 0.9, 0.9, 0.95, 1.0]
    table["recurrent"] = 1
    assert by_stability.largest_stable(table) == ("b", 3)  # its components are closer than those of model a
    assert by_stability.largest_stable(table[table["empty"] == 1]) is None


def test_priors_that_are_left_open_are_even():
    """Those of `bayesnmf.fit` by vi are sparse."""
    found = [
        bayesnmf.select(
            drawn(), ranks=(3,), criterion="stability", halves=5, check=False,
            options=VI(priors=priors, tol=1e-4, threads=1),
        )
        for priors in (Priors(), even_priors(drawn().matrix.toarray()), Priors(Gamma(0.3, 0.02), Dirichlet(0.3)))
    ]  # fmt: skip
    plain, even, sparse = (each.scores.to_numpy() for each in found)
    np.testing.assert_allclose(plain, even, rtol=1e-6)
    assert np.abs(sparse - plain).max() > 1e-4


def test_no_intervals_are_made_that_nothing_reads():
    study = SelectionPlan(drawn(), [], "vi", VI(intervals="sampled"), 0, lambda *_: None)
    assert study.options_for(Candidate("gamma_poisson", 3), drawn()).intervals == "mean_field"


def test_components_without_counts_are_not_stable():
    counts = as_counts(np.random.default_rng(0).poisson(30.0, (20, 6)))
    priors = Priors(bayesnmf.HierarchicalGamma(1.0, Gamma(1e-3, 1e-3), "component"), Dirichlet(1.0))
    options = VI(priors=priors, tol=1e-5, threads=1)
    found = bayesnmf.select(counts, ranks=(4,), criterion="stability", halves=5, check=False, options=options)
    assert found.table["empty"].iloc[0] > 0
    assert found.best is None
    assert found.cautions[0].startswith("no rank is stable:")


def test_smaller_ranks_that_are_not_stable_and_shares_near_the_limit_are_told():
    found = bayesnmf.select(drawn(), ranks=(2, 3), criterion="stability", halves=5, check=False, **POINTS)
    assert found.best.rank == 3

    def told(*shares):
        table = found.table.assign(least=list(shares))
        return replace(found, table=table).cautions[1:]  # after that of the largest rank tried

    assert told(1.0, 1.0) == []
    (one,) = told(0.6, 1.0)
    assert one.startswith("smaller ranks are not stable (2):")
    (one,) = told(1.0, 0.8)  # of 5 halves, one standard error is 18 %
    assert one.startswith("another seed may name another rank:")
    assert "in which rank 3 comes back are within one standard error (18%) of 80%" in one
    lower = replace(found, best=found.best._replace(rank=2), table=found.table.assign(least=[1.0, 0.7]))
    assert any("rank 3 comes back" in caution for caution in lower.cautions)


def test_the_number_of_threads_does_not_change_the_result(monkeypatch):
    one = bayesnmf.select(drawn(), ranks=(3,), criterion="stability", halves=5, check=False, **POINTS)
    monkeypatch.setattr(by_stability, "number_of_jobs", lambda *_: 1)
    other = bayesnmf.select(drawn(), ranks=(3,), criterion="stability", halves=5, check=False, **POINTS)
    pd.testing.assert_frame_equal(one.scores, other.scores)


def test_all_fits_have_the_noise_that_is_named(monkeypatch):
    fits, recurrence_in = [], by_stability.recurrence_in

    def note(whole, halves):
        fits.extend([whole, *halves])
        return recurrence_in(whole, halves)

    monkeypatch.setattr(by_stability, "recurrence_in", note)
    found = bayesnmf.select(drawn(), ranks=[2], noise="nb1", criterion="stability", halves=5, check=False, seed=0)
    assert [fit.noise.word for fit in fits] == 6 * ["nb1"]
    assert found.noise.word == "nb1"
    assert "with noise nb1" in repr(found)


def test_ctrl_c_within_a_candidate_keeps_those_that_are_done():
    calls, total = [], Event()

    def stop(label, done, ranks, value):
        calls.append(done)
        if done == 1 and calls.count(1) == 3:
            total.set()
            raise KeyboardInterrupt

    found = bayesnmf.select(drawn(), ranks=(2, 3), criterion="stability", halves=5, progress=stop, **POINTS)
    assert total.is_set()
    assert found.interrupted
    assert found.table.index.tolist() == [("gamma_poisson", 2)]
    assert found.checks is None
