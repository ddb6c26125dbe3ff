"""The tangent of the allocation step: how its totals change with the logarithms of the factors.

With U, V, R = X / (UV), A and B as in `bayesnmf.kernels.cpu.allocation`, and for small changes du of log U and dv of
log V, D = ((U du) V + U (V dv)) / (UV) on the nonzeros and::

    dA = A du + U [R (V dv)ᵀ − (R D) Vᵀ]        dB = B dv + V [(U du)ᵀ R − Uᵀ (R D)]        (mathematics.md section 10)

`row_responses` computes both from dv alone, with du = P (dA_v + g) of each row from a matrix P (K, K) of the row and
given g: the loadings respond to the components row by row. Nothing is stored for nonzeros but three numbers for those
of the row at hand.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from scipy.sparse import csr_array

from bayesnmf.kernels.cpu.allocation import NonzeroBlock, least_mean, shard_count
from bayesnmf.kernels.cpu.compiling import FAST, compiled_on_disk
from bayesnmf.kernels.cpu.factors import aligned, padded, padded_copy, whole_vectors
from bayesnmf.kernels.cpu.threads import in_blocks, over_rows, piece_count, row_blocks, threads_or_default
from bayesnmf.kernels.cpu.vectors import VECTOR_BYTES, Vectors, instruction
from bayesnmf.types import Array


class _TangentBlock(NonzeroBlock):
    """Emits both halves for at most one vector of nonzeros."""

    def __init__(self, context: Any, builder: Any, kinds: dict[str, Any], given: Any) -> None:
        arrays = {
            name: context.make_array(kind)(context, builder, value=value)
            for (name, kind), value in zip(kinds.items(), given, strict=True)
        }
        on = Vectors(context, builder, kinds["V"].dtype)
        super().__init__(on, ir.VectorType(context.get_value_type(kinds["indices"].dtype), on.lanes))
        self.given = kinds["values"].dtype if "values" in kinds else None
        self.bent = kinds["bends"].dtype if "bends" in kinds else None
        self.arrays = arrays
        self.indices, self.values = arrays["indices"], arrays.get("values")
        self.width = cgutils.unpack_tuple(builder, arrays["V"].shape, 2)[1]

    def weigh(self, first: Any, entries: Any, at: Any, least: Any) -> None:
        """Store X / mean, Y / mean, the tangent of log mean, and 1 / mean; add to the tangent of the row."""
        on, b, found = self.on, self.builder, self.arrays
        mask = on.first_lanes(entries)
        index, x = self._nonzeros(first, entries, mask)
        y = on.counts(found["bends"], self.bent, first, mask)
        rows = [self._row_offset(index, q) for q in range(on.lanes)]
        self._prefetch(first, [found["V"], found["W"]])
        mean, tangent = self._products(rows, [(found["u"], found["V"]), (found["u"], found["W"])])
        low = b.fcmp_ordered("<", mean, on.splat(least))
        inverse = b.select(low, on.constant(0.0), b.fdiv(on.constant(1.0), mean))
        ratio, bend, shift = b.fmul(x, inverse), b.fmul(y, inverse), b.fmul(tangent, inverse)
        for name, vector in (("ratios", ratio), ("turns", bend), ("shifts", shift), ("inverses", inverse)):
            on.store(vector, found[name], at)
        self._add_up(rows, ratio, b.fneg(b.fmul(bend, shift)))

    def _add_up(self, rows: list[Any], ratio: Any, share: Any) -> None:
        on, b, found = self.on, self.builder, self.arrays
        ratios, shares = ([on.splat(on.lane(each, q)) for q in range(on.lanes)] for each in (ratio, share))
        with self._each_vector() as at:
            halves = [on.load(found["kept"], at), on.constant(0.0)]
            for row, own, other in zip(rows, ratios, shares, strict=True):
                halves[0] = on.multiply_add(own, on.load(found["W"], b.add(row, at)), halves[0])
                halves[1] = on.multiply_add(other, on.load(found["V"], b.add(row, at)), halves[1])
            on.store(b.fadd(*halves), found["kept"], at)

    def answer(self, first: Any, entries: Any, at: Any) -> None:
        """Add to the tangents of the components, given the tangent of the row's factor."""
        on, b, found = self.on, self.builder, self.arrays
        mask = on.first_lanes(entries)
        same = on.splat(b.load(b.gep(self.indices.data, [first])))
        index = on.load_masked(self.indices, first, mask, same)
        rows = [self._row_offset(index, q) for q in range(on.lanes)]
        (moved,) = self._products(rows, [(found["change"], found["V"])])
        ratio = on.load(found["ratios"], at)
        shift = on.multiply_add(moved, on.load(found["inverses"], at), on.load(found["shifts"], at))
        share = b.fneg(b.fmul(on.load(found["turns"], at), shift))
        ratios, shares = ([on.splat(on.lane(each, q)) for q in range(on.lanes)] for each in (ratio, share))
        with self._each_vector() as offset:
            change, u = on.load(found["change"], offset), on.load(found["u"], offset)
            for row, own, other in zip(rows, ratios, shares, strict=True):
                place = b.add(row, offset)
                added = on.multiply_add(other, u, on.load(found["received"], place))
                on.store(on.multiply_add(own, change, added), found["received"], place)


