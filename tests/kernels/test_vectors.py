"""What is written in vectors: the two ways to the totals, special functions, moments of mean fields."""

import os
import subprocess
import sys
import weakref

import numpy as np
import pytest
from scipy.sparse import csr_array
from scipy.special import digamma, gammaln, xlogy
from suites import mostly_long

from bayesnmf.kernels.cpu import dense
from bayesnmf.kernels.cpu.allocation import ComponentTotals, expected_allocations, gathers_columns
from bayesnmf.kernels.cpu.compiling import compiled_on_disk
from bayesnmf.kernels.cpu.dense import dense_allocations, is_dense
from bayesnmf.kernels.cpu.factors import (
    LINE_BYTES,
    Memory,
    aligned,
    is_padded,
    lanes,
    largest_imbalance,
    move,
    move_logarithms,
    padded,
    padded_copy,
    rows_in_memory,
    scale_rows,
    whole_vectors,
)
from bayesnmf.kernels.cpu.mean_field import digamma_with_excess, mean_field_moments
from bayesnmf.kernels.cpu.special import exponentials, logarithms, weighted_logarithms
from bayesnmf.priors import Dirichlet, Gamma, ScaledDirichlet

EXACT = {"float64": 1e-12, "float32": 1e-5}  # sums of a few dozen products
DTYPES = pytest.mark.parametrize("dtype", ["float64", "float32"])


