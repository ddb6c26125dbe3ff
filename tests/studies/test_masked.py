"""Ranks by entries that are held out as missing."""

import numpy as np
import pandas as pd
import pytest
from scipy.stats import poisson
from smallfits import quietly
from suites import mostly_long

import bayesnmf
from bayesnmf import VI
from bayesnmf.data.mask import GroupMask, Mask
from bayesnmf.fitting import noisy
from bayesnmf.studies.selection import masked
from bayesnmf.studies.selection.criterion import SelectionPlan, frugal_of
from bayesnmf.studies.selection.masked import FOLDS, make_masks, score_masked, tiles

QUICK = VI(tol=1e-5, threads=1)


def sample(noise=0.0, seed=0, n=30, m=20):
    rng = np.random.default_rng(seed)
    means = rng.gamma(0.7, 150, (n, 3)) @ rng.dirichlet(np.full(m, 0.3), 3)
    return rng.poisson(means * rng.gamma(1 / noise, noise, means.shape) if noise else means)


def study_of(counts):
    return SelectionPlan(bayesnmf.as_counts(counts), [], "vi", QUICK, 0, lambda *_: None)


def test_masks_are_folds_that_do_not_look_at_counts():
    one, two = (bayesnmf.as_counts(each) for each in (sample(), sample(seed=1)))
    folds = [mask.hidden(slice(None)) for mask in make_masks(one, FOLDS, 0)]
    np.testing.assert_array_equal(np.sum(folds, axis=0), 1)
    for mask, other in zip(folds, make_masks(two, FOLDS, 0), strict=True):
        np.testing.assert_array_equal(mask, other.hidden(slice(None)))
    assert not np.array_equal(folds[0], make_masks(one, 1, 1)[0].hidden(slice(None)))
    assert len(make_masks(one, 0, 0)) == masked.MANY


def test_groups_of_large_matrices_hold_out_no_more_entries_than_counts(monkeypatch):
    monkeypatch.setattr(masked, "SMALL", 100)
    counts = bayesnmf.as_counts(np.minimum(sample(n=60, m=90), 1) * (np.random.default_rng(0).random((60, 90)) < 0.05))
    found = make_masks(counts, 3, 0)
    assert all(isinstance(mask, GroupMask) and mask.number <= 1.3 * counts.nnz for mask in found)
    hidden = np.sum([mask.hidden(slice(None)) for mask in found], axis=0)
    assert hidden.max() == 1
    assert hidden.sum(axis=1).min() >= 2
    assert len(make_masks(counts, 0, 0)) == masked.FEW


def test_groups_are_the_same_entries_one_by_one():
    rng = np.random.default_rng(0)
    groups = GroupMask.of_groups(rng.permutation(30) % 4, rng.permutation(20) % 4, 4)
    entries = groups.as_entries
    assert type(entries) is Mask
    assert groups.number == entries.number
    for factor, name in ((rng.random((20, 2)), "sums_by_row"), (rng.random((30, 2)), "sums_by_feature")):
        np.testing.assert_allclose(getattr(groups, name)(factor), getattr(entries, name)(factor))
    counts = bayesnmf.as_counts(sample())
    for one, two in ((groups, entries), (groups.rows(slice(3, 9)), entries.rows(slice(3, 9))),
                     (groups.features([4, 1, 2]), entries.features([4, 1, 2]))):  # fmt: skip
        np.testing.assert_array_equal(one.hidden(slice(None)), two.hidden(slice(None)))
    fits = [
        bayesnmf.fit(counts.with_mask(mask), rank=2, seed=0, options=VI(tol=0, max_iter=20, threads=1))
        for mask in (groups, entries)
    ]
    np.testing.assert_allclose(fits[0].loadings, fits[1].loadings, rtol=1e-6)
    assert groups.seen_rows.all()
    assert groups.seen_features.all()


@quietly
@pytest.mark.parametrize("grouped", [False, True])
def test_scores_are_those_of_the_held_out_entries(grouped, monkeypatch):
    if grouped:
        monkeypatch.setattr(masked, "SMALL", 1)
    counts = sample()
    study = study_of(counts)
    mask = make_masks(study.counts, 1, 0)[0]
    fit = bayesnmf.fit(study.counts.with_mask(mask), rank=3, seed=0, options=QUICK)
    found, hidden = score_masked(fit, study, mask), mask.hidden(slice(None))
    means = fit.expected_loadings @ fit.components
    np.testing.assert_allclose(found.logs, (poisson.logpmf(counts, means) * hidden).sum(axis=1))
    np.testing.assert_array_equal(found.counted, (counts * hidden).sum(axis=1))
    entries = []
    for rows, features, _, _ in tiles(mask, study.counts):
        for i in rows:
            pool = np.zeros(2)
            for j in features[hidden[i, features]]:
                pair = np.array([counts[i, j], means[i, j]])
                pool = pool if means[i, j] >= 0.1 else pool + pair
                if means[i, j] >= 0.1:
                    entries.append(pair)
                elif pool[1] >= 0.1:
                    entries.append(pool)
                    pool = np.zeros(2)
    squares = sum((x - mean) ** 2 / mean for x, mean in entries)
    assert (found.squares, found.entries) == (pytest.approx(squares), len(entries))


