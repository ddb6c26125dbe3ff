"""Alternating Poisson regression by coordinate descent: the kernel, its fits, and the corollaries of [C]."""

from dataclasses import replace
from functools import cache
from types import SimpleNamespace

import numpy as np
import pytest
from golden import reference
from plain import plain_map
from registry import MODELS_AND_PRIORS, RANK, having, interior_value, nasty_counts, over, plain_counts, with_parameter
from scipy import stats
from scipy.optimize import minimize
from scipy.sparse import csr_array
from scipy.special import xlogy
from suites import mostly_long
from turns import ORDERS, in_turn

import bayesnmf
from bayesnmf import MAP, ConvergenceWarning, Dirichlet, Gamma, Priors, ScaledDirichlet, Start
from bayesnmf.data.conversion import as_counts
from bayesnmf.fitting.closed_form import schedule_of
from bayesnmf.fitting.problems import point_or_mean_field, start_state
from bayesnmf.inference.ascent import poisson_regression as module
from bayesnmf.inference.ascent.coordinate_ascent import evaluate_state, update_both_sides
from bayesnmf.inference.problem import State
from bayesnmf.inference.side import Side
from bayesnmf.inference.sides import allocate
from bayesnmf.kernels.cpu.factors import padded_copy
from bayesnmf.kernels.cpu.regression import poisson_regression
from bayesnmf.results.topic_model import topic_model_of

FLAT = Gamma(1.0, 0.0)
NASTY = nasty_counts()
NONE = (np.zeros((1, RANK)), np.zeros((1, RANK)))
KINDS = {"scd": 1, "ccd": 2}

by_kind = pytest.mark.parametrize("kind", KINDS)


def flat_loadings(entry):
    prior = entry.priors().loadings
    return prior.flat if isinstance(prior, Gamma) else np.all(np.asarray(prior.concentration) == 1)


natural = [entry for entry in having("regression") if entry.natural]
ALLOWED = [e for e in natural if flat_loadings(e) or isinstance(e.priors().components, Gamma)]
EXTRAPOLATE = {"plain": False, "extrapolated": True}
refused_entries = over([e for e in natural if not flat_loadings(e) and isinstance(e.priors().components, Dirichlet)])


def run(counts, model, priors, algorithm="scd", *, rank=RANK, seed=0, max_iter=40, tol=0, **settings):
    options = plain_map(priors=priors, algorithm=algorithm, max_iter=max_iter, tol=tol, **settings)
    return bayesnmf.fit(counts, model, rank, "map", seed=seed, options=options)


def never_falls(trace):
    """To rounding: a term of the objective is up to Σ log X!, 4e5 here, so 1e-12 of that."""
    return np.all(trace[:-1] - trace[1:] <= 1e-12 * np.maximum(np.abs(trace[1:]), 4e5))


# --- the kernel -------------------------------------------------------------------------------------


def dense_regression(counts, loadings, components, prior, sweeps=4, newton_steps=1, floor=1e-15):
    """[C] 38 once, then [C] 29-31, one row, one coordinate at a time, rates of all entries kept."""
    out = loadings.copy()
    for i, x in enumerate(counts):
        b = out[i]
        less, rate = (np.broadcast_to(each, out.shape)[i] for each in prior)
        total = reference.allocations(x[None], b[None], components).sum(axis=2)[0]
        exposure = components.sum(axis=1)
        moves = rate + exposure > 0
        b[moves] = ((less + total) / np.where(moves, rate + exposure, 1))[moves]
        b[:] = np.maximum(b, floor)
        mean = b @ components
        for _ in range(sweeps):
            for k, a in enumerate(components):
                for _ in range(newton_steps):
                    at = x > 0  # a count of 0 adds a to the gradient, and nothing else
                    g = a.sum() - (a[at] * x[at] / mean[at]).sum() + rate[k] - less[k] / b[k]
                    q = (x[at] * a[at] ** 2 / mean[at] ** 2).sum() + less[k] / b[k] ** 2
                    old = b[k]
                    if q > 0:
                        b[k] = max(old - g / q, floor)
                    elif g > 0:
                        b[k] = floor
                    mean = mean + (b[k] - old) * a
                    if abs(b[k] - old) < 0.5 * old:
                        break
    return out


def factors(counts, rank=RANK, seed=1):
    rng = np.random.default_rng(seed)
    n, m = counts.shape
    return rng.gamma(1.0, size=(n, rank)), rng.gamma(0.7, size=(rank, m))


