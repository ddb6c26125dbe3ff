"""What a noise says of counts with given means: probabilities and draws, against SciPy's distributions."""

import numpy as np
import pytest
from scipy.stats import betabinom, dirichlet_multinomial, multinomial, nbinom, poisson

import bayesnmf
from bayesnmf import Gamma, NegativeBinomial, Priors, Quasi
from bayesnmf.data.missing import with_missing
from bayesnmf.data.probabilities import log_likelihood
from bayesnmf.noise.poisson import POISSON

RNG = np.random.default_rng(0)
N, M = 7, 5
LOADINGS, COMPONENTS = RNG.gamma(1.0, 3.0, (N, 2)), RNG.dirichlet(np.ones(M), 2)
MEANS = LOADINGS @ COMPONENTS
ROWS, FEATURES = np.linspace(0.2, 3, N), np.array([0.05, 0.3, 1.0, 4.0, 50.0])
DISPERSIONS = {None: 0.7, "row": ROWS, "feature": FEATURES}
every_noise = pytest.mark.parametrize(
    "noise", [NegativeBinomial(v, s, by) for v in ("linear", "quadratic") for by, s in DISPERSIONS.items()], ids=repr
)


@pytest.fixture
def rng():
    return np.random.default_rng(1)


def law(noise, means=MEANS):
    """Return the distributions of all entries."""
    s = np.asarray(noise.dispersion, float)
    s = s[:, None] if noise.by == "row" else s
    shape = means / s if noise.variance == "linear" else np.broadcast_to(1 / s, means.shape)
    return nbinom(shape, shape / (shape + means))


@every_noise
def test_log_probabilities_are_those_of_the_negative_binomial(noise, rng):
    for counts in (rng.poisson(MEANS), rng.poisson(50 * MEANS), np.zeros((N, M))):
        found = noise.log_pmf(counts.astype(float), np.stack([MEANS, 2 * MEANS]))
        wanted = [law(noise, means).logpmf(counts) for means in (MEANS, 2 * MEANS)]
        np.testing.assert_allclose(found, wanted, rtol=1e-8, atol=1e-8)
        i, j = np.array([0, 3, 3, 6]), np.array([4, 1, 0, 2])
        some = noise.log_pmf(counts[i, j].astype(float), MEANS[None, i, j], (i, j))
        np.testing.assert_allclose(some, found[:1, i, j], rtol=1e-12)


def test_counts_without_means_are_impossible():
    for noise in (POISSON, NegativeBinomial(dispersion=1), NegativeBinomial("quadratic", dispersion=1)):
        found = noise.log_pmf(np.array([[0.0, 3.0]]), np.zeros((1, 2)))
        np.testing.assert_array_equal(found, [[0, -np.inf]])


@pytest.mark.parametrize("variance", ["linear", "quadratic"])
def test_no_dispersion_is_poisson(variance, rng):
    noise, counts = NegativeBinomial(variance, dispersion=0), rng.poisson(MEANS).astype(float)
    np.testing.assert_allclose(noise.log_pmf(counts, MEANS), poisson.logpmf(counts, MEANS), rtol=1e-7)
    wanted = [POISSON.log_pmf(counts, MEANS).sum(), np.exp(-MEANS).sum(), (MEANS + MEANS**2).sum()]
    data = bayesnmf.as_counts(counts)
    for each in (POISSON, noise):
        found = log_likelihood(each, data, LOADINGS, COMPONENTS, given_totals=False)
        more = each.zeros(MEANS).sum(), each.sum_of_squares(LOADINGS, COMPONENTS)
        np.testing.assert_allclose([found, *more], wanted, rtol=1e-7)


@every_noise
def test_log_likelihoods_are_sums_over_observed_entries(noise, rng):
    counts, observed = rng.poisson(3 * MEANS), rng.random((N, M)) < 0.8
    whole = bayesnmf.as_counts(counts)
    logs = law(noise).logpmf(counts)
    for data, wanted in ((whole, logs.sum()), (with_missing(whole, None, observed, None), logs[observed].sum())):
        found = log_likelihood(noise, data, LOADINGS, COMPONENTS, given_totals=False)
        assert found == pytest.approx(wanted, rel=1e-6)


@pytest.mark.parametrize("s", [0.0, 0.4, ROWS])
@pytest.mark.parametrize("scale", [1.0, 9.0])
def test_log_likelihoods_given_totals_are_those_of_the_dirichlet_multinomial(s, scale, rng):
    """Times those of Poisson totals; the scale of the means of a row says nothing of its shares."""
    counts = rng.poisson(3 * MEANS) + 1
    totals, sums = counts.sum(axis=1), scale * MEANS.sum(axis=1)
    noise = NegativeBinomial(dispersion=s, by="row" if np.ndim(s) else None)
    found = log_likelihood(noise, bayesnmf.as_counts(counts), scale * LOADINGS, COMPONENTS, given_totals=True)
    shares = MEANS / MEANS.sum(axis=1, keepdims=True)
    if np.all(s == 0):
        wanted = multinomial.logpmf(counts, totals, shares)
    else:
        concentrations = totals[:, None] * shares / np.broadcast_to(s, (N,))[:, None]
        wanted = dirichlet_multinomial.logpmf(counts, concentrations, totals)
    assert found == pytest.approx((wanted + poisson.logpmf(totals, sums)).sum(), rel=1e-7)


