"""Dispersions of features with components on the simplex: clusters of missing shares are expected, or drawn."""

import numpy as np
import pytest
from plain import even_priors, plain_map, plain_vi
from scipy.optimize import minimize
from scipy.special import softmax
from scipy.stats import nbinom
from smallfits import quietly
from suites import mostly_long

import bayesnmf
from bayesnmf import Dirichlet, Gamma, Gibbs, NegativeBinomial, Priors
from bayesnmf.results.mixing import r_hat_and_ess

TINY, S = np.array([[4, 1, 0], [0, 2, 7]]), np.array([2.0, 0.3, 1.0])
NOISE = NegativeBinomial(dispersion=S, by="feature")


def dispersed(n=50, m=12, seed=3):
    rng = np.random.default_rng(seed)
    s, means = rng.gamma(2, 0.7, m), rng.gamma(1, 1, (n, 3)) @ rng.dirichlet(np.full(m, 0.5), 3) * 200
    return rng.poisson(rng.gamma(means / s, s)), NegativeBinomial(dispersion=s, by="feature")


COUNTS, OWN = dispersed()


def log_likelihood(means, x=TINY, s=S):
    return nbinom.logpmf(x, means / s, 1 / (1 + s)).sum(axis=(-2, -1))


@quietly
@pytest.mark.parametrize("noise", [OWN, NegativeBinomial(dispersion="feature")], ids=["given", "learned"])
@pytest.mark.parametrize("make", [plain_map, plain_vi])
@pytest.mark.parametrize("model", ["gamma_poisson", "dirichlet_gamma", "hierarchical_poisson"])
def test_the_objective_rises(model, make, noise):
    priors = even_priors(COUNTS, model) if model != "hierarchical_poisson" else Priors()
    method, algorithm = ("map", {"algorithm": "em"}) if make is plain_map else ("vi", {})
    options = make(priors=priors, max_iter=60, tol=0.0, threads=1, **algorithm)
    fit = bayesnmf.fit(COUNTS, model, 3, method, seed=0, noise=noise, options=options)
    assert np.diff(fit.trace).min() > -1e-12 * abs(fit.trace[-1])
    assert fit.transform(COUNTS[:5]).shape == (5, 3)


@quietly
@pytest.mark.parametrize("exposed", [None, np.linspace(0.5, 2, 50)])
def test_the_log_joint_is_the_density_of_scipy(exposed):
    priors = Priors(Gamma(1.5, 0.02), Dirichlet(1.3))
    options = plain_map(priors=priors, max_iter=20, threads=1, algorithm="em")
    fit = bayesnmf.fit(COUNTS, rank=2, method="map", seed=0, noise=OWN, options=options, row_exposure=exposed)
    exact = log_likelihood(fit.expected_loadings @ fit.components, COUNTS, OWN.dispersion)
    exact += priors.loadings.log_density(fit.loadings) + priors.components.log_density(fit.components)
    assert fit.trace[-1] == pytest.approx(exact, rel=1e-10)


@quietly
def test_the_mode_is_that_of_a_search():
    """A fixed point of an iteration with wrong shares would be another point."""
    priors = Priors(Gamma(1.5, 0.2), Dirichlet(1.3))
    options = plain_map(priors=priors, tol=1e-14, max_iter=20_000, threads=1, algorithm="em")
    fit = bayesnmf.fit(TINY, rank=2, method="map", seed=0, noise=NOISE, options=options)

    def negative(at):
        theta, beta = np.exp(at[:4].reshape(2, 2)), softmax(at[4:].reshape(2, 3), axis=1)
        return -log_likelihood(theta @ beta) - 0.5 * np.log(theta).sum() + 0.2 * theta.sum() - 0.3 * np.log(beta).sum()

    start = np.concatenate([np.log(fit.loadings).ravel(), np.log(fit.components).ravel()])
    found = minimize(negative, start, method="BFGS", options={"gtol": 1e-9})
    assert found.fun == pytest.approx(negative(start), abs=1e-7)
    np.testing.assert_allclose(np.exp(found.x[:4].reshape(2, 2)), fit.loadings, rtol=1e-3)


def of_the_posterior(theta, beta):
    """Return row sums, feature sums of means and sizes of components, which no relabelling changes."""
    parts = theta.sum(axis=-1), (theta.sum(axis=-2)[..., None] * beta).sum(axis=-2), (beta**2).sum(axis=(-2, -1))
    return np.concatenate([np.sqrt(parts[0]), np.sqrt(parts[1]), parts[2][..., None]], axis=-1)


def weighted_draws(draws):
    rng = np.random.default_rng(0)
    theta, beta = rng.gamma(0.9, 5.0, (draws, 2, 2)), rng.dirichlet([1.3] * 3, (draws, 2))
    logs = log_likelihood(theta @ beta)
    weights = np.exp(logs - logs.max())
    return of_the_posterior(theta, beta), weights / weights.sum(), logs.max() + np.log(np.mean(weights))


@quietly
@pytest.mark.parametrize(
    ("algorithm", "draws"),
    mostly_long([("allocations", 600), ("marginal", 600), ("allocations", 8000), ("marginal", 8000)], default=2),
)
def test_draws_are_those_of_the_posterior(algorithm, draws):
    """Without drawn clusters of missing shares, means of features would be off by up to 40 %."""
    values, weights, _ = weighted_draws(100_000 if draws < 1000 else 1_000_000)
    mean = weights @ values
    sd = np.sqrt(weights @ (values - mean) ** 2)
    options = Gibbs(priors=Priors(Gamma(0.9, 0.2), Dirichlet(1.3)), algorithm=algorithm, draws=draws, chains=2,
                    warmup=50, start="random", threads=1)  # fmt: skip
    fit = bayesnmf.fit(TINY, rank=2, method="gibbs", seed=1, noise=NOISE, options=options)
    found = of_the_posterior(fit.posterior.loadings, fit.posterior.components)
    _, ess = r_hat_and_ess(found)
    error = sd * np.sqrt(1 / ess + (weights**2).sum())
    assert np.all(np.abs(found.mean(axis=(0, 1)) - mean) < 4 * error)
    np.testing.assert_allclose(found.std(axis=(0, 1)), sd, rtol=0.2 if draws < 1000 else 0.05)


@quietly
def test_the_bound_is_below_the_evidence():
    _, _, evidence = weighted_draws(100_000)
    options = plain_vi(priors=Priors(Gamma(0.9, 0.2), Dirichlet(1.3)), tol=1e-9, max_iter=500, threads=1)
    fit = bayesnmf.fit(TINY, rank=2, seed=0, noise=NOISE, options=options)
    assert evidence - 4 < fit.trace[-1] < evidence
    assert fit.trace[-1] < bayesnmf.elbo_marginal(fit).mean < evidence
    assert fit.with_intervals("sampled", draws=50).intervals.kind == "sampled"
    with pytest.raises(ValueError, match="exposure is known: found dispersions of features"):
        bayesnmf.linear_response(fit)