def proper(counts, rank=RANK):
    """Return c − 1 and d that differ from entry to entry."""
    n = len(counts)
    return np.linspace(0, 2, n * rank).reshape(n, rank), np.linspace(0.3, 4, n * rank).reshape(n, rank)


@pytest.mark.parametrize("prior", ["none", "one for all rows", "one for each"])
@pytest.mark.parametrize("sweeps", [0, 1, 4])
@by_kind
def test_a_call_is_the_dense_loop(kind, sweeps, prior):
    counts = plain_counts(mean=2.0)
    counts[1], counts[:, 2] = 0, 0
    less, rate = proper(counts)
    given = {"none": NONE, "one for all rows": (less[3:4], rate[3:4]), "one for each": (less, rate)}[prior]
    theta, beta = factors(counts)
    kept = theta.copy()
    found = poisson_regression(csr_array(counts), theta, beta, given, sweeps, KINDS[kind])
    expected = dense_regression(counts, theta, beta, given, sweeps, KINDS[kind])
    # Both keep the rates up to date by adding changes: 12 coordinates move, each rounds the rates to 1e-16 of them.
    np.testing.assert_allclose(found, expected, rtol=1e-12)
    np.testing.assert_array_equal(theta, kept)


@by_kind
def test_the_second_newton_step_is_taken_where_the_first_was_large(kind):
    """One count, one component: EM gives the optimum, so the sweep has nothing to do, save from the prior's start."""
    x, less, rate = 3.0, 40.0, 0.1
    found = poisson_regression(csr_array([[x]]), np.array([[1e-3]]), np.ones((1, 1)), ([[less]], [[rate]]), 0)
    best = (less + x) / (1 + rate)
    np.testing.assert_allclose(found, best, rtol=1e-15)
    # Two components that can stand for each other: after EM, b_1 is far below its best given b_2 = floor next.
    beta = np.array([[1.0, 0.0], [1.0, 3.0]])
    counts = np.array([[50.0, 0.0]])
    theta = np.array([[1.0, 9.0]])
    one, two = (poisson_regression(csr_array(counts), theta, beta, (NONE[0][:, :2],) * 2, 1, s) for s in (1, 2))
    expected = dense_regression(counts, theta, beta, (NONE[0][:, :2],) * 2, 1, KINDS[kind])
    np.testing.assert_allclose({"scd": one, "ccd": two}[kind], expected, rtol=1e-12)
    assert not np.allclose(one, two)


def test_a_coordinate_without_curvature_goes_to_the_floor_or_stays():
    """Where a component meets no count it goes to the floor, or stays where it meets no exposure either."""
    counts = np.array([[4.0, 0.0, 2.0]])
    beta = np.array([[1.0, 0.5, 0.3], [0.0, 2.0, 0.0], [0.0, 0.0, 0.0]])
    found = poisson_regression(csr_array(counts), np.full((1, 3), 0.7), beta, NONE, 3, 1, 1e-15)
    np.testing.assert_allclose(found, [[6 / 1.8, 1e-15, 0.7]], rtol=1e-12)


def test_an_empty_row_goes_to_the_floor_or_the_mode_of_its_prior():
    """A row of zeros goes to the floor, or to the prior's mode given the exposure; empty columns are exposure."""
    counts = np.zeros((2, 4))
    theta, beta = factors(counts)
    found = poisson_regression(csr_array(counts), theta, beta, NONE)
    np.testing.assert_array_equal(found, 1e-15)
    less, rate = proper(counts)
    found = poisson_regression(csr_array(counts), theta, beta, (less, rate))
    np.testing.assert_allclose(found, np.maximum(less / (rate + beta.sum(axis=1)), 1e-15), rtol=1e-12)


def test_nothing_is_below_the_floor():
    theta, beta = factors(NASTY)
    for floor in (1e-15, 1e-3):
        found = poisson_regression(csr_array(NASTY), theta, beta, NONE, 4, 1, floor)
        assert found.min() == floor
        np.testing.assert_allclose(found, dense_regression(NASTY, theta, beta, NONE, floor=floor), rtol=1e-9)


