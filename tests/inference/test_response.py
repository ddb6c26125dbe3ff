"""Linear response against finite differences of the fixed point, for all models; its solvers and draws."""

import itertools
from functools import cache
from typing import Any

import numpy as np
import pytest
from plain import even_priors, plain_vi
from scipy.sparse import csr_array
from scipy.special import polygamma
from suites import mostly_long

import bayesnmf
from bayesnmf import VI, Dirichlet, Gamma, HierarchicalGamma, Priors
from bayesnmf.assessment.bounds import state_of_fit
from bayesnmf.inference.problem import State
from bayesnmf.inference.response.continuing import GRADIENT, continue_to_optimum, gradient
from bayesnmf.inference.response.coupled import Coupled, GammaFisher, Tilt
from bayesnmf.inference.response.spread import Inverse, Responses, WeightedEntries, Weights, draw, solve
from bayesnmf.kernels.cpu.allocation import expected_allocations
from bayesnmf.kernels.cpu.factors import padded_copy
from bayesnmf.kernels.cpu.tangent import Tangent

RANK = 3
made = np.random.default_rng(0)
COUNTS = made.poisson(made.gamma(0.5, 1, (9, RANK)) @ made.dirichlet(np.full(7, 0.5), RANK) * 40).astype(float)
KNOWN = made.gamma(1, 1, (RANK, 7))
EXPOSED = {"row_exposure": made.gamma(5, 0.2, 9), "feature_exposure": made.gamma(5, 0.2, 7)}
ROWS = {"row_exposure": EXPOSED["row_exposure"]}
MISSING = {"observed": made.random((9, 7)) > 0.3}
MISSING["observed"][4], MISSING["observed"][:, 2] = False, False
QUASI = bayesnmf.Quasi(0.5)
SHARED = Gamma(2.0, 1.0)
GAMMAS = Priors(Gamma(0.8, 0.1), Gamma(0.6, 0.4))
CLUSTERS = bayesnmf.NegativeBinomial("linear", made.gamma(2, 0.5, 9), "row")
CASES: dict[str, tuple[str, Any, dict[str, Any]]] = {
    "gamma, dirichlet": ("gamma_poisson", Priors(Gamma(1.0, 0.1), Dirichlet(0.7)), {}),
    "gamma, gamma": ("gamma_poisson", GAMMAS, {}),
    "dirichlet, dirichlet": ("dirichlet_poisson", Priors(Dirichlet(0.6), Dirichlet(0.7)), {}),
    "scaled dirichlet": ("dirichlet_gamma", Priors(), {}),
    "flat": ("poisson", Priors(), {}),
    "exposures": ("gamma_poisson", GAMMAS, EXPOSED),
    "row exposures": ("gamma_poisson", Priors(), ROWS),
    "one known": ("gamma_poisson", GAMMAS, {"fixed_components": KNOWN[:1]}),
    "one known, dirichlet": ("gamma_poisson", Priors(), {"fixed_components": (KNOWN.T / KNOWN.sum(1)).T[:1]}),
    "all known": ("gamma_poisson", GAMMAS, {"fixed_components": KNOWN}),
    "rates by row and feature": ("hierarchical_poisson", Priors(), {}),
    "rates by component": ("hierarchical_poisson", Priors(*[HierarchicalGamma(0.7, SHARED, "component")] * 2), {}),
    "one rate": ("hierarchical_poisson", Priors(HierarchicalGamma(0.7, SHARED, "all"), Gamma(0.6, 0.4)), {}),
    "one component": ("gamma_poisson", Priors(), {"rank": 1}),
    "clusters": ("gamma_poisson", GAMMAS, {**EXPOSED, "noise": bayesnmf.NegativeBinomial(dispersion=1.2)}),
    "clusters of rows": ("hierarchical_poisson", Priors(), {"noise": CLUSTERS}),
    "clusters, given totals": ("dirichlet_poisson", Priors(Dirichlet(0.6), Dirichlet(0.7)), {"noise": CLUSTERS}),
    "clusters, scaled dirichlet": ("dirichlet_gamma", Priors(), {"noise": CLUSTERS}),
    "one topic": ("dirichlet_poisson", Priors(), {"rank": 1}),
    "missing, gamma": ("gamma_poisson", GAMMAS, {**EXPOSED, **MISSING}),
    "missing, dirichlet": ("gamma_poisson", Priors(Gamma(1.0, 0.1), Dirichlet(0.7)), {**ROWS, **MISSING}),
    "missing, given totals": ("dirichlet_poisson", Priors(Dirichlet(0.6), Dirichlet(0.7)), MISSING),
    "missing, one known": ("gamma_poisson", GAMMAS, {"fixed_components": KNOWN[:1], **MISSING}),
    "missing, all known": ("gamma_poisson", GAMMAS, {"fixed_components": KNOWN, **MISSING}),
    "missing, rates": ("hierarchical_poisson", Priors(), MISSING),
    "missing, clusters": ("gamma_poisson", GAMMAS, {**MISSING, "noise": CLUSTERS}),
    "missing, clusters and dirichlet": ("gamma_poisson", Priors(), {**MISSING, "noise": CLUSTERS}),
    "missing, power": ("dirichlet_poisson", Priors(Dirichlet(0.6), Dirichlet(0.7)), {**MISSING, "noise": QUASI}),
}


