"""The allocation step, its sampled twin and the likelihood, against naive dense formulas."""

import itertools

import numpy as np
import pytest
from golden import reference
from hypothesis import given, settings
from hypothesis import strategies as st
from registry import nasty_counts
from scipy import stats
from scipy.sparse import csr_array
from scipy.special import gammaln
from suites import mostly_long

from bayesnmf.data.conversion import as_counts
from bayesnmf.kernels.cpu.allocation import expected_allocations
from bayesnmf.kernels.cpu.compiling import compiled_on_disk
from bayesnmf.kernels.cpu.dense import entry_allocations
from bayesnmf.kernels.cpu.likelihood import entry_rates, poisson_loglik
from bayesnmf.kernels.cpu.sampling import add_multinomial, binomial, sampled_allocations
from bayesnmf.kernels.cpu.threads import row_blocks

# A sum of K·nnz products rounds to a few hundred units in the last place: 1e-12 in float64, 1e-4 in float32.
EXACT = 1e-12
SINGLE = 1e-4


def csr(dense, dtype=np.float64):
    return as_counts(dense, dtype=dtype).matrix


def factors(shape, rank, rng, dtype=np.float64):
    n, m = shape
    loadings = rng.gamma(1.0, size=(n, rank)) + 1e-3
    components = rng.gamma(1.0, size=(rank, m)) + 1e-3
    return loadings.astype(dtype), np.asfortranarray(components.astype(dtype))


def naive(X, U, V):
    S, loglik = reference.log_allocations(X, reference.safe_log(U), reference.safe_log(V))
    return S.sum(axis=2), S.sum(axis=0), loglik


def random_problem(seed, shape, rank, density):
    rng = np.random.default_rng(seed)
    X = np.where(rng.random(shape) < density, rng.poisson(5.0, shape), 0).astype(np.float64)
    return X, *factors(shape, rank, rng)


# --- expected allocations ---------------------------------------------------------------------------


@settings(max_examples=40, derandomize=True)
@given(
    seed=st.integers(0, 2**32 - 1),
    n=st.integers(1, 12),
    m=st.integers(1, 12),
    rank=st.integers(1, 9),
    density=st.sampled_from([0.0, 0.1, 0.5, 1.0]),
    threads=st.integers(1, 4),
)
def test_expected_allocations_are_the_naive_ones(seed, n, m, rank, density, threads):
    X, U, V = random_problem(seed, (n, m), rank, density)
    found = expected_allocations(csr(X), U, V, threads)
    for got, wanted in zip(found, naive(X, U, V), strict=True):
        np.testing.assert_allclose(got, wanted, rtol=EXACT, atol=EXACT)
    assert found.loadings.shape == (n, rank)
    assert found.components.shape == (rank, m)


def test_any_memory_order_and_read_only_arrays():
    """Each factor in the order that it never has here otherwise: a further order is further compiling."""
    X, (U, V) = nasty_counts(), factors((9, 7), 3, np.random.default_rng(1))
    matrix = csr(X)
    arrays = [np.array(U, order="F"), np.array(V, order="C")]
    for array in (*arrays, matrix.data, matrix.indices, matrix.indptr):
        array.flags.writeable = False
    wanted = naive(X, U, V)
    for got, expected in zip(expected_allocations(matrix, *arrays), wanted, strict=True):
        np.testing.assert_allclose(got, expected, rtol=EXACT)
    np.testing.assert_allclose(entry_rates(matrix, *arrays), (U @ V)[X.nonzero()], rtol=EXACT)
    assert sampled_allocations(matrix, *arrays, seed=1).loadings.sum() == X.sum()
    assert np.isfinite(poisson_loglik(matrix, *arrays, 0.0))


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_stored_zeros_change_nothing_but_rounding(dtype):
    rng = np.random.default_rng(2)
    X = nasty_counts(size=(40, 13))
    U, V = factors(X.shape, 5, rng, dtype)
    full = csr_array(np.ones_like(X))
    full.data = X.ravel().astype(dtype)  # every entry stored, zeros too
    one, dense = expected_allocations(csr(X, dtype), U, V, 1), expected_allocations(full, U, V, 1)
    tolerance = EXACT if dtype == np.float64 else SINGLE
    for got, wanted in zip(dense, one, strict=True):
        np.testing.assert_allclose(got, wanted, rtol=tolerance, atol=tolerance)
    assert one.loadings.dtype == one.components.dtype == dtype