@by_kind
def test_single_precision_follows_double(kind):
    """Rounded to 6e-8, and a sweep divides by rates that were kept up to date by differences."""
    counts = plain_counts(mean=4.0)
    theta, beta = factors(counts)
    double = poisson_regression(csr_array(counts), theta, beta, NONE, 2, KINDS[kind])
    single = poisson_regression(
        csr_array(counts.astype(np.float32)), theta.astype(np.float32), beta.astype(np.float32), NONE, 2, KINDS[kind]
    )
    assert single.dtype == np.float32
    np.testing.assert_allclose(single, double, rtol=1e-4, atol=1e-4)


@by_kind
def test_threads_change_nothing(kind):
    """Rows are problems of their own, so not a bit."""
    counts = plain_counts(size=(60, 7))
    theta, beta = factors(counts)
    one, three = (poisson_regression(csr_array(counts), theta, beta, NONE, 4, KINDS[kind], 1e-15, t) for t in (1, 3))
    np.testing.assert_array_equal(one, three)


@pytest.mark.parametrize("prior", [False, True], ids=["flat", "gamma"])
@by_kind
def test_many_sweeps_reach_the_optimum_of_each_row(kind, prior):
    """The problem of a row is convex ([C] sec. 3): SciPy finds the same optimum."""
    counts = plain_counts(mean=5.0, size=(6, 7))
    theta, beta = factors(counts)
    less, rate = proper(counts) if prior else NONE
    found = poisson_regression(csr_array(counts), theta, beta, (less, rate), 200, KINDS[kind])
    less, rate = (np.broadcast_to(each, theta.shape) for each in (less, rate))
    for i, x in enumerate(counts):

        def loss(b, x=x, i=i):
            mean = b @ beta
            value = mean.sum() - xlogy(x, mean).sum() + rate[i] @ b - xlogy(less[i], b).sum()
            return value, beta @ (1 - x / mean) + rate[i] - less[i] / b

        best = minimize(
            loss, np.ones(RANK), jac=True, method="L-BFGS-B", bounds=[(1e-15, None)] * RANK,
            options={"ftol": 0, "gtol": 1e-10, "maxiter": 1000},
        )  # fmt: skip
        # L-BFGS is good to about the root of rounding in b, and to rounding in the loss.
        assert loss(found[i])[0] <= best.fun + 1e-12 * abs(best.fun)
        np.testing.assert_allclose(found[i], best.x, rtol=1e-5, atol=1e-5)


# --- fits -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("entry", "kind", "order", "extrapolate"), in_turn(ALLOWED, {kind: kind for kind in KINDS}, ORDERS, EXTRAPOLATE)
)
def test_objective_never_falls(entry, kind, order, extrapolate):
    both = [entry.priors()] + ([with_parameter(entry.priors())] if flat_loadings(entry) else [])
    for priors in both:
        fit = run(NASTY, entry.model, priors, kind, order=order, extrapolate=extrapolate, max_iter=25)
        assert len(fit.trace) == 26
        assert never_falls(fit.trace)
        assert fit.trace[-1] > fit.trace[0]
        for factor in (fit.loadings, fit.components):
            assert np.all(np.isfinite(factor) & (factor >= 0))
        if not isinstance(fit.priors.components, Gamma):
            np.testing.assert_allclose(fit.components.sum(axis=1), 1, rtol=1e-12)
        if not isinstance(fit.priors.loadings, Gamma):
            np.testing.assert_allclose(fit.loadings.sum(axis=1), 1, rtol=1e-12)


DEGENERATE = {
    "nothing": (np.zeros((4, 3)), 2),
    "one row": (np.array([[5.0, 0.0, 2.0]]), 2),
    "one entry": (np.array([[3.0]]), 1),
    "rank above size": (np.array([[1.0, 4.0], [2.0, 0.0]]), 5),
    "huge": (np.array([[1e9, 0.0], [1.0, 3e8]]), 2),
}


@pytest.mark.filterwarnings("ignore:float32 rounds its objective")
@pytest.mark.parametrize(("entry", "counts"), in_turn(ALLOWED, DEGENERATE))
def test_degenerate_counts_are_fitted_in_both_precisions(entry, counts):
    counts, rank = counts
    for dtype in ("float64", "float32"):
        priors = entry.priors(counts.shape, rank)
        fit = run(counts, entry.model, priors, rank=rank, max_iter=10, dtype=dtype)
        assert np.all(np.isfinite(fit.trace))
        assert np.all(np.isfinite(list(fit.diagnostics.values())))
        assert fit.loadings.dtype == fit.components.dtype == dtype


