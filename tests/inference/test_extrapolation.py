"""Extrapolation with a safeguard, and inner sweeps: other steps of the one loop, with the same optima."""

import pickle

import numpy as np
import pytest
from golden import reference
from plain import PLAIN, even_priors, plain_map, plain_vi
from registry import MODELS_AND_PRIORS, RANK, every_entry, nasty_counts, over, plain_counts, with_parameter
from suites import mostly_long
from turns import METHODS, ORDERS, in_turn

import bayesnmf
from bayesnmf import Dirichlet, Gamma, Priors, Start
from bayesnmf.data.conversion import as_counts
from bayesnmf.fitting.problems import point_or_mean_field, start_state
from bayesnmf.inference.ascent import coordinate_ascent
from bayesnmf.inference.ascent.coordinate_ascent import (
    CUT,
    GROWTH,
    LIMIT,
    START,
    Extrapolated,
    Iterate,
    ascend,
    evaluate_state,
    plain_steps,
)
from bayesnmf.inference.ascent.course import Schedule
from bayesnmf.inference.problem import State

FLAT = Gamma(1.0, 0.0)
NASTY = nasty_counts()

by_method = pytest.mark.parametrize("method", PLAIN)
by_order = pytest.mark.parametrize("order", ["loadings", "components"])
natural_entries = over([entry for entry in MODELS_AND_PRIORS if entry.natural and not entry.priors().loadings.flat])


def run(counts, model, method, priors, *, rank=RANK, seed=0, max_iter=40, tol=0, **settings):
    options = PLAIN[method](priors=priors, max_iter=max_iter, tol=tol, **settings)
    return bayesnmf.fit(counts, model, rank, method, seed=seed, options=options)


def never_falls(trace):
    """To rounding: terms are up to Σ log X!, 4e5 for the counts with large entries, so 1e-12 of that."""
    return np.all(trace[:-1] - trace[1:] <= 1e-12 * np.maximum(np.abs(trace[1:]), 4e5))


# --- every combination ------------------------------------------------------------------------------


@pytest.mark.parametrize(("entry", "method", "order"), in_turn(MODELS_AND_PRIORS, METHODS, ORDERS))
def test_objective_never_falls(entry, method, order):
    """EM, MAP in its basis (log where priors are sparse), VI; with a free parameter variational EM."""
    for priors in (entry.priors(), with_parameter(entry.priors())):
        fit = run(NASTY, entry.model, method, priors, order=order, extrapolate=True)
        assert len(fit.trace) == 41
        assert never_falls(fit.trace)
        for factor in (fit.loadings, fit.components):
            assert np.all(np.isfinite(factor) & (factor >= 0))
        if fit.priors.components == "parameter" or fit.priors.components.support == "simplex":
            np.testing.assert_allclose(fit.components.sum(axis=1), 1, rtol=1e-9)


@natural_entries
def test_objective_never_falls_in_the_log_basis(entry):
    fit = run(NASTY, entry.model, "map", entry.priors(), basis="log", extrapolate=True)
    assert never_falls(fit.trace)
    assert np.all(np.isfinite(fit.trace))


DEGENERATE = {
    "nothing": (np.zeros((4, 3)), 2),
    "one entry": (np.array([[3.0]]), 1),
    "rank above size": (np.array([[0.5, 1e-3], [2.25, 0.0]]), 5),
}


@pytest.mark.parametrize(("entry", "counts", "method"), in_turn(MODELS_AND_PRIORS, DEGENERATE, METHODS))
def test_degenerate_counts_have_finite_objectives_that_never_fall(entry, method, counts):
    counts, rank = counts
    fit = run(counts, entry.model, method, entry.priors(counts.shape, rank), rank=rank, extrapolate=True)
    assert np.all(np.isfinite(fit.trace))
    assert np.all(fit.trace[:-1] - fit.trace[1:] <= 1e-12 * np.maximum(np.abs(fit.trace[1:]), 1))


# --- the same optimum, sooner -----------------------------------------------------------------------


def easy_counts():
    """Two components that hardly overlap."""
    rng = np.random.default_rng(2)
    beta = np.array([[9.0, 8, 7, 1, 1, 1], [1, 1, 1, 8, 9, 7]]) / 27
    return rng.poisson(rng.gamma(2.0, 60.0, (12, 2)) @ beta).astype(float)


