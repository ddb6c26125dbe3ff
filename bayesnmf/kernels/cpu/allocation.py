"""The allocation step: totals of the expected allocations, in one or two passes over the nonzeros.

Let U (n, K) and V (K, m) be the geometric means of loadings and components. The X_ij counts of an entry are shared
among the components in proportion to U_ik V_kj (mathematics.md section 2; [P] 16-17, [GP] D.1, [K] 5)::

    R = X / (UV) on the nonzeros        A = U * (R Vᵀ)        B = V * (Uᵀ R)        ℓ = Σ X log(UV)

Time is O(nnz K): neither the (n, m) product nor the (nnz, K) responsibilities are ever formed. A is gathered row by
row. B is either scattered in the same pass, into a separate copy for each shard of rows, or gathered in a second pass
over the transposed counts, where that is faster (`gathers_columns`). This is the only allocation step of the package;
every algorithm calls it or its sampled version. Its innermost part shares out a vector of nonzeros of one row
(`share_block`); entries whose mean underflows are shared out with logarithms (`share_out_entry`).
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any, Literal, NamedTuple

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import overload
from scipy.sparse import csr_array

from bayesnmf.kernels.cpu.compiling import FAST, compiled_for_kernels, compiled_on_disk, with_globals
from bayesnmf.kernels.cpu.factors import LINE_BYTES, aligned, padded_and_whole, whole_vectors
from bayesnmf.kernels.cpu.rising import Rising
from bayesnmf.kernels.cpu.threads import (
    SERIAL_WORK,
    even_bounds,
    in_blocks,
    over_rows,
    piece_count,
    row_blocks,
    threads_or_default,
)
from bayesnmf.kernels.cpu.vectors import INT, LONG, VECTOR_BYTES, Vectors, instruction
from bayesnmf.types import Array

AHEAD = 16  # distance, in nonzeros, at which factor rows are prefetched


def share_block(scatter: bool, take_log: bool) -> Any:
    """Return an intrinsic that works on at most one vector of nonzeros.

    Its arguments are ``first, entries, indices, values, u, V, kept, received, sums, least, spread, spreads``: the
    position and the number of the nonzeros, whose factor rows are V[indices]; the row's own factor u (K,); kept (K,),
    to which it adds Σ_j R_j V_j; received (m, K), to which it adds R_j u if `scatter`; sums, one vector, to which it
    adds x log mean if `take_log`. Factors are padded to whole vectors. It returns a bit for each entry, set where the
    mean is below `least`; such entries add nothing.

    R is x / mean where `spread` is None. Otherwise R and the logarithm are the sums W and L of counts that cluster
    (`bayesnmf.kernels.cpu.rising`), with the spread of the row times that of each column, if `spreads` is not None.
    """

    @instruction
    def block(
        typing: Any, first: Any, entries: Any, indices: Any, values: Any, u: Any, V: Any, kept: Any, received: Any,
        sums: Any, least: Any, spread: Any, spreads: Any,
    ) -> Any:  # fmt: skip
        arrays = (indices, values, u, V, kept, received, sums)

        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            first, entries, *given, least, of_row, of_columns = arguments
            pairs = zip(arrays, given, strict=True)
            made = [context.make_array(kind)(context, builder, value=value) for kind, value in pairs]
            on = Vectors(context, builder, V.dtype)
            index = ir.VectorType(context.get_value_type(indices.dtype), on.lanes)
            emitted = _ShareBlock(on, index, values.dtype, made, scatter, take_log)
            if not isinstance(spread, types.NoneType):
                emitted.spread = of_row
                if not isinstance(spreads, types.NoneType):
                    emitted.spreads = context.make_array(spreads)(context, builder, value=of_columns)
            return emitted.emit(first, entries, least)

        return types.int64(types.int64, types.int64, *arrays, least, spread, spreads), generate

    return block


class NonzeroBlock:
    """Emits code for one vector of nonzeros; loops over these are unrolled, loops over components are not.

    Attributes
    ----------
    indices, values : array structures
        Features of all nonzeros, and their counts of type `given`.
    width : int64
        Length of a factor row, padded to whole vectors.
    """

    indices: Any
    values: Any
    given: Any
    width: Any

    def __init__(self, on: Vectors, index: Any) -> None:
        self.on, self.builder, self.index = on, on.builder, index

    def _nonzeros(self, first: Any, entries: Any, mask: Any) -> tuple[Any, Any]:
        """Read indices and values; after the last nonzero, fill up with the first index and the value 0."""
        on, b = self.on, self.builder
        slots = cgutils.alloca_once(b, self.index), cgutils.alloca_once(b, on.type)
        with b.if_else(b.icmp_signed("==", entries, LONG(on.lanes))) as (full, part):
            with full:
                b.store(on.load(self.indices, first, self.index), slots[0])
                b.store(on.counts(self.values, self.given, first), slots[1])
            with part:
                same = on.splat(b.load(b.gep(self.indices.data, [first])))
                b.store(on.load_masked(self.indices, first, mask, same), slots[0])
                b.store(on.counts(self.values, self.given, first, mask), slots[1])
        return b.load(slots[0]), b.load(slots[1])

    def _row_offset(self, index: Any, position: int) -> Any:
        """Return the offset of the factor row of a nonzero."""
        at = self.on.lane(index, position)
        return self.builder.mul(self.builder.sext(at, LONG) if self.index.element.width < 64 else at, self.width)

    def _prefetch(self, first: Any, factors: list[Any]) -> None:
        """Prefetch the rows of the factors of a later block, which may belong to another row of the matrix."""
        on, b = self.on, self.builder
        ahead = b.add(first, LONG(AHEAD))
        (length,) = cgutils.unpack_tuple(b, self.indices.shape, 1)
        with b.if_then(b.icmp_signed("<=", b.add(ahead, LONG(on.lanes)), length)):
            index = on.load(self.indices, ahead, self.index)
            for q in range(on.lanes):
                row = self._row_offset(index, q)
                for factor in factors:
                    on.prefetch(factor, row)

    def _products(self, rows: list[Any], pairs: list[tuple[Any, Any]]) -> list[Any]:
        """Return, for pairs of a vector and a matrix, the vector times the matrix's row of each nonzero."""
        on, b = self.on, self.builder
        dots = [[cgutils.alloca_once(b, on.type) for _ in rows] for _ in pairs]
        for dot in (each for of_pair in dots for each in of_pair):
            b.store(on.constant(0.0), dot)
        with self._each_vector() as at:
            for (vector, matrix), of_pair in zip(pairs, dots, strict=True):
                u = on.load(vector, at)
                for dot, row in zip(of_pair, rows, strict=True):
                    b.store(on.multiply_add(u, on.load(matrix, b.add(row, at)), b.load(dot)), dot)
        return [on.sums([b.load(dot) for dot in of_pair]) for of_pair in dots]

    @contextmanager
    def _each_vector(self) -> Iterator[Any]:
        """Yield inside a loop over the offsets of the vectors of a factor row."""
        with cgutils.for_range_slice(self.builder, LONG(0), self.width, LONG(self.on.lanes), LONG) as (at, _):
            yield at


