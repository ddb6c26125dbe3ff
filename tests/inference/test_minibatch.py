"""Stochastic variational inference: what full batches, fixed points and small batches must give."""

import numpy as np
import pytest
from plain import even_priors, plain_vi
from registry import MODELS_AND_PRIORS, having, nasty_counts, over, plain_counts, with_parameter
from suites import mostly_long

import bayesnmf
from bayesnmf import VI, ConvergenceWarning, Gamma, Start
from bayesnmf.data.conversion import as_counts
from bayesnmf.fitting.problems import point_or_mean_field, start_state
from bayesnmf.inference.ascent import minibatch
from bayesnmf.inference.ascent.coordinate_ascent import Extrapolated, ascend, plain_steps
from bayesnmf.inference.ascent.course import Schedule
from bayesnmf.inference.ascent.minibatch import (
    Batching,
    RunningComponents,
    merge_empty_features,
    minibatch_ascent,
    step_on_batch,
)
from bayesnmf.inference.ascent.settled_loadings import rows_of_problem, rows_to_change

RANK = 3
COUNTS = plain_counts(size=(24, 15))
WHOLE = {"forgetting": 0.0, "delay": 0.0}  # steps all the way: outside what options allow, where steps must shrink
ASYMMETRIC = ("poisson-gammas", "doubly_gamma-asymmetric", "dirichlet_poisson-asymmetric", "dirichlet_gamma-asymmetric")
SPARSE = ("doubly_gamma-sparse", "dirichlet_poisson-sparse", "dirichlet_gamma-sparse")
by_parameter = pytest.mark.parametrize("free", [False, True], ids=["prior", "parameter"])
ignore_unfinished = pytest.mark.filterwarnings("ignore::bayesnmf.inference.status.ConvergenceWarning")


def begin(entry, free, counts, dtype="float64", seed=3):
    priors = entry.priors(counts.shape, RANK)
    options = plain_vi(priors=with_parameter(priors) if free else priors, dtype=dtype)
    problem = point_or_mean_field(as_counts(counts, dtype=dtype), options)
    return problem, start_state(problem, "random", RANK, np.random.default_rng(seed))


def epochs(problem, state, batching, max_iter, tol=0.0):
    schedule = Schedule(max_iter=max_iter, tol=tol, threads=1)
    return minibatch_ascent(problem, state, schedule, lambda *_: None, batching, np.random.default_rng(0))


# --- theorems ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(("counts", "sweeps"), [(COUNTS, 3), (nasty_counts(), 1)], ids=["plain", "nasty"])
@by_parameter
@over(having("merged"), default=ASYMMETRIC)
def test_whole_steps_of_all_rows_are_coordinate_ascent(entry, free, counts, sweeps, monkeypatch):
    """The conditional given the totals is where a natural-gradient step of length 1 ends."""
    monkeypatch.setattr(minibatch, "FINAL_ITER", 0)
    problem, state = begin(entry, free, counts)
    theirs = ascend(problem, state, Schedule(sweeps=sweeps, max_iter=6, tol=0, threads=1))
    ours = epochs(problem, state, Batching(size=len(counts), sweeps=sweeps, **WHOLE), 6)
    # Rows are shuffled and features merged, so sums are of another order; the terms of the bound are up to 4e5.
    np.testing.assert_allclose(ours.trace, theirs.trace, rtol=1e-10, atol=4e-6)
    np.testing.assert_allclose(ours.state.components.matrix, theirs.state.components.matrix, rtol=1e-7, atol=1e-12)
    np.testing.assert_allclose(ours.state.loadings.matrix, theirs.state.loadings.matrix, rtol=1e-7, atol=1e-12)
    assert theirs.trace[-1] > theirs.trace[0] + 1


@by_parameter
@over(having("merged"), default=SPARSE)
def test_a_fixed_point_of_coordinate_ascent_is_one_of_the_expected_step(entry, free):
    """The mean over equal batches of where steps of length 1 go is where they start."""
    problem, state = begin(entry, free, COUNTS)
    schedule = Schedule(max_iter=20_000, tol=1e-15, window=20, threads=1)
    state = ascend(problem, state, schedule, steps=Extrapolated(plain_steps(schedule))).state
    n = len(COUNTS)
    q = rows_to_change(state.loadings, problem.counts, RANK)
    here = RunningComponents(problem, state.components, n)
    totals, exposures = [], []
    for rows in Batching(size=6).split(np.random.default_rng(1).permutation(n)):
        moved = RunningComponents(problem, state.components, n)
        part = rows_of_problem(problem, rows)
        step_on_batch(moved, part, q.rows(rows), Batching(**WHOLE), 1, 1)
        totals.append(moved.factor * moved.values)
        exposures.append(moved.exposure)
    # The bound settled to rounding, 1e-15 of 1e3 nats, so parameters to about its root.
    if free:  # a parameter: its shares are what stands still
        sums = np.sum(totals, axis=0)
        np.testing.assert_allclose(sums / sums.sum(axis=0), state.components.matrix.T, rtol=1e-3, atol=1e-5)
    else:
        np.testing.assert_allclose(n * np.mean(totals, axis=0), n * here.values, rtol=1e-3, atol=1e-3)
    if isinstance(problem.components_prior, Gamma):
        np.testing.assert_allclose(np.mean(exposures, axis=0), here.exposure, rtol=1e-5)
    assert max(np.abs(each - here.values).max() * n for each in totals) > 0.1


