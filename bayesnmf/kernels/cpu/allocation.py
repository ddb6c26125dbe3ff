"""The allocation step: totals of the expected allocations, in one or two passes over the nonzeros.

Let U (n, K) and V (K, m) be the geometric means of loadings and components. The X_ij counts of an entry are shared
among the components in proportion to U_ik V_kj (mathematics.md section 2; [P] 16-17, [GP] D.1, [K] 5)::

    R = X / (UV) on the nonzeros        A = U * (R Vᵀ)        B = V * (Uᵀ R)        ℓ = Σ X log(UV)

Time is O(nnz K): neither the (n, m) product nor the (nnz, K) responsibilities are ever formed. A is gathered row by
row. B is either scattered in the same pass, into a separate copy for each shard of rows, or gathered in a second pass
over the transposed counts, where that is faster (`gathers_columns`). This is the only allocation step of the package;
every algorithm calls it or its sampled version.
"""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

import numpy as np
from scipy.sparse import csr_array

from bayesnmf.kernels.cpu.compiling import FAST, compiled_on_disk, with_globals
from bayesnmf.kernels.cpu.factors import LINE_BYTES, aligned, padded, whole_vectors
from bayesnmf.kernels.cpu.share_block import share_block
from bayesnmf.kernels.cpu.threads import (
    SERIAL_WORK,
    block_count,
    even_bounds,
    in_blocks,
    piece_count,
    threads_or_default,
)
from bayesnmf.kernels.cpu.underflow import Spread, share_out_underflowed, weigh_block
from bayesnmf.kernels.cpu.vectors import VECTOR_BYTES
from bayesnmf.types import Array


