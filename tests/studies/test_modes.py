"""`bayesnmf.modes`: how many factorisations there are, how good each is, and what comes back."""

import os
import signal
import threading
import time
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from blocks import BLOCKS, lone_component, lone_kind, same
from registry import MODELS_AND_PRIORS, nasty_counts, over
from smallfits import COUNTS, quietly
from suites import mostly_long

import bayesnmf
from bayesnmf import BLD, MAP, VI, Gibbs, Priors, Start
from bayesnmf.assessment.scoring import background
from bayesnmf.data.conversion import as_counts
from bayesnmf.data.splitting import split_counts
from bayesnmf.fitting import many
from bayesnmf.studies.stability import runs as running
from bayesnmf.studies.stability.modes import _listed as listed_starts
from bayesnmf.studies.stability.runs import seed_of
from bayesnmf.studies.stability.stacking import per_count, probabilities_of

STARTS = 12
GIVEN = Start(np.ones((12, 3)), np.ones((3, 9)) / 9)
QUICK = VI(start="random", max_iter=60, tol=1e-6)


@pytest.fixture(scope="module")
def found():
    return bayesnmf.modes(BLOCKS, rank=2, starts=STARTS, seed=1, jobs=2)


# --- which modes, and how good -----------------------------------------------------------------------


def test_planted_modes_are_told_apart_and_ordered(found):
    assert [lone_kind(each.components) for each in found.fits] == [0, 1, 2]
    assert [lone_kind(each) for each in found.run_components] == found.runs["mode"].tolist()
    assert found.table["runs"].tolist() == np.bincount(found.runs["mode"]).tolist()
    assert found.table["runs"].sum() == STARTS
    np.testing.assert_allclose(found.table["share"], found.table["runs"] / STARTS)
    assert (np.diff(found.table["objective"]) < 0).all()
    np.testing.assert_allclose(found.table["behind"], found.table["objective"].max() - found.table["objective"])
    assert found.best is found.fits[0]
    assert found.best.trace[-1] == found.table["objective"].iloc[0] == found.runs["objective"].max()
    assert found.table["held_out"].idxmax() == 0
    assert found.table["weight"].sum() == pytest.approx(1)
    assert (found.runs["cosine"] > 0.95).all()


def test_a_component_of_one_mode_comes_back_in_no_other(found):
    for mode, number in enumerate(found.table["runs"]):
        assert found.components.loc[mode]["runs"].tolist() == [number, number]
        np.testing.assert_allclose(found.components.loc[mode]["recurrence"], number / STARTS)
    np.testing.assert_allclose(found.components.groupby("mode")["share_of_counts"].sum(), 1)


def test_a_run_can_be_repeated_by_its_seed(found):
    again = bayesnmf.fit(BLOCKS, rank=2, seed=int(found.runs["seed"].iloc[3]), options=found.options)
    np.testing.assert_array_equal(again.components, found.run_components[3])
    assert found.options.start == "random_descent"
    assert found.options.threads == 1


def test_components_are_assigned_to_their_mode(found):
    for mode, each in enumerate(found.fits):
        assert found.assign(each) == found.assign(each.components[::-1]) == mode
        assert found.assign(pd.DataFrame(7 * each.components)) == mode
    even = np.ones((3, 12)) + 0.1 * np.eye(3, 12)
    assert found.assign(even[:2]) is None
    with pytest.raises(ValueError, match="components must be 2, as many as those of the fits: found 3"):
        found.assign(even)
    with pytest.raises(ValueError, match=r"must have shape \(r, 12\)"):
        found.assign(even[:2, :5])


def test_scores_are_those_of_fits_to_training_counts_from_the_mode(found):
    split = split_counts(as_counts(BLOCKS), 0.9, 0.0, np.random.default_rng([1, 0]))
    logs = []
    for each in found.fits:
        refit = bayesnmf.fit(split.train, rank=2, seed=0, options=VI(start=each, priors=each.priors, threads=1))
        assert lone_kind(refit.components) == lone_kind(each.components)
        logs.append(np.log(probabilities_of(refit, split.thinned, background(split.train), 0)))
    wanted = [per_count(split.thinned, each) for each in logs]
    np.testing.assert_allclose(found.table["held_out"], [each.value for each in wanted], rtol=1e-6)
    np.testing.assert_allclose(found.table["held_out_se"], [each.se for each in wanted], rtol=1e-6)
    gaps = [per_count(split.thinned, each - logs[0]) for each in logs]
    np.testing.assert_allclose(found.table["difference"], [each.value for each in gaps], atol=1e-8)
    np.testing.assert_allclose(found.table["difference_se"], [each.se for each in gaps], atol=1e-8)


