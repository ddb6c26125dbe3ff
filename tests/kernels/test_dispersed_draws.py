"""Draws of counts that vary more than Poisson counts, against their exact distribution, however they are drawn."""

import numpy as np
import pytest
from scipy.stats import betabinom, chi2, nbinom

from bayesnmf.kernels.cpu.dispersed_draws import LINEAR, QUADRATIC, Noise
from bayesnmf.kernels.cpu.replication import replicated_counts, replicated_statistics

RNG = np.random.default_rng(0)
COMPONENTS = RNG.gamma(0.5, 1.0, (3, 30))
COMPONENTS[:, 2] = 0.0  # a feature without any rate
ROWS = 10_000


def noise_of(kind, s, by_feature=False):
    """Return a noise with the dispersion s in all entries, or 2s in every second one if features have their own."""
    if by_feature:
        return Noise(kind, np.ones(ROWS), np.tile([s, 2 * s], 15), True)
    return Noise(kind, np.full(ROWS, s), np.ones(30))


def law(kind, mean, s):
    """Return the distribution of a count."""
    return nbinom(mean / s, 1 / (1 + s)) if kind == LINEAR else nbinom(1 / s, 1 / (1 + s * mean))


def misfit(drawn, laws):
    """Return the tail probability of Pearson's χ² of the drawn counts of all features, each in about ten classes."""
    statistic, freedom = 0.0, 0
    for j in set(range(30)) - {2}:
        edges = np.unique(laws[j].ppf(np.linspace(0, 1, 11)[1:-1]))
        expected = np.diff(np.concatenate([[0.0], laws[j].cdf(edges), [1.0]])) * len(drawn)
        found = np.bincount(np.searchsorted(edges, drawn[:, j]), minlength=len(expected))
        known = expected > 5
        statistic += np.sum((found - expected)[known] ** 2 / expected[known])
        freedom += known.sum() - 1
    return chi2.sf(statistic, freedom)


@pytest.mark.parametrize("by_feature", [False, True], ids=["rows", "features"])
@pytest.mark.parametrize("s", [0.05, 2.0, 60.0])
@pytest.mark.parametrize("kind", [LINEAR, QUADRATIC], ids=["linear", "quadratic"])
@pytest.mark.parametrize("total", [8.0, 900.0], ids=["cluster by cluster", "entry by entry"])
def test_counts_are_negative_binomial(total, kind, s, by_feature):
    """A dispersion that is off by a fifth is seen, but for the smallest."""
    loadings = np.full((ROWS, 3), total / COMPONENTS.sum())
    means = loadings[0] @ COMPONENTS
    noise = noise_of(kind, s, by_feature)
    drawn = replicated_counts(loadings, COMPONENTS, None, 5, 1, noise).toarray()
    assert np.all(drawn[:, 2] == 0)
    spreads = np.broadcast_to(noise.rows[0] * noise.features, means.shape)
    assert misfit(drawn, [law(kind, *of_feature) for of_feature in zip(means, spreads, strict=True)]) > 1e-5
    total_variance = np.sum(np.where(kind == LINEAR, means * (1 + spreads), means + spreads * means**2))
    sums = drawn.sum(axis=1)  # of independent cells
    assert abs(sums.mean() - total) < 4.5 * np.sqrt(total_variance / ROWS)
    excess = ((sums - sums.mean()) ** 4).mean() / sums.var() ** 2 - 1
    assert abs(sums.var() / total_variance - 1) < 4.5 * np.sqrt(excess / ROWS)


@pytest.mark.parametrize("s", [0.05, 2.0, 60.0])
@pytest.mark.parametrize("total", [12, 400], ids=["from an urn", "from rates"])
def test_counts_given_their_total_are_dirichlet_multinomial(total, s):
    loadings = np.full((ROWS, 3), total / COMPONENTS.sum())
    concentrations = (loadings[0] @ COMPONENTS) / s
    whole = concentrations.sum()
    drawn = replicated_counts(loadings, COMPONENTS, np.full(ROWS, float(total)), 5, 1, noise_of(LINEAR, s)).toarray()
    assert np.all(drawn.sum(axis=1) == total)
    assert np.all(drawn[:, 2] == 0)
    laws = [betabinom(total, a, whole - a) for a in concentrations]
    assert misfit(drawn, laws) > 1e-5
    p = concentrations / whole  # the covariance of two entries is that of multinomial counts, times this factor
    factor = total * (total + whole) / (1 + whole)
    pair = np.argsort(p)[-2:]
    found, wanted = np.cov(drawn[:, pair].T)[0, 1], -factor * p[pair[0]] * p[pair[1]]
    spread = factor * np.prod(np.sqrt(p[pair] * (1 - p[pair])))
    assert abs(found - wanted) < 6 * spread / np.sqrt(ROWS)


@pytest.mark.parametrize(("kind", "given"), [(LINEAR, False), (LINEAR, True), (QUADRATIC, False)])
def test_statistics_are_those_of_the_drawn_counts_on_any_number_of_threads(kind, given):
    rng = np.random.default_rng(3)
    loadings = np.vstack([rng.gamma(1.0, scale, (20, 3)) for scale in (0.1, 5.0)] + [np.zeros((1, 3))])
    totals = np.array([*range(40), 0.0]) if given else None
    noise = Noise(kind, np.linspace(0.1, 4, 41), np.ones(30))
    found = replicated_statistics(loadings, COMPONENTS, totals, 30, 7, 2, noise=noise)
    for threads in (1, 3):
        dense = replicated_counts(loadings, COMPONENTS, totals, 7, threads, noise).toarray()
        np.testing.assert_array_equal(dense.sum(axis=1), found.row_totals)
        np.testing.assert_array_equal(dense.sum(axis=0), found.feature_totals)
        assert (dense**2).sum() == found.squares


def test_next_to_no_dispersion_is_poisson():
    """Clusters of one count each, whose sizes are drawn after their places, from the stream of their row."""
    loadings = np.full((50, 3), 0.1)
    noise = Noise(LINEAR, np.full(50, 1e-10), np.ones(30))
    drawn = [replicated_counts(loadings, COMPONENTS, None, 5, 1, *more).toarray() for more in ([], [noise])]
    np.testing.assert_array_equal(*drawn)