def easy_counts():
    """Two components that hardly overlap, many counts: one optimum, well inside under the priors below."""
    rng = np.random.default_rng(2)
    beta = np.array([[9.0, 8, 7, 1, 1, 1], [1, 1, 1, 8, 9, 7]]) / 27
    return rng.poisson(rng.gamma(2.0, 60.0, (12, 2)) @ beta).astype(float)


EASY = {
    "poisson": Priors(FLAT, FLAT),
    "poisson-gamma": Priors(FLAT, Gamma(1.5, 2.0)),
    "doubly_gamma": Priors(Gamma(1.4, 0.05), Gamma(2.0, 3.0)),
    "poisson-dirichlet": Priors(FLAT, Dirichlet(np.linspace(1.2, 2, 6))),
}


@cache
def by_em(name):
    """EM is slow along the ridge of the scales, and towards 0: more iterations, extrapolated."""
    model = "gamma_poisson" if name == "doubly_gamma" else "poisson"
    return run(easy_counts(), model, EASY[name], "em", rank=2, max_iter=700, extrapolate=True)


@pytest.mark.parametrize(("name", "kind"), mostly_long([(name, kind) for name in EASY for kind in KINDS], (4,)))
def test_coordinate_descent_and_em_share_their_optimum(name, kind):
    """From one start; where they stop, [C] A.3 holds, and the log joint is that of SciPy."""
    counts, priors = easy_counts(), EASY[name]
    model = "gamma_poisson" if name == "doubly_gamma" else "poisson"
    descent = run(counts, model, priors, kind, rank=2, max_iter=150, extrapolate=True)
    em = by_em(name)
    np.testing.assert_allclose(descent.trace[-1], em.trace[-1], rtol=1e-9)
    # An objective within 2e-7 nats leaves the rates, of up to 100 counts, within the root of it.
    np.testing.assert_allclose(descent.loadings @ descent.components, em.loadings @ em.components, atol=2e-3)
    # In counts, of 2,500, and relative to an entry.
    assert descent.diagnostics["kkt_residual"] < 1e-6
    assert descent.diagnostics["least_gradient"] > -1e-6
    check_kkt(counts, descent)
    assert np.isclose(descent.trace[-1], dense_log_joint(counts, descent), rtol=1e-12)


def check_kkt(counts, fit):
    """[C] A.3 by the dense reference, of Gamma sides."""
    if not isinstance(fit.priors.components, Gamma):
        return
    theta, beta = fit.loadings, fit.components
    residuals = []
    S = reference.allocations(counts, theta, beta)
    for value, prior, total, exposure in (
        (theta, fit.priors.loadings, S.sum(axis=2), beta.sum(axis=1)),
        (beta, fit.priors.components, S.sum(axis=0), theta.sum(axis=0)[:, None]),
    ):
        residual = value * (prior.rate + exposure) - ((prior.shape - 1) + total)
        residuals.append(np.abs(residual).max())
        gradient = prior.rate + exposure - ((prior.shape - 1) + total) / value
        assert gradient.min() > -1e-6
    # The residual is a difference of numbers up to 2,500.
    np.testing.assert_allclose(max(residuals), fit.diagnostics["kkt_residual"], rtol=0, atol=1e-11)


def dense_log_joint(counts, fit):
    scale = 1 if fit.scale is None else fit.scale[:, None]
    value = stats.poisson.logpmf(counts, (scale * fit.loadings) @ fit.components).sum()
    for factor, prior in ((fit.loadings, fit.priors.loadings), (fit.components, fit.priors.components)):
        if isinstance(prior, Gamma):
            value += 0 if prior.flat else stats.gamma.logpdf(factor, prior.shape, scale=1 / prior.rate).sum()
        else:
            alpha = np.broadcast_to(prior.concentration, factor.shape)
            value += sum(stats.dirichlet.logpdf(r / r.sum(), a) for r, a in zip(factor, alpha, strict=True))
        if isinstance(prior, ScaledDirichlet):
            value += stats.gamma.logpdf(scale, prior.shape, scale=1 / prior.rate).sum()
    return value