@instruction
def weigh_entries(
    typing: Any, first: Any, entries: Any, at: Any, least: Any, indices: Any, values: Any, bends: Any, u: Any, V: Any,
    W: Any, kept: Any, ratios: Any, turns: Any, shifts: Any, inverses: Any,
) -> Any:  # fmt: skip
    """Weigh at most one vector of nonzeros of a row, whose factor rows are V[indices], and W their tangents.

    It stores four numbers of each nonzero from `at` on, and adds the tangent of Σ_j R_j V_j to `kept`.
    """
    kinds = {
        "indices": indices, "values": values, "bends": bends, "u": u, "V": V, "W": W, "kept": kept, "ratios": ratios,
        "turns": turns, "shifts": shifts, "inverses": inverses,
    }  # fmt: skip

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        first, entries, at, least, *given = arguments
        _TangentBlock(context, builder, kinds, given).weigh(first, entries, at, least)
        return context.get_dummy_value()

    return types.void(types.int64, types.int64, types.int64, least, *kinds.values()), generate


@instruction
def answer_entries(
    typing: Any, first: Any, entries: Any, at: Any, indices: Any, u: Any, change: Any, V: Any, ratios: Any, turns: Any,
    shifts: Any, inverses: Any, received: Any,
) -> Any:  # fmt: skip
    """Add the tangent of R_j u, for at most one vector of weighed nonzeros of a row, to received[indices].

    `change` is the tangent of the row's factor u.
    """
    kinds = {
        "indices": indices, "u": u, "change": change, "V": V, "ratios": ratios, "turns": turns, "shifts": shifts,
        "inverses": inverses, "received": received,
    }  # fmt: skip

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        first, entries, at, *given = arguments
        _TangentBlock(context, builder, kinds, given).answer(first, entries, at)
        return context.get_dummy_value()

    return types.void(types.int64, types.int64, types.int64, *kinds.values()), generate


@compiled_on_disk(nogil=True, fastmath=FAST)
def _respond(
    indptr: Array, indices: Array, values: Array, bends: Array, U: Array, V: Array, W: Array, given: Array,
    inverse: Array, start: int, stop: int, du: Array, received: Array,
) -> None:  # fmt: skip
    """Fill rows of du, and add (U du)ᵀ R − Uᵀ (R D) of these rows to `received`; factors are padded.

    Where `inverse` has no matrices, du is the tangent of the row's totals itself, and nothing is received.
    """
    width, rank = V.shape[1], given.shape[1]
    step = VECTOR_BYTES // V.itemsize
    least = U.dtype.type(least_mean(U.dtype))
    longest = 0
    for i in range(start, stop):
        longest = max(longest, indptr[i + 1] - indptr[i])
    ratios, shifts, inverses = np.empty(longest + step), np.empty(longest + step), np.empty(longest + step)
    turns = np.empty(longest + step)
    kept, change = np.empty(width), np.zeros(width)
    for i in range(start, stop):
        u, first, last = U[i], indptr[i], indptr[i + 1]
        kept[:] = 0
        for p in range(first, last, step):
            weigh_entries(
                p, min(step, last - p), p - first, least, indices, values, bends, u, V, W, kept, ratios, turns, shifts,
                inverses,
            )  # fmt: skip
        for k in range(rank):
            kept[k] = u[k] * kept[k] + given[i, k]
        if not len(inverse):
            for k in range(rank):
                du[i, k] = kept[k]
            continue
        for k in range(rank):
            moved = 0.0
            for other in range(rank):
                moved += inverse[i, k, other] * kept[other]
            du[i, k] = moved
            change[k] = u[k] * moved
        for p in range(first, last, step):
            answer_entries(
                p, min(step, last - p), p - first, indices, u, change, V, ratios, turns, shifts, inverses, received
            )  # fmt: skip