def test_float32_is_close_to_float64():
    X = nasty_counts()
    U, V = factors(X.shape, 4, np.random.default_rng(3))
    double = expected_allocations(csr(X), U, V)
    single = expected_allocations(csr(X, np.float32), U.astype(np.float32), V.astype(np.float32))
    for got, wanted in zip(single, double, strict=True):
        np.testing.assert_allclose(got, wanted, rtol=SINGLE)


def check_totals(totals, X, tolerance):
    np.testing.assert_allclose(totals.loadings.sum(axis=1), X.sum(axis=1), rtol=tolerance)
    np.testing.assert_allclose(totals.components.sum(axis=0), X.sum(axis=0), rtol=tolerance)
    assert np.isfinite(totals.loglik)
    assert np.all(totals.loadings >= 0)
    assert np.all(totals.components >= 0)


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("spread", [0.3, 0.6, 0.9, 1.0])
def test_totals_are_kept_where_means_underflow(dtype, spread, threads):
    """Factors over the whole range of exponents: products of two underflow, and quotients could overflow."""
    rng = np.random.default_rng(4)
    X = nasty_counts()
    lowest = np.log10(np.finfo(dtype).tiny) * spread
    U, V = (10.0 ** rng.uniform(lowest, 0, shape) for shape in ((9, 3), (3, 7)))
    totals = expected_allocations(csr(X, dtype), U.astype(dtype), V.astype(dtype), threads)
    check_totals(totals, X, EXACT if dtype == np.float64 else SINGLE)
    wanted = naive(X, U.astype(dtype).astype(float), V.astype(dtype).astype(float))
    # Logarithms near −700 and −87 round to 1e-13 and 1e-5: so do their exponentials.
    tolerance = 1e-10 if dtype == np.float64 else 1e-3
    for got, expected in zip(totals, wanted, strict=True):
        np.testing.assert_allclose(got, expected, rtol=tolerance, atol=tolerance * 1e-3)


def test_allocations_of_entries_sum_to_the_totals_also_where_means_underflow(monkeypatch):
    rng = np.random.default_rng(4)
    matrix = csr_array(rng.poisson(0.7, (40, 30)).astype(float))
    loadings, components = rng.gamma(0.5, 1, (40, 3)), rng.gamma(0.5, 1, (3, 30))
    loadings[:9] *= 1e-200
    components[:, :4] *= 1e-200
    totals = expected_allocations(matrix, loadings, components)
    monkeypatch.setattr("bayesnmf.kernels.cpu.dense.ENTRIES", 100)  # several blocks
    entries = entry_allocations(matrix, loadings, components)
    rows = np.repeat(np.arange(40), np.diff(matrix.indptr))
    for k in range(3):
        np.testing.assert_allclose(np.bincount(rows, entries[:, k], 40), totals.loadings[:, k], rtol=1e-12)
        np.testing.assert_allclose(np.bincount(matrix.indices, entries[:, k], 30), totals.components[k], rtol=1e-12)


@pytest.mark.parametrize("exponent", range(-40, -29))
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_large_counts_at_tiny_means_do_not_overflow(dtype, exponent):
    exponent = exponent if dtype == np.float32 else int(exponent * 7.7)
    small = dtype(10.0**exponent)
    X = np.full((3, 2), 1e6)
    U, V = np.array([[1, small]] * 3, dtype), np.array([[small, small], [1, 1]], dtype)
    totals = expected_allocations(csr(X, dtype), U, V)
    check_totals(totals, X, 1e-5)
    np.testing.assert_allclose(totals.loadings, 1e6, rtol=1e-5)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_a_factor_of_zero_receives_nothing(dtype):
    """A factor of 0 receives nothing, unless every component of the entry is 0."""
    tiny = np.finfo(dtype).tiny
    U = np.array([[tiny, 0], [0.5, 0], [1, 0]], dtype)
    V = np.array([[1, tiny], [1, 1]], dtype)
    X = np.array([[4, 6], [3, 0], [0, 8]])
    totals = expected_allocations(csr(X, dtype), U, V)
    check_totals(totals, X, 1e-6)
    np.testing.assert_array_equal(totals.loadings[:, 1], 0)
    disjoint = expected_allocations(csr([[5]], dtype), np.array([[1, 0]], dtype), np.array([[0], [1]], dtype))
    np.testing.assert_allclose(disjoint.loadings, [[2.5, 2.5]], rtol=1e-6)
    np.testing.assert_allclose(disjoint.loglik, 5 * np.log(2 * np.float64(tiny)), rtol=1e-6)