@pytest.mark.parametrize("loadings", [FLAT, Gamma(1.4, 0.05)], ids=["flat", "gamma"])
@pytest.mark.parametrize("components", [FLAT, Gamma(1.5, 2.0)], ids=["flat", "gamma"])
def test_the_scale_of_a_component_is_the_best_of_its_priors(loadings, components):
    """The rates do not depend on it, so the log prior does all; where it is flat both means become the same."""
    theta, beta = factors(NASTY)
    problem = point_or_mean_field(as_counts(NASTY), plain_map(priors=Priors(loadings, components)))
    given = State(*(Side(np.maximum(each, module.FLOOR), each, None, 0.0) for each in (theta, beta)))
    scaled = module.Factors(problem, given, {}, 1)
    scaled.rows, scaled.sums = scaled._make_rows(lambda part, here, at, _: scaled.read(part, here, at))
    scaled.rescale()
    moved = scaled.state().loadings.matrix, scaled.components
    np.testing.assert_allclose(moved[0] @ moved[1], theta @ beta, rtol=1e-12)
    if loadings.flat and components.flat:
        np.testing.assert_allclose(moved[0].mean(axis=0), moved[1].mean(axis=1), rtol=1e-12)
        return

    def log_prior(r):
        return loadings.log_density(moved[0] * r) + components.log_density(moved[1] / r)

    for factor in (0.99, 1.01):
        assert log_prior(factor) < log_prior(1.0)


# --- corollaries of [C] -----------------------------------------------------------------------------

C_SHAPE, D_RATE = np.linspace(1.2, 2.0, 21).reshape(3, 7), np.array([[0.5], [1.0], [3.0]])


def augmented(counts, loadings):
    """[C] cor. 2: pseudo-samples c_k − 1 below the counts, with loadings diag(d)."""
    return np.vstack([counts, C_SHAPE - 1]), np.vstack([loadings, np.diag(D_RATE[:, 0])])


@by_kind
def test_a_regression_with_a_prior_is_one_with_pseudo_samples(kind):
    """[C] cor. 2, coordinate descent: the kernel's prior and K more entries in every column are the same."""
    counts = plain_counts()
    theta, beta = factors(counts)
    data, held = augmented(counts, theta)
    prior = ((C_SHAPE - 1).T, np.repeat(D_RATE.T, 7, axis=0))
    one = poisson_regression(csr_array(counts.T), beta.T, theta.T, prior, 4, KINDS[kind])
    two = poisson_regression(csr_array(data.T), beta.T, held.T, NONE, 4, KINDS[kind])
    # Rates of the pseudo-samples are kept up to date by differences, to 1e-16 of the largest they had.
    np.testing.assert_allclose(one, two, rtol=1e-10, atol=1e-14)


def test_the_map_optimum_is_that_with_pseudo_samples():
    """At the optimum of coordinate descent the gradients of the augmented log-likelihood are those of an optimum."""
    counts = plain_counts(mean=6.0)
    fit = run(counts, "poisson", Priors(FLAT, Gamma(C_SHAPE, D_RATE)), max_iter=400, extrapolate=True)
    data, held = augmented(counts, fit.loadings)
    ratio = np.divide(data, held @ fit.components, where=data > 0, out=np.zeros_like(data))
    slope = held.sum(axis=0)[:, None] - held.T @ ratio
    np.testing.assert_allclose(slope * fit.components, 0, atol=1e-5)  # in counts, of 378
    np.testing.assert_allclose(fit.components.sum(axis=1), (C_SHAPE - 1).sum(axis=1) / D_RATE[:, 0], rtol=1e-9)


def test_dirichlet_components_are_gamma_components_normalised():
    """[C] cor. 2: to_topic_model of the MAP with Gamma(η, d) has the MAP of the topic model with Dirichlet(η)."""
    counts, eta = easy_counts(), np.linspace(1.2, 2.0, 6)
    gamma = run(counts, "poisson", Priors(FLAT, Gamma(eta, [[0.7], [4.0]])), rank=2, max_iter=200)
    mapped = topic_model_of(gamma.loadings, gamma.components)
    one = run(counts, "poisson", Priors(FLAT, Dirichlet(eta)), rank=2, max_iter=200)
    topics = run(counts, "dirichlet_poisson", Priors(Dirichlet(1.0), Dirichlet(eta)), rank=2, max_iter=200)
    for fit, loadings in ((one, mapped.proportions * mapped.totals[:, None]), (topics, mapped.proportions)):
        # Converged to a relative 1e-16 of the objective, which is quadratic there: 1e-8 in the factors.
        np.testing.assert_allclose(fit.components, mapped.components, rtol=1e-6)
        np.testing.assert_allclose(fit.loadings, loadings, rtol=1e-5, atol=1e-12)  # two are 0