def test_the_bound_without_allocations_is_at_least_the_objective(found):
    assert (found.table["elbo_marginal"] + 4 * found.table["elbo_marginal_se"] >= found.table["objective"]).all()


def test_scores_can_be_left_out_and_limited_to_the_best_modes():
    none = bayesnmf.modes(BLOCKS, rank=2, starts=STARTS, seed=1, scored=0)
    assert none.stack is None
    assert not {"held_out", "weight", "elbo_marginal"} & set(none.table)
    assert "held-out" not in repr(none)
    with pytest.raises(ValueError, match="weighted modes need scores: found none"):
        none.sample_posterior_predictive()
    two = bayesnmf.modes(BLOCKS, rank=2, starts=STARTS, seed=1, scored=2)
    assert np.isnan(two.table["held_out"]).tolist() == [False, False, True]
    assert np.isnan(two.table["weight"]).tolist() == [False, False, True]
    assert len(two.stack.weights) == 2


def test_replicates_of_weighted_modes_are_those_of_each_as_many_as_its_weight_says(found):
    drawn = found.sample_posterior_predictive(50, seed=3, rows=[4, 0])
    assert drawn.shape == (50, 2, BLOCKS.shape[1])
    ends = np.rint(50 * np.cumsum(found.stack.weights)).astype(int)
    assert ends[-1] == 50
    for place, (first, last) in enumerate(zip([0, *ends], ends, strict=False)):
        if last > first:
            own = found.fits[place].sample_posterior_predictive(last - first, seed=3 + place, rows=[4, 0])
            np.testing.assert_array_equal(drawn[first:last], own)


# --- what the result does not depend on --------------------------------------------------------------


def test_the_result_does_not_depend_on_the_number_of_jobs(found):
    same(bayesnmf.modes(BLOCKS, rank=2, starts=STARTS, seed=1, jobs=1), found)
    same(bayesnmf.modes(BLOCKS, rank=2, starts=STARTS, seed=1, jobs=5), found)


def test_more_starts_add_runs_and_another_seed_changes_them(found):
    fewer = bayesnmf.modes(BLOCKS, rank=2, starts=5, seed=1, scored=0)
    np.testing.assert_array_equal(fewer.run_components, found.run_components[:5])
    assert fewer.runs["seed"].tolist() == found.runs["seed"].tolist()[:5]
    assert len({seed_of(seed, start) for seed in range(5) for start in range(50)}) == 250
    other = bayesnmf.modes(BLOCKS, rank=2, starts=5, seed=2, scored=0)
    assert not set(other.runs["seed"]) & set(found.runs["seed"])


def test_matrix_products_have_their_threads_back():
    from threadpoolctl import threadpool_info

    before = [each["num_threads"] for each in threadpool_info()]
    bayesnmf.modes(BLOCKS, rank=2, starts=6, scored=0, jobs=3)
    assert [each["num_threads"] for each in threadpool_info()][: len(before)] == before


# --- what it works for -------------------------------------------------------------------------------


@quietly
@over(
    MODELS_AND_PRIORS,
    default=(
        "dirichlet_poisson-asymmetric", "hierarchical_poisson-asymmetric", "partly_known",
    ),
)  # fmt: skip
@pytest.mark.parametrize("method", mostly_long(["vi", "map"]))
def test_every_model_and_prior(entry, method):
    n, m = 9, 7
    priors = entry.priors((n, m), 3)
    options = {"map": MAP, "vi": VI}[method](priors=priors, max_iter=15)
    counts = np.random.default_rng(0).poisson(4.0, (n, m))
    found = bayesnmf.modes(counts, entry.model, 3, method, starts=3, options=options)
    assert len(found.runs) == 3
    assert np.isfinite(found.table["held_out"]).all()
    assert found.stack.gap < 1e-8
    assert "mode" in repr(found)