class _ShareBlock(NonzeroBlock):
    """Emits the block of the allocation step; without `spread`, that of Poisson counts."""

    spread: Any = None
    spreads: Any = None

    def __init__(self, on: Vectors, index: Any, given: Any, arrays: list[Any], scatter: bool, take_log: bool) -> None:
        super().__init__(on, index)
        self.given = given
        self.indices, self.values, self.u, self.V, self.kept, self.received, self.sums = arrays
        self.scatter, self.take_log = scatter, take_log
        self.width = cgutils.unpack_tuple(self.builder, self.V.shape, 2)[1]

    def emit(self, first: Any, entries: Any, least: Any) -> Any:
        on, b = self.on, self.builder
        mask = on.first_lanes(entries)
        index, x = self._nonzeros(first, entries, mask)
        rows = [self._row_offset(index, q) for q in range(on.lanes)]
        self._prefetch(first, [self.V, self.received] if self.scatter else [self.V])
        (mean,) = self._products(rows, [(self.u, self.V)])
        low = b.fcmp_ordered("<", mean, on.splat(least))
        mean = b.select(low, on.constant(1.0), mean)
        ratio, term = self._ratios(x, mean, low) if self.spread is None else self._weights(x, mean, low, index)
        if self.take_log:
            if term.type.element != ir.DoubleType():
                term = b.fpext(term, ir.VectorType(ir.DoubleType(), on.lanes))
            on.store(b.fadd(on.load(self.sums, LONG(0), term.type), term), self.sums, LONG(0))
        self._add_shares(rows, [on.splat(on.lane(ratio, q)) for q in range(on.lanes)])
        return b.zext(b.bitcast(b.and_(low, mask), ir.IntType(on.lanes)), LONG)

    def _ratios(self, x: Any, mean: Any, low: Any) -> tuple[Any, Any]:
        """Return x / mean, 0 where the mean is too low, and x log mean."""
        on, b = self.on, self.builder
        ratio = b.select(low, on.constant(0.0), b.fdiv(x, mean))
        return ratio, b.fmul(x, on.log(mean)) if self.take_log else None

    def _weights(self, x: Any, mean: Any, low: Any, index: Any) -> tuple[Any, Any]:
        """Return W, 0 where the mean is too low, and L."""
        on, b = self.on, self.builder
        wide = Vectors(on.context, b, types.float64, on.lanes)
        spread = wide.splat(self.spread)
        if self.spreads is not None:
            own = ir.Constant(wide.type, ir.Undefined)
            for q in range(on.lanes):
                place = on.lane(index, q)
                place = b.sext(place, LONG) if self.index.element.width < 64 else place
                own = b.insert_element(own, b.load(b.gep(self.spreads.data, [place])), INT(q))
            spread = b.fmul(spread, own)
        x = b.select(low, on.constant(0.0), x)
        x, mean = (each if on.bits == 64 else b.fpext(each, wide.type) for each in (x, mean))
        found = Rising(wide, self.take_log, curvature=False).emit(x, mean, spread)
        return found.weight if on.bits == 64 else b.fptrunc(found.weight, on.type), found.log

    def _add_shares(self, rows: list[Any], ratios: list[Any]) -> None:
        """Add R V to `kept`, and R u to `received`."""
        on, b = self.on, self.builder
        with self._each_vector() as at:
            halves = [on.load(self.kept, at), on.constant(0.0)]  # two chains of additions, each half as long
            for q, (row, ratio) in enumerate(zip(rows, ratios, strict=True)):
                halves[q % 2] = on.multiply_add(ratio, on.load(self.V, b.add(row, at)), halves[q % 2])
            on.store(b.fadd(*halves), self.kept, at)
            if self.scatter:
                u = on.load(self.u, at)
                for row, ratio in zip(rows, ratios, strict=True):
                    place = b.add(row, at)
                    on.store(on.multiply_add(ratio, u, on.load(self.received, place)), self.received, place)