def test_rows_and_columns_without_counts():
    X = nasty_counts()
    U, V = factors(X.shape, 3, np.random.default_rng(5))
    for totals in (expected_allocations(csr(X), U, V), sampled_allocations(csr(X), U, V, 0)):
        np.testing.assert_array_equal(totals.loadings[1], 0)
        np.testing.assert_array_equal(totals.components[:, 2], 0)
    nothing = expected_allocations(csr(0 * X), U, V, 2)
    assert nothing.loglik == 0
    assert not nothing.loadings.any()
    assert not nothing.components.any()


@settings(max_examples=50, derandomize=True)
@given(st.lists(st.integers(0, 20), min_size=1, max_size=30), st.integers(1, 8))
def test_row_blocks_cover_every_row_once(lengths, blocks):
    indptr = np.concatenate([[0], np.cumsum(lengths)])
    bounds = row_blocks(indptr, blocks)
    assert len(bounds) <= blocks + 1
    assert (bounds[0], bounds[-1]) == (0, len(lengths))
    assert np.all(np.diff(bounds) > 0)
    largest = max(indptr[b] - indptr[a] for a, b in itertools.pairwise(bounds))
    assert largest <= indptr[-1] / blocks + 2 * max(lengths)


# --- sampled allocations ----------------------------------------------------------------------------


@settings(max_examples=40, derandomize=True)
@given(
    seed=st.integers(0, 2**63 - 1),
    n=st.integers(1, 12),
    m=st.integers(1, 12),
    rank=st.integers(1, 9),
    density=st.sampled_from([0.0, 0.3, 1.0]),
)
def test_sampled_totals_are_exact_and_do_not_depend_on_threads(seed, n, m, rank, density):
    X, U, V = random_problem(seed % 2**32, (n, m), rank, density)
    one, two, three = (sampled_allocations(csr(X), U, V, seed, threads) for threads in (1, 2, 3))
    for other in (two, three):
        np.testing.assert_array_equal(one.loadings, other.loadings)
        np.testing.assert_array_equal(one.components, other.components)
    np.testing.assert_array_equal(one.loadings.sum(axis=1), X.sum(axis=1))
    np.testing.assert_array_equal(one.components.sum(axis=0), X.sum(axis=0))
    for side in one[:2]:
        np.testing.assert_array_equal(side, np.round(side))
        assert np.all(side >= 0)
    np.testing.assert_allclose(one.loglik, naive(X, U, V)[2], rtol=EXACT, atol=EXACT)


def test_seeds_and_rows_have_streams_of_their_own():
    X = np.full((50, 4), 20.0)
    U, V = np.ones((50, 3)), np.ones((3, 4))
    first, again, other = (sampled_allocations(csr(X), U, V, seed).loadings for seed in (1, 1, 2))
    np.testing.assert_array_equal(first, again)
    assert not np.array_equal(first, other)
    assert len(np.unique(first, axis=0)) > 40
    # Neighbouring seeds and rows are no more alike than independent ones: 50 pairs have |r| < 0.5 (3.5 errors).
    for a, b in ((first[:, 0], other[:, 0]), (first[1:, 0], first[:-1, 0])):
        assert abs(np.corrcoef(a, b)[0, 1]) < 0.5


