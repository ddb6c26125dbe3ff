"""The allocation step: totals of the expected allocations, in one or two fused passes over the nonzeros.

With U (n, K) and V (K, m) the geometric means of loadings and components, X_ij counts are shared out among
the components in proportion to U_ik V_kj (mathematics.md section 2; [P] 16-17, [GP] D.1, [K] 5)::

    R = X / (UV) on the nonzeros        A = U * (R Vᵀ)        B = V * (Uᵀ R)        ℓ = Σ X log(UV)

Time is O(nnz K): neither the (n, m) product nor the (nnz, K) responsibilities are ever formed. A is gathered row by
row. B is scattered to in the same pass, each thread to a copy of its own, or gathered by a second pass over the
transposed counts, where that is faster (`gathers_columns`). This is the only allocation step of the package; every
algorithm calls it or its sampled twin.
"""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

import numba
import numpy as np
from numba import prange
from numpy.typing import NDArray
from scipy.sparse import csr_array

from bayesnmf.kernels.cpu.compiling import kept, serial_and_parallel
from bayesnmf.kernels.cpu.share_block import share_block
from bayesnmf.kernels.cpu.vectors import VECTOR_BYTES, aligned, whole_vectors

Array = NDArray[Any]


class Totals(NamedTuple):
    """What an allocation step returns.

    Attributes
    ----------
    loadings : ndarray of shape (n, K)
        A_ik, the counts of sample i given to component k.
    components : ndarray of shape (K, m)
        B_kj, the counts of feature j given to component k.
    loglik : float
        ℓ = Σ X log(UV) over the nonzeros, in nats.
    """

    loadings: Array
    components: Array
    loglik: float


def row_blocks(indptr: Array, blocks: int) -> Array:
    """Bounds (blocks + 1,) that cut the rows of a CSR matrix into blocks of about equally many nonzeros."""
    targets = np.linspace(0, indptr[-1], blocks + 1)[1:-1]
    return np.concatenate([[0], np.searchsorted(indptr, targets), [len(indptr) - 1]]).astype(np.int64)


# Multiply-adds below which waking a second thread costs more than it saves.
SERIAL_WORK = 2_000_000


def threads_or_default(threads: int | None, work: int) -> int:
    """Return the number of row blocks worked on at once: as asked, or 1 where the work is small, or all threads."""
    if threads is not None:
        return threads
    return 1 if work < SERIAL_WORK else numba.get_num_threads()


@kept(inline="always")
def least_mean(dtype: Any) -> float:
    """Return the mean of a cell below which counts divided by it, and their sums, could overflow."""
    return np.finfo(dtype).tiny ** 0.75


share_cells = share_block(scatter=True, take_log=True)


def _share_out(
    indptr: Array, indices: Array, values: Array, U: Array, V: Array, bounds: Array, A: Array, partial: Array
) -> tuple[Array, Array]:
    """Fill A (n, K) and, per block, Uᵀ R (m, K); return ℓ and whether a mean underflowed for each block."""
    n_blocks = bounds.shape[0] - 1
    rank, width = U.shape[1], V.shape[1]
    step = VECTOR_BYTES // V.itemsize
    least = U.dtype.type(least_mean(U.dtype))
    loglik = np.zeros(n_blocks)
    underflows = np.zeros(n_blocks, dtype=np.int64)
    for block in prange(n_blocks):
        received = partial[block]
        received[:] = 0
        u = np.zeros(width, dtype=U.dtype)
        kept = np.empty(width, dtype=U.dtype)
        sums = np.zeros(step)
        lost = 0
        for i in range(bounds[block], bounds[block + 1]):
            for k in range(rank):
                u[k] = U[i, k]
            kept[:] = 0
            last = indptr[i + 1]
            for p in range(indptr[i], last, step):
                lost |= share_cells(p, min(step, last - p), indices, values, u, V, kept, received, sums, least)
            for k in range(rank):
                A[i, k] = u[k] * kept[k]
        loglik[block] = sums.sum()
        underflows[block] = lost
    return loglik, underflows


def _collect(partial: Array, V: Array, bounds: Array, Bt: Array) -> None:
    """Fill Bt (m, K) with V times the sum of the blocks' Uᵀ R."""
    for block in prange(len(bounds) - 1):
        for j in range(bounds[block], bounds[block + 1]):
            for k in range(V.shape[1]):
                total = partial[0, j, k]
                for other in range(1, len(partial)):
                    total += partial[other, j, k]
                Bt[j, k] = total * V[j, k]


_COLLECT = serial_and_parallel(_collect)
_SCATTER = serial_and_parallel(_share_out)
_GATHER = serial_and_parallel(_share_out, "_share_out_gather", share_cells=share_block(scatter=False, take_log=True))
_GATHER_ONLY = serial_and_parallel(
    _share_out, "_share_out_only", share_cells=share_block(scatter=False, take_log=False)
)
_weigh_block = share_block(scatter=False, take_log=False)


@kept(nogil=True)
def _share_out_underflowed(
    indptr: Array, indices: Array, values: Array, U: Array, V: Array, A: Array, Bt: Array
) -> float:
    """Add the cells whose mean underflowed, with the exponent range that logarithms have; return their ℓ.

    Where no component gives positive mass, factors of 0 count as the smallest normal number.
    """
    rank, width = U.shape[1], V.shape[1]
    step = VECTOR_BYTES // V.itemsize
    least = U.dtype.type(least_mean(U.dtype))
    u, kept, sums = np.zeros(width, dtype=U.dtype), np.zeros(width, dtype=U.dtype), np.zeros(step)
    loglik = 0.0
    for i in range(len(indptr) - 1):
        u[:rank] = U[i]
        last = indptr[i + 1]
        for p in range(indptr[i], last, step):
            lost = _weigh_block(p, min(step, last - p), indices, values, u, V, kept, V, sums, least)
            for q in range(step):
                if lost >> q & 1:
                    j = indices[p + q]
                    loglik += _share_out_cell(values[p + q], u, V[j], A[i], Bt[j])
    return loglik