Spread = tuple[Array, Array | tuple[Array, Array] | None]  # of rows; of features, maybe of groups (G, m) and codes (n,)
weigh_block = share_block(scatter=False, take_log=False)


@compiled_for_kernels()
def spread_of_entry(own: float, spreads: Any, j: int) -> float:
    """Return the spread of an entry: that of its row, times that of its feature if there are any."""
    if spreads is None:
        return own
    return own * spreads[j]


def spreads_of_row(spreads: Any, i: int) -> Any:
    """Return the spreads of features in a row: those of all rows, or of the group of the row; None without any."""


@overload(spreads_of_row, strict=False)
def _spreads_of_row(spreads: Any, i: int) -> Any:
    if isinstance(spreads, types.BaseTuple):
        return lambda spreads, i: spreads[0][spreads[1][i]]
    return lambda spreads, i: spreads


@compiled_on_disk(nogil=True)
def share_out_underflowed(
    indptr: Array, indices: Array, values: Array, U: Array, V: Array, spread: Any, least: float, start: int, stop: int,
    rank: int, A: Array, Bt: Array,
) -> float:  # fmt: skip
    """Add the entries whose mean underflowed, computed with logarithms; return their ℓ.

    Where no component gives positive mass, factors of 0 are replaced by the smallest normal number.
    """
    step = VECTOR_BYTES // V.itemsize
    kept, sums, weight = np.zeros(V.shape[1], dtype=U.dtype), np.zeros(step), np.empty(rank)
    loglik = 0.0
    for i in range(start, stop):
        u = U[i]
        last = indptr[i + 1]
        for p in range(indptr[i], last, step):
            entries = min(step, last - p)
            lost = weigh_block(p, entries, indices, values, u, V, kept, V, sums, least, None, None)
            for q in range(step):
                if lost >> q & 1:
                    j = indices[p + q]
                    x = values[p + q]
                    if spread is not None:  # one cluster, whose size has the rest of L: Σ log ts from t = 1 on
                        s = spread_of_entry(spread[0][i], spreads_of_row(spread[1], i), j)
                        loglik += (x - 1.0) * np.log(s) + math.lgamma(x)
                        x = 1.0
                    loglik += share_out_entry(x, u, V[j], weight, A[i, :rank], Bt[j, :rank])
    return loglik


