"""The allocation step on a GPU, against a naive one: on JAX's CPU backend, and on a GPU where there is one.

By XLA's sums and, where NVIDIA Warp is installed, by the kernel, of which a CPU runs the same source with one lane.
"""

from functools import cache
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from golden import reference
from hypothesis import given, settings
from hypothesis import strategies as st
from registry import heavy_tailed, nasty_counts
from scipy.sparse import csr_array
from suites import mostly_long

from bayesnmf.data.conversion import as_counts
from bayesnmf.kernels.gpu import allocation, segments
from bayesnmf.kernels.gpu.allocation import expected_allocations, place_entries

pytestmark = pytest.mark.usefixtures("quick_compilation")
NASTY = nasty_counts()
by_dtype = pytest.mark.parametrize("dtype", mostly_long([np.float64, np.float32]))
by_way = pytest.mark.parametrize("way", ["xla", "warp"])
SMALL = {"CHUNK": 40, "LONGEST": 4, "FAN": 2}


@cache
def compiled(small):
    """The step, compiled for the chunks of the module or for small ones."""
    return jax.jit(lambda *arrays: expected_allocations(*arrays))


def lanes_of(way, device, rank):
    """Lanes of a segment: none for XLA, one on a CPU, and what a fit takes on a GPU."""
    if way == "xla":
        return 0
    pytest.importorskip("warp")
    from bayesnmf.kernels.gpu.warps import lanes_for

    return 1 if device.platform == "cpu" else lanes_for(rank)


def allocations(X, U, V, device, dtype=np.float64, small=False, way="xla"):
    lanes = lanes_of(way, device, U.shape[1])
    with jax.enable_x64(True), pytest.MonkeyPatch.context() as patch:
        patch.setattr(allocation, "lanes_on", lambda device, rank: lanes)
        counts = as_counts(X, dtype=dtype)
        entries = place_entries(counts.matrix, counts.transposed, U.shape[1], device)
        factors = jax.device_put((U.astype(dtype), V.astype(dtype)), device)
        totals = compiled(small)(entries, *factors)
        assert totals.loadings.dtype == totals.components.dtype == dtype
        assert totals.loglik.dtype == np.float64
        return [np.asarray(each) for each in totals]


def naive(X, U, V):
    S, loglik = reference.log_allocations(X, reference.safe_log(U), reference.safe_log(V))
    return S.sum(axis=2), S.sum(axis=0), loglik


@pytest.mark.parametrize(
    ("X", "rank", "small", "dtype"),
    mostly_long(
        [
            pytest.param(NASTY, 3, False, np.float64, id="nasty"),
            pytest.param(NASTY, 3, True, np.float64, id="many chunks"),
            pytest.param(heavy_tailed(60, 35), 4, True, np.float32, id="many levels"),
            pytest.param(np.zeros((4, 3)), 2, True, np.float32, id="nothing"),
            pytest.param(heavy_tailed(60, 35), 4, False, np.float64, id="heavy tails"),
            pytest.param(np.ones((7, 300)), 1, True, np.float64, id="dense"),
            pytest.param(np.array([[3.0]]), 5, False, np.float64, id="one entry"),
            pytest.param(np.eye(23) * 0.25, 2, True, np.float64, id="diagonal fractions"),
        ],
        4,
    ),
)
@by_way
def test_expected_allocations_are_the_naive_ones(X, rank, small, dtype, way, device, monkeypatch):
    if small:
        for name, value in SMALL.items():
            monkeypatch.setattr(segments, name, value)
    rng = np.random.default_rng(0)
    U, V = rng.gamma(1.0, size=(len(X), rank)) + 1e-3, rng.gamma(1.0, size=(rank, X.shape[1])) + 1e-3
    # A sum of K·nnz products rounds to a few hundred units in the last place.
    tolerance = 1e-12 if dtype == np.float64 else 1e-4
    for got, wanted in zip(allocations(X, U, V, device, dtype, small, way), naive(X, U, V), strict=True):
        np.testing.assert_allclose(got, wanted, rtol=tolerance, atol=tolerance)