@over([entry for entry in MODELS_AND_PRIORS if entry.id in ("gamma_poisson", "doubly_gamma", "dirichlet_gamma")])
def test_merging_features_without_counts_changes_nothing(entry):
    counts = COUNTS.copy()
    counts[:, 9:] = 0
    counts[12:, 10:] = 1  # features 9 to 14 are empty in the first batch, 9 in all
    problem, state = begin(entry, False, counts)
    rows, q = np.arange(12), rows_to_change(state.loadings, problem.counts, RANK)
    part, moved = rows_of_problem(problem, rows), []
    for mergeable in (True, False):
        components = RunningComponents(problem, state.components, 24)
        assert components.mergeable
        components.__dict__["mergeable"] = mergeable
        at = step_on_batch(components, part, q.rows(rows), Batching(), 1, 1)
        moved.append((components.factor * components.values, components.exposure, components.sums, *vars(at).values()))
    assert len(merge_empty_features(part.counts, True)[1]) == 9
    for one, two in zip(*moved, strict=True):
        np.testing.assert_allclose(one, two, rtol=1e-11)


def test_running_totals_are_the_mean_of_all_batches_at_forgetting_1():
    """Steps of 1/t make the natural parameters the plain average of where the batches lead."""
    entry = MODELS_AND_PRIORS[4]
    problem, state = begin(entry, False, COUNTS)
    components, batching = RunningComponents(problem, state.components, 24), Batching(size=8, forgetting=1.0, delay=0.0)
    q, led = rows_to_change(state.loadings, problem.counts, RANK), []
    for step, rows in enumerate(batching.split(np.arange(24)), start=1):
        alone = RunningComponents(problem, components.side(), 24)
        for each, by in ((alone, Batching(**WHOLE)), (components, batching)):
            step_on_batch(each, rows_of_problem(problem, rows), q.rows(rows), by, step, 1)
        led.append(alone.factor * alone.values)
        np.testing.assert_allclose(components.factor * components.values, np.mean(led, axis=0), rtol=1e-10)
    np.testing.assert_allclose(components.sums, components.factor * components.values.sum(axis=0), rtol=1e-12)


# --- through fit ------------------------------------------------------------------------------------


def structured(n=300, m=40, seed=0):
    rng = np.random.default_rng(seed)
    return rng.poisson(rng.gamma(0.5, 60.0, (n, RANK)) @ rng.dirichlet(np.full(m, 0.2), RANK)).astype(float)


def run(counts, model="gamma_poisson", *, seed=0, progress=False, start="random", **more):
    options = plain_vi(algorithm="minibatch", start=start, **more)
    return bayesnmf.fit(counts, model, RANK, "vi", seed=seed, options=options, progress=progress)


@ignore_unfinished
@pytest.mark.parametrize(
    ("model", "components", "dtype"),
    mostly_long(
        [
            ("gamma_poisson", None, "float64"),
            ("dirichlet_poisson", "parameter", "float32"),
            ("dirichlet_gamma", None, "float32"),
            ("poisson", "parameter", "float64"),
            ("gamma_poisson", Gamma(1.0, 0.5), "float64"),
        ],
        2,
    ),
)
def test_small_batches_come_close_to_coordinate_ascent(model, components, dtype):
    counts = structured()
    even = even_priors(counts, model, RANK)
    loadings = Gamma(1.0, 0.1) if model == "poisson" else even.loadings
    priors = bayesnmf.Priors(loadings, components or even.components)
    best = bayesnmf.fit(counts, model, RANK, seed=0, options=plain_vi(priors=priors, start="svd", dtype=dtype))
    # Gammas on both sides share a scale, which is slow to settle: more epochs, of larger steps.
    effort = {"max_iter": 150, "forgetting": 0.51} if isinstance(components, Gamma) else {"max_iter": 60}
    fit = run(counts, model, start="svd", dtype=dtype, batch_size=50, tol=0, priors=priors, **effort)
    constant = as_counts(counts).log_factorial
    assert fit.components.dtype == np.dtype(dtype)
    assert fit.trace[-1] <= best.trace[-1] + 1e-4 * abs(best.trace[-1])  # neither is above the optimum they share
    assert best.trace[-1] - fit.trace[-1] < 1e-3 * abs(best.trace[-1] + constant)
    mine, theirs = (each / each.sum(axis=1, keepdims=True) for each in (fit.components, best.components))
    np.testing.assert_allclose(mine, theirs, atol=0.03 * theirs.max())