@quietly
def test_best_decompositions_have_modes_too():
    found = bayesnmf.modes(COUNTS, "dirichlet_gamma", 3, "bld", starts=4, options=BLD(max_iter=100))
    assert found.best.objective == "log p(S)"
    assert found.table["runs"].sum() == 4
    assert np.isfinite(found.table["held_out"]).all()


@quietly
@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("rank", [1, 3])
def test_nasty_counts_in_both_precisions(dtype, rank):
    found = bayesnmf.modes(nasty_counts(), rank=rank, starts=3, options=VI(dtype=dtype, max_iter=50))
    assert found.run_components.dtype == dtype
    assert np.isfinite(found.runs["objective"]).all()
    assert np.isfinite(found.components["closeness"]).all()


@quietly
def test_names_exposures_and_known_components_arrive():
    known = pd.DataFrame([np.full(9, 1 / 9)], columns=list("ihgfedcba"))
    exposure = pd.Series(np.linspace(0.5, 2, 12), index=COUNTS.index)
    found = bayesnmf.modes(COUNTS, rank=3, starts=4, options=QUICK, fixed_components=known, row_exposure=exposure[::-1])
    np.testing.assert_allclose(found.run_components[:, 0], 1 / 9)
    assert found.best.feature_names.tolist() == list(COUNTS.columns)
    np.testing.assert_array_equal(found.best.counts.row_exposure, exposure)
    assert (found.components.xs(0, level="component")["recurrence"] == 1).all()
    genes = bayesnmf.modes(
        COUNTS, "hierarchical_poisson", 3, starts=2, options=QUICK, feature_exposure=np.linspace(1, 2, 9)
    )
    assert np.isfinite(genes.table["held_out"]).all()


@quietly
def test_counts_without_anything_and_a_single_row():
    empty = bayesnmf.modes(np.zeros((4, 3), int), rank=2, starts=2, options=QUICK)
    assert "held_out" not in empty.table
    single = bayesnmf.modes([[5, 3, 1]], rank=1, starts=2, options=QUICK)
    assert single.table["runs"].tolist() == [2]
    assert "nan" not in repr(single)


@quietly
def test_learned_priors_and_other_algorithms():
    for options in (
        VI(learn=("loadings", "components"), max_iter=40),
        VI(algorithm="gradient", max_iter=20),
        VI(algorithm="minibatch", max_iter=5),
        VI(algorithm="settled", max_iter=20),
        VI(restarts=2, max_iter=20),
    ):
        found = bayesnmf.modes(COUNTS, rank=3, starts=2, options=options)
        assert found.best.options.algorithm == (options.algorithm or "coordinate")
        assert found.best.options.start == "random_descent"
        assert np.isfinite(found.table["held_out"]).all()


@quietly
def test_fractional_counts_have_modes_without_scores():
    found = bayesnmf.modes(COUNTS + 0.5, rank=2, starts=2, options=QUICK)
    assert found.stack is None
    with pytest.raises(ValueError, match=r"whole numbers for held-out scores.*give scored=0"):
        bayesnmf.modes(COUNTS + 0.5, rank=2, starts=2, options=QUICK, scored=3)


# --- what is said, and refused -----------------------------------------------------------------------


def test_the_text_has_the_table_and_cautions(found):
    text = repr(found)
    for part in (
        "gamma_poisson by vi, rank 2: 3 modes in 12 runs",
        "elbo_augmented",
        "held-out/count",
        "weight",
    ):
        assert part in text
    assert f"behind: the best elbo_augmented, {found.table['objective'].iloc[0]:,.1f}, in nats" in text
    for behind in found.table["behind"]:
        assert f"{behind:,.1f}" in text
    assert "every matched cosine above 0.95" in text
    if found.table["share"].iloc[0] < 0.5:
        assert "CAUTION of the best mode, components 0, 1 came back in fewer than half" in text