def test_sampled_mean_and_variance_are_those_of_the_multinomial():
    X = nasty_counts()
    X[0, 3] = 1_000_000
    rng = np.random.default_rng(6)
    U, V = factors(X.shape, 4, rng)
    draws = 800
    A, B = zip(*(sampled_allocations(csr(X), U, V, seed)[:2] for seed in range(draws)), strict=True)
    S = reference.allocations(X, U, V)
    variance = S * (1 - S / np.where(X > 0, X, 1)[:, None, :])
    for found, axis in ((np.array(A), 2), (np.array(B), 0)):
        mean, spread = S.sum(axis=axis), variance.sum(axis=axis)
        error = np.sqrt(spread / draws)
        # 64 numbers: all z scores below 4.5 but for one in 2,000 suites; the seed is fixed.
        assert np.all(np.abs(found.mean(axis=0) - mean) <= 4.5 * error + 1e-9)
        # The relative error of a variance of D draws is sqrt((2 + kurtosis) / D); totals far below 1 are left out.
        seen = spread > 1
        relative = found.var(axis=0)[seen] / spread[seen]
        assert np.all(np.abs(relative - 1) < 5 * np.sqrt(3.5 / draws))


def test_an_entry_whose_mean_underflows_is_shared_by_logarithms():
    U, V = np.array([[1e-200, 3e-200]]), np.array([[1e-200], [1e-200]])
    totals = sampled_allocations(csr([[40_000]]), U, V, 0)
    # Binomial(40000, 1/4): mean 10,000, deviation 87.
    assert abs(totals.loadings[0, 0] - 10_000) < 400
    assert totals.loadings.sum() == 40_000


# --- the binomials beneath --------------------------------------------------------------------------

INVERSION = [(1, 0.5), (7, 0.03), (15, 0.5), (40, 0.2), (10_000, 0.0005), (10**6, 3e-6), (60, 0.9)]
REJECTION = [(25, 0.5), (20, 0.5), (101, 0.1), (1_000, 0.3), (1_000, 0.97), (10**6, 0.5), (10**6, 2e-5), (10**9, 0.2)]
BINOMIALS = mostly_long(INVERSION, (1, 4, 6)) + mostly_long(REJECTION, (1, 4, 6, 7))


@compiled_on_disk()
def _fill(state, count, p, out):
    for i in range(len(out)):
        out[i] = binomial(state, count, p)


def binomials(count, p, draws, seed=7):
    out = np.empty(draws, dtype=np.int64)
    _fill(np.array([seed], dtype=np.uint64), count, p, out)
    return out


@pytest.mark.parametrize(("count", "p"), BINOMIALS)
def test_binomial_has_the_right_distribution(count, p):
    """A chi-square test over about 30 classes of equal probability; p value above 1e-4, the seed being fixed.

    A million draws find errors of a percent: of the constants of the rejection sampler, for instance.
    """
    draws = 1_000_000
    found = binomials(count, p, draws)
    assert found.min() >= 0
    assert found.max() <= count
    edges = np.unique(stats.binom.ppf(np.linspace(0, 1, 31)[1:-1], count, p))
    chances = np.diff(np.concatenate([[0.0], stats.binom.cdf(edges, count, p), [1.0]]))
    classes = np.bincount(np.searchsorted(edges, found), minlength=len(chances))
    used = chances * draws > 5
    assert used.sum() >= 2
    observed = np.append(classes[used], classes[~used].sum())
    expected = np.append(chances[used], chances[~used].sum()) * draws
    if expected[-1] < 1:
        observed[-2], expected[-2] = observed[-2:].sum(), expected[-2:].sum()
        observed, expected = observed[:-1], expected[:-1]
    assert stats.chisquare(observed, expected * observed.sum() / expected.sum()).pvalue > 1e-4


@pytest.mark.parametrize(("count", "p"), [(30, 0.5), (1_000, 0.02), (10**6, 0.3)])
def test_the_tails_of_the_binomial_are_right(count, p):
    """Counts beyond the 0.1% and 99.9% quantiles, each within 5 deviations of what is expected."""
    draws = 2_000_000
    found = binomials(count, p, draws, seed=8)
    for chance, beyond in (
        (stats.binom.cdf(low := stats.binom.ppf(1e-3, count, p), count, p), found <= low),
        (stats.binom.sf(high := stats.binom.ppf(1 - 1e-3, count, p), count, p), found > high),
    ):
        assert abs(beyond.sum() - draws * chance) < 5 * np.sqrt(draws * chance)


@pytest.mark.parametrize(
    ("count", "p", "wanted"),
    [(0, 0.3, 0), (9, 0.0, 0), (9, -1e-17, 0), (9, 1.0, 9), (9, 1 + 1e-16, 9), (10**9, 0.0, 0)],
)
def test_binomial_draws_at_the_ends_are_certain(count, p, wanted):
    assert set(binomials(count, p, 20)) == {wanted}


