"""Negative binomial noise as NumPyro programs: a second statement of the same models, without clusters or rates."""

import jax
import numpy as np
import pytest
from bayesnmf.models.likelihood import NegativeBinomialProduct
from scipy import sparse
from scipy.stats import nbinom
from smallfits import quietly

import bayesnmf
from bayesnmf import NUTS, SVI, Gibbs, NegativeBinomial

RNG = np.random.default_rng(0)
N, M, K = 12, 8, 2
THETA, BETA = RNG.gamma(1, 20, (N, K)), RNG.dirichlet(np.ones(M), K)
S = {None: np.full((1, 1), 0.8), "row": RNG.gamma(2, 0.5, (N, 1)), "feature": RNG.gamma(2, 0.5, (1, M))}
COUNTS = RNG.poisson(RNG.gamma(THETA @ BETA / 0.8, 0.8))


@pytest.mark.parametrize("by", S)
@pytest.mark.parametrize("variance", ["linear", "quadratic"])
def test_the_density_is_that_of_scipy(variance, by):
    mean, s = THETA @ BETA, S[by]
    size = np.broadcast_to(mean / s if variance == "linear" else 1 / s, mean.shape)
    right = nbinom.logpmf(COUNTS, size, size / (size + mean)).sum()
    with jax.enable_x64(True):
        product = NegativeBinomialProduct(THETA, BETA, s, variance)
        assert float(product.log_prob(COUNTS)) == pytest.approx(right, rel=1e-10)
        assert float(product.log_prob(sparse.csr_array(COUNTS))) == pytest.approx(right, rel=1e-10)
        np.testing.assert_allclose(np.asarray(product.variance), nbinom.var(size, size / (size + mean)), rtol=1e-10)


def test_factors_of_different_ranks_are_refused():
    with pytest.raises(ValueError, match=r"must share K, got 2 and 1"):
        NegativeBinomialProduct(THETA, BETA[:1], S[None])


@pytest.mark.long
@pytest.mark.parametrize("variance", ["linear", "quadratic"])
def test_samples_have_the_means_of_the_counts(variance):
    with jax.enable_x64(True):
        product = NegativeBinomialProduct(THETA, BETA, S["row"], variance)
        drawn = np.asarray(product.sample(jax.random.PRNGKey(0), (4000,)))
        error = np.sqrt(np.asarray(product.variance) / 4000)
    assert np.abs((drawn.mean(axis=0) - THETA @ BETA) / error).max() < 5


@quietly
@pytest.mark.long
@pytest.mark.parametrize(
    ("model", "variance", "by"),
    [
        ("gamma_poisson", "linear", None), ("gamma_poisson", "quadratic", "row"), ("dirichlet_gamma", "linear", "row"),
        ("dirichlet_gamma", "quadratic", None),
    ],
)  # fmt: skip
def test_nuts_and_gibbs_sampling_agree(model, variance, by):
    """Means of loadings, and of the log joint, to about a tenth of a standard deviation."""
    noise = NegativeBinomial(variance, 0.8 if by is None else S["row"].ravel(), by)
    given = {"noise": noise, "seed": 0}
    one = bayesnmf.fit(COUNTS, model, 1, "nuts", options=NUTS(chains=2, warmup=300, draws=700), **given)
    two = bayesnmf.fit(COUNTS, model, 1, "gibbs", options=Gibbs(chains=2, warmup=200, draws=3000), **given)
    assert one.trace.mean() == pytest.approx(two.trace.mean(), abs=0.2 * two.trace.std())
    means = [fit.expected_loadings[:, 0] for fit in (one, two)]
    drawn = two.posterior.loadings[..., 0] if model == "gamma_poisson" else two.posterior.scale
    assert np.abs((means[0] - means[1]) / drawn.std(axis=(0, 1))).max() < 0.25
    np.testing.assert_allclose(one.components, two.components, atol=0.02)


@quietly
@pytest.mark.parametrize("variance", ["linear", "quadratic"])
def test_steps_of_svi_begin_at_the_closed_form_fit_and_hold_its_dispersion(variance):
    noise = NegativeBinomial(variance)
    options = SVI(max_iter=30, learning_rate=1e-4)
    fit = bayesnmf.fit(COUNTS, rank=1, method="svi", seed=0, noise=noise, options=options)
    closed = bayesnmf.fit(COUNTS, rank=1, seed=0, noise=noise)
    assert fit.noise.dispersion == pytest.approx(float(closed.noise.dispersion), rel=0.02)
    np.testing.assert_allclose(fit.components, closed.components, atol=0.01)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"method": "svi", "options": SVI(bound="augmented")}, "bound='marginal'"),
        ({"method": "nuts", "model": "dirichlet_poisson"}, "has no program"),
    ],
)
def test_what_has_no_program_is_refused(arguments, words):
    with pytest.raises(ValueError, match=words):
        bayesnmf.fit(COUNTS, rank=2, noise="nb1", **arguments)
