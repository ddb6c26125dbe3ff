"""Priors of loadings that depend on covariates: their densities, the effects that are best, and parts of their rows."""

import numpy as np
import pytest
from scipy import stats
from scipy.optimize import minimize
from scipy.special import digamma

from bayesnmf import Dirichlet, Gamma, Priors, ScaledDirichlet
from bayesnmf.priors.log_linear import EFFECT_SD, INTERCEPT_SD, SHAPE_SD, LogLinear
from bayesnmf.priors.values import ScaledProportions

N, P, K = 30, 3, 2
RNG = np.random.default_rng(0)
DESIGN = np.column_stack([np.ones(N), RNG.standard_normal((N, P - 1))])
EFFECTS = RNG.normal(0, 0.4, (P, K))
SHAPE = np.array([[0.7, 2.5]])


def gamma_prior(effects=EFFECTS, shape=SHAPE):
    return LogLinear(Gamma(shape, shape / 5.0), DESIGN, effects, np.array([[1.0, 1.0]]), N, "")


def dirichlet_prior(effects=EFFECTS):
    return LogLinear(Dirichlet(0.8), DESIGN, effects, np.ones((1, K)), N, "")


def log_prior(effects):
    sd = np.array([INTERCEPT_SD, *[EFFECT_SD] * (P - 1)])[:, None]
    return stats.norm(0, sd).logpdf(effects).sum()


def test_densities_are_those_of_scipy():
    """Log p(u | β, a) + log p(β) + log p(a), by formulas of another library."""
    value = RNG.gamma(1.0, 4.0, (N, K))
    mean = 5 * np.exp(DESIGN @ EFFECTS)
    expected = stats.gamma(SHAPE, scale=mean / SHAPE).logpdf(value).sum() + log_prior(EFFECTS)
    expected += stats.norm(0, SHAPE_SD).logpdf(np.log(SHAPE)).sum()
    assert gamma_prior().log_density(value) == pytest.approx(expected, rel=1e-12)
    shares = RNG.dirichlet([1, 1], N)
    alpha = 0.8 * np.exp(DESIGN @ EFFECTS)
    expected = sum(stats.dirichlet(a).logpdf(x) for a, x in zip(alpha, shares, strict=True)) + log_prior(EFFECTS)
    assert dirichlet_prior().log_density(shares) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("make", [gamma_prior, dirichlet_prior])
def test_parts_of_the_rows_add_up(make):
    """Densities of parts of the rows have their share of the density of the effects."""
    prior = make()
    value = RNG.dirichlet([1, 1], N)
    parts = [slice(0, 7), slice(7, N)]
    assert sum(prior.rows(at).log_density(value[at]) for at in parts) == pytest.approx(prior.log_density(value))
    other = prior.reordered(np.array([1, 0]), -1)
    assert other.log_density(value[:, ::-1]) == pytest.approx(prior.log_density(value))


def test_effects_of_gammas_maximise_the_bound():
    """The optimum of a general optimiser is that of Newton's method, with effects and shapes in turn."""
    q = Gamma(RNG.gamma(2.0, 2.0, (N, K)) + 0.3, RNG.gamma(2.0, 1.0, (N, K)))
    prior = gamma_prior(np.zeros((P, K)))
    for _ in range(30):
        prior = prior.learned(q)
    mean, log = q.mean(), digamma(q.shape) - np.log(q.rate)

    def height(theta):
        effects, a = theta[: P * K].reshape(P, K), np.exp(theta[P * K :])[None]
        mu = 5 * np.exp(DESIGN @ effects)
        density = stats.gamma(a, scale=mu / a).logpdf(1.0) + 1.0 / (mu / a)  # without x
        found = (density + (a - 1) * log - a * mean / mu).sum() + log_prior(effects)
        return -found - stats.norm(0, SHAPE_SD).logpdf(np.log(a)).sum()

    best = minimize(height, np.zeros(P * K + K), method="BFGS", options={"gtol": 1e-8})
    assert prior.effects == pytest.approx(best.x[: P * K].reshape(P, K), abs=2e-5)
    assert prior.plain.shape[0] == pytest.approx(np.exp(best.x[P * K :]), rel=2e-5)
    assert prior.plain.mean()[0] == pytest.approx(5.0)  # intercepts alone move means


def test_effects_of_proportions_maximise_the_bound():
    q = Dirichlet(RNG.gamma(2.0, 2.0, (N, K)) + 0.3)
    prior = dirichlet_prior(np.zeros((P, K))).learned(q)
    log = q.expected_log()

    def height(theta):
        alpha = 0.8 * np.exp(DESIGN @ theta.reshape(P, K))
        found = sum(
            stats.dirichlet(a).logpdf([1 / K] * K) + (a - 1) @ (x + np.log(K)) for a, x in zip(alpha, log, strict=True)
        )
        return -found - log_prior(theta.reshape(P, K))

    best = minimize(height, np.zeros(P * K), method="BFGS", options={"gtol": 1e-6})
    assert prior.effects == pytest.approx(best.x.reshape(P, K), abs=1e-4)
    scaled = LogLinear(ScaledDirichlet(0.8, 2.0, 0.1), DESIGN, np.zeros((P, K)), np.ones((1, K)), N, "")
    assert scaled.learned(ScaledDirichlet(q.concentration, 3.0, 0.1)).effects == pytest.approx(prior.effects)


def test_far_starts_reach_the_same_effects():
    """Steps are halved where Newton's method would go too far."""
    q = Gamma(RNG.gamma(2.0, 2.0, (N, K)) + 0.3, 0.01)
    near, far = (
        gamma_prior(np.full((P, K), start)).learned_from(gamma_prior().statistics(q), shapes=False) for start in (0, 4)
    )
    assert far.effects == pytest.approx(near.effects, abs=1e-7)
    rows = Dirichlet(RNG.gamma(2.0, 2.0, (N, K)) + 0.3)
    near, far = (dirichlet_prior(np.full((P, K), start)).learned(rows) for start in (0, 2))
    assert far.effects == pytest.approx(near.effects, abs=1e-6)


def test_means_of_points_are_learned_without_shapes():
    value = RNG.gamma(1.0, 4.0, (N, K))
    found = gamma_prior().learned_from(gamma_prior().statistics_of_value(value), shapes=False)
    assert np.array_equal(found.plain.shape, SHAPE)
    weights = SHAPE * (value / (5 * np.exp(DESIGN @ found.effects)) - 1)  # the slope is 0
    sd = np.array([INTERCEPT_SD, *[EFFECT_SD] * (P - 1)])[:, None]
    assert DESIGN.T @ weights == pytest.approx(found.effects / sd**2, abs=1e-8)
    proportions = ScaledProportions(value / value.sum(axis=1, keepdims=True), np.ones((N, 1)))
    assert dirichlet_prior().statistics_of_value(proportions)[0] == pytest.approx(np.log(proportions.proportions))


def test_it_is_a_prior_of_loadings_alone():
    with pytest.raises(ValueError, match=r"priors.components must be a prior for components: .*LogLinear"):
        Priors(components=gamma_prior())