def multinomials(count, weights, draws):
    state = np.array([9], dtype=np.uint64)
    out = np.zeros((draws, len(weights)))
    twice, sums = np.zeros((draws, len(weights))), np.cumsum(weights)
    for row, other in zip(out, twice, strict=True):
        add_multinomial(state, count, sums, row, other)
    np.testing.assert_array_equal(out, twice)
    return out


@pytest.mark.parametrize("count", [1, 3, 12, 13, 400, 10**6])  # up to 4 K = 12 one by one, above by binomials
@pytest.mark.parametrize("weights", [[1.0, 2.0, 5.0], [3e-9, 1e9, 1e9], [1.0, 0.0, 1e-6]])
def test_multinomial_has_binomial_margins_and_the_right_covariance(count, weights):
    draws = 20_000
    found = multinomials(count, weights, draws)
    np.testing.assert_array_equal(found.sum(axis=1), count)
    chances = np.array(weights) / np.sum(weights)
    covariance = count * (np.diag(chances) - np.outer(chances, chances))
    error = np.sqrt(np.diag(covariance) / draws)
    # 4.5 errors each, and 1e-9 for margins that cannot vary.
    assert np.all(np.abs(found.mean(axis=0) - count * chances) <= 4.5 * error + 5 / draws * (chances < 1e-4))
    spread = np.sqrt(np.outer(np.diag(covariance), np.diag(covariance)))
    busy = spread > 0.05  # rarer events have no normal errors
    wrong = np.abs(np.cov(found.T) - covariance)[busy]
    # var of a covariance is at most (2 + kurtosis) spread² / draws; the kurtosis of a margin is below 1/variance.
    assert np.all(wrong < 5 * spread[busy] * np.sqrt((2 + 1 / spread[busy]) / draws))


def test_multinomial_of_few_counts_has_the_right_joint_distribution():
    found = multinomials(2, [1.0, 2.0, 3.0], 60_000)
    entries = [(2, 0, 0), (0, 2, 0), (0, 0, 2), (1, 1, 0), (1, 0, 1), (0, 1, 1)]
    observed = [np.all(found == entry, axis=1).sum() for entry in entries]
    expected = stats.multinomial.pmf(entries, 2, [1 / 6, 1 / 3, 1 / 2]) * len(found)
    assert stats.chisquare(observed, expected).pvalue > 1e-4


# --- the likelihood ---------------------------------------------------------------------------------


@settings(max_examples=25, derandomize=True)
@given(st.integers(0, 2**32 - 1), st.integers(1, 10), st.integers(1, 10), st.integers(1, 6), st.integers(1, 3))
def test_loglik_is_that_of_scipy(seed, n, m, rank, threads):
    X, U, V = random_problem(seed, (n, m), rank, 0.6)
    found = poisson_loglik(csr(X), U, V, float(gammaln(X + 1).sum()), threads)
    np.testing.assert_allclose(found, stats.poisson.logpmf(X, U @ V).sum(), rtol=EXACT, atol=1e-10)


def test_loglik_where_a_rate_is_zero():
    U, V = np.array([[1.0, 0.0], [0.0, 2.0]]), np.array([[1.0, 0.0], [0.0, 3.0]])
    assert poisson_loglik(csr([[2, 1], [0, 4]]), U, V, 0.0) == -np.inf
    X = np.array([[2, 0], [0, 4]])  # a zero count at a rate of zero is certain
    found = poisson_loglik(csr(X), U, V, float(gammaln(X + 1).sum()))
    np.testing.assert_allclose(found, stats.poisson.logpmf(X, U @ V).sum(), rtol=EXACT)


def test_loglik_in_float32_accumulates_in_float64():
    X = nasty_counts(size=(200, 50))
    # In sixteenths every rate is exact in single precision too: what could differ is how they are summed.
    U, V = (np.ceil(16 * side) / 16 for side in factors(X.shape, 4, np.random.default_rng(10), np.float32))
    single = poisson_loglik(csr(X, np.float32), U, V, 0.0)
    double = poisson_loglik(csr(X), U.astype(np.float64), V.astype(np.float64), 0.0)
    np.testing.assert_allclose(single, double, rtol=EXACT)