@quietly
def test_cautions_name_the_reasons_to_doubt():
    short = bayesnmf.modes(COUNTS, rank=3, starts=4, options=VI(start="random", max_iter=2), scored=0)
    assert "4 of 4 fits did not converge; raise max_iter or tol in bayesnmf.VI(...)" in short.cautions
    assert len(short.table) == 4
    assert any(each.startswith("every run ended in a mode of its own") for each in short.cautions)
    assert len(bayesnmf.modes(COUNTS, rank=3, starts=1, scored=0).cautions) == 1
    clear = bayesnmf.modes(BLOCKS, rank=3, starts=2, seed=1, options=VI(tol=1e-4))
    assert clear.best.options.start == "random_descent"
    assert clear.cautions == []
    assert clear.table["runs"].tolist() == [2]


def test_cautions_name_modes_that_training_counts_do_not_hold_and_files_that_were_damaged(found):
    table = found.table.assign(refit_cosine=[0.99, 0.6, 0.95])
    doubtful = replace(found, table=table, damaged=(3, 5))
    assert "modes 1, 2 changed when fitted to the training counts alone; raise keep" in doubtful.cautions
    assert "fitted again, as the file was damaged: starts 3, 5" in doubtful.cautions
    alone = replace(found, table=found.table.assign(runs=[1, 6, 5]))
    assert "the best mode was found by one run only, so there may be better ones: raise starts" in alone.cautions


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"method": "gibbs"}, r"modes needs method='map' or method='vi' or .*found 'gibbs'; use .*'vi'"),
        ({"method": "svi"}, "exact objective: found 'svi'"),
        ({"method": "em"}, "method must be one of"),
        ({"model": "lda"}, "model must be one of"),
        ({"starts": 0}, "starts must be at least 1"),
        ({"rank": 0}, "rank must be at least 1"),
        ({"threshold": 1.0}, "threshold must be below 1"),
        ({"keep": 1.5}, "keep must be below 1"),
        ({"scored": -1}, "scored must be at least 0"),
        ({"jobs": 0}, "jobs must be at least 1"),
        ({"seed": -1}, "seed must be at least 0"),
        ({"options": VI(start="svd")}, "made from the counts; leave start out"),
        ({"options": VI(start=GIVEN)}, "the same for every run; leave start out"),
        ({"options": BLD(), "model": "gamma_poisson", "method": "bld"}, r"needs model='dirichlet_gamma'"),
    ],
)  # fmt: skip
def test_what_cannot_be_done_is_refused_before_the_first_fit(arguments, message, monkeypatch):
    monkeypatch.setattr(running, "fit", lambda *_, **__: pytest.fail("a fit was run"))
    with pytest.raises(ValueError, match=message):
        bayesnmf.modes(COUNTS, **{"rank": 3, **arguments})


@pytest.mark.parametrize(
    "arguments",
    [{"options": Gibbs()}, {"starts": 2.5}, {"seed": None}, {"progress": 3}, {"folder": 3}, {"jobs": "all"}],
)
def test_what_is_of_another_type_is_refused(arguments):
    with pytest.raises(TypeError, match=next(iter(arguments))):
        bayesnmf.modes(COUNTS, rank=3, **arguments)


# --- Ctrl-C and progress -----------------------------------------------------------------------------


def test_progress_counts_fits_and_scores():
    seen = []
    found = bayesnmf.modes(BLOCKS, rank=2, starts=4, seed=1, jobs=1, progress=lambda *each: seen.append(each))
    assert [each[:3] for each in seen[:4]] == [("fits from starts", k, 4) for k in range(1, 5)]
    assert seen[3][3] == found.best.trace[-1]
    modes = len(found.table)
    assert [each[:3] for each in seen[4:]] == [("held-out counts", k, modes) for k in range(1, modes + 1)]