@by_dtype
@by_way
@pytest.mark.parametrize("spread", mostly_long([1.0, 0.6, 0.9]))
def test_totals_are_kept_where_means_underflow(dtype, spread, way, device):
    """Factors over the whole range of exponents: products of two underflow, and quotients could overflow."""
    rng = np.random.default_rng(4)
    lowest = np.log10(np.finfo(dtype).tiny) * spread
    U, V = ((10.0 ** rng.uniform(lowest, 0, shape)).astype(dtype) for shape in ((9, 3), (3, 7)))
    found = allocations(NASTY, U, V, device, dtype, way=way)
    rounding = 1e-12 if dtype == np.float64 else 1e-4
    np.testing.assert_allclose(found[0].sum(axis=1), NASTY.sum(axis=1), rtol=rounding)
    np.testing.assert_allclose(found[1].sum(axis=0), NASTY.sum(axis=0), rtol=rounding)
    # Logarithms near −700 and −87 round to 1e-13 and 1e-5: so do their exponentials.
    tolerance = 1e-10 if dtype == np.float64 else 1e-3
    for got, wanted in zip(found, naive(NASTY, U.astype(float), V.astype(float)), strict=True):
        np.testing.assert_allclose(got, wanted, rtol=tolerance, atol=tolerance * 1e-3)


@by_dtype
@by_way
def test_a_factor_of_zero_receives_nothing(dtype, way, device):
    """A factor of 0 receives nothing, unless every component of the entry is 0."""
    tiny = np.finfo(dtype).tiny
    U, V = np.array([[tiny, 0], [0.5, 0], [1, 0], [1, 0]]), np.array([[1, tiny, 0], [1, 1, 1]])
    X = np.array([[4.0, 6.0, 0.0], [3.0, 0.0, 0.0], [0.0, 8.0, 0.0], [0.0, 0.0, 5.0]])
    A, B, loglik = allocations(X, U, V, device, dtype, way=way)
    np.testing.assert_array_equal(A[:3, 1], 0)
    np.testing.assert_allclose(A[:3, 0], X[:3].sum(axis=1), rtol=1e-6)
    np.testing.assert_allclose(B[0, :2], X[:, :2].sum(axis=0), rtol=1e-6)
    np.testing.assert_allclose(A[3], [2.5, 2.5], rtol=1e-6)
    log_tiny = np.log(np.float64(tiny))
    # 4 × tiny · 1, 6 × tiny · tiny, 3 × 0.5, 8 × tiny, and 5 × (0 · 1 + 1 · 0) with zeros taken for tiny.
    wanted = (4 + 2 * 6 + 8 + 5) * log_tiny + 3 * np.log(0.5) + 5 * np.log(2)
    np.testing.assert_allclose(loglik, wanted, rtol=1e-6)


@pytest.mark.parametrize("dtype", mostly_long([np.float32, np.float64]))
@by_way
def test_the_same_bits_at_every_run(dtype, way, device, monkeypatch):
    for name, value in SMALL.items():
        monkeypatch.setattr(segments, name, value)
    rng = np.random.default_rng(1)
    X = heavy_tailed(60, 35)
    U, V = rng.gamma(1.0, size=(60, 4)), rng.gamma(1.0, size=(4, 35))
    for one, two in zip(*(allocations(X, U, V, device, dtype, True, way) for _ in range(2)), strict=True):
        np.testing.assert_array_equal(one, two)