class Totals(NamedTuple):
    """Totals of the allocations.

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
    """Return bounds that cut the rows of a CSR matrix into blocks of about equally many nonzeros, or fewer blocks."""
    if blocks == 1:
        return np.array([0, len(indptr) - 1])
    targets = np.linspace(0, indptr[-1], blocks + 1)[1:-1]
    return np.unique(np.concatenate([[0], np.searchsorted(indptr, targets), [len(indptr) - 1]])).astype(np.int64)


share_entries = share_block(scatter=True, take_log=True)


@compiled_on_disk(inline="always")
def least_mean(dtype: Any) -> float:
    """Return the least mean by which a count can be divided, and such quotients summed, without overflow."""
    return np.finfo(dtype).tiny ** 0.75


def _share_out(
    indptr: Array, indices: Array, values: Array, U: Array, V: Array, spread: Any, start: int, stop: int, A: Array,
    received: Array,
) -> tuple[float, int]:  # fmt: skip
    """Fill rows of A and add Uᵀ R of these rows to `received`; return their ℓ, and whether a mean underflowed.

    Rows of the factors are padded to whole vectors.
    """
    width = V.shape[1]
    step = VECTOR_BYTES // V.itemsize
    least = U.dtype.type(least_mean(U.dtype))
    kept = np.empty(width, dtype=U.dtype)
    sums = np.zeros(step)
    lost = 0
    for i in range(start, stop):
        u = U[i]
        kept[:] = 0
        last = indptr[i + 1]
        for p in range(indptr[i], last, step):
            entries = min(step, last - p)
            if spread is None:
                lost |= share_entries(p, entries, indices, values, u, V, kept, received, sums, least, None, None)
            else:
                own = spread[0][i]
                lost |= share_entries(p, entries, indices, values, u, V, kept, received, sums, least, own, spread[1])
        for k in range(width):
            A[i, k] = u[k] * kept[k]
    return sums.sum(), lost


LOST = 40  # cost of a component of an entry that underflowed, in multiply-adds
CACHED_BYTES = 12 * 2**20  # of loadings that are read in any order without waiting for memory
LEAST_SUMS = 200_000  # terms in the components' totals: fewer are summed sooner than a thread wakes
_loop = compiled_on_disk(nogil=True, fastmath=FAST)
_GATHER = _loop(with_globals(_share_out, "_gather", share_entries=share_block(scatter=False, take_log=True)))
_GATHER_ONLY = _loop(with_globals(_share_out, "_gather_only", share_entries=weigh_block))
_SCATTER = _loop(_share_out)


@_loop
def _fill_component_totals(partial: Array, V: Array, start: int, stop: int, Bt: Array) -> None:
    """Fill rows of Bt, padded to whole vectors, with V times the sum of Uᵀ R over the blocks."""
    for j in range(start, stop):
        for k in range(V.shape[1]):
            total = partial[0, j, k]
            for other in range(1, len(partial)):
                total += partial[other, j, k]
            Bt[j, k] = total * V[j, k]


def _add_underflowed(given: tuple[Any, ...], rank: int, A: Array, Bt: Array) -> float:
    """Add the entries whose mean underflowed to the totals of all rows; return their ℓ."""
    bounds = row_blocks(given[0], piece_count(LOST * len(given[1]) * rank))
    least = A.dtype.type(least_mean.py_func(A.dtype))
    found = in_blocks(bounds, lambda _, *rows: share_out_underflowed(*given, *rows, rank, least, A, Bt), 1)
    return float(np.sum(found))


MOST_SHARDS, COLUMN_ENTRIES = 8, 32  # shards, and nonzeros a column for each of them


def shard_count(matrix: csr_array, rank: int) -> int:
    """Return the number of shards of rows, each with totals of the components of its own.

    It depends on shape and nonzeros alone, so that sums are the same numbers with any number of threads. With 4 shards
    in place of 2, a step on newsgroups with two threads took 1.13 times as long, with 8 shards 1.4; on nips and
    pbmc_facs 1.0 and 1.1.
    """
    if matrix.nnz * rank < SERIAL_WORK:
        return 1
    return int(np.clip(matrix.nnz // (COLUMN_ENTRIES * matrix.shape[1]), 2, MOST_SHARDS))


def gathers_columns(matrix: csr_array, rank: int, spread: Spread | None = None) -> bool:
    """Return whether a pass over the transposed counts, which gathers the totals of columns, is faster than scattering.

    Scattering reads and writes a second row of K numbers for each nonzero, and each shard needs its own totals.
    Gathering allocates the counts again, and needs them twice; it reads the loadings in the order of the features,
    which is slow once they do not fit a cache. Up to 64 bytes a row of K numbers, scattering is faster. Above,
    gathering took 0.5 to 1.1 of the time in most cases with loadings of up to 12 MB, and 1.4 to 1.8 with 20 MB and more
    (newsgroups, pbmc_facs and nips, once and repeated, K = 20 and 50, one thread and two; `benchmarks/gathering.py`).
    Where counts cluster, their weights take longer than scattering up to K = 20 (pbmc_facs, nips).
    """
    copies = shard_count(matrix, rank) * matrix.shape[1] * rank
    if copies > 4 * matrix.nnz:
        return True
    line = LINE_BYTES if spread is None else 4 * LINE_BYTES
    return rank * matrix.dtype.itemsize > line and matrix.shape[0] * rank * matrix.dtype.itemsize <= CACHED_BYTES


Sides = Literal["both", "loadings", "components"]


def expected_allocations(
    matrix: csr_array, loadings: Array, components: Array, threads: int | None = None, *,
    transposed: csr_array | None = None, sides: Sides = "both", spread: Spread | None = None,
) -> Totals:  # fmt: skip
    """Share every count among the components in proportion to loadings_ik · components_kj.

    Parameters
    ----------
    matrix : csr_array of shape (n, m)
        Counts, of the dtype of the factors (float64 or float32), without explicit zeros.
    loadings, components : ndarray of shape (n, K) and (K, m)
        Positive geometric means. Components in Fortran order are fastest.
    threads : int, optional
        Number of row blocks to work on at once; by default one for each of Numba's threads, or 1 for little work.
        It does not change the result.
    transposed : csr_array of shape (m, n), optional
        The same counts by column, possibly as unsigned integers. If given, the components' totals are gathered from
        them; otherwise they are scattered.
    sides : {"both", "loadings", "components"}
        Sides to return totals for; the other totals are empty. With "components" alone, ℓ is NaN.
    spread : tuple of ndarray (n,) and of ndarray (m,) or None, optional
        Spreads of rows and features, above 0, whose product is that of an entry's counts, which then cluster: W and L
        of `bayesnmf.kernels.cpu.rising` take the place of x / λ and x log λ.

    Returns
    -------
    Totals
        Totals of the counts, or of their clusters. Those of counts have Σ_k A_ik = Σ_j X_ij and Σ_k B_kj = Σ_i X_ij,
        even where the mean of an entry underflows.
    """
    U, V, none = loadings, components.T, loadings[:0]
    if sides == "loadings":
        A, loglik = _gather(matrix, U, V, spread, threads)
        return Totals(A, none.T, loglik)
    if transposed is None:
        totals = _scatter(matrix, U, V, spread, threads)
        return totals if sides == "both" else Totals(none, totals.components, np.nan)
    Bt, _ = _gather(transposed, V, U, turned(spread, matrix.shape), threads, take_log=False)
    if sides == "components":
        return Totals(none, Bt.T, np.nan)
    A, loglik = _gather(matrix, U, V, spread, threads)
    return Totals(A, Bt.T, loglik)


def turned(spread: Spread | None, shape: tuple[int, int]) -> Spread | None:
    """Return the spreads of a transposed matrix."""
    if spread is None:
        return None
    rows, features = spread
    return np.ones(shape[1]) if features is None else features, rows


def _gather(
    matrix: csr_array, U: Array, V: Array, spread: Spread | None, threads: int | None, take_log: bool = True
) -> tuple[Array, float]:
    """Return A (n, K) = U * (R V), V (m, K), and ℓ."""
    work = matrix.nnz * U.shape[1]
    threads = threads_or_default(threads, work)
    bounds = row_blocks(matrix.indptr, block_count(work))
    A = padded(U.shape, U.dtype)
    whole, nothing = whole_vectors(A), np.empty((0, 0), dtype=V.dtype)
    share_out = _GATHER if take_log else _GATHER_ONLY
    given = matrix.indptr, matrix.indices, matrix.data, whole_vectors(U), whole_vectors(V), spread
    parts = in_blocks(bounds, lambda _, *rows: share_out(*given, *rows, whole, nothing), threads)
    loglik, underflows = zip(*parts, strict=True)
    total = float(np.sum(loglik))
    if any(underflows):
        total += _add_underflowed(given, U.shape[1], whole, np.zeros_like(given[4]))
    return A, total


def _scatter(matrix: csr_array, U: Array, V: Array, spread: Spread | None, threads: int | None) -> Totals:
    """Return A, B and ℓ from one pass."""
    work = matrix.nnz * U.shape[1]
    threads = threads_or_default(threads, work)
    bounds = row_blocks(matrix.indptr, shard_count(matrix, U.shape[1]))
    A, Bt = (padded(each.shape, each.dtype) for each in (U, V))
    factors, totals = (whole_vectors(U), whole_vectors(V)), (whole_vectors(A), whole_vectors(Bt))
    m, width = factors[1].shape
    partial = aligned((len(bounds) - 1) * m, width, V.dtype).reshape(-1, m, width)
    given = matrix.indptr, matrix.indices, matrix.data, *factors, spread

    def share_out(block: int, first: int, last: int) -> tuple[float, int]:
        if first == bounds[block]:
            partial[block] = 0
        found: tuple[float, int] = _SCATTER(*given, first, last, totals[0], partial[block])
        return found

    parts = in_blocks(bounds, share_out, threads, row_blocks(matrix.indptr, piece_count(work)))
    loglik, underflows = zip(*parts, strict=True)
    of_columns = even_bounds(m, threads if partial.size > LEAST_SUMS else 1)
    in_blocks(of_columns, lambda _, *columns: _fill_component_totals(partial, factors[1], *columns, totals[1]))
    total = float(np.sum(loglik))
    if any(underflows):
        total += _add_underflowed(given, U.shape[1], *totals)
    return Totals(A, Bt.T, total)


class ComponentTotals:
    """The totals of the components, scattered from one block of rows after another, on one thread.

    Parameters
    ----------
    components : ndarray of shape (K, m)
        Geometric means of the components, the same for all blocks.
    """

    def __init__(self, components: Array) -> None:
        self.rank, self.V = len(components), whole_vectors(components.T)
        self.received = aligned(len(self.V), self.V.shape[1], self.V.dtype)
        self.received[:] = 0
        self.underflowed: Array | None = None

    def add(self, matrix: csr_array, loadings: Array, spread: Spread | None = None) -> tuple[Array, float]:
        """Share out the counts of a block; return the totals of its loadings, (rows, K), and its ℓ.

        Counts may be unsigned integers. Spreads are those of `expected_allocations`.
        """
        A, U = padded(loadings.shape, loadings.dtype), whole_vectors(loadings)
        whole = whole_vectors(A)
        given = matrix.indptr, matrix.indices, matrix.data, U, self.V, spread
        loglik, underflows = _SCATTER(*given, 0, len(U), whole, self.received)
        if underflows:
            if self.underflowed is None:
                self.underflowed = np.zeros_like(self.V)
            loglik += _add_underflowed(given, self.rank, whole, self.underflowed)
        return A, float(loglik)

    def totals(self) -> Array:
        """Return the totals of the components over all blocks, (m, K)."""
        found = self.received[:, : self.rank] * self.V[:, : self.rank]
        return found if self.underflowed is None else found + self.underflowed[:, : self.rank]