@kept(nogil=True)
def _share_out_cell(count: float, u: Array, v: Array, a: Array, b: Array) -> float:
    """Add one cell's expected allocations to a and b (K,), in logarithms; return its ℓ."""
    rank = len(a)
    smallest = np.finfo(u.dtype).tiny
    weight = np.empty(rank)
    for k in range(rank):
        weight[k] = np.log(u[k]) + np.log(v[k])
    top = weight.max()
    if top == -np.inf:
        for k in range(rank):
            weight[k] = np.log(max(u[k], smallest)) + np.log(max(v[k], smallest))
        top = weight.max()
    weight = np.exp(weight - top)
    loglik = count * (top + np.log(weight.sum()))
    weight *= count / weight.sum()
    for k in range(rank):
        a[k] += weight[k]
        b[k] += weight[k]
    return loglik


def gathers_columns(matrix: csr_array, rank: int, threads: int | None = None) -> bool:
    """Whether the totals of columns are better gathered by a pass over the transposed counts than scattered to.

    Scattering reads and writes a second row of K numbers for each nonzero, and each thread needs totals of its own;
    gathering shares the counts out again, and needs them twice. Up to 96 bytes a row the first is as fast (measured
    on newsgroups and pbmc_facs at K = 10, 20, 50, on one thread and two).
    """
    copies = threads_or_default(threads, matrix.nnz * rank) * matrix.shape[1] * rank
    return rank * matrix.dtype.itemsize > 3 * VECTOR_BYTES or copies > 4 * matrix.nnz


Sides = Literal["both", "loadings", "components"]


def expected_allocations(
    matrix: csr_array, loadings: Array, components: Array, threads: int | None = None, *,
    transposed: csr_array | None = None, sides: Sides = "both",
) -> Totals:  # fmt: skip
    """Share every count out among the components in proportion to loadings_ik · components_kj.

    Parameters
    ----------
    matrix : csr_array of shape (n, m)
        Counts, of the dtype of the factors (float64 or float32), without explicit zeros.
    loadings, components : ndarray of shape (n, K) and (K, m)
        Positive geometric means. Components are fastest in Fortran order.
    threads : int, optional
        Row blocks worked on at once; by default one for each of Numba's threads, or 1 where there is little to do.
        The result depends on it only by rounding.
    transposed : csr_array of shape (m, n), optional
        The same counts by column: the components' totals are gathered from it, otherwise scattered to.
    sides : {"both", "loadings", "components"}
        Whose totals are wanted; the others are empty. ℓ is NaN where only those of the components are.

    Returns
    -------
    Totals
        With Σ_k A_ik = Σ_j X_ij and Σ_k B_kj = Σ_i X_ij even where the mean of a cell underflows.
    """
    U, V = np.ascontiguousarray(loadings), np.ascontiguousarray(components.T)
    none = U[:0]
    if sides == "loadings":
        A, loglik = _gather(matrix, U, V, threads)
        return Totals(A, none.T, loglik)
    if transposed is None:
        totals = _scatter(matrix, U, V, threads)
        return totals if sides == "both" else Totals(none, totals.components, np.nan)
    Bt, _ = _gather(transposed, V, U, threads, take_log=False)
    if sides == "components":
        return Totals(none, Bt.T, np.nan)
    A, loglik = _gather(matrix, U, V, threads)
    return Totals(A, Bt.T, loglik)


def _gather(matrix: csr_array, U: Array, V: Array, threads: int | None, take_log: bool = True) -> tuple[Array, float]:
    """Return A (n, K) = U * (R V), V (m, K), and ℓ."""
    bounds = row_blocks(matrix.indptr, threads_or_default(threads, matrix.nnz * U.shape[1]))
    A, padded = np.empty_like(U), whole_vectors(V)
    nothing = np.empty((len(bounds) - 1, 0, 0), dtype=V.dtype)
    share_out = (_GATHER if take_log else _GATHER_ONLY)[len(bounds) > 2]
    loglik, underflows = share_out(matrix.indptr, matrix.indices, matrix.data, U, padded, bounds, A, nothing)
    total = float(loglik.sum())
    if underflows.any():
        total += _share_out_underflowed(matrix.indptr, matrix.indices, matrix.data, U, padded, A, np.zeros_like(V))
    return A, total


def _scatter(matrix: csr_array, U: Array, V: Array, threads: int | None) -> Totals:
    """Return A, B and ℓ from one pass."""
    bounds = row_blocks(matrix.indptr, threads_or_default(threads, matrix.nnz * U.shape[1]))
    A, padded = np.empty_like(U), whole_vectors(V)
    m, width = padded.shape
    partial = aligned((len(bounds) - 1) * m, width, V.dtype).reshape(-1, m, width)
    share_out = _SCATTER[len(bounds) > 2]
    loglik, underflows = share_out(matrix.indptr, matrix.indices, matrix.data, U, padded, bounds, A, partial)
    Bt = np.empty_like(V)
    _COLLECT[len(bounds) > 2](partial, V, np.linspace(0, m, len(bounds)).astype(np.int64), Bt)
    total = float(loglik.sum())
    if underflows.any():
        total += _share_out_underflowed(matrix.indptr, matrix.indices, matrix.data, U, padded, A, Bt)
    return Totals(A, Bt.T, total)