@pytest.mark.parametrize("jobs", [1, 3])
@pytest.mark.parametrize("real", [False, True], ids=["raised", "signal"])
@pytest.mark.skipif(os.name == "nt", reason="signals of POSIX")
def test_an_interrupt_returns_the_modes_of_the_runs_that_ended(jobs, real):
    def stop(label, done, *_):
        if done == 3:
            if not real:
                raise KeyboardInterrupt
            os.kill(os.getpid(), signal.SIGINT)
            time.sleep(0.5)  # until the main thread has heard it

    before = set(threading.enumerate())
    found = bayesnmf.modes(BLOCKS, rank=2, starts=500, seed=1, jobs=jobs, progress=stop)
    assert found.interrupted
    assert 3 <= len(found.runs) < 100
    assert found.stack is None
    assert "interrupted: some starts or held-out scores are missing" in found.cautions
    whole = bayesnmf.modes(BLOCKS, rank=2, starts=max(found.runs.index) + 1, seed=1, scored=0)
    np.testing.assert_array_equal(found.run_components, whole.run_components[found.runs.index])
    deadline = time.monotonic() + 10
    while any("ThreadPool" in each.name for each in set(threading.enumerate()) - before):
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_an_interrupt_in_the_last_report_leaves_the_scores_out():
    def stop(label, done, total, *_):
        if done == total:
            raise KeyboardInterrupt

    found = bayesnmf.modes(BLOCKS, rank=2, starts=3, seed=1, progress=stop)
    assert len(found.runs) == 3
    assert found.interrupted
    assert found.stack is None