@ignore_unfinished
def test_the_trace_is_the_bound_of_what_is_returned():
    fit = run(COUNTS, batch_size=7, max_iter=3)
    again = bayesnmf.fit(COUNTS, rank=RANK, seed=0, options=plain_vi(priors=fit.priors, start=fit, max_iter=0, tol=0))
    assert len(fit.trace) == 4
    np.testing.assert_allclose(again.trace[0], fit.trace[-1], rtol=1e-12)


@ignore_unfinished
@pytest.mark.parametrize("model", mostly_long(["dirichlet_gamma", "dirichlet_poisson", "gamma_poisson"]))
def test_fits_are_ordinary(model, tmp_path):
    counts = COUNTS.copy()
    counts[4], counts[:, 2] = 0, 0
    fit = run(counts, model, batch_size=5, max_iter=3, priors=even_priors(COUNTS, model, RANK))
    fit.save(tmp_path / "fit.nc")
    loaded = bayesnmf.load(tmp_path / "fit.nc")
    np.testing.assert_array_equal(loaded.components, fit.components)
    assert loaded.options.batch_size == 5
    np.testing.assert_allclose(fit.transform(counts), fit.loadings, atol=1e-3 * fit.loadings.max())
    assert fit.to_datatree(draws=2, chains=1).posterior.sizes["draw"] == 2
    assert np.isfinite(fit.trace).all()
    assert np.isfinite(fit.loadings).all()


@ignore_unfinished
def test_seeds_reproduce_runs():
    one, two, three = (run(COUNTS, seed=seed, batch_size=5, max_iter=3).components for seed in (1, 1, 2))
    np.testing.assert_array_equal(one, two)
    assert np.abs(one - three).max() > 1e-3


def test_it_stops_when_the_bound_no_longer_rises():
    fit = run(structured(), batch_size=100, tol=1e-4, max_iter=500)
    assert fit.status.converged
    assert "bound rose by less than 0.0001" in fit.status.reason
    assert fit.status.iterations == len(fit.trace) - 1 < 500
    best = np.maximum.accumulate(fit.trace[:-1])
    assert best[-1] - best[-6] < 1.1e-4 * abs(best[-1])  # the last entry is that after all rows are settled


def test_ctrl_c_returns_what_there_is(monkeypatch):
    """Between epochs, and in the middle of one: the last entry of the trace is the bound of what is returned."""

    def stop(label, done, total, value):
        if done == 2:
            raise KeyboardInterrupt

    with pytest.warns(ConvergenceWarning, match="interrupted"):
        fit = run(COUNTS, batch_size=5, max_iter=50, progress=stop)
    assert len(fit.trace) == 3
    real, calls = minibatch.settle_loadings, []

    def interrupted(*arguments):
        calls.append(1)
        if len(calls) == 8:  # of 5 batches an epoch
            raise KeyboardInterrupt
        return real(*arguments)

    monkeypatch.setattr(minibatch, "settle_loadings", interrupted)
    with pytest.warns(ConvergenceWarning, match="interrupted"):
        fit = run(COUNTS, batch_size=5, max_iter=50)
    assert len(fit.trace) == 3
    with pytest.warns(ConvergenceWarning):
        again = bayesnmf.fit(COUNTS, rank=RANK, seed=0, options=plain_vi(priors=fit.priors, start=fit, max_iter=0))
    np.testing.assert_allclose(again.trace[0], fit.trace[-1], rtol=1e-12)


@ignore_unfinished
def test_starts_are_where_runs_begin_and_restarts_keep_the_best():
    first = run(COUNTS, max_iter=2, tol=0)
    assert run(COUNTS, max_iter=0, start=first).trace[0] == pytest.approx(first.trace[-1], rel=1e-12)
    given = Start(first.loadings, first.components)
    assert np.isfinite(run(COUNTS, max_iter=2, start=given).trace[-1])
    best = run(COUNTS, max_iter=2, restarts=3, batch_size=6)
    assert best.trace[-1] >= run(COUNTS, max_iter=2, batch_size=6).trace[-1]
    assert best.diagnostics["restarts"] == 3


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"batch_size": 10}, "batch_size needs algorithm='minibatch'"),
        ({"algorithm": "gradient", "delay": 1.0}, "delay needs algorithm='minibatch'"),
        ({"algorithm": "minibatch", "batch_size": 0}, "batch_size must be at least 1"),
        ({"algorithm": "minibatch", "forgetting": 0.5}, "forgetting must be above 0.5"),
        ({"algorithm": "minibatch", "forgetting": 1.1}, "forgetting must be above 0.5"),
        ({"algorithm": "minibatch", "delay": -1.0}, "delay must be at least 0"),
        ({"algorithm": "minibatch", "extrapolate": True}, "extrapolate needs algorithm='coordinate'"),
        ({"algorithm": "minibatch", "learn": ("loadings",)}, "learn needs algorithm='coordinate'"),
        ({"algorithm": "minibatch", "schedule": "joint"}, "schedule needs algorithm='coordinate'"),
        ({"algorithm": "minibatch", "device": "gpu"}, "device='gpu' needs algorithm='coordinate'"),
    ],
)
def test_options_that_make_no_sense_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        VI(**options)