def problem(n, m, rank, dtype, seed=0):
    """Counts with empty rows and columns, and rows of every length modulo a vector."""
    rng = np.random.default_rng(seed)
    X = rng.poisson(2.0, (n, m)) * (rng.random((n, m)) < rng.random((n, 1)))
    X[n // 2] = 0
    X[:, m // 2] = 0
    U, V = rng.gamma(1.0, size=(n, rank)) + 1e-3, rng.gamma(1.0, size=(rank, m)) + 1e-3
    return csr_array(X.astype(dtype)), U.astype(dtype), np.asfortranarray(V.astype(dtype))


def naive(matrix, U, V):
    X = matrix.toarray().astype(np.float64)
    mean = U.astype(np.float64) @ V
    ratio = X / mean
    return U * (ratio @ V.T), V * (U.T @ ratio), xlogy(X, mean).sum()


@DTYPES
@pytest.mark.parametrize("rank", [1, 3, 4, 5, 8, 9, 17, 40])
@pytest.mark.parametrize("threads", [1, 3])
def test_scattered_and_gathered_totals_are_the_naive_ones(dtype, rank, threads):
    matrix, U, V = problem(23, 41, rank, dtype)
    wanted = naive(matrix, U, V)
    transposed = csr_array(matrix.T)
    for found in (
        expected_allocations(matrix, U, V, threads),
        expected_allocations(matrix, U, V, threads, transposed=transposed),
    ):
        for got, expected in zip(found, wanted, strict=True):
            np.testing.assert_allclose(got, expected, rtol=EXACT[dtype], atol=0)
            assert np.asarray(got).dtype == (dtype if np.ndim(got) else np.float64)


def test_one_side_is_what_both_sides_give():
    matrix, U, V = problem(23, 41, 6, "float64")
    transposed = csr_array(matrix.T)
    both = expected_allocations(matrix, U, V, 1, transposed=transposed)
    loadings = expected_allocations(matrix, U, V, 1, sides="loadings")
    components = expected_allocations(matrix, U, V, 1, transposed=transposed, sides="components")
    scattered = expected_allocations(matrix, U, V, 1, sides="components")
    np.testing.assert_allclose(scattered.components, components.components, rtol=1e-13)
    assert scattered.loadings.shape == (0, 6)
    assert np.isnan(scattered.loglik)
    np.testing.assert_array_equal(loadings.loadings, both.loadings)
    assert loadings.loglik == both.loglik
    assert loadings.components.shape == (6, 0)
    np.testing.assert_array_equal(components.components, both.components)
    assert components.loadings.shape == (0, 6)
    assert np.isnan(components.loglik)


def test_rows_do_not_depend_on_threads_by_a_bit():
    matrix, U, V = problem(60, 41, 5, "float64")
    transposed = csr_array(matrix.T)
    one, three = (expected_allocations(matrix, U, V, t, transposed=transposed) for t in (1, 3))
    np.testing.assert_array_equal(one.loadings, three.loadings)
    np.testing.assert_array_equal(one.components, three.components)


@DTYPES
def test_gathering_shares_out_underflowed_entries_too(dtype):
    """Every count arrives on both sides, whichever way, where some means are below the range of the dtype."""
    matrix, U, V = problem(30, 30, 5, dtype)
    tiny = np.finfo(dtype).tiny ** 0.6
    U[::3] *= tiny
    V[:, ::4] *= tiny
    X = matrix.toarray().astype(np.float64)
    scattered = expected_allocations(matrix, U, V, 1)
    gathered = expected_allocations(matrix, U, V, 2, transposed=csr_array(matrix.T))
    for found in (scattered, gathered):
        np.testing.assert_allclose(found.loadings.sum(axis=1), X.sum(axis=1), rtol=EXACT[dtype])
        np.testing.assert_allclose(found.components.sum(axis=0), X.sum(axis=0), rtol=EXACT[dtype])
    np.testing.assert_allclose(gathered.loglik, scattered.loglik, rtol=EXACT[dtype])


@pytest.mark.parametrize("transpose", [False, True])
def test_not_a_number_and_infinity_are_not_hidden(transpose):
    for odd in (np.nan, np.inf):
        matrix, U, V = problem(9, 9, 3, "float64")
        row = int(np.flatnonzero(np.diff(matrix.indptr))[0])
        U[row, 1] = odd
        found = expected_allocations(matrix, U, V, 1, transposed=csr_array(matrix.T) if transpose else None)
        assert not np.isfinite(found.loglik)
        assert not np.isfinite(found.loadings[row]).all()


def test_indices_of_64_bits_are_the_same():
    matrix, U, V = problem(23, 41, 6, "float64")
    long = csr_array((matrix.data, matrix.indices.astype(np.int64), matrix.indptr.astype(np.int64)), shape=matrix.shape)
    for got, expected in zip(expected_allocations(long, U, V, 1), expected_allocations(matrix, U, V, 1), strict=True):
        np.testing.assert_array_equal(got, expected)


def test_nothing_is_read_behind_the_last_nonzero():
    """The last row's tail ends where memory does: numbers behind it change nothing."""
    matrix, U, V = problem(5, 13, 3, "float64", seed=3)
    kept = matrix.nnz
    padded = [np.concatenate([each, np.full(64, 7, each.dtype)])[:kept] for each in (matrix.data, matrix.indices)]
    other = csr_array((padded[0], padded[1], matrix.indptr), shape=matrix.shape)
    for got, expected in zip(expected_allocations(other, U, V, 1), expected_allocations(matrix, U, V, 1), strict=True):
        np.testing.assert_array_equal(got, expected)


@DTYPES
@pytest.mark.parametrize("sides", ["both", "loadings", "components"])
def test_dense_counts_are_shared_out_alike(dtype, sides):
    """By BLAS, in several blocks of rows, some counts 0; one side is what both give."""
    rng = np.random.default_rng(4)
    X = rng.poisson(3.0, (40, dense.ENTRIES // 12)).astype(dtype)
    matrix = csr_array(X)
    assert is_dense(matrix)
    assert not is_dense(problem(20, 20, 2, dtype)[0])
    U, V = rng.gamma(1.0, size=(40, 4)).astype(dtype), rng.gamma(1.0, size=(4, X.shape[1])).astype(dtype)
    found = dense_allocations(X, U, V, sides)
    wanted = expected_allocations(matrix, U, V, 1)
    rtol = {"float64": 1e-11, "float32": 2e-4}[dtype]
    if sides != "components":
        np.testing.assert_allclose(found.loadings, wanted.loadings, rtol=rtol)
    if sides != "loadings":
        np.testing.assert_allclose(found.components, wanted.components, rtol=rtol)
    loglik = np.nan if sides == "components" else wanted.loglik
    np.testing.assert_allclose(found.loglik, loglik, rtol=EXACT[dtype])
    assert found.loadings.shape == ((0, 4) if sides == "components" else (40, 4))
    assert found.components.shape == ((4, 0) if sides == "loadings" else V.shape)


def test_an_empty_row_leaves_dense_counts_dense():
    """EM gives it loadings of 0: means of 0, for which no count asks."""
    X = np.array([[1.0, 2.0, 3.0], [0.0, 0.0, 0.0], [4.0, 5.0, 6.0]])
    U, V = np.array([[1.0, 2.0], [0.0, 0.0], [3.0, 1.0]]), np.array([[1.0, 2.0, 1.0], [0.5, 1.0, 2.0]])
    for got, wanted in zip(dense_allocations(X, U, V), expected_allocations(csr_array(X), U, V, 1), strict=True):
        np.testing.assert_allclose(got, wanted, rtol=1e-14)


def test_dense_counts_whose_means_underflow_are_left_to_the_other_step():
    X = np.ones((3, 3))
    U, V = np.full((3, 2), 1e-200), np.full((2, 3), 1e-200)
    assert dense_allocations(X, U, V) is None
    assert np.isnan(dense_allocations(X, np.full((3, 2), np.nan), np.ones((2, 3))).loglik)


def test_wide_rows_are_gathered_and_narrow_ones_scattered():
    matrix = csr_array(np.ones((50, 40)))
    assert not gathers_columns(matrix, 8)
    assert gathers_columns(matrix, 9)
    assert not gathers_columns(matrix.astype("float32"), 16)
    wide = csr_array((np.ones(300_000), np.arange(300_000) % 200_000, [0, 150_000, 300_000]), shape=(2, 200_000))
    assert gathers_columns(wide, 8)  # a copy of the totals for each shard would be larger than the counts


def test_loadings_beyond_a_cache_are_not_read_in_the_order_of_the_features():
    rows = 40_000
    matrix = csr_array((np.ones(rows), np.zeros(rows, np.int32), np.arange(rows + 1, dtype=np.int32)), shape=(rows, 30))
    assert gathers_columns(matrix, 39)  # 12.48 MB of loadings
    assert not gathers_columns(matrix, 40)
    assert gathers_columns(matrix.astype("float32"), 40)


@pytest.mark.parametrize("dtype", mostly_long(["float64", "float32"]))
def test_totals_of_the_components_are_gathered_over_blocks(dtype):
    """Also from unsigned integers, and where means underflow in one of the blocks."""
    rng = np.random.default_rng(0)
    X = rng.poisson(1.0, (60, 20))
    U, V = rng.random((60, 5)).astype(dtype), rng.random((5, 20)).astype(dtype)
    U[30:33] *= np.finfo(dtype).tiny
    whole = expected_allocations(csr_array(X.astype(dtype)), U, V, 1)
    for kind in (dtype, {"float64": np.uint16, "float32": np.uint32}[dtype]):
        tally = ComponentTotals(V)
        parts = [
            tally.add(csr_array(X[rows].astype(kind)), U[rows]) for rows in (slice(25), slice(25, 40), slice(40, 60))
        ]
        tol = 1e-12 if dtype == np.float64 else 1e-5
        np.testing.assert_allclose(np.vstack([part[0] for part in parts]), whole.loadings, rtol=tol)
        np.testing.assert_allclose(tally.totals(), whole.components.T, rtol=tol)
        np.testing.assert_allclose(sum(part[1] for part in parts), whole.loglik, rtol=tol)


@DTYPES
def test_whole_vectors_are_aligned_and_padded_with_zeros(dtype):
    factor = np.arange(1, 22, dtype=dtype).reshape(3, 7)
    out = whole_vectors(factor)
    np.testing.assert_array_equal(out[:, :7], factor)
    assert not out[:, 7:].any()
    assert out.shape[1] % lanes(dtype) == 0
    assert aligned(5, 8, dtype).ctypes.data % LINE_BYTES == 0


@DTYPES
def test_padded_arrays_are_taken_as_they_are_and_others_are_copied(dtype):
    factor = padded((7, 5), dtype)
    factor[:] = np.arange(35).reshape(7, 5) + 1
    whole = whole_vectors(factor)
    assert np.shares_memory(whole, factor)
    assert not whole[:, 5:].any()
    assert np.shares_memory(rows_in_memory(factor), factor)
    assert np.shares_memory(whole_vectors(factor.T.T[2:]), factor)  # what a pair of transposes and some rows leave
    for other in (factor[:, :4], factor[::2], factor.copy(), whole[:, :5].astype(dtype), whole[:, :6]):
        found = whole_vectors(other)
        assert not np.shares_memory(found, factor)
        np.testing.assert_array_equal(found[:, : other.shape[1]], other)
        assert not found[:, other.shape[1] :].any()
    assert not np.shares_memory(whole_vectors(whole[:-1, 1:6]), factor)  # as wide, and a column further on
    turned = padded_copy(np.ones((3, 4), dtype), component_axis=0)
    assert np.shares_memory(whole_vectors(turned.T), turned)
    assert [is_padded(factor), is_padded(turned, 0)] == [True, True]
    assert [is_padded(turned), is_padded(factor, 0), is_padded(factor.copy())] == [False] * 3


@DTYPES
def test_rows_are_scaled_in_place_whether_padded_or_not(dtype):
    values, scale = np.arange(1, 36).reshape(7, 5), np.array([2.0, 0.5, 1.0, 4.0, 3.0])
    for factor in (padded_copy(values.astype(dtype)), values.astype(dtype), np.asfortranarray(values, dtype=dtype)):
        scale_rows(factor, scale)
        np.testing.assert_array_equal(factor, values * scale)
        assert not whole_vectors(factor)[:, 5:].any()


def test_memory_of_padded_arrays_lives_as_long_as_a_view_of_it():
    factor = padded((3, 5), "float64")
    memory = weakref.ref(factor.base.base)
    assert type(memory()) is Memory
    whole = whole_vectors(factor)
    del factor
    assert type(memory()) is Memory
    del whole
    assert memory() is None


@DTYPES
def test_moving_along_the_line_keeps_to_the_floor_and_the_padding_at_zero(dtype):
    rng = np.random.default_rng(4)
    new, old = (padded_copy(rng.gamma(1.0, size=(9, 5)).astype(dtype)) for _ in range(2))
    found = move(new, old, 1.7, 0.5)
    np.testing.assert_allclose(found, np.maximum(new + 1.7 * (new - old), 0.5), rtol=1e-6)
    assert not whole_vectors(found)[:, 5:].any()
    np.testing.assert_array_equal(move(new.T, old.T, 1.7, 0.5), found.T)


# --- special functions ------------------------------------------------------------------------------


@compiled_on_disk()
def _exponentials(x):
    exponentials(len(x), x)


def test_digamma_and_excess_are_those_of_scipy():
    """X ψ(x) − logΓ(x) − x: of SciPy's functions where they do not cancel, and of its series where they do."""
    rng = np.random.default_rng(0)
    x = np.concatenate([10 ** rng.uniform(-12, 2, 4096), rng.uniform(0.01, 20, 4096), 10.0 ** np.arange(-300, 2, 5.0)])
    psi, excess = digamma_with_excess(x)
    # Next to the zero of ψ at 1.46 it is accurate to rounding of the terms that cancel.
    np.testing.assert_array_less(np.abs(psi - digamma(x)), 4e-15 * np.maximum(1, np.abs(digamma(x))))
    terms = np.abs(x * digamma(x)) + np.abs(gammaln(x)) + gammaln(x + 10)  # logΓ is taken 10 further on
    np.testing.assert_array_less(np.abs(excess - (x * digamma(x) - gammaln(x) - x)), 1e-15 * terms)
    large = 10.0 ** np.arange(4, 300)
    psi, excess = digamma_with_excess(large)
    np.testing.assert_allclose(psi, digamma(large), rtol=4e-16)
    series = 0.5 * np.log(large) - 0.5 - 0.5 * np.log(2 * np.pi) - 1 / (6 * large)
    np.testing.assert_allclose(excess, series, rtol=1e-12)


def test_exponentials_are_those_of_numpy_and_never_0():
    x = np.concatenate([np.linspace(-708, 0, 4095), [-1e-300]])
    found = x.copy()
    _exponentials(found)
    np.testing.assert_allclose(found, np.exp(x), rtol=4e-16)
    far = np.array([-709.0, -800.0, -1e9, -np.inf])
    _exponentials(far)
    np.testing.assert_allclose(far, np.exp(-708.0), rtol=1e-15)


def test_logarithms_are_those_of_numpy_for_all_normal_numbers():
    @compiled_on_disk()
    def logs(x):
        logarithms(len(x), x)

    @compiled_on_disk()
    def weighted(weight, x):
        return weighted_logarithms(len(x), weight, x)

    rng, limits = np.random.default_rng(0), np.finfo(float)
    edges = [limits.tiny, limits.max, 1.0, 2.0, np.sqrt(0.5), np.nextafter(np.sqrt(0.5), 0.0), 0.5, 1.0 - 1e-15]
    x = np.concatenate([np.exp(rng.uniform(-700, 700, 4000)), 1 + 1e-3 * rng.normal(size=4000), edges])
    found, weight = x.copy(), rng.uniform(0.0, 3.0, len(x))
    logs(found)
    np.testing.assert_allclose(found, np.log(x), rtol=3e-16)
    assert weighted(weight, x) == pytest.approx(weight @ np.log(x), rel=1e-12)


@DTYPES
@pytest.mark.parametrize("threads", [1, 3])
def test_moving_logarithms_is_what_powers_say(dtype, threads):
    rng = np.random.default_rng(5)
    new, old = (np.asfortranarray((rng.gamma(0.3, size=(61, 70)) + 1e-30).astype(dtype)) for _ in range(2))
    for weight in (0.0, 0.5, 2.0):
        wanted = new.astype(np.float64) * (new.astype(np.float64) / old) ** weight
        with np.errstate(over="ignore"):
            wanted = wanted.astype(dtype)
        found = move_logarithms(new, old, weight, threads)
        np.testing.assert_allclose(found, wanted, rtol={"float64": 1e-13, "float32": 3e-7}[dtype])
        assert found.strides[0] < found.strides[1]  # features in rows, as they were given
    new[3], old[:, 4] = 0, 0
    found = move_logarithms(new, old, 1.0, threads)
    np.testing.assert_array_equal(found[3], 0)
    np.testing.assert_array_equal(found[:, 4], new[:, 4])


OF_LOGARITHMS = """
from bayesnmf.kernels.cpu.factors import move_logarithms
a, b = rng.gamma(1.0, size=(2, 99))
np.testing.assert_allclose(move_logarithms(a, b, 0.7, 1), a * (a / b) ** 0.7, rtol=1e-12)
"""
OF_MOMENTS = """
from bayesnmf.priors import Gamma
q, prior = Gamma(rng.gamma(1.0, size=(50, 7)) + 0.1, np.ones((1, 7))), Gamma(1.0, 1.0)
found, log = q.moments(prior, 1, 1), q.expected_log()
np.testing.assert_allclose(found.geometric, np.exp(log - log.max(axis=1, keepdims=True)), rtol=1e-12)
np.testing.assert_allclose(found.divergence, q.kl(prior), rtol=1e-12)
"""


@pytest.mark.parametrize("code", mostly_long([OF_LOGARITHMS, OF_MOMENTS]), ids=["logarithms", "moments"])
def test_vectors_are_right_on_a_processor_without_fused_multiplication(code):
    """Sums may be reordered, and there LLVM once took a rounding away with them."""
    environment = os.environ | {"NUMBA_CPU_NAME": "generic", "NUMBA_CPU_FEATURES": ""}
    program = "import numpy as np; rng = np.random.default_rng(0)" + code
    subprocess.run([sys.executable, "-c", program], env=environment, check=True)


# --- moments ----------------------------------------------------------------------------------------

SIZE = (37, 5)


def distributions():
    rng = np.random.default_rng(1)
    shape, rate = rng.gamma(1.0, size=SIZE) + 0.05, rng.gamma(1.0, size=(1, SIZE[1])) + 0.1
    yield "gamma", Gamma(shape, rate), Gamma(0.7, 1.3)
    yield "gamma, rates of every entry", Gamma(shape, rate * np.ones(SIZE)), Gamma(np.ones(SIZE), np.ones(SIZE[1]))
    yield "gamma, flat prior", Gamma(shape, rate), Gamma(1.0, 0.0)
    yield "dirichlet", Dirichlet(shape), Dirichlet(0.4)
    yield "dirichlet, vector", Dirichlet(shape), Dirichlet(rng.gamma(1.0, size=SIZE[1]) + 0.1)
    scale = rng.gamma(1.0, size=(2, SIZE[0], 1)) + 0.5
    yield "scaled", ScaledDirichlet(shape, *scale), ScaledDirichlet(0.4, 1.0, 0.5)


def moments_cases():
    """Every distribution along both axes in both precisions: by default single precision once for each family."""
    cases = [case for case in distributions() if case[0] != "scaled"]
    places = [(case, axis, dtype) for dtype in ("float64", "float32") for case in cases for axis in (0, 1)]
    named = [pytest.param(*each, id=f"{each[0][0]}-{each[1]}-{each[2]}") for each in places]
    single = {"gamma-1-float32", "dirichlet-0-float32"}
    return mostly_long(named, [at for at, each in enumerate(named) if each.id.endswith("64") or each.id in single])


@pytest.mark.parametrize(("case", "component_axis", "dtype"), moments_cases())
def test_moments_are_what_the_distribution_says(case, component_axis, dtype):
    """The compiled pass against the formulas of the priors, in NumPy and SciPy."""
    _, q, prior = case
    check_moments(q, prior, component_axis, dtype)


@DTYPES
def test_moments_of_scaled_proportions_are_what_the_distribution_says(dtype):
    _, q, prior = list(distributions())[-1]
    check_moments(q, prior, 1, dtype)


def check_moments(q, prior, component_axis, dtype):
    q = type(q)(**{name: np.asarray(value, dtype) for name, value in vars(q).items()})
    rtol = {"float64": 1e-12, "float32": 2e-6}[dtype]
    found = q.moments(prior, component_axis, 1)
    exact = type(q)(**{name: np.asarray(value, np.float64) for name, value in vars(q).items()})
    expected_log, kl = exact.expected_log(), exact.kl(prior)
    shift = expected_log.max(axis=component_axis, keepdims=True)
    np.testing.assert_allclose(found.shift, shift, rtol=rtol, atol=rtol)
    np.testing.assert_allclose(found.geometric, np.exp(expected_log - shift), rtol=10 * rtol)
    assert found.geometric.dtype == dtype
    if found.sums is None:
        assert isinstance(q, ScaledDirichlet)
    else:
        np.testing.assert_allclose(found.sums, exact.mean().sum(axis=1 - component_axis), rtol=rtol)
    assert found.divergence == pytest.approx(kl, rel=rtol)
    assert np.isnan(q.moments(None, component_axis, 1).divergence)
    np.testing.assert_array_equal(q.moments(None, component_axis, 3).geometric, found.geometric)


def test_moments_of_many_blocks_and_of_nothing():
    """More rows than are worked on at a time, on several threads; and no row at all."""
    rng = np.random.default_rng(2)
    shape = rng.gamma(1.0, size=(5000, 3)) + 0.1
    found = mean_field_moments(shape, np.ones((1, 1)), np.zeros((1, 1)), np.full((1, 3), 0.3), np.zeros((1, 1)), 3)
    expected_log = digamma(shape)
    np.testing.assert_allclose(found.shift[:, 0], expected_log.max(axis=1), rtol=1e-12, atol=1e-14)
    wanted = ((shape - 0.3) * expected_log - gammaln(shape) - shape).sum()
    assert found.divergence == pytest.approx(wanted, rel=1e-12)
    nothing = mean_field_moments(shape[:0], *[np.ones((1, 1))] * 4)
    assert nothing.geometric.shape == (0, 3)
    np.testing.assert_array_equal(nothing.sums, 0)
    assert nothing.divergence == 0


def test_an_imbalance_that_is_not_a_number_is_told():
    value = np.ones((3, 2))
    assert largest_imbalance(value, np.zeros((3, 2)), np.ones((1, 1)), np.full((1, 1), 2.0)) == 1.0
    assert np.isnan(largest_imbalance(value, np.full((3, 2), np.nan), np.ones((1, 1)), np.zeros((1, 1))))
