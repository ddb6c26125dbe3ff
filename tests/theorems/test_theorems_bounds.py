"""The theorems about likelihoods, bounds and evidence; the list of all is at the head of test_theorems.py."""

from itertools import pairwise, product

import numpy as np
import pytest
from golden import reference
from iterates import iterates, random_point, separated_counts, unscaled_point
from plain import plain_map, plain_vi
from registry import nasty_counts
from scipy import stats
from scipy.special import gammaln, logsumexp, xlogy
from suites import mostly_long

import bayesnmf
from bayesnmf import Dirichlet, Gamma, Priors, ScaledDirichlet, Start

FLAT, EVEN = Gamma(1.0, 0.0), Dirichlet(1.0)
NASTY = nasty_counts()
TOTALS = NASTY.sum(axis=1)
# Bounds are differences of terms as large as Σ log X!, some 3e5, each rounded to 1e-16 of its size.
IN_NATS = {"rtol": 0, "atol": 1e-8}


# --- 4: two bounds ------------------------------------------------------------------------------------

ALPHA, RATE = np.array([0.4, 1.0, 2.2]), 0.6
EVIDENCE_OF_TOTALS = np.sum(
    reference.log_negative_binomial(TOTALS, ALPHA.sum(), RATE) - stats.poisson.logpmf(TOTALS, 1)
)


def both_bounds(gamma, components, steps=50):
    """Objectives of Gamma-Poisson and Dirichlet-Poisson VI from the same γ and β, at every iterate."""
    gammas = iterates(NASTY, "vi", (Gamma(ALPHA, RATE), components[0]), (Gamma(gamma, 1 + RATE), components[1]), steps)
    dirichlets = iterates(NASTY, "vi", (Dirichlet(ALPHA), components[0]), (Dirichlet(gamma), components[1]), steps)
    return tuple(np.array([point.objective for point in path]) for path in (gammas, dirichlets))


@pytest.mark.parametrize("parameter", [True, False], ids=["parameter", "dirichlet"])
def test_the_two_bounds_differ_by_a_constant_of_the_data(parameter):
    """ELBO_GaP − ELBO_DP = Σ_i [log NB(N_i; Σα, a) − log Poisson(N_i; 1)] at every iterate from update 1 on.

    It holds at the start too where Σ_k γ_ik = Σα + N_i, as after an update.
    """
    gamma, beta = random_point(NASTY)
    components = ("parameter", beta) if parameter else (Dirichlet(0.8), Dirichlet(1 + 3 * beta))
    one, other = both_bounds(gamma, components)
    np.testing.assert_allclose((one - other)[1:], EVIDENCE_OF_TOTALS, **IN_NATS)
    assert np.ptp(one) > 1_000  # while the bounds themselves rise
    right = gamma / gamma.sum(axis=1, keepdims=True) * (ALPHA.sum() + TOTALS[:, None])
    one, other = both_bounds(right, components, steps=0)
    np.testing.assert_allclose(one - other, EVIDENCE_OF_TOTALS, **IN_NATS)


def test_an_arbitrary_start_breaks_the_constant_by_a_divergence_of_scales():
    """Gammas of one rate are Gamma(Σγ, 1 + a) scales times Dirichlets: the scale's bound is not tight at first.

    What is missing is Σ_i KL(Gamma(Σ_k γ_ik, 1 + a) ‖ Gamma(Σα + N_i, 1 + a)), the latter the exact posterior.
    """
    gamma, beta = random_point(NASTY)
    one, other = both_bounds(gamma, ("parameter", beta), steps=0)
    missing = reference.gamma_kl(gamma.sum(axis=1), 1 + RATE, ALPHA.sum() + TOTALS, 1 + RATE)
    assert missing > 100
    np.testing.assert_allclose(one - other, EVIDENCE_OF_TOTALS - missing, **IN_NATS)