@quietly
@pytest.mark.parametrize("noise", mostly_long([0.2, 0.0]))
def test_the_rank_is_found_whether_or_not_entries_vary_more(noise):
    """Where thinned counts run to the largest rank, as entries vary by 45 % in addition."""
    found = bayesnmf.select(sample(noise), ranks=(2, 3, 5), criterion="masked", check=False, seed=0, options=QUICK)
    assert found.best.rank == 3
    assert found.one_standard_error.rank in (2, 3)
    ratio = found.table.loc[found.best, "chi_squared"]
    assert (ratio < 2) if noise == 0 else (ratio > 2.5)
    assert "χ²" in repr(found)
    assert "5 masks of entries" in repr(found)


@quietly
def test_settings_of_other_criteria_are_refused():
    with pytest.raises(ValueError, match="keep needs criterion='heldout'"):
        bayesnmf.select(sample(), ranks=2, criterion="masked", keep=0.5)
    with pytest.raises(ValueError, match="splits needs criterion='masked' or criterion='heldout'"):
        bayesnmf.select(sample(), ranks=2, criterion="stability", splits=2)
    with pytest.raises(ValueError, match="splits must be at most 10"):
        bayesnmf.select(sample(), ranks=2, criterion="masked", splits=11)
    with pytest.raises(ValueError, match="needs at least two rows"):
        bayesnmf.select([[3, 4, 5]], ranks=1, criterion="masked")
    with pytest.raises(ValueError, match=r"missing entries need .*: found 'bld', which allocates counts one by one"):
        bayesnmf.select(sample(), "dirichlet_gamma", ranks=2, criterion="masked", method="bld")


@quietly
def test_ctrl_c_keeps_whole_masks():
    calls = []

    def stop(label, done, total, value):
        calls.append(done)
        if len(calls) > 1 and label == "select" and done == 3:
            raise KeyboardInterrupt

    found = bayesnmf.select(
        sample(), ranks=(2, 3), criterion="masked", check=False, seed=0, options=QUICK, progress=stop
    )
    assert found.interrupted
    assert found.table["fits"].tolist() == [1, 1]


@quietly
def test_candidates_far_behind_are_stopped_and_told(monkeypatch):
    """What they have is what the first two masks say of them; the others are compared as if none had been stopped."""
    options, made, told = VI(start="random", tol=1e-4, threads=1), [], []
    asked = {"ranks": (1, 3), "check": False, "seed": 0, "options": options}
    counts = sample(n=100)
    monkeypatch.setattr(masked, "fit", lambda *given, **more: made.append(given) or bayesnmf.fit(*given, **more))
    found = bayesnmf.select(counts, **asked, progress=lambda *line: told.append(line))
    assert found.table["fits"].tolist() == [2, 5]
    assert len(made) == 7
    assert [line[1:3] for line in told if line[0] == "select"][-1] == (7, 7)
    first, whole = (bayesnmf.select(counts, **asked, splits=splits) for splits in (2, 5))
    assert whole.table["fits"].tolist() == [5, 5]
    assert found.best == first.best == whole.best == ("gamma_poisson", 3)
    assert found.one_standard_error == whole.one_standard_error
    stopped, columns = found.table.iloc[0], ["difference", "difference_se", "se", "chi_squared"]
    np.testing.assert_array_equal(stopped[columns], first.table.iloc[0][columns])
    assert stopped["difference"] < -masked.BEHIND * stopped["difference_se"]
    assert stopped["mean"] == pytest.approx(found.table.loc[found.best, "mean"] + stopped["difference"])
    np.testing.assert_array_equal(found.table.iloc[1], whole.table.iloc[1])
    assert found.scores.isna().sum().tolist() == [3, 0]
    assert repr(found).count("stopped") == 2
    assert "2 of 2" in repr(found)
    assert "stopped" not in repr(whole)
    assert bayesnmf.plots.selection(found).get_title().startswith("by vi, 5 masks")