@cache
def optimum(case: str) -> Coupled:
    model, priors, more = CASES[case]
    options = plain_vi(priors=priors, start="svd", extrapolate=True, max_iter=3000)
    fit = bayesnmf.fit(COUNTS, model, **{"rank": RANK, "method": "vi", "seed": 0, "options": options, **more})
    found = continue_to_optimum(*state_of_fit(fit), 1)
    assert found.gradient <= GRADIENT
    return found.coupled


def random_tilt(coupled: Coupled, seed: int) -> Tilt:
    rng = np.random.default_rng(seed)
    sides = [() if of is None else [of.size] * of.parts for of in (coupled.loadings, coupled.components)]
    tilt = Tilt(*(tuple(rng.normal(size=size) for size in sizes) for sizes in sides))
    # The parameter of a Dirichlet row of one entry does not matter: its entry is 1.
    return tilt._replace(loadings=coupled.no_step()) if getattr(coupled.loadings, "single", False) else tilt


def with_tilt(residual: Tilt, tilt: Tilt, size: float) -> Tilt:
    pairs = zip(residual, tilt, strict=True)
    return Tilt(*(tuple(own + size * more for own, more in zip(*pair, strict=True)) for pair in pairs))


def refitted(coupled: Coupled, tilt: Tilt, size: float) -> Coupled:
    """Return the fixed point of the update plus a tilt, by repeated solutions from the one without tilt."""
    for _ in range(6):
        left = with_tilt(coupled.residual(), tilt, size)
        step = coupled.whole(solve(coupled, coupled.right_side(left), 1e-10).x, left)
        problem, moved = coupled.problem, coupled.moved(step)
        components = coupled.state.components
        if moved[1] is not None:
            components = problem.components_summary.of(problem.components_prior, moved[1])
        state = State(problem.loadings_summary.of(problem.loadings_prior, moved[0]), components)
        coupled = Coupled(problem, state, 1)
    left = with_tilt(coupled.residual(), tilt, size)
    assert max(np.abs(part).max(initial=0) for side in left for part in side) < 1e-9
    return coupled


@pytest.mark.parametrize("case", CASES)
def test_response_is_the_derivative_of_the_refitted_optimum(case: str) -> None:
    """It would find an exposure that J forgets, or a sequential instead of the simultaneous update: 1e-5 of either."""
    coupled = optimum(case)
    tilt = random_tilt(coupled, 1)
    b = coupled.right_side(tilt)
    response = coupled.whole(solve(coupled, b, 1e-10).x, tilt)
    size = 1e-5
    up, down = refitted(coupled, tilt, size), refitted(coupled, tilt, -size)
    for side in ("loadings", "components"):
        of = getattr(coupled, side)
        if of is None:
            continue
        ends = (of.towards(getattr(each, side).q) for each in (up, down))
        for high, low, found in zip(*ends, getattr(response, side), strict=True):
            np.testing.assert_allclose(found, (high - low) / (2 * size), rtol=0, atol=1e-5 * np.abs(found).max())


@pytest.mark.parametrize("case", CASES)
def test_inverse_and_gradients_agree_and_are_symmetric(case: str) -> None:
    coupled = optimum(case)
    if not coupled.length:
        return
    one, two = (coupled.right_side(random_tilt(coupled, seed)) for seed in (1, 2))
    inverse = Inverse(coupled)
    assert inverse.strict
    found = solve(coupled, one, 1e-11)
    assert found.strict
    scale = np.abs(coupled.product_of_fisher(found.x)).max()
    difference = coupled.product_of_fisher(inverse.solve(one) - found.x)
    np.testing.assert_allclose(difference, 0, atol=1e-8 * scale)
    forms = (
        two @ coupled.product_of_fisher(coupled.product(one)),
        one @ coupled.product_of_fisher(coupled.product(two)),
    )
    np.testing.assert_allclose(*forms, rtol=1e-9)