@compiled_for_kernels(fastmath=FAST)
def share_out_entry(count: float, u: Array, v: Array, weight: Array, a: Array, b: Array) -> float:
    """Add the expected allocations of one entry to a and b (K,), computed with logarithms; return the entry's ℓ.

    The weights (K,) are overwritten.
    """
    rank = len(a)
    smallest = np.finfo(u.dtype).tiny
    top, total = -np.inf, 0.0
    for k in range(rank):
        weight[k] = np.log(u[k]) + np.log(v[k])
        top = max(top, weight[k])
    if top == -np.inf:
        for k in range(rank):
            weight[k] = np.log(max(u[k], smallest)) + np.log(max(v[k], smallest))
            top = max(top, weight[k])
    for k in range(rank):
        weight[k] = np.exp(weight[k] - top)
        total += weight[k]
    for k in range(rank):
        part = weight[k] * (count / total)
        a[k] += part
        b[k] += part
    return count * (top + np.log(total))


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


share_entries = share_block(scatter=True, take_log=True)


@compiled_on_disk(inline="always")
def least_mean(dtype: Any) -> float:
    """Return the least mean by which a count can be divided, and such quotients summed, without overflow."""
    return np.finfo(dtype).tiny ** 0.75


def _share_out(
    indptr: Array, indices: Array, values: Array, U: Array, V: Array, spread: Any, least: float, start: int, stop: int,
    A: Array, received: Array, sums: Array,
) -> tuple[float, int]:  # fmt: skip
    """Fill rows of A and add Uᵀ R of these rows to `received`; return their ℓ, and whether a mean underflowed.

    Rows of the factors are padded to whole vectors. ℓ is added to the sums, a vector of zeros.
    """
    width, step, lost = V.shape[1], len(sums), 0
    for i in range(start, stop):
        u, kept = U[i], A[i]
        for k in range(width):
            kept[k] = 0
        last = indptr[i + 1]
        for p in range(indptr[i], last, step):
            entries = min(step, last - p)
            if spread is None:
                lost |= share_entries(p, entries, indices, values, u, V, kept, received, sums, least, None, None)
            else:
                own, of_row = spread[0][i], spreads_of_row(spread[1], i)
                lost |= share_entries(p, entries, indices, values, u, V, kept, received, sums, least, own, of_row)
        for k in range(width):
            kept[k] *= u[k]
    loglik = 0.0
    for q in range(step):
        loglik += sums[q]
    return loglik, lost


LOST = 40  # cost of a component of an entry that underflowed, in multiply-adds
CACHED_BYTES = 12 * 2**20  # of loadings that are read in any order without waiting for memory
FEW = 2**14  # multiply-adds that take no longer than to call a loop: one loop does for all sides, and is compiled
LEAST_SUMS = 200_000  # terms in the components' totals: fewer are summed sooner than a thread wakes
_loop = compiled_on_disk(nogil=True, fastmath=FAST)
_GATHER = _loop(with_globals(_share_out, "_gather", share_entries=share_block(scatter=False, take_log=True)))
_GATHER_ONLY = _loop(with_globals(_share_out, "_gather_only", share_entries=weigh_block))
_SCATTER = _loop(_share_out)


@cache
def _least_of(dtype: Any) -> Any:
    """Return the least mean, as a number of this dtype."""
    return dtype.type(least_mean.py_func(dtype))