def test_an_interrupt_before_the_first_fit_is_raised(monkeypatch):
    def interrupted(*_, progress, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(running, "fit", interrupted)
    with pytest.raises(KeyboardInterrupt):
        bayesnmf.modes(BLOCKS, rank=2, starts=3)


def test_an_interrupt_while_modes_are_scored_keeps_the_modes(found):
    def stop(label, done, *_):
        if label == "held-out counts":
            raise KeyboardInterrupt

    stopped = bayesnmf.modes(BLOCKS, rank=2, starts=STARTS, seed=1, jobs=1, progress=stop)
    assert stopped.interrupted
    assert stopped.table["held_out"].notna().tolist() == [True, False, False]
    assert stopped.table["held_out"].iloc[0] == found.table["held_out"].iloc[0]
    assert [lone_kind(each.components) for each in stopped.fits] == [0, 1, 2]


def test_an_interrupt_after_the_scores_keeps_them(found, monkeypatch):
    from bayesnmf.studies.stability import modes as module

    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(module, "bounds_of", interrupted)
    stopped = bayesnmf.modes(BLOCKS, rank=2, starts=STARTS, seed=1)
    assert stopped.interrupted
    assert "elbo_marginal" not in stopped.table
    pd.testing.assert_series_equal(stopped.table["weight"], found.table["weight"])


def test_an_error_in_a_fit_ends_the_others(monkeypatch):
    def broken(*_, **__):
        raise RuntimeError("broken")

    monkeypatch.setattr(running, "fit", broken)
    with pytest.raises(RuntimeError, match="broken"):
        bayesnmf.modes(BLOCKS, rank=2, starts=50, jobs=2)


def test_priors_may_differ_between_components():
    from bayesnmf import Dirichlet, Gamma

    priors = Priors(Gamma(np.array([1.0, 3.0]), 0.1), Dirichlet(1.0))
    found = bayesnmf.modes(BLOCKS, rank=2, starts=8, options=VI(priors=priors), scored=0)
    # each of the three partitions has two modes now: which component is alone matters
    alone = [lone_component(each) for each in found.run_components]
    assert len(set(zip(alone, found.runs["mode"], strict=True))) == len(set(alone))
    assert len(found.table) == len(set(alone))


def test_cosines_by_run_are_what_the_table_summarises(found):
    for mode in range(3):
        cosines = found.cosines(mode)
        assert cosines.shape == (STARTS, 2)
        np.testing.assert_allclose(cosines.mean(), found.components.loc[mode]["closeness"])
        np.testing.assert_allclose(cosines.min(), found.components.loc[mode]["least"])
        inside = found.runs["mode"] == mode
        np.testing.assert_allclose(cosines.min(axis=1)[inside], found.runs["cosine"][inside])
    with pytest.raises(ValueError, match="mode must be below 3, the number of modes: found 3"):
        found.cosines(3)


def test_at_most_five_starts_are_named():
    assert listed_starts("start", [3]) == "start 3"
    assert listed_starts("start", range(5)) == "starts 0, 1, 2, 3, 4"
    assert listed_starts("start", range(6)) == "starts 0, 1, 2, 3, 4 and 1 more"


# --- noise -------------------------------------------------------------------------------------------


NOISY = bayesnmf.simulate(size=(30, 12), rank=2, noise=bayesnmf.NegativeBinomial(dispersion=2.0), seed=3).counts


def noisy_modes(noise, **more):
    return bayesnmf.modes(NOISY, rank=2, seed=1, jobs=1, noise=noise, **{"starts": 3, "options": QUICK, **more})


@quietly
@pytest.mark.parametrize("method", ["map", "vi"])
@pytest.mark.parametrize("word", ["nb1", "nb2", "quasi"])
def test_runs_and_scores_have_the_noise(word, method):
    """Runs are those of `fit`; the fit to training counts has the noise of thinned counts, by its own definition."""
    options = replace(QUICK, threads=1) if method == "vi" else MAP(start="random", max_iter=60, tol=1e-6, threads=1)
    found = noisy_modes(word, method=method, options=options)
    assert f", noise {word}: " in repr(found)
    assert found.noise.known == (word == "quasi")
    seed, best = int(found.runs["seed"].iloc[1]), found.best
    again = bayesnmf.fit(NOISY, rank=2, method=method, seed=seed, options=found.options, noise=found.noise)
    np.testing.assert_array_equal(again.components, found.run_components[1])
    share = 1.0 if word == "nb2" else 0.9  # of the rates' dispersion, all; of clusters' sizes, what is kept
    split = split_counts(as_counts(NOISY), 0.9, 0.0, np.random.default_rng([1, 0]))
    thinned = replace(best.noise, dispersion=share * best.noise.dispersion)
    from_here = replace(found.options, start=best, priors=best.priors, restarts=1)
    refit = bayesnmf.fit(split.train, rank=2, method=method, seed=0, options=from_here, noise=thinned)
    logs = np.log(probabilities_of(refit, split.thinned, background(split.train), 1))
    assert found.table["held_out"].iloc[0] == pytest.approx(per_count(split.thinned, logs).value, rel=1e-5)


@quietly
def test_quasi_runs_have_one_objective():
    """The power is that of a fit from the counts, whatever the starts."""
    found = noisy_modes("quasi", scored=0)
    own = bayesnmf.fit(NOISY, rank=2, seed=1, options=replace(found.options, start=None), noise="quasi")
    assert found.noise == own.noise
    assert {each.noise for each in found.fits} == {own.noise}
    fewer = noisy_modes("quasi", starts=1, scored=0)
    assert fewer.noise == found.noise
    np.testing.assert_array_equal(fewer.run_components[0], found.run_components[0])


@quietly
def test_runs_with_noise_are_kept(tmp_path, monkeypatch):
    first = noisy_modes("quasi", scored=0, checkpoint=tmp_path)
    assert (tmp_path / "dispersion").exists()
    monkeypatch.setattr("bayesnmf.fitting.fit.run_with_noise", None)  # no fit is made again
    same(noisy_modes("quasi", scored=0, checkpoint=tmp_path), first)


def test_noise_that_a_method_has_not_is_refused_before_the_first_fit():
    with pytest.raises(ValueError, match="noise='nb1' needs method='map', 'vi'"):
        bayesnmf.modes(NOISY, "dirichlet_gamma", rank=2, method="bld", noise="nb1")
    with pytest.raises(ValueError, match="needs loadings with a scale"):
        bayesnmf.modes(NOISY, "dirichlet_poisson", rank=2, noise="nb2")


@quietly
def test_evidence_of_modes_needs_one_distribution():
    with pytest.raises(ValueError, match="evidences of modes need a distribution of the counts"):
        noisy_modes("quasi", scored=0).evidence(None)
    with pytest.raises(ValueError, match="one learned by every run"):
        noisy_modes("nb1", scored=0).evidence(None)


def test_samplers_without_threads_have_a_number_of_jobs():
    assert 1 <= many.number_of_jobs(None, 3, bayesnmf.NUTS()) <= 3