@pytest.mark.parametrize(
    ("case", "draws"), mostly_long([("gamma, gamma", 120), ("gamma, dirichlet", 400), ("rates by component", 400)])
)
def test_draws_have_the_covariance(case: str, draws: int) -> None:
    """A variance 15 % off in all directions is found by 120 draws (five standard errors of one of them are 65 %)."""
    coupled = optimum(case)
    rng = np.random.default_rng(3)
    drawn = [draw(coupled, rng, 1e-6) for _ in range(draws)]
    assert all(strict for *_, strict in drawn)
    roots, signs = Inverse(coupled).roots()
    assert np.all(signs > 0)
    values, along = np.linalg.eigh(roots.T @ roots)
    kept = values > 1e-8 * values.max()
    squares = (np.array([x for x, *_ in drawn]) @ along[:, kept]) ** 2 / values[kept]
    assert abs(squares.mean() - 1) < 5 * np.sqrt(2 / squares.size)
    assert np.abs(squares.mean(axis=0) - 1).max() < 5 * np.sqrt(2 / draws)
    plain = np.array([w for _, w, _ in drawn])
    fisher = np.array([coupled.product_of_fisher(w) for w in plain])
    assert abs((plain * fisher).sum() / plain.size - 1) < 5 * np.sqrt(2 / plain.size)


@pytest.mark.parametrize("case", CASES)
def test_spread_of_all_entries_is_that_of_single_entries(case: str) -> None:
    coupled = optimum(case)
    exact = Responses(coupled).spread("loadings", 0.05, 0)
    rank, m = coupled.rank, COUNTS.shape[1]
    at = [(i, k) for i in (0, 4) for k in range(rank)]
    alone = Responses(coupled).variances([Weights(loadings=WeightedEntries([i], [k], [1.0])) for i, k in at])
    np.testing.assert_allclose([exact.loadings[place] for place in at], alone, rtol=1e-8, atol=1e-14)
    at = [(k, j) for k in range(rank) for j in (0, m - 1)]
    alone = Responses(coupled).variances([Weights(components=WeightedEntries([k], [j], [1.0])) for k, j in at])
    np.testing.assert_allclose([exact.components[place] for place in at], alone, rtol=1e-8, atol=1e-14)