class _Shared(NamedTuple):
    """What a pass shares out: counts in CSR form, factors padded to whole vectors, and spreads where counts cluster.

    Means below the least one underflow.
    """

    indptr: Array
    indices: Array
    values: Array
    U: Array
    V: Array
    spread: Spread | None
    least: float

    @classmethod
    def of(cls, matrix: csr_array, U: Array, V: Array, spread: Spread | None) -> _Shared:
        """Return the counts with factors (n, K) and (m, K), the second in whole vectors."""
        return cls(matrix.indptr, matrix.indices, matrix.data, whole_vectors(U), V, spread, _least_of(U.dtype))

    def sums(self) -> Array:
        """Return the vector to which a loop adds ℓ."""
        return np.zeros(VECTOR_BYTES // self.V.itemsize)

    def add_underflowed(self, rank: int, A: Array, Bt: Array) -> float:
        """Add the entries whose mean underflowed to the totals of all rows; return their ℓ."""
        bounds = row_blocks(self.indptr, piece_count(LOST * len(self.indices) * rank))
        found = in_blocks(bounds, lambda _, *rows: share_out_underflowed(*self, *rows, rank, A, Bt), 1)
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
    if spread is not None and isinstance(spread[1], tuple):  # those of groups belong to rows
        return False
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
    spread : tuple of ndarray (n,) and of ndarray (m,), of groups of rows or None, optional
        Spreads of rows and features, above 0, whose product is that of an entry's counts, which then cluster: W and L
        of `bayesnmf.kernels.cpu.rising` take the place of x / λ and x log λ.

    Returns
    -------
    Totals
        Totals of the counts, or of their clusters. Those of counts have Σ_k A_ik = Σ_j X_ij and Σ_k B_kj = Σ_i X_ij,
        even where the mean of an entry underflows.
    """
    U, V, none = loadings, components.T, loadings[:0]
    if sides == "loadings" and matrix.nnz * U.shape[1] > FEW:
        A, loglik = _gather(matrix, U, V, spread, threads)
        return Totals(A, none.T, loglik)
    if transposed is None or sides == "loadings":
        totals = _scatter(matrix, U, V, spread, threads)
        if sides == "loadings":
            return totals._replace(components=none.T)
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
    assert not isinstance(features, tuple), "spreads of groups belong to rows"
    return np.ones(shape[1]) if features is None else features, rows


def _gather(
    matrix: csr_array, U: Array, V: Array, spread: Spread | None, threads: int | None, take_log: bool = True
) -> tuple[Array, float]:
    """Return A (n, K) = U * (R V), V (m, K), and ℓ."""
    work = matrix.nnz * U.shape[1]
    (A, whole), nothing = padded_and_whole(U.shape, U.dtype), np.empty((0, 0), dtype=V.dtype)
    share_out = _GATHER if take_log else _GATHER_ONLY
    shared = _Shared.of(matrix, U, whole_vectors(V), spread)
    parts = over_rows(
        matrix.indptr, work, lambda *rows: share_out(*shared, *rows, whole, nothing, shared.sums()), threads
    )
    total, underflow = _sum_of(parts)
    if underflow:
        total += shared.add_underflowed(U.shape[1], whole, np.zeros_like(shared.V))
    return A, total


def _scatter(matrix: csr_array, U: Array, V: Array, spread: Spread | None, threads: int | None) -> Totals:
    """Return A, B and ℓ from one pass."""
    work = matrix.nnz * U.shape[1]
    threads = threads_or_default(threads, work)
    bounds = row_blocks(matrix.indptr, shard_count(matrix, U.shape[1]))
    (A, of_rows), (Bt, of_columns) = (padded_and_whole(each.shape, each.dtype) for each in (U, V))
    shared = _Shared.of(matrix, U, whole_vectors(V), spread)
    m, width = shared.V.shape
    partial = aligned((len(bounds) - 1) * m, width, V.dtype).reshape(-1, m, width)

    def share_out(block: int, first: int, last: int) -> tuple[float, int]:
        if first == bounds[block]:
            partial[block] = 0
        found: tuple[float, int] = _SCATTER(*shared, first, last, of_rows, partial[block], shared.sums())
        return found

    total, underflow = _sum_of(in_blocks(bounds, share_out, threads, row_blocks(matrix.indptr, piece_count(work))))

    def add_shards(_: int, first: int, last: int) -> None:
        np.add.reduce(partial[:, first:last], axis=0, out=of_columns[first:last])
        of_columns[first:last] *= shared.V[first:last]

    if partial.size > LEAST_SUMS:
        in_blocks(even_bounds(m, threads), add_shards)
    else:
        add_shards(0, 0, m)
    if underflow:
        total += shared.add_underflowed(U.shape[1], of_rows, of_columns)
    return Totals(A, Bt.T, total)


def _sum_of(parts: list[tuple[float, int]]) -> tuple[float, bool]:
    """Return ℓ of all blocks, and whether the mean of an entry underflowed."""
    logliks, underflows = zip(*parts, strict=True)
    return float(np.sum(logliks)) if len(parts) > 1 else logliks[0], any(underflows)


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
        A, whole = padded_and_whole(loadings.shape, loadings.dtype)
        shared = _Shared.of(matrix, loadings, self.V, spread)
        loglik, underflows = _SCATTER(*shared, 0, len(loadings), whole, self.received, shared.sums())
        if underflows:
            if self.underflowed is None:
                self.underflowed = np.zeros_like(self.V)
            loglik += shared.add_underflowed(self.rank, whole, self.underflowed)
        return A, float(loglik)

    def totals(self) -> Array:
        """Return the totals of the components over all blocks, (m, K)."""
        found = self.received[:, : self.rank] * self.V[:, : self.rank]
        return found if self.underflowed is None else found + self.underflowed[:, : self.rank]