def test_a_candidate_that_was_stopped_is_not_within_one_standard_error():
    """Even if the best in all masks was behind it in the first two."""
    table = pd.DataFrame(
        {"mean": [0.5, 0.1, 0.4], "difference": [0.1, -0.3, 0.0], "difference_se": [0.1, 0.1, 0.0], "fits": [2, 5, 5]},
        index=pd.MultiIndex.from_product([["gamma_poisson"], [2, 3, 5]], names=["model", "rank"]),
    )
    assert frugal_of(table, "mean", "difference", "difference_se").rank == 5


@quietly
def test_noises_are_crossed_with_ranks(monkeypatch):
    """Counts of linear variance prefer it, by more nats than a wrong sign or a missing term would leave.

    The Poisson fit that a noise begins with is made once, and changes no bit.
    """
    begun, fit_closed_form = [], noisy.fit_closed_form
    monkeypatch.setattr(noisy, "fit_closed_form", lambda job: begun.append(job) or fit_closed_form(job))
    rng = np.random.default_rng(2)
    means = rng.gamma(1, 1, (60, 3)) @ rng.dirichlet(np.full(30, 0.3), 3) * 300
    counts = rng.poisson(rng.gamma(means / 3, 3))
    found = bayesnmf.select(
        counts, ranks=(1, 3), noise=("poisson", "nb1"), splits=2, seed=0, options=VI(start="random", tol=1e-5)
    )
    assert len(begun) == 1  # of all counts, for the checks of the best
    assert found.table.index.names == ["noise", "model", "rank"]
    assert (found.best, found.noise.word) == (("gamma_poisson", 3), "nb1")
    line = found.table.loc[("poisson", "gamma_poisson", 3)]
    assert -line["difference"] > 5 * line["difference_se"]
    squares = found.table["chi_squared"]
    assert squares[("nb1", "gamma_poisson", 3)] < 1.3 < 3 < squares[("poisson", "gamma_poisson", 3)]
    assert found.one_standard_error == found.best
    assert "nb1" in repr(found)
    one = bayesnmf.select(counts, ranks=3, noise="nb1", splits=2, seed=0, options=VI(start="random", tol=1e-5))
    assert len(begun) == 4
    assert one.table["mean"].item() == found.table["mean"][("nb1", "gamma_poisson", 3)]
    ax = bayesnmf.plots.selection(found)
    texts = {text.get_text() for text in ax.get_legend().get_texts()}
    assert {"poisson, gamma_poisson", "nb1, gamma_poisson", "best"} <= texts


def test_noises_without_a_distribution_and_criteria_without_noises_are_refused():
    with pytest.raises(ValueError, match="scores of select need a distribution"):
        bayesnmf.select(sample(), ranks=2, noise=("poisson", "quasi"))
    for criterion in ("heldout", "evidence"):
        with pytest.raises(ValueError, match="needs noise='poisson': found 'nb1'"):
            bayesnmf.select(sample(), ranks=2, noise=("poisson", "nb1"), criterion=criterion)
    with pytest.raises(ValueError, match=r"criterion='stability' needs one noise.*found 2"):
        bayesnmf.select(sample(), ranks=2, noise=("poisson", "nb1"), criterion="stability")


@quietly
def test_squares_of_a_noise_without_dispersion_are_those_of_poisson_counts():
    counts = np.random.default_rng(0).poisson(0.3, (60, 50))
    found = bayesnmf.select(
        counts, ranks=2, noise=("poisson", bayesnmf.NegativeBinomial(dispersion=0.0)), splits=1, seed=0, check=False
    )
    one, two = found.table["chi_squared"]
    assert one == pytest.approx(two, rel=1e-4)


def test_noises_must_be_named_and_told_apart():
    arrays = [bayesnmf.NegativeBinomial("linear", np.full(60, s), "row") for s in (0.0, 1.0)]
    for noise, words in (([], "at least one noise"), (arrays, "one name in the table")):
        with pytest.raises(ValueError, match=words):
            bayesnmf.select(sample(), ranks=2, noise=noise)
    with pytest.raises(TypeError, match="noise must be a word"):
        bayesnmf.select(sample(), ranks=2, noise=None)


def test_flat_loadings_are_scored_by_held_out_counts():
    """Fits with missing entries have no elbo under them, which ended in a division by zero."""
    counts = sample()
    assert bayesnmf.select(counts, "poisson", (1, 2), splits=1, check=False, options=QUICK).criterion == "heldout"
    with pytest.raises(ValueError, match=r"missing entries and a posterior of the loadings need a proper prior"):
        bayesnmf.select(counts, ("gamma_poisson", "poisson"), (1, 2), criterion="masked", options=QUICK)
    proper = bayesnmf.VI(priors=bayesnmf.Priors(bayesnmf.Gamma(1.0, 0.01), None), max_iter=20, threads=1)
    assert bayesnmf.select(counts, "poisson", 2, splits=1, check=False, options=proper).criterion == "masked"
