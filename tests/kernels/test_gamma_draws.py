"""The compiled Gamma draws and the random streams beneath: against SciPy, for every shape, seed and thread."""

import numpy as np
import pytest
from scipy import stats
from scipy.special import gammainc, gammaln
from suites import mostly_long

from bayesnmf import Dirichlet, Gamma
from bayesnmf.kernels.cpu.draws import gamma_draws

SHAPES = [1e-3, 0.03, 0.3, 0.999, 1.0, 1.5, 7.0, 300.0, 1e8]
SIZE = (1_000, 400)
by_shape = pytest.mark.parametrize("shape", mostly_long(SHAPES, (0, 2, 3, 4, 6, 8)))


def cdf_of_logarithm(log_x, shape):
    """P(log G < log x); by the first term of the series where x underflows, and exactly that far below 1."""
    series = np.exp(shape * np.minimum(log_x, -600.0) - gammaln(shape + 1))
    return np.where(log_x < -600, series, gammainc(shape, np.exp(log_x)))


@by_shape
def test_draws_have_the_right_distribution(shape):
    """Kolmogorov-Smirnov on the logarithms, of which none underflows: p above 1e-4, the seed being fixed."""
    drawn = gamma_draws(np.full(SIZE, shape), 1, logarithms=True).ravel()
    assert stats.kstest(drawn, lambda log_x: cdf_of_logarithm(log_x, shape)).pvalue > 1e-4


@by_shape
def test_draws_have_the_mean_and_variance_of_the_gamma(shape):
    """Mean and variance, which KS hardly sees, within 4.5 errors; the kurtosis is 3 + 6 / shape."""
    drawn = gamma_draws(np.full(SIZE, shape), 2)
    assert abs(drawn.mean() - shape) < 4.5 * np.sqrt(shape / drawn.size)
    assert abs(drawn.var() / shape - 1) < 4.5 * np.sqrt((2 + 6 / shape) / drawn.size)


@pytest.mark.parametrize("shape", [1e12, 1e15])
def test_draws_of_a_huge_shape_are_normal(shape):
    """Of a huge shape the draws are normal. 200 classes of equal chance see every layer of the ziggurat, then tails."""
    z = (gamma_draws(np.full((1_000, 2_000), shape), 3) - shape) / np.sqrt(shape)
    classes = np.bincount((stats.norm.cdf(z.ravel()) * 200).astype(int), minlength=200)
    assert stats.chisquare(classes).pvalue > 1e-4
    for edge in (3.0, 3.4426, 3.7, 4.2):
        for beyond in (z > edge, z < -edge):
            expected = stats.norm.sf(edge) * z.size
            assert abs(beyond.sum() - expected) < 4.5 * np.sqrt(expected)


def test_logarithms_are_those_of_the_same_draws():
    shape = np.exp(np.random.default_rng(4).uniform(np.log(0.05), np.log(1e4), (200, 50)))
    np.testing.assert_allclose(np.exp(gamma_draws(shape, 5, logarithms=True)), gamma_draws(shape, 5), rtol=1e-12)


@pytest.mark.parametrize("threads", [2, 3, None])
@pytest.mark.parametrize("size", [(), (7,), (0, 3), (1, 4), (500, 30), (2, 5, 4)])
def test_threads_and_order_in_memory_change_nothing(size, threads):
    shape = np.random.default_rng(6).gamma(0.5, size=size)
    one = gamma_draws(shape, 7)
    assert one.shape == size
    np.testing.assert_array_equal(one, gamma_draws(shape, 7, threads))
    turned = gamma_draws(np.asfortranarray(shape), 7, threads)
    np.testing.assert_array_equal(one, turned)
    assert turned.flags.f_contiguous == np.asfortranarray(shape).flags.f_contiguous or len(size) > 2


def test_broadcast_shapes_are_drawn_element_by_element():
    drawn = gamma_draws(np.broadcast_to(np.array([[0.5], [3.0]]), (2, 6)), 8)
    assert len(np.unique(drawn)) == 12


def test_seeds_and_elements_have_streams_of_their_own():
    one, other = (gamma_draws(np.ones(SIZE), seed) for seed in (9, 10))
    assert not np.any(one == other)
    # Neighbours: no correlation, to 4.5 errors.
    for a, b in ((one, other), (one[1:], one[:-1]), (one[:, 1:], one[:, :-1])):
        assert abs(np.corrcoef(a.ravel(), b.ravel())[0, 1]) < 4.5 / np.sqrt(a.size)


def test_shapes_that_are_no_numbers_end_and_stay():
    drawn = gamma_draws(np.array([np.nan, np.inf, 2.0]), 11)
    assert np.isnan(drawn[0])
    assert np.isinf(drawn[1])
    assert np.isfinite(drawn[2])


def test_the_smallest_shapes_give_the_smallest_number():
    assert np.all(gamma_draws(np.full(50, 1e-12), 12) == np.finfo(np.float64).tiny)
    assert np.all(np.isfinite(gamma_draws(np.full(50, 1e-300), 12, logarithms=True)))


# --- where the priors turn to logarithms ------------------------------------------------------------


def share_below(drawn, edge, chance):
    assert abs(np.mean(drawn < edge) - chance) < 4.5 * np.sqrt(chance * (1 - chance) / drawn.size), edge


def test_dirichlet_rows_whose_draws_all_underflow():
    """At 1e-3 draws of 96% of rows sum to below 1e-6, in 12% all underflow: shares against their beta distribution."""
    shares = Dirichlet(np.full((40_000, 3), 1e-3)).draw(np.random.default_rng(13))
    np.testing.assert_allclose(shares.sum(axis=1), 1, rtol=1e-12)
    for edge in (1e-290, 1e-100, 1e-10, 0.5):
        share_below(shares[:, 0], edge, stats.beta.cdf(edge, 1e-3, 2e-3))


@pytest.mark.parametrize("rate", [1e-100, 1e-7, 1e-5, 1e100])
def test_rates_of_any_size_have_the_right_quantiles(rate):
    drawn = Gamma(0.01, rate).broadcast((200, 200)).draw(np.random.default_rng(14))
    for quantile in (0.05, 0.3, 0.9):
        share_below(drawn, stats.gamma(0.01).ppf(quantile) / rate, quantile)