# --- 6: four likelihoods ------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(3))
def test_poisson_augmented_multinomial_and_categorical_likelihoods_are_one(seed):
    """[GP] D.1-D.3: for rows of θ and of β on the simplex, up to constants of the data.

    Poisson = augmented Poisson, summed over allocations (D.1); = multinomial + Σ_i log Poisson(N_i; 1) (D.2);
    multinomial = categorical tokens, each with its component summed out, + Σ_i log(N_i! / Π_j X_ij!) (D.3).
    """
    rng = np.random.default_rng(seed)
    counts = np.array([[2, 0, 1], [0, 0, 0], [1, 2, 0]])
    theta, beta = rng.dirichlet([1, 1], 3), rng.dirichlet([1, 1, 1], 2)
    totals = counts.sum(axis=1)
    poisson = bayesnmf.fit(counts, "poisson", 2, "map", options=_stay(Priors(FLAT, "parameter"), theta, beta)).trace[0]
    topics = bayesnmf.fit(
        counts, "dirichlet_poisson", 2, "map", options=_stay(Priors(EVEN, "parameter"), theta, beta)
    ).trace[0]
    rates = theta[:, :, None] * beta
    augmented = logsumexp([stats.poisson.logpmf(S, rates).sum() for S in reference.enumerate_allocations(counts, 2)])
    multinomial = sum(stats.multinomial.logpmf(x, x.sum(), p) for x, p in zip(counts, theta @ beta, strict=True))
    tokens = np.repeat(np.argwhere(counts >= 0), counts.ravel(), axis=0)
    paths = [
        sum(np.log(theta[i, z] * beta[z, j]) for (i, j), z in zip(tokens, labels, strict=True))
        for labels in product(range(2), repeat=len(tokens))
    ]
    exact = {"rtol": 1e-13}
    np.testing.assert_allclose(poisson, stats.poisson.logpmf(counts, theta @ beta).sum(), **exact)
    np.testing.assert_allclose(topics, poisson + EVEN.log_density(theta), **exact)
    np.testing.assert_allclose(augmented, poisson, **exact)
    np.testing.assert_allclose(multinomial + stats.poisson.logpmf(totals, 1).sum(), poisson, **exact)
    orders = gammaln(totals + 1).sum() - gammaln(counts + 1).sum()
    np.testing.assert_allclose(logsumexp(paths) + orders, multinomial, **exact)


def _stay(priors, loadings, components):
    return plain_map(priors=priors, start=Start(loadings, components), max_iter=0, tol=0)


# --- 7: EM --------------------------------------------------------------------------------------------


def expected_complete(S, theta, beta):
    """E log p(S | θβ) less Σ log S!, for expected allocations S."""
    rates = theta[:, :, None] * beta
    return float(np.sum(xlogy(S, rates) - rates))


def slopes(S, theta, beta, side):
    """Derivative of the expected complete log-likelihood along each logarithm of one side, by differences."""
    step = 1e-5
    found = []
    for at in np.ndindex((theta, beta)[side].shape):
        moved = [[theta.copy(), beta.copy()] for _ in range(2)]
        for factors, sign in zip(moved, (1, -1), strict=True):
            factors[side][at] *= np.exp(sign * step)
        # Only the terms of the entry that moves, so that the others' size does not drown it.
        part = (at[0], at[1], slice(None)) if side == 0 else (slice(None), at[0], at[1])
        values = [xlogy(S, r)[part] - r[part] for r in (f[0][:, :, None] * f[1] for f in moved)]
        found.append((values[0] - values[1]).sum() / (2 * step))
    return np.abs(found).max()


@pytest.mark.parametrize("order", ["loadings", "components"])
def test_multiplicative_updates_maximise_the_expected_complete_log_likelihood(order):
    """[P]: an update of the first side maximises E log p(S | θβ) over that side, allocations expected at the old point.

    It is strictly concave in the logarithms of a side, so that a point without slope is the maximum. The joint second
    update maximises it over the second side, at the new first one; the alternating one after a fresh allocation step.
    """
    theta, beta = unscaled_point(NASTY)
    S = reference.allocations(NASTY, theta, beta)
    first = 0 if order == "loadings" else 1
    # Differences err by step² / 6 times the value itself, at most 35,000 counts, and by rounding of it over the step.
    flat = 35_000 * (1e-5**2 / 6 + 1e-15 / 1e-5)
    (_, joint), (_, alternating) = (
        iterates(NASTY, "map", (FLAT, FLAT), (theta, beta), 1, schedule=schedule, order=order)
        for schedule in ("joint", "alternating")
    )
    new = [joint.loadings.value, joint.components.value]
    at_first = [new[0], beta] if first == 0 else [theta, new[1]]
    assert slopes(S, theta, beta, first) > 1e5 * flat
    assert slopes(S, *at_first, first) < flat
    assert slopes(S, *new, 1 - first) < flat
    fresh = reference.allocations(NASTY, *at_first)
    assert slopes(fresh, alternating.loadings.value, alternating.components.value, 1 - first) < flat
    assert expected_complete(S, theta, beta) < expected_complete(S, *at_first) < expected_complete(S, *new)