@settings(max_examples=30, derandomize=True)
@given(
    st.lists(st.integers(0, 40), min_size=1, max_size=30), st.integers(1, 9), st.integers(1, 5),
    st.none() | st.tuples(st.integers(0, 9), st.integers(0, 90)),
)  # fmt: skip
def test_every_entry_is_in_one_segment_of_its_row(lengths, longest, chunk, spare):
    indptr = np.concatenate([[0], np.cumsum(lengths)])
    matrix = csr_array((np.arange(1.0, indptr[-1] + 1), np.zeros(indptr[-1], int), indptr), (len(lengths), 1))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(segments, "LONGEST", longest)
        patch.setattr(segments, "CHUNK", chunk * longest)
        entries = segments.segments(matrix, 1, 0)
        if spare is not None:  # with room for more, whatever the matrix, sizes are those of any matrix in this room
            room = segments.Room(len(lengths) + spare[0], int(indptr[-1]) + spare[1])
            entries = segments.segments(matrix, 1, 0, room)
            other = segments.segments(csr_array((1, 1)), 1, 0, room)
            assert jax.tree.map(np.shape, entries) == jax.tree.map(np.shape, other)
            assert jax.tree.structure(entries) == jax.tree.structure(other)
            assert entries.rows == room.rows
            lengths = [*lengths, *[0] * spare[0]]
    owners, starts, ends = (np.ravel(each) for each in (entries.owners, entries.starts, entries.ends))
    assert np.all(ends - starts <= entries.length)
    assert entries.length <= longest
    found = np.zeros((len(owners), int(indptr[-1])), int)
    for s, (first, last) in enumerate(zip(starts, ends, strict=True)):
        found[s, first:last] = 1
    np.testing.assert_array_equal(found.sum(axis=0), 1)
    np.testing.assert_array_equal(owners[found.argmax(axis=0)], np.repeat(np.arange(len(lengths)), lengths))
    for first, last in entries.tree:  # summed up by levels, every entry ends in its row
        found = np.array([found[a:b].sum(axis=0) for a, b in zip(first, last, strict=True)])
    rows = found[: entries.rows]
    np.testing.assert_array_equal(rows.sum(axis=1), lengths)
    np.testing.assert_array_equal(rows.sum(axis=0), 1)


def test_temporaries_do_not_grow_with_counts_times_rank(monkeypatch):
    """What the compiler plans for a pass: chunks and sums of segments, far below one number for each count and rank."""
    monkeypatch.setattr(segments, "CHUNK", 2**14)
    n, m, rank = 400, 300, 16
    X = np.random.default_rng(0).poisson(3.0, (n, m)).astype(float)
    with jax.enable_x64(True):
        counts = as_counts(X)
        entries = place_entries(counts.matrix, counts.transposed, rank, jax.devices("cpu")[0])
        U, V = jnp.ones((n, rank)), jnp.ones((rank, m))
        planned = jax.jit(expected_allocations).lower(entries, U, V).compile().memory_analysis().temp_size_in_bytes
    # 15 MB for every count and rank; sums of segments take up to 5 (n + m) K, twice where means underflow.
    assert planned < 8 * (10 * (n + m) * rank + 16 * 2**14) < 8 * np.count_nonzero(X) * rank / 2


@pytest.mark.long
@pytest.mark.parametrize("rank", [3, 50, 250])
@pytest.mark.parametrize("architecture", [80, 90, 100])
def test_the_kernel_is_compiled_for_each_generation_of_gpus(architecture, rank, tmp_path):
    """Without a GPU: A100, H100 and H200, B200. The number of lanes is the one that a fit takes."""
    wp = pytest.importorskip("warp")
    from bayesnmf.kernels.gpu.warps import kernel_of, lanes_for

    lanes, pieces = lanes_for(rank), -(-rank // 4)
    for dtype in ("float32", "float64"):
        kernel = kernel_of(lanes, -(-pieces // lanes), pieces, dtype, "int32")
        (made,) = wp.compile_aot_module(kernel.module, arch=[architecture], module_dir=tmp_path / dtype, use_ptx=False)
        assert made.name.endswith(f"sm{architecture}.cubin")
        assert made.read_bytes().startswith(b"\x7fELF")


@pytest.mark.parametrize(
    ("platform", "kind", "version", "lanes"),
    [
        ("gpu", "NVIDIA H200", "", 8),
        ("gpu", "Tesla T4", "PJRT C API\ncuda 12030", 8),
        ("gpu", "AMD Instinct MI300X", "PJRT C API\nrocm 60100", 0),
        ("cpu", "cpu", "<unknown>", 0),
    ],
)
def test_the_kernel_is_taken_on_gpus_of_nvidia_where_warp_is_installed(platform, kind, version, lanes, monkeypatch):
    pytest.importorskip("warp")
    device = SimpleNamespace(platform=platform, device_kind=kind, client=SimpleNamespace(platform_version=version))
    assert allocation.lanes_on(device, 50) == lanes
    monkeypatch.setattr(allocation, "find_spec", lambda name: None)
    assert allocation.lanes_on(device, 50) == 0
