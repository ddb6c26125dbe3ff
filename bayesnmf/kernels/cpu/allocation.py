"""The allocation step: totals of the expected allocations, in one fused pass over the nonzeros.

With U (n, K) and V (K, m) the geometric means of loadings and components, X_ij counts are shared out among
the components in proportion to U_ik V_kj (mathematics.md section 2; [P] 16-17, [GP] D.1, [K] 5)::

    R = X / (UV) on the nonzeros        A = U * (R Vᵀ)        B = V * (Uᵀ R)        ℓ = Σ X log(UV)

Time is O(nnz K), memory O((n + m) K) a thread: neither the (n, m) product nor the (nnz, K) responsibilities
are ever formed. This is the only allocation step of the package; every algorithm calls it or its sampled twin.
"""

from __future__ import annotations

from collections.abc import Callable
from types import FunctionType
from typing import Any, NamedTuple

import numba
import numpy as np
from numba import njit, prange
from numpy.typing import NDArray
from scipy.sparse import csr_array

Array = NDArray[Any]

# Sums may be reordered and fused, so that the loops over components vectorise; NaN and infinity keep their meaning.
FAST = {"reassoc", "contract", "arcp", "nsz"}


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
SERIAL_WORK = 200_000


def threads_or_default(threads: int | None, work: int) -> int:
    """Return the number of row blocks worked on at once: as asked, or 1 where the work is small, or all threads."""
    if threads is not None:
        return threads
    return 1 if work < SERIAL_WORK else numba.get_num_threads()


def serial_and_parallel(function: Callable[..., Any]) -> tuple[Callable[..., Any], Callable[..., Any]]:
    """Compile a loop over row blocks twice: for one thread, without the GIL, and for several.

    Numba's cache tells functions apart by name, not by options: under one name either would be loaded for the other.
    """

    def compiled(parallel: bool) -> Callable[..., Any]:
        twin = FunctionType(function.__code__, function.__globals__, function.__name__)
        twin.__qualname__ = f"{function.__name__}_{'parallel' if parallel else 'serial'}"
        return njit(cache=True, nogil=True, parallel=parallel, fastmath=FAST)(twin)

    return compiled(False), compiled(True)


@njit(cache=True, inline="always")
def least_mean(dtype: Any) -> float:
    """Return the mean of a cell below which counts divided by it, and their sums, could overflow."""
    return np.finfo(dtype).tiny ** 0.75


def _share_out(
    indptr: Array, indices: Array, values: Array, U: Array, Vt: Array, bounds: Array, A: Array, partial: Array
) -> tuple[Array, Array]:
    """Fill A (n, K) and, per block, Uᵀ R (m, K); return ℓ and the number of underflows of each block."""
    n_blocks = bounds.shape[0] - 1
    rank = U.shape[1]
    least = least_mean(U.dtype)
    loglik = np.zeros(n_blocks)
    underflows = np.zeros(n_blocks, dtype=np.int64)
    for block in prange(n_blocks):
        received = partial[block]
        kept = np.empty(rank, dtype=U.dtype)
        sum_log = 0.0
        lost = 0
        for i in range(bounds[block], bounds[block + 1]):
            u = U[i]
            kept[:] = 0
            for p in range(indptr[i], indptr[i + 1]):
                v = Vt[indices[p]]
                mean = U.dtype.type(0)
                for k in range(rank):
                    mean += u[k] * v[k]
                if mean < least:
                    lost += 1
                    continue
                ratio = values[p] / mean
                sum_log += values[p] * np.log(mean)
                row = received[indices[p]]
                for k in range(rank):
                    kept[k] += ratio * v[k]
                    row[k] += ratio * u[k]
            for k in range(rank):
                A[i, k] = u[k] * kept[k]
        loglik[block] = sum_log
        underflows[block] = lost
    return loglik, underflows


_SHARE_OUT = serial_and_parallel(_share_out)


@njit(cache=True, nogil=True)
def _share_out_underflowed(
    indptr: Array, indices: Array, values: Array, U: Array, Vt: Array, A: Array, Bt: Array
) -> float:
    """Add the cells whose mean underflowed, with the exponent range that logarithms have; return their ℓ.

    Where no component gives positive mass, factors of 0 count as the smallest normal number.
    """
    rank = U.shape[1]
    smallest = np.finfo(U.dtype).tiny
    least = least_mean(U.dtype)
    weight = np.empty(rank)
    loglik = 0.0
    for i in range(len(indptr) - 1):
        for p in range(indptr[i], indptr[i + 1]):
            j = indices[p]
            mean = U.dtype.type(0)
            for k in range(rank):
                mean += U[i, k] * Vt[j, k]
            if mean >= least:
                continue
            for k in range(rank):
                weight[k] = np.log(U[i, k]) + np.log(Vt[j, k])
            top = weight.max()
            if top == -np.inf:
                for k in range(rank):
                    weight[k] = np.log(max(U[i, k], smallest)) + np.log(max(Vt[j, k], smallest))
                top = weight.max()
            weight = np.exp(weight - top)
            loglik += values[p] * (top + np.log(weight.sum()))
            weight *= values[p] / weight.sum()
            for k in range(rank):
                A[i, k] += weight[k]
                Bt[j, k] += weight[k]
    return loglik


def expected_allocations(matrix: csr_array, loadings: Array, components: Array, threads: int | None = None) -> Totals:
    """Share every count out among the components in proportion to loadings_ik · components_kj.

    Parameters
    ----------
    matrix : csr_array of shape (n, m)
        Counts, of the dtype of the factors (float64 or float32), without explicit zeros.
    loadings, components : ndarray of shape (n, K) and (K, m)
        Positive geometric means. Components are fastest in Fortran order.
    threads : int, optional
        Row blocks worked on at once; by default one for each of Numba's threads. The result depends on it
        only by rounding.

    Returns
    -------
    Totals
        With Σ_k A_ik = Σ_j X_ij and Σ_k B_kj = Σ_i X_ij even where the mean of a cell underflows.
    """
    U, Vt = np.ascontiguousarray(loadings), np.ascontiguousarray(components.T)
    bounds = row_blocks(matrix.indptr, threads_or_default(threads, matrix.nnz * U.shape[1]))
    A = np.empty_like(U)
    partial = np.zeros((len(bounds) - 1, *Vt.shape), dtype=Vt.dtype)
    share_out = _SHARE_OUT[len(bounds) > 2]
    block_loglik, underflows = share_out(matrix.indptr, matrix.indices, matrix.data, U, Vt, bounds, A, partial)
    Bt = partial[0]
    for other in partial[1:]:
        Bt += other
    Bt *= Vt
    loglik = float(block_loglik.sum())
    if underflows.any():
        loglik += _share_out_underflowed(matrix.indptr, matrix.indices, matrix.data, U, Vt, A, Bt)
    return Totals(A, Bt.T, loglik)