@compiled_on_disk(nogil=True, fastmath=FAST)
def _curve(
    indptr: Array, indices: Array, values: Array, bends: Array, U: Array, V: Array, start: int, stop: int,
    curvature: Array,
) -> None:  # fmt: skip
    """Fill rows of the curvature with Σ_j Y p pᵀ, p the shares of the components."""
    rank = U.shape[1]
    least = least_mean(U.dtype)
    share = np.empty(rank)
    for i in range(start, stop):
        curvature[i] = 0
        for p in range(indptr[i], indptr[i + 1]):
            j, mean = indices[p], 0.0
            for k in range(rank):
                share[k] = U[i, k] * V[j, k]
                mean += share[k]
            if mean < least:
                continue
            weight = bends[p] / (mean * mean)
            for k in range(rank):
                scaled = weight * share[k]
                for other in range(k + 1):
                    curvature[i, k, other] += scaled * share[other]
        for k in range(rank):
            for other in range(k):
                curvature[i, other, k] = curvature[i, k, other]


class Tangent:
    """The tangent of the allocation step at fixed factors, in float64.

    Parameters
    ----------
    matrix : csr_array (n, m)
        Counts.
    U, V : ndarray (n, K) and (K, m)
        Geometric means of loadings and components, up to factors of rows and of features.
    totals : tuple of ndarray (n, K) and (K, m)
        Totals A and B of the allocations there.
    bends : ndarray (nnz,), optional
        Y, the numbers that take the place of X in R D where the counts are expected clusters: λ²V.
    """

    def __init__(
        self, matrix: csr_array, U: Array, V: Array, totals: tuple[Array, Array], bends: Array | None = None
    ) -> None:
        self.matrix, self.totals = matrix, totals
        self.U, self.V = (padded_copy(np.asarray(each, np.float64)) for each in (U, V.T))
        data = matrix.data if matrix.data.dtype.kind == "u" else matrix.data.astype(np.float64, copy=False)
        self.of_counts = matrix.indptr, matrix.indices, data, data if bends is None else bends

    def curvature(self, threads: int | None = None) -> Array:
        """Return Σ_j Y p pᵀ of every row, (n, K, K), with the shares p of the components in an entry."""
        rank = self.U.shape[1]
        out = np.empty((len(self.U), rank, rank))

        def curve(first: int, last: int) -> None:
            _curve(*self.of_counts, self.U, self.V, first, last, out)

        over_rows(self.matrix.indptr, self.matrix.nnz * rank**2, curve, threads)
        return out

    def row_changes(self, dv: Array, threads: int | None = None) -> Array:
        """Return the tangent of the loadings' totals for a change dv (K, m) of log V, (n, K)."""
        n, rank = self.U.shape
        return self._respond(dv, np.zeros((n, rank)), np.empty((0, rank, rank)), threads)[0]

    def row_responses(self, dv: Array, given: Array, inverse: Array, threads: int | None = None) -> tuple[Array, Array]:
        """Return du = P (dA_v + g), (n, K), and the tangent of the components' totals for du and dv, (K, m).

        Parameters
        ----------
        dv : ndarray (K, m)
            Change of log V.
        given : ndarray (n, K)
            What else changes the totals of the loadings, g.
        inverse : ndarray (n, K, K)
            P of every row.
        threads : int, optional
            Number of threads; by default the fastest.
        """
        du, received = self._respond(dv, given, inverse, threads)
        return du, self.totals[1] * dv + (self.V * received).T

    def _respond(self, dv: Array, given: Array, inverse: Array, threads: int | None) -> tuple[Array, Array]:
        n, rank = self.U.shape
        W = padded(self.V.shape, np.float64)
        np.multiply(self.V, dv.T, out=W)
        factors = [whole_vectors(each) for each in (self.U, self.V, W)]
        bounds = row_blocks(self.matrix.indptr, shard_count(self.matrix, rank))
        du, blocks = np.empty((n, rank)), len(bounds) - 1
        m, width = factors[1].shape if len(inverse) else (0, factors[1].shape[1])
        received = aligned(blocks * m, width, np.float64).reshape(blocks, m, width)
        received[:] = 0
        in_blocks(
            bounds,
            lambda block, *rows: _respond(*self.of_counts, *factors, given, inverse, *rows, du, received[block]),
            threads_or_default(threads, self.matrix.nnz * rank),
            row_blocks(self.matrix.indptr, piece_count(self.matrix.nnz * rank + n * rank**2)),
        )
        return du, received.sum(axis=0)[:, :rank] if blocks > 1 else received[0][:, :rank]
