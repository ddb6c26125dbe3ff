"""Zero-inflated Poisson noise: what it says of counts, its bound, and what fits find in simulated counts."""

import numpy as np
import pytest
from plain import plain_map, plain_vi
from scipy.stats import beta, poisson
from smallfits import quietly

import bayesnmf
from bayesnmf import ZeroInflated
from bayesnmf.data.probabilities import log_likelihood

pytestmark = quietly
RNG = np.random.default_rng(0)
N, M, K = 40, 12, 2
LOADINGS, COMPONENTS = RNG.gamma(2.0, 4.0, (N, K)), RNG.dirichlet(np.ones(M), K)
MEANS = LOADINGS @ COMPONENTS
SHARES = {None: 0.3, "row": np.linspace(0.05, 0.8, N), "feature": np.linspace(0, 0.9, M)}
every_share = pytest.mark.parametrize("by", SHARES)


def noise_by(by):
    return ZeroInflated(SHARES[by], by)


def shares_of_entries(by):
    return np.broadcast_to(SHARES["row"][:, None] if by == "row" else SHARES[by], MEANS.shape)


@every_share
def test_probabilities_moments_and_zeros_are_those_of_a_mixture(by):
    noise, share = noise_by(by), shares_of_entries(by)
    counts = RNG.poisson(MEANS) * (RNG.random(MEANS.shape) > share)
    p = (1 - share) * poisson.pmf(counts, MEANS) + share * (counts == 0)
    np.testing.assert_allclose(noise.log_pmf(counts.astype(float), MEANS), np.log(p), rtol=1e-8)
    i, j = np.array([0, 3, 39]), np.array([11, 0, 5])
    np.testing.assert_allclose(noise.log_pmf(counts[i, j].astype(float), MEANS[i, j], (i, j)), np.log(p)[i, j])
    grid = np.arange(200)[:, None, None]
    pmf = (1 - share) * poisson.pmf(grid, MEANS) + share * (grid == 0)
    mean, square = (grid * pmf).sum(axis=0), (grid**2 * pmf).sum(axis=0)
    np.testing.assert_allclose(noise.expected(MEANS), mean, rtol=1e-9)
    np.testing.assert_allclose(noise.variances(mean), square - mean**2, rtol=1e-8)
    np.testing.assert_allclose(noise.zeros(MEANS), pmf[0], rtol=1e-8)
    assert noise.sum_of_squares(LOADINGS, COMPONENTS) == pytest.approx(square.sum(), rel=1e-9)
    np.testing.assert_allclose(np.matmul(*noise.factors_of_expected(LOADINGS, COMPONENTS)), mean, rtol=1e-8)
    data = bayesnmf.as_counts(counts)
    found = log_likelihood(noise, data, LOADINGS, COMPONENTS, given_totals=False)
    assert found == pytest.approx(np.log(p).sum(), rel=1e-9)


@every_share
@pytest.mark.parametrize("observed", [False, True], ids=["whole", "missing"])
def test_the_log_joint_is_that_of_the_likelihood_and_the_priors(by, observed):
    counts = noise_by(by).draw(MEANS, np.random.default_rng(1))
    seen = np.random.default_rng(2).random(counts.shape) < 0.8 if observed else None
    fit = bayesnmf.fit(counts, rank=K, method="map", seed=0, noise=noise_by(by), observed=seen, options=plain_map())
    data = bayesnmf.as_counts(counts) if seen is None else fit.counts
    own = log_likelihood(fit.noise, data, fit.loadings, fit.components, given_totals=False)
    own += fit.priors.loadings.log_density(fit.loadings) + fit.priors.components.log_density(fit.components)
    assert fit.trace[-1] == pytest.approx(own, rel=1e-9)
    assert (np.diff(fit.trace) > -1e-9 * np.abs(fit.trace[-1])).all()


@pytest.mark.parametrize(
    ("method", "options"), [("map", plain_map(extrapolate=True)), ("vi", plain_vi(extrapolate=True))]
)
@pytest.mark.parametrize("by", [None, "feature"])
def test_shares_of_simulated_counts_are_found(method, options, by):
    """Of 200 rows, in features with means above 2, where zeros show what they are; a share is known to 0.04."""
    rng = np.random.default_rng(3)
    means = rng.gamma(2.0, 20.0, (200, K)) @ COMPONENTS
    truth = 0.3 if by is None else np.linspace(0.05, 0.6, M)
    counts = ZeroInflated(truth, by).draw(means, rng)
    fit = bayesnmf.fit(counts, rank=K, method=method, seed=0, noise=ZeroInflated(by), options=options)
    clear = means.mean(axis=0) > 2
    assert np.max(np.abs(fit.noise.share - truth) * (clear if by else 1.0)) < (0.04 if by is None else 0.12)
    if method == "vi":  # modes of the other priors are below the means
        assert fit.expected()["mean"].sum() == pytest.approx(counts.sum(), rel=0.03)


def test_draws_of_a_share_given_the_means_are_those_of_its_posterior():
    """Means near infinity tell which zeros are of the first kind: the share is then Beta(1 + zeros, 2 + others)."""
    counts = np.random.default_rng(0).poisson(200, (6, 5)) * (np.random.default_rng(1).random((6, 5)) > 0.3)
    known = np.full((1, 5), 0.2)
    options = bayesnmf.Gibbs(draws=600, warmup=50, chains=1)
    fit = bayesnmf.fit(counts, method="gibbs", seed=0, noise="zip", fixed_components=known, options=options)
    drawn, zeros = fit.statistics["dispersion"].ravel(), (counts == 0).sum()
    exact = beta(1 + zeros, 2 + counts.size - zeros)
    assert drawn.mean() == pytest.approx(exact.mean(), abs=4 * exact.std() / np.sqrt(100))
    assert drawn.std() == pytest.approx(exact.std(), rel=0.3)


def test_rows_and_features_of_zeros_alone_are_legal():
    counts = np.random.default_rng(0).poisson(3, (8, 5))
    counts[2], counts[:, 1] = 0, 0
    for by in (None, "row", "feature"):
        fit = bayesnmf.fit(counts, rank=2, seed=0, noise=ZeroInflated(by), options=plain_vi())
        assert np.isfinite(fit.loadings).all()
        assert (np.asarray(fit.noise.share) < 1).all()


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"share": 1.0}, "share must be below 1"),
        ({"share": -0.1}, "share must be"),
        ({"share": "matrix"}, "share must be"),
        ({"share": [0.1, 0.2]}, "by"),
        ({"by": "matrix"}, "by must be"),
    ],
)
def test_wrong_shares_are_refused(given, words):
    with pytest.raises((ValueError, TypeError), match=words):
        ZeroInflated(**given)


def test_simulations_draw_it():
    made = bayesnmf.simulate(size=(50, 20), rank=2, noise=ZeroInflated(0.5), totals=2000, seed=0)
    assert (made.counts.matrix.toarray() == 0).mean() == pytest.approx(0.5, abs=0.1)
    with pytest.raises(ValueError, match="zip' needs a known share"):
        bayesnmf.simulate(size=(5, 4), rank=2, noise="zip")