@pytest.mark.parametrize(
    ("at", "method", "enough"), mostly_long([(8, "vi", 600), (8, "map", 3_000), (3, "vi", 3_000), (3, "map", 3_000)])
)
def test_the_optimum_is_that_of_plain_steps(at, method, enough):
    counts, entry = easy_counts(), MODELS_AND_PRIORS[at]
    priors = entry.priors(counts.shape, 2)
    plain, bold = (
        run(counts, entry.model, method, priors, rank=2, max_iter=steps, extrapolate=x)
        for x, steps in ((False, enough), (True, enough // 4))
    )
    # Both have run until rounding stops them, 1e-15 of the objective; the factors are at its root.
    np.testing.assert_allclose(bold.trace[-1], plain.trace[-1], rtol=1e-10)
    np.testing.assert_allclose(bold.components, plain.components, rtol=1e-3, atol=1e-5)


def slow_counts():
    """Three components that share most of their features: EM takes thousands of iterations."""
    rng = np.random.default_rng(3)
    beta = 0.8 * rng.dirichlet(np.full(20, 5.0)) + 0.2 * rng.dirichlet(np.full(20, 0.3), 3)
    return rng.poisson(rng.gamma(1.0, 200.0, (25, 3)) @ beta).astype(float)


SLOW = {
    "em": (200, "poisson", "map", Priors(FLAT, "parameter"), {}),
    "map": (400, "poisson", "map", Priors(FLAT, Gamma(1.2, 2.0)), {}),
    "map in the log basis": (400, "gamma_poisson", "map", Priors(Gamma(0.5, 0.01), Dirichlet(0.5)), {}),
    "vi": (200, "gamma_poisson", "vi", Priors(Gamma(0.5, 0.01), Dirichlet(0.5)), {}),
    "vi-em": (400, "dirichlet_poisson", "vi", Priors(Dirichlet(0.5), "parameter"), {}),
    "coordinate descent": (100, "poisson", "map", Priors(FLAT, FLAT), {"algorithm": "scd"}),
}


@pytest.mark.parametrize("name", mostly_long(SLOW, (0, 3, 5)))
def test_half_of_the_iterations_are_enough(name):
    """Where plain steps are slow, extrapolated ones reach their objective in at most half as many."""
    steps, model, method, priors, settings = SLOW[name]
    plain = run(slow_counts(), model, method, priors, max_iter=steps, **settings)
    bold = run(slow_counts(), model, method, priors, max_iter=steps // 2, extrapolate=True, **settings)
    assert plain.trace[-1] - plain.trace[-2] > 1e-6  # it is still on its way
    assert bold.trace[-1] >= plain.trace[-1]


# --- the steps themselves ---------------------------------------------------------------------------


def begin(options, counts=NASTY, seed=0):
    """A problem and where it starts."""
    problem = point_or_mean_field(as_counts(counts), options)
    return problem, start_state(problem, "random", RANK, np.random.default_rng(seed))


def test_where_every_bold_step_is_rejected_the_iterates_are_plain(monkeypatch):
    """And the weight is cut each time."""
    problem, state = begin(plain_vi(priors=MODELS_AND_PRIORS[2].priors()))
    schedule = Schedule(max_iter=12, tol=0)
    plain = ascend(problem, state, schedule)
    weights = []

    def bad(problem, new, before, weight, floor):
        weights.append(weight)
        return state

    monkeypatch.setattr(coordinate_ascent, "extrapolated_state", bad)
    bold = ascend(problem, state, schedule, steps=Extrapolated(plain_steps(schedule)))
    np.testing.assert_array_equal(bold.trace, plain.trace)
    np.testing.assert_allclose(weights, START * GROWTH * (CUT * GROWTH) ** np.arange(11), rtol=1e-12)


@pytest.mark.parametrize("floor", [None, 0.3], ids=["logarithms", "parameters"])
def test_the_weight_grows_to_its_limit_while_bold_steps_are_accepted(monkeypatch, floor):
    problem, state = begin(plain_vi(priors=MODELS_AND_PRIORS[2].priors()))
    weights = []

    def good(problem, new, before, weight, floor):
        weights.append(weight)
        return new

    monkeypatch.setattr(coordinate_ascent, "extrapolated_state", good)
    schedule = Schedule(max_iter=20, tol=0)
    ascend(problem, state, schedule, steps=Extrapolated(plain_steps(schedule), floor))
    limit = LIMIT["parameters" if floor else "logarithms"]
    assert weights[-1] == limit
    np.testing.assert_allclose(weights, np.minimum(START * GROWTH ** np.arange(1, 20), limit), rtol=1e-12)


@pytest.mark.parametrize("floor", [None, 0.3], ids=["logarithms", "parameters"])
def test_a_bold_step_goes_on_along_the_line(floor):
    """[C] 55 for coordinate descent, the same in logarithms for multiplicative updates; the first step is plain."""
    priors = Priors(FLAT, Gamma(1.5, 2.0))
    problem, state = begin(plain_map(priors=priors))
    schedule = Schedule("alternating", max_iter=2, tol=0)
    steps = Extrapolated(plain_steps(schedule), floor)
    here = evaluate_state(problem, state, 1)
    first = list(steps(here))
    assert len(first) == 1
    second = list(steps(evaluate_state(problem, first[0], 1)))
    assert len(second) == 2  # the plain step is there to fall back on
    for bold, new, old in zip(second[0], second[1], first[0], strict=True):
        weight = START * GROWTH
        if floor is None:
            positive = (new.value > 0) & (old.value > 0)
            ratio = np.divide(new.value, old.value, where=positive, out=np.ones_like(new.value))
            expected = new.value * ratio**weight
        else:
            expected = np.maximum(new.value + weight * (new.value - old.value), floor)
        np.testing.assert_allclose(bold.value, expected, rtol=1e-12)


@every_entry
def test_what_is_extrapolated_is_a_state(entry):
    """Of parameters that do not move it is the same state, so it has the same objective."""
    for options in (
        plain_vi(priors=entry.priors()),
        plain_map(priors=entry.priors()),
        plain_vi(priors=with_parameter(entry.priors())),
    ):
        problem, state = begin(options)
        here = evaluate_state(problem, state, 1)
        before = State(*(side.bare() for side in state))
        again = coordinate_ascent.extrapolated_state(problem, state, before, 1.0, None)
        assert np.isclose(evaluate_state(problem, again, 1).value, here.value, rtol=1e-13)


# --- inner sweeps -----------------------------------------------------------------------------------


INNER = {"joint": ("joint", "loadings"), "alternating": ("alternating", "components")}


@pytest.mark.parametrize(("entry", "method", "visits"), in_turn(MODELS_AND_PRIORS, METHODS, INNER))
def test_inner_sweeps_never_lower_the_objective(entry, method, visits):
    schedule, order = visits
    settings = {"schedule": schedule, "order": order, "sweeps": 3, "max_iter": 10}
    for priors in (entry.priors(), with_parameter(entry.priors())):
        fit = run(NASTY, entry.model, method, priors, **settings)
        assert never_falls(fit.trace)
        assert fit.trace[1] > fit.trace[0]


@by_method
def test_one_sweep_is_the_default(method):
    for schedule in ("joint", "alternating"):
        fits = [run(NASTY, "gamma_poisson", method, Priors(), sweeps=sweeps, schedule=schedule) for sweeps in (None, 1)]
        np.testing.assert_array_equal(fits[0].trace, fits[1].trace)


def test_many_sweeps_bring_the_loadings_to_their_fixed_point():
    """[GP] alg. 3: q of every sample settles at the components there are, and only then these move."""
    counts = plain_counts()
    alpha = np.array([0.4, 1.0, 2.2])
    rng = np.random.default_rng(3)
    gamma, beta = rng.gamma(3.0, size=(9, RANK)) + 0.1, rng.dirichlet(np.ones(7), RANK)
    fit = run(
        counts, "dirichlet_poisson", "vi", Priors(Dirichlet(alpha), "parameter"),
        start=Start(Dirichlet(gamma), beta), sweeps=550, max_iter=1,
    )  # fmt: skip
    for _ in range(800):
        S, _ = reference.log_allocations(counts, reference.dirichlet_expected_log(gamma), np.log(beta))
        gamma = alpha + S.sum(axis=2)
    # It converges linearly; after 400 sweeps it is within 2e-7.
    np.testing.assert_allclose(fit.posterior.loadings.concentration, gamma, rtol=1e-8)
    np.testing.assert_allclose(fit.components, reference.normalise(S.sum(axis=0), beta), rtol=1e-8)


@by_order
def test_alternating_sweeps_are_inner_em(order):
    """[C] alg. 1 with [C] 38: each side in a row, with fresh allocations."""
    counts = plain_counts()
    rng = np.random.default_rng(8)
    theta, beta = rng.gamma(2.0, size=(9, RANK)), rng.gamma(2.0, size=(RANK, 7))
    start = Start(theta, beta)
    sides = ["loadings"] * 4 + ["components"] * 4
    for side in (sides if order == "loadings" else sides[::-1]) * 3:
        S = reference.allocations(counts, theta, beta)
        if side == "loadings":
            theta = S.sum(axis=2) / beta.sum(axis=1)
        else:
            beta = S.sum(axis=0) / theta.sum(axis=0)[:, None]
    fit = run(
        counts, "poisson", "map", Priors(FLAT, FLAT),
        start=start, schedule="alternating", order=order, sweeps=4, max_iter=3,
    )  # fmt: skip
    np.testing.assert_allclose(fit.loadings, theta, rtol=1e-10)
    np.testing.assert_allclose(fit.components, beta, rtol=1e-10)


def test_joint_sweeps_move_the_second_side_once():
    counts = plain_counts()
    rng = np.random.default_rng(8)
    theta, beta = rng.gamma(2.0, size=(9, RANK)), rng.gamma(2.0, size=(RANK, 7))
    start = Start(theta, beta)
    for _ in range(4):
        S = reference.allocations(counts, theta, beta)
        theta = S.sum(axis=2) / beta.sum(axis=1)
    beta = S.sum(axis=0) / theta.sum(axis=0)[:, None]
    fit = run(counts, "poisson", "map", Priors(FLAT, FLAT), start=start, sweeps=4, max_iter=1)
    np.testing.assert_allclose(fit.loadings, theta, rtol=1e-10)
    np.testing.assert_allclose(fit.components, beta, rtol=1e-10)


def test_of_candidates_the_first_that_does_not_lower_the_objective_is_taken():
    """And where all do, the last: what is left of a plain step is rounding."""
    problem, state = begin(plain_map(priors=MODELS_AND_PRIORS[2].priors()))
    schedule = Schedule(max_iter=3, tol=0)
    better = ascend(problem, state, schedule)
    states = [state]
    for steps in (1, 2):
        states.append(ascend(problem, state, Schedule(max_iter=steps, tol=0)).state)
    tried = []

    def candidates(here: Iterate):
        for index in (0, 2, 1):
            tried.append(index)
            yield states[index]

    taken = ascend(problem, states[1], Schedule(max_iter=1, tol=0), steps=candidates)
    assert tried == [0, 2]
    assert taken.trace == better.trace[1:3]
    tried.clear()
    taken = ascend(problem, better.state, Schedule(max_iter=1, tol=0), steps=candidates)
    assert tried == [0, 2, 1]
    assert taken.trace == [better.trace[3], better.trace[1]]


@pytest.mark.filterwarnings("ignore:map did not converge")  # at rest, which is asked here, but at no optimum yet
@pytest.mark.parametrize("method", ["map", "vi"])
def test_a_bold_step_that_happens_to_be_short_does_not_end_the_fit(method):
    """Where the fit says that its objective settled, a plain step gains no more than twice the tolerance.

    By the change of one iteration alone, the gain of some of these would be 4 times the tolerance and more.
    """
    rng = np.random.default_rng(3)
    counts = rng.poisson(rng.gamma(0.5, 3, (30, 4)) @ rng.dirichlet(np.full(15, 0.3), 4) * 15)
    kind, priors = PLAIN[method], even_priors(counts, rank=4)
    for seed in range(3):
        options = kind(priors=priors, extrapolate=True, tol=1e-5)
        fit = bayesnmf.fit(counts, rank=4, method=method, seed=seed, options=options)
        again = kind(priors=priors, start=fit, max_iter=1, tol=0)
        gain = bayesnmf.fit(counts, rank=4, method=method, options=again).trace[-1] - fit.trace[-1]
        assert gain < 2e-5 * abs(fit.trace[-1])


def test_a_step_that_is_gone_beyond_needs_no_moments_of_its_components(monkeypatch):
    """Its components are asked for their parameters alone; those of a side that is sent elsewhere go with it."""
    problem = point_or_mean_field(as_counts(NASTY), plain_vi(priors=Priors(Gamma(0.5, 0.1), Dirichlet(0.5))))
    state = start_state(problem, "random", RANK, np.random.default_rng(0))
    schedule, asked = Schedule(tol=0, max_iter=6, threads=1), []
    moments = Dirichlet.moments

    def noted(self, *given):
        asked.append(self)
        return moments(self, *given)

    monkeypatch.setattr(Dirichlet, "moments", noted)
    ascent = ascend(problem, state, schedule, steps=Extrapolated(plain_steps(schedule)))
    assert np.all(np.diff(ascent.trace) > 0)
    assert len({id(each) for each in asked}) == len(asked) == 7  # the start, and one state an iteration
    sent = pickle.loads(pickle.dumps(ascent.state.components))
    assert sent.penalty == ascent.state.components.penalty
    np.testing.assert_array_equal(sent.geometric, ascent.state.components.geometric)
    assert len(asked) == 7
