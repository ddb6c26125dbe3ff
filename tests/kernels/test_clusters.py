"""Sums over the steps of rising products, and drawn clusters: against long sums and exact distributions."""

import numpy as np
import pytest
from numba import njit
from scipy.sparse import csr_array
from scipy.special import gammaln
from scipy.stats import nbinom

from bayesnmf.data.clustered import exposure_of
from bayesnmf.kernels.cpu.allocation import expected_allocations
from bayesnmf.kernels.cpu.clusters import cluster_sums, drawn_clusters, sums_of_entries, weigh_block
from bayesnmf.kernels.cpu.dense import dense_allocations
from bayesnmf.kernels.cpu.rising import cluster_entries


def long_sums(x, mean, spread):
    """Return L, W and V of an entry, summed one by one in extended precision."""
    steps = np.longdouble(mean) + np.arange(int(x)).astype(np.longdouble) * np.longdouble(spread)
    return np.array([np.log(steps).sum(), (1 / steps).sum(), (1 / steps**2).sum()], np.float64)


def test_sums_are_right_to_13_digits_at_any_mean_and_spread():
    rng = np.random.default_rng(0)
    x = np.concatenate([np.arange(1, 20), np.floor(10 ** rng.uniform(0, 4, 200))])
    mean, spread = 10 ** rng.uniform(-6, 6, len(x)), 10 ** rng.uniform(-10, 4, len(x))
    found = sums_of_entries(x, mean, spread)
    right = np.array([long_sums(*each) for each in zip(x, mean, spread, strict=True)])
    scale = np.abs(right)
    scale[:, 0] = np.maximum(scale[:, 0], x)
    assert np.abs((found - right) / scale).max() < 1e-13


def test_without_spread_they_are_those_of_poisson_counts():
    """Differences of ψ would lose seven digits at s = 1e-10."""
    x, mean = np.array([1.0, 7.0, 50.0, 300.0]), np.array([0.2, 3.0, 7.3, 400.0])
    logs, weights, curvatures = sums_of_entries(x, mean, 1e-16).T
    np.testing.assert_allclose(weights, x / mean, rtol=1e-12)
    np.testing.assert_allclose(curvatures, x / mean**2, rtol=1e-12)
    np.testing.assert_allclose(logs, x * np.log(mean), rtol=1e-12)
    assert sums_of_entries([50.0], [7.3], 1e-10)[0, 1] == pytest.approx(
        50 / 7.3 - 1e-10 * 50 * 49 / 2 / 7.3**2, rel=1e-12
    )


def test_log_probabilities_are_those_of_scipy():
    x, mean = np.arange(0.0, 40.0), np.linspace(0.1, 20, 40)
    for s in (1e-3, 0.3, 5.0):
        L = sums_of_entries(x, mean, s)[:, 0]
        ours = L - x * np.log1p(s) - mean * exposure_of(s) - gammaln(x + 1)
        np.testing.assert_allclose(ours, nbinom.logpmf(x, mean / s, 1 / (1 + s)), rtol=1e-9, atol=1e-11)


def random_case(rng, n=30, m=23, rank=5):
    U, V = rng.gamma(0.3, 1, (n, rank)), rng.gamma(0.3, 1, (rank, m))
    X = rng.poisson(6 * U @ V).astype(float)
    return X, U, V


@pytest.mark.parametrize("features", [False, True])
@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_allocations_are_the_sums_over_entries(dtype, features):
    """Scattered, gathered and dense; rows and features in the wrong order would show in the second digit."""
    rng = np.random.default_rng(1)
    X, U, V = random_case(rng)
    spread = rng.gamma(1, 1, len(X)), rng.gamma(1, 1, X.shape[1]) if features else None
    each = spread[0][:, None] * (np.ones(X.shape[1]) if spread[1] is None else spread[1])
    W, L = np.zeros(X.shape), 0.0
    for i, j in zip(*X.nonzero(), strict=True):
        log, W[i, j], _ = long_sums(X[i, j], (U @ V)[i, j], each[i, j])
        L += log
    A, B = U * (W @ V.T), V * (U.T @ W)
    matrix, factors = csr_array(X.astype(dtype)), (U.astype(dtype), V.astype(dtype))
    rtol = 1e-12 if dtype == "float64" else 3e-6
    for found in (
        expected_allocations(matrix, *factors, spread=spread),
        expected_allocations(matrix, *factors, spread=spread, transposed=csr_array(matrix.T)),
        dense_allocations(X.astype(dtype), *factors, spread=spread),
    ):
        np.testing.assert_allclose(found.loadings, A, rtol=rtol)
        np.testing.assert_allclose(found.components, B, rtol=rtol)
        assert found.loglik == pytest.approx(L, rel=rtol)
    sums = cluster_sums(csr_array(X), U, V, spread)
    np.testing.assert_allclose(sums[:, 1], X.sum(axis=1) - A.sum(axis=1), rtol=1e-9)
    assert sums[:, 0].sum() == pytest.approx(L, rel=1e-12)