@by_kind
@pytest.mark.parametrize(
    ("model", "loadings"),
    [("dirichlet_poisson", Dirichlet(1.0)), ("dirichlet_gamma", ScaledDirichlet(1.0, 2.0, 0.2))],
    ids=["dirichlet_poisson", "dirichlet_gamma"],
)
@pytest.mark.parametrize("components", ["parameter", Dirichlet(1.0)], ids=["parameter", "dirichlet"])
def test_flat_proportions_are_fitted_as_free_loadings(model, loadings, components, kind):
    """[C] lemma 1: the same components as poisson's, loadings those of each row divided by its total.

    Cyclic steps start where two of NASTY's entries are 1e-15: there rounding grows to 1e-4 of an entry in two steps.
    """
    counts, max_iter = (NASTY, 15) if kind == "scd" else (plain_counts(), 8)
    free = run(counts, "poisson", Priors(FLAT, components), kind, max_iter=max_iter)
    fit = run(counts, model, Priors(loadings, components), kind, max_iter=max_iter)
    totals = np.asarray(counts).sum(axis=1, keepdims=True)
    np.testing.assert_allclose(fit.components, free.components, rtol=1e-6, atol=1e-12)
    filled = totals[:, 0] > 0
    shares = free.loadings[filled] / free.loadings[filled].sum(axis=1, keepdims=True)
    np.testing.assert_allclose(fit.loadings[filled], shares, rtol=1e-6, atol=1e-12)
    # Both objectives are log joints, so their rises are the same, but for the priors of the totals, a constant.
    np.testing.assert_allclose(np.diff(fit.trace[1:]), np.diff(free.trace[1:]), atol=1e-6)
    if model == "dirichlet_gamma":
        np.testing.assert_allclose(fit.scale, (1 + totals[:, 0]) / 1.2, rtol=1e-12)


def test_the_objective_of_topic_models_is_the_log_joint():
    for entry in MODELS_AND_PRIORS[4:6]:
        fit = run(plain_counts(), entry.model, entry.priors())
        np.testing.assert_allclose(fit.trace[-1], dense_log_joint(plain_counts(), fit), rtol=1e-9)


# --- settings ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("padded", [True, False])
def test_loadings_may_be_overwritten_where_they_are_padded(padded):
    rng = np.random.default_rng(1)
    counts = csr_array(rng.poisson(2.0, (6, 9)).astype(np.float64))
    theta, beta = rng.gamma(1.0, size=(6, RANK)), rng.gamma(1.0, size=(RANK, 9))
    own = padded_copy(theta) if padded else theta.copy()
    found = poisson_regression(counts, own, beta, NONE, reuse=True)
    np.testing.assert_array_equal(found, poisson_regression(counts, theta, beta, NONE))
    assert np.shares_memory(found, own) == padded


def test_sweeps_are_those_of_coordinate_descent():
    three, default, one = (run(NASTY, "poisson", Priors(FLAT, FLAT), max_iter=3, sweeps=s) for s in (3, None, 1))
    np.testing.assert_array_equal(three.trace, default.trace)
    assert three.trace[1] > one.trace[1]


def test_where_a_sweep_lowers_the_objective_em_stands_in(monkeypatch):
    """A sweep has no guarantee: here one that is always worse; the iterates are those of EM."""
    priors = Priors(FLAT, Gamma(1.5, 2.0))
    monkeypatch.setattr(module, "poisson_regression", lambda matrix, loadings, *_, **__: 1e3 * loadings)
    monkeypatch.setattr(module.Factors, "rescale", lambda factors: None)
    fit = run(NASTY, "poisson", priors, max_iter=10)
    em = run(NASTY, "poisson", priors, "em", schedule="alternating", max_iter=10)
    np.testing.assert_array_equal(fit.trace, em.trace)


@by_kind
def test_interruption_keeps_what_there_is(kind):
    seen = []

    def stop(label, done, total, objective):
        seen.append(objective)
        if done == 3:
            raise KeyboardInterrupt

    options = plain_map(priors=Priors(FLAT, FLAT), algorithm=kind, max_iter=9, tol=1e-12)
    with pytest.warns(ConvergenceWarning, match="interrupted"):
        fit = bayesnmf.fit(NASTY, "poisson", RANK, "map", seed=0, options=options, progress=stop)
    whole = run(NASTY, "poisson", Priors(FLAT, FLAT), kind, max_iter=3)
    np.testing.assert_array_equal(fit.trace, seen)
    np.testing.assert_array_equal(fit.trace, whole.trace)
    np.testing.assert_array_equal(fit.loadings, whole.loadings)