@pytest.mark.parametrize(
    ("case", "draws"),
    mostly_long(
        [
            ("dirichlet, dirichlet", 64),
            ("gamma, gamma", 256),
            ("exposures", 256),
            ("one known", 256),
            ("rates by component", 256),
        ]
    ),
)
def test_spread_by_draws_is_the_exact_one(case: str, draws: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Within five Monte Carlo errors, which so many draws know well enough."""
    coupled = optimum(case)
    exact = Responses(coupled).spread("loadings", 0.05, 0)
    monkeypatch.setattr("bayesnmf.inference.response.spread.FEW", 0)
    monkeypatch.setattr("bayesnmf.inference.response.spread.MOST_DRAWS", draws)
    drawn = Responses(coupled).spread("loadings", 0.01, 0)
    assert drawn.draws == draws
    assert np.all(np.abs(drawn.loadings - exact.loadings) <= 5 * drawn.loadings_error + 1e-9 * exact.loadings)
    assert np.all(np.abs(drawn.components - exact.components) <= 6 * drawn.components_error + 1e-9)


def test_newton_ends_at_a_fixed_point_that_updates_do_not_leave() -> None:
    coupled = optimum("gamma, gamma")
    assert gradient(coupled, coupled.residual()) < 1e-8


def test_equal_components_are_no_strict_optimum() -> None:
    """Between two equal components of one topic model the counts may be split at will."""
    rng = np.random.default_rng(0)
    counts = rng.poisson(30.0, (12, 6)).astype(float)
    fit = bayesnmf.fit(counts, rank=2, seed=0, options=plain_vi(max_iter=50, tol=0, priors=even_priors(counts)))
    problem, state = state_of_fit(fit)
    even: Any = state.components.conditional.mapped(lambda value: np.tile(value.mean(axis=0), (2, 1)))
    same: Any = state.loadings.conditional.mapped(lambda value: np.tile(value.mean(axis=1)[:, None], (1, 2)))
    state = State(
        problem.loadings_summary.of(problem.loadings_prior, same),
        problem.components_summary.of(problem.components_prior, even),
    )
    coupled = Coupled(problem, state, 1)
    assert not Inverse(coupled).strict
    opposite = np.zeros((2, 6))
    opposite[0], opposite[1] = 1.0, -1.0
    assert not solve(coupled, opposite.ravel()).strict
    responses = Responses(coupled)
    responses.spread("loadings", 0.05, 0)
    assert not responses.strict


def test_inverse_and_gradients_agree_where_parameters_have_far_units() -> None:
    """Concentrations of 0.001 beside 1e7 counts: directions dropped as flat made sds up to 10,000 times too small."""
    rng = np.random.default_rng(0)
    components = np.array([[0.5, 0.3, 0.2, 0, 0, 0], [0, 0, 0, 0.4, 0.3, 0.3]])
    counts = rng.poisson(rng.gamma(1, 1e6, (30, 2)) @ components)
    priors = Priors(Gamma(1.0, 1e-6), Dirichlet(0.001))
    fit = bayesnmf.fit(counts, rank=2, seed=0, options=VI(priors=priors, start="svd", max_iter=5000))
    coupled = continue_to_optimum(*state_of_fit(fit), 1).coupled
    sums = [Weights(components=WeightedEntries([k], [j], [1.0])) for k in range(2) for j in range(6)]
    by_gradients = np.concatenate([Responses(coupled).variances([each]) for each in sums])
    exact = Responses(coupled).spread("components", 0.05, 0).components.ravel()
    np.testing.assert_allclose(exact, by_gradients, rtol=1e-6)
    assert np.all(exact > 0.99 * coupled.components.variance().ravel())  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("rank", "kind"),
    mostly_long(
        itertools.product([1, 3, 4, 9], [np.float64, np.float32, np.uint16]),
        (0, 4, 6, 11),  # each rank and each type
    ),
)
def test_tangent_is_the_derivative_of_the_allocation_step(rank: int, kind: type) -> None:
    rng = np.random.default_rng(rank)
    counts = csr_array(rng.poisson(0.8, (23, 11)).astype(kind))
    U, V = rng.gamma(0.5, 1, (23, rank)), rng.gamma(0.5, 1, (rank, 11))

    def totals(U: np.ndarray, V: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        found = expected_allocations(csr_array(counts.astype(np.float64)), padded_copy(U), padded_copy(V, 0), 1)
        return np.array(found.loadings), np.array(found.components)

    tangent = Tangent(counts, U, V, totals(U, V))
    du, dv, e = rng.normal(size=U.shape), rng.normal(size=V.shape), 1e-5
    ends = [totals(U, V * np.exp(sign * e * dv)) for sign in (1, -1)]
    of_components = (ends[0][0] - ends[1][0]) / (2 * e)
    np.testing.assert_allclose(tangent.row_changes(dv), of_components, atol=1e-7)
    own = np.tile(np.eye(rank), (23, 1, 1))
    moved, received = tangent.row_responses(dv, du - of_components, own)
    np.testing.assert_allclose(moved, du, atol=1e-7)
    ends = [totals(U * np.exp(sign * e * du), V * np.exp(sign * e * dv)) for sign in (1, -1)]
    np.testing.assert_allclose(received, (ends[0][1] - ends[1][1]) / (2 * e), atol=1e-7)
    np.testing.assert_allclose(tangent.row_responses(dv, du - of_components, own, 3)[1], received, atol=1e-12)
    ends = [totals(U * np.exp(sign * e * du), V) for sign in (1, -1)]
    slope = tangent.totals[0][:, :, None] * np.eye(rank) - tangent.curvature()
    np.testing.assert_allclose(np.einsum("ikl,il->ik", slope, du), (ends[0][0] - ends[1][0]) / (2 * e), atol=1e-7)


@pytest.mark.parametrize("shape", [0.3, 9e4, 1.1e5])
def test_draws_of_large_shapes_have_the_inverse_of_the_information(shape: float) -> None:
    """Above 1e5 by a series, as α ψ′(α) − 1 cancels: its second term forgotten would be 1e-5 of it."""
    fisher = GammaFisher(Gamma(shape, 2.0))
    found = float(np.asarray(fisher._excess))
    assert found == pytest.approx(shape * polygamma(1, shape) - 1, rel=1e-9)