def test_the_complete_log_likelihood_bounds_the_likelihood_from_below():
    """Why it climbs: E log p(S | θβ) plus the entropy of S is at most log p(X | θβ), and equal where S was expected."""
    here = unscaled_point(NASTY)
    S = reference.allocations(NASTY, *here)
    share = reference.divide(S, NASTY[:, None, :], np.zeros_like(S))
    entropy = -xlogy(S, share).sum() - gammaln(NASTY + 1).sum()
    at_home = reference.poisson_loglik(NASTY, here[0] @ here[1])
    np.testing.assert_allclose(expected_complete(S, *here) + entropy, at_home, rtol=1e-13)
    for seed in range(20):
        theta, beta = unscaled_point(NASTY, seed=100 + seed)
        assert expected_complete(S, theta, beta) + entropy < reference.poisson_loglik(NASTY, theta @ beta)


def distance(one, other):
    """Largest difference, relative to the largest entry."""
    return np.abs(one - other).max() / np.abs(other).max()


CONJUGATE = {
    "doubly gamma": (Gamma(0.7, 0.4), Gamma(1.3, 2.0)),
    "gamma and dirichlet": (Gamma(0.7, 0.4), Dirichlet(0.6)),
    "dirichlets": (Dirichlet(0.7), Dirichlet(0.6)),
    "dirichlet and parameter": (Dirichlet(0.7), "parameter"),
}


@pytest.mark.parametrize("schedule", ["joint", "alternating"])
@pytest.mark.parametrize("order", ["loadings", "components"])
@pytest.mark.parametrize("priors", CONJUGATE.values(), ids=CONJUGATE)
def test_variational_inference_with_expectations_removed_is_em(priors, order, schedule):
    """[P]: with q a point at its mean, exp E log is that mean and an update of VI is one of EM, in the log basis.

    ψ(x) = log x − 1/(2x) + …: from q of concentration c the means of the first update are off by O(1/c). The second
    of two alternating updates starts from a q of the data's concentration, so only the first side is compared then.
    """
    shapes, components = random_point(NASTY)
    loadings = shapes / shapes.sum(axis=1, keepdims=True) if isinstance(priors[0], Dirichlet) else shapes
    settings = {"order": order, "schedule": schedule}
    _, em = iterates(NASTY, "map", priors, (loadings, components), 1, basis="log", **settings)
    sides = ["loadings", "components"] if schedule == "joint" else [order]
    gaps = []
    for c in (1e5, 1e6, 1e7):
        start = [
            value if prior == "parameter" else Gamma(c * value, c) if isinstance(prior, Gamma) else Dirichlet(c * value)
            for prior, value in zip(priors, (loadings, components), strict=True)
        ]
        _, vi = iterates(NASTY, "vi", priors, start, 1, **settings)
        gaps.append(max(distance(getattr(vi, side).matrix, getattr(em, side).matrix) for side in sides))
    assert 0 < gaps[-1] < 1e-6
    for wide, narrow in pairwise(gaps):
        assert wide / narrow == pytest.approx(10, rel=0.01)  # the next term is O(1/c) smaller


@pytest.mark.parametrize("basis", ["log", "natural"])
def test_em_without_priors_is_multiplicative_updates(basis):
    """[P]: as Gamma(ε, ε) (log basis) or Gamma(1 + ε, ε) (natural basis) on both sides vanish, EM becomes MU, O(ε)."""
    start = unscaled_point(NASTY)
    theta, beta = (reference.alternating_mu(NASTY, *start, 1)[name] for name in ("loadings", "components"))
    gaps = []
    for epsilon in (1e-5, 1e-6, 1e-7):
        prior = Gamma(epsilon + (basis == "natural"), epsilon)
        settings = {"basis": basis, "schedule": "alternating", "order": "components"}
        _, em = iterates(NASTY, "map", (prior, prior), start, 1, **settings)
        gaps.append(max(distance(em.loadings.value, theta), distance(em.components.value, beta)))
    assert 0 < gaps[-1] < 1e-6
    for wide, narrow in pairwise(gaps):
        assert wide / narrow == pytest.approx(10, rel=0.01)


# Plain steps take 2,000 to the optimum where components are a parameter, as extrapolated ones do not reach it to 1e-8.
NAMED = list(CONJUGATE.items())
PLAIN, BOLD = {"max_iter": 2_000}, {"max_iter": 300, "extrapolate": True}