def test_a_mean_that_underflows_is_one_cluster():
    X, U, V = csr_array([[3.0, 0.0], [2.0, 5.0]]), np.array([[1e-250], [1.0]]), np.array([[1e-20, 1.0]])
    found = expected_allocations(X, U, V, spread=(np.array([0.5, 0.5]), None))
    others = long_sums(2, 1e-20, 0.5), long_sums(5, 1.0, 0.5)
    assert found.loadings[0, 0] == pytest.approx(1.0)
    low = -270 * np.log(10) + np.log([0.5, 1.0]).sum()
    assert found.loglik == pytest.approx(low + others[0][0] + others[1][0], rel=1e-12)
    np.testing.assert_allclose(found.components[0], [1 + others[0][1] * 1e-20, others[1][1]])


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_entries_of_a_row_are_weighed_in_place(dtype):
    @njit
    def weigh(counts, spreads, least, means):
        return cluster_entries(len(counts), counts, spreads, least, means)

    x = np.array([1, 4, 9, 300, 2, 0, 7, 5], dtype)
    means, spreads = np.array([1, 2, 3, 40, 1e-35, 1, 6, 0.1], dtype), np.linspace(0.1, 2, 8)
    expected = [long_sums(*entry)[1] * (entry[1] > 1e-30) for entry in zip(x, means, spreads, strict=True)]
    assert weigh(x, spreads, means.dtype.type(1e-30), means)
    np.testing.assert_allclose(means, expected, rtol=1e-6 if dtype == "float32" else 1e-13)


def test_dense_blocks_know_their_first_row():
    rng = np.random.default_rng(2)
    X, U, V = random_case(rng)
    means, spread = (U @ V)[10:], (rng.gamma(1, 1, len(X)), None)
    rows = zip(X[10:], means, spread[0][10:], strict=True)
    expected = [[long_sums(x, m, s)[1] for x, m in zip(row, mean, strict=True)] for row, mean, s in rows]
    weigh_block(X[10:], means, spread, 10)
    np.testing.assert_allclose(means, expected, rtol=1e-12)


@pytest.mark.parametrize(("count", "ratio"), [(5, 0.3), (200, 3.0), (3000, 40.0), (10_000, 1e4)])
def test_clusters_have_the_mean_and_variance_of_a_sum_of_bernoullis(count, ratio):
    """With 4,000 draws, a mean off by 0.08 standard deviations is found, or a variance off by 10 %."""
    draws = 4000
    matrix, one = csr_array(np.full((draws, 1), float(count))), np.ones((1, 1))
    found = drawn_clusters(matrix, np.full((draws, 1), ratio), one, (np.ones(draws), None), 7).data
    p = ratio / (ratio + np.arange(count))
    mean, variance = p.sum(), (p * (1 - p)).sum()
    assert abs(found.mean() - mean) < 5 * np.sqrt(variance / draws)
    assert abs(found.var() / variance - 1) < 5 * np.sqrt((2 + 1 / variance) / draws)
    assert found.min() >= 1
    assert found.max() <= count


def test_clusters_do_not_depend_on_threads():
    rng = np.random.default_rng(3)
    X, U, V = random_case(rng, 200, 60)
    spread = rng.gamma(1, 1, len(X)), rng.gamma(1, 1, X.shape[1])
    one, two = (drawn_clusters(csr_array(X), U, V, spread, 5, threads) for threads in (1, 2))
    np.testing.assert_array_equal(one.data, two.data)