@every_noise
def test_zeros_and_squares_are_those_of_the_negative_binomial(noise):
    np.testing.assert_allclose(noise.zeros(MEANS), law(noise).pmf(0), rtol=1e-5)
    mean, variance = law(noise).stats()
    assert noise.sum_of_squares(LOADINGS, COMPONENTS) == pytest.approx((variance + mean**2).sum(), rel=1e-6)


@every_noise
def test_draws_have_mean_variance_and_zeros_of_the_negative_binomial(noise, rng):
    number = 10_000
    drawn = np.array([noise.draw(MEANS, rng) for _ in range(number)])
    mean, variance = law(noise).stats()
    zeros = law(noise).pmf(0)
    assert np.abs((drawn.mean(axis=0) - mean) / np.sqrt(variance / number)).max() < 4.5
    assert np.abs(((drawn == 0).mean(axis=0) - zeros) / np.sqrt(zeros * (1 - zeros) / number)).max() < 4.5
    kurtosis = 3 + law(noise).stats("k")
    assert np.abs((drawn.var(axis=0) / variance - 1) / np.sqrt((kurtosis - 1) / number)).max() < 6


def test_draws_given_totals_are_dirichlet_multinomial(rng):
    number, totals, noise = 10_000, np.array([40, 3, 0]), NegativeBinomial(dispersion=[2.0, 1000.0, 1.0], by="row")
    shares = np.array([[0.1, 0.3, 0.6], [0.25, 0.25, 0.5], [0.2, 0.2, 0.6]])
    drawn = np.array([noise.draw_given_totals(totals, shares, rng) for _ in range(number)])
    assert np.all(drawn.sum(axis=2) == totals)
    for i, s in ((0, 2.0), (1, 1000.0)):
        laws = betabinom(totals[i], totals[i] * shares[i] / s, totals[i] * (1 - shares[i]) / s)
        mean, variance = laws.stats()
        assert np.abs((drawn[:, i].mean(axis=0) - mean) / np.sqrt(variance / number)).max() < 4.5
        np.testing.assert_allclose(drawn[:, i].var(axis=0), variance, rtol=0.1)
        np.testing.assert_allclose((drawn[:, i] == 0).mean(axis=0), laws.pmf(0), atol=0.02)


PROPER = Priors(Gamma(200.0, 1.0))  # counts vary by their noise


@pytest.mark.parametrize("variance", ["linear", "quadratic"])
def test_simulated_counts_vary_as_they_should(variance):
    noise = NegativeBinomial(variance, dispersion=0.6)
    drawn = bayesnmf.simulate(size=(300, 40), rank=2, priors=PROPER, noise=noise, seed=1)
    mean, variance = law(noise, drawn.means).stats()
    ratio = (drawn.counts.matrix.toarray() - mean) ** 2 / variance
    assert ratio.mean() == pytest.approx(1, abs=0.1)
    assert drawn.noise == noise
    assert repr(noise) in repr(drawn)
    assert bayesnmf.simulate(size=(3, 4), seed=1).noise == POISSON


def test_simulated_counts_keep_their_totals():
    noise = NegativeBinomial(dispersion=np.full(200, 4.0), by="row")
    drawn = bayesnmf.simulate("dirichlet_poisson", (200, 10), 2, noise=noise, totals=60, seed=1)
    assert np.all(drawn.counts.row_totals == 60)
    logs = [
        log_likelihood(each, drawn.counts, 60 * drawn.loadings, drawn.components, True) for each in (noise, POISSON)
    ]
    assert logs[0] > logs[1] + 100


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"noise": "nb1"}, r"needs a known dispersion to draw counts: give bayesnmf.NegativeBinomial\('linear'"),
        ({"noise": NegativeBinomial("quadratic")}, "noise='nb2' needs a known dispersion"),
        ({"noise": "quasi"}, "drawn counts need a distribution"),
        ({"noise": Quasi(2)}, "drawn counts need a distribution"),
        ({"noise": NegativeBinomial(dispersion=[1.0], by="row")}, "dispersion must have one number for each row"),
        (
            {"noise": NegativeBinomial("quadratic", 1.0), "model": "dirichlet_poisson"},
            "noise='nb2' has no closed form where the totals",
        ),
        (
            {"noise": NegativeBinomial(dispersion=np.ones(50), by="feature"), "model": "dirichlet_poisson"},
            "noise='nb1' per feature has no closed form",
        ),
    ],
)
def test_noises_without_draws_are_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        bayesnmf.simulate(**arguments)


def test_thinned_counts_have_the_dispersion_of_thinned_counts(rng):
    """Linear variance shrinks with the mean, quadratic variance does not."""
    means, keep = np.full((1, 40_000), 6.0), 0.3
    for noise in (NegativeBinomial(dispersion=5), NegativeBinomial("quadratic", dispersion=2)):
        thinned = rng.binomial(noise.draw(means, rng), keep)
        wanted = law(noise.thinned(keep), np.array([keep * 6.0]))
        assert thinned.var() == pytest.approx(wanted.var()[0], rel=0.06)
        assert (thinned == 0).mean() == pytest.approx(wanted.pmf(0)[0], abs=0.015)