@pytest.mark.parametrize(
    ("priors", "steps"),
    mostly_long([pytest.param(each, BOLD if at == 0 else PLAIN, id=name) for at, (name, each) in enumerate(NAMED)]),
)
def test_paths_1_and_2_meet(priors, steps):
    """[P] 31 and 34-36: gradient ascent on the collapsed bound ends where coordinate ascent ends.

    From a rough fit: the bound has many hills, and from afar the two may climb different ones. How near to the top
    L-BFGS stops depends on rounding, and q is off by the root of what is left of the climb: so bounds are compared
    where the paths end, and q where path 2 carries path 1 on.
    """
    model = "gamma_poisson" if isinstance(priors[0], Gamma) else "dirichlet_poisson"

    def run(**settings):
        options = plain_vi(priors=Priors(*priors), **settings)
        return bayesnmf.fit(separated_counts(), model, 2, "vi", seed=0, options=options)

    rough = run(max_iter=30, tol=0)
    path_1 = run(start=rough, tol=1e-15, algorithm="gradient")
    settings = {"tol": 0, "schedule": "alternating", **steps}
    path_2, top = run(start=rough, **settings), run(start=path_1, **settings)
    assert path_2.trace[-1] - rough.trace[-1] > 0.01
    np.testing.assert_allclose(path_1.trace[-1], path_2.trace[-1], rtol=1e-10)
    np.testing.assert_allclose(top.loadings, path_2.loadings, rtol=1e-8)
    np.testing.assert_allclose(top.components, path_2.components, rtol=1e-8, atol=1e-10)


# --- 10: allocations and the evidence -----------------------------------------------------------------


@pytest.mark.parametrize("rank", [2, 3])
@pytest.mark.parametrize("case", reference.load()["evidence"])
def test_allocations_and_bounds_stay_below_the_evidence(case, rank):
    """[K]: log p(S) ≤ log p(X) for every S, and ELBO of the whole q ≤ bound with its q(S) alone ≤ log p(X).

    The middle one has loadings and components integrated out: Σ_S q(S) log(p(S)/q(S)), by enumeration.
    """
    golden = reference.load()["evidence"][case]
    counts, evidence = golden["X"], golden["log_evidence"][rank]
    alpha, eta, a, b = reference.EVIDENCE_PRIOR
    priors = Priors(ScaledDirichlet(alpha, a, b), Dirichlet(eta))
    fit = bayesnmf.fit(counts, "dirichlet_gamma", rank, "vi", seed=0, options=plain_vi(priors=priors, tol=1e-10))
    gamma, nu = fit.posterior.loadings.concentration, fit.posterior.components.concentration
    log_products = reference.dirichlet_expected_log(gamma)[:, :, None] + reference.dirichlet_expected_log(nu)
    log_share = log_products - logsumexp(log_products, axis=1, keepdims=True)
    allocations = list(reference.enumerate_allocations(counts, rank))
    log_p = np.array([reference.log_p_allocation(S, alpha, eta, a, b) for S in allocations])
    log_q = np.array([np.sum(S * log_share - gammaln(S + 1)) for S in allocations]) + gammaln(counts + 1).sum()
    q = np.exp(log_q)
    np.testing.assert_allclose(q.sum(), 1, rtol=1e-12)
    collapsed = np.sum(q * (log_p - log_q))
    assert log_p.max() < evidence
    assert fit.trace[-1] < collapsed < evidence
    assert evidence - fit.trace[-1] < 10  # nats, of a dozen counts: bounds of the same thing


def test_dirichlet_gamma_is_smoothed_lda_and_a_constant():
    """[K]: the scales are independent of the rest given the totals, so the bounds differ by a constant."""
    a, b, alpha, eta = 2.0, 0.3, 0.7, 0.9
    gamma, beta = random_point(NASTY)
    nu = Dirichlet(1 + beta)
    scaled = ScaledDirichlet(gamma, a + TOTALS[:, None], b + 1)
    allocation = iterates(NASTY, "vi", (ScaledDirichlet(alpha, a, b), Dirichlet(eta)), (scaled, nu), 50)
    lda = iterates(NASTY, "vi", (Dirichlet(alpha), Dirichlet(eta)), (Dirichlet(gamma), nu), 50)
    constant = np.sum(reference.log_negative_binomial(TOTALS, a, b) - stats.poisson.logpmf(TOTALS, 1))
    for one, other in zip(allocation, lda, strict=True):
        np.testing.assert_allclose(one.objective - other.objective, constant, **IN_NATS)
        np.testing.assert_allclose(one.loadings.value.proportions, other.loadings.value, rtol=1e-10)
        np.testing.assert_allclose(one.components.value, other.components.value, rtol=1e-10)
        np.testing.assert_allclose(one.loadings.value.scale[:, 0], (a + TOTALS) / (b + 1), rtol=1e-13)