@by_kind
def test_starts_with_zeros_are_left(kind):
    """EM keeps at 0 what is once there; coordinate descent does not."""
    counts = easy_counts()
    theta, beta = interior_value(FLAT, (12, 2), np.random.default_rng(0)), np.full((2, 6), 1.0)
    beta[0, :3], beta[1, 3:] = 0, 0
    theta[:, 1] *= 2
    settings = {"rank": 2, "start": Start(theta, beta), "max_iter": 100}
    em, descent = (run(counts, "poisson", Priors(FLAT, FLAT), a, **settings) for a in ("em", kind))
    np.testing.assert_array_equal(em.components[0, :3], 0)
    assert em.diagnostics["least_gradient"] < -0.05  # an update would make some zero, lifted, 5 % larger
    assert descent.diagnostics["least_gradient"] > -1e-6
    assert descent.components.min() > 0
    assert descent.trace[-1] > em.trace[-1] + 1


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"algorithm": "newton"}, "algorithm must be one of"),
        ({"algorithm": "scd", "schedule": "joint"}, "schedule='joint' needs algorithm='em'.*leave schedule out"),
        ({"algorithm": "ccd", "basis": "log"}, "basis='log' needs algorithm='em'.*natural basis"),
        ({"sweeps": 0}, "sweeps must be"),
        ({"kkt_tol": -1.0}, "kkt_tol must be"),
    ],
)
def test_settings_that_make_no_sense(settings, message):
    with pytest.raises(ValueError, match=message):
        MAP(**settings)


@by_kind
@refused_entries
def test_priors_that_tie_the_scales_are_refused(entry, kind):
    with pytest.raises(
        ValueError, match=f"algorithm='{kind}' needs a flat prior of the loadings.*give Gamma components, or"
    ):
        run(NASTY, entry.model, entry.priors(), kind)


def test_sparse_priors_are_refused():
    for side, priors in (("loadings", (Gamma(0.5, 1.0), Gamma(1.5, 1.0))), ("components", (FLAT, Dirichlet(0.5)))):
        with pytest.raises(ValueError, match=rf"needs priors\.{side} at 1 or above.*found 0\.5; use algorithm='em'"):
            run(NASTY, "poisson", Priors(*priors))


@pytest.mark.parametrize("kkt_tol", [0.0, None])
def test_what_it_falls_back_on_is_an_em_step(kkt_tol):
    options = plain_map(priors=Priors(FLAT, FLAT), algorithm="scd")
    problem = point_or_mean_field(as_counts(NASTY), options)
    state = start_state(problem, "random", RANK, np.random.default_rng(0))
    schedule = replace(schedule_of(options), kkt_tol=kkt_tol)
    before = state.loadings.matrix.copy(), state.components.matrix.copy()
    here = evaluate_state(problem, state, None, sides=schedule.visited)
    descent, fallback = module.regression_steps(problem, schedule, "scd")(here)
    totals = allocate(problem, state, None)
    expected = update_both_sides(problem, state, totals, replace(schedule, kind="alternating", sweeps=1))
    for found, wanted, left, kept in zip(fallback, expected, state, before, strict=True):
        np.testing.assert_allclose(found.matrix, wanted.matrix, rtol=1e-13)
        np.testing.assert_array_equal(left.matrix, kept)
    assert abs(descent.loadings.matrix - fallback.loadings.matrix).max() > 1e-3


def test_rows_without_loadings_stay_so_where_others_are_scaled_to_their_totals():
    counts = as_counts(np.array([[0, 0], [3, 1], [2, 2]]))
    problem = SimpleNamespace(components_prior=SimpleNamespace(support="simplex"), counts=counts)
    loadings = np.array([[1.0, 2.0], [0.0, 0.0], [1.0, 3.0]])
    module.scale_loadings(problem, loadings, np.array([2.0, 1.0]))
    np.testing.assert_allclose(loadings, [[2, 2], [0, 0], [1.6, 2.4]], rtol=1e-15)
