"""One row of Poisson regression in vectors of its nonzeros: the innermost parts of coordinate descent.

The components at the nonzeros of a row are gathered once, transposed, into `gathered` (K, whole vectors of cells), so
that every coordinate reads numbers side by side. Behind the last nonzero the first one is repeated, with a count of 0:
no loop has a remainder.
"""

from __future__ import annotations

from typing import Any

from numba import types
from numba.core import cgutils

from bayesnmf.kernels.cpu.vectors import LONG, Vectors, instruction


def _made(context: Any, builder: Any, kinds: Any, values: Any) -> list[Any]:
    return [context.make_array(kind)(context, builder, value=value) for kind, value in zip(kinds, values, strict=True)]


def _width(builder: Any, array: Any) -> Any:
    return cgutils.unpack_tuple(builder, array.shape, 2)[1]


@instruction
def gather_cells(
    typing: Any, first: Any, cells: Any, at: Any, indices: Any, values: Any, V: Any, counts: Any, gathered: Any
) -> Any:
    """Write up to a vector of nonzeros from position `first` to `counts` and `gathered` from column `at` on.

    V (m, K) is padded to whole vectors; `gathered` has as many rows as V has columns.
    """
    arrays = (indices, values, V, counts, gathered)

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        first, cells, at, *given = arguments
        indices_, values_, V_, counts_, gathered_ = _made(context, builder, arrays, given)
        on = Vectors(context, builder, V.dtype)
        mask = on.first_lanes(cells)
        same = on.splat(builder.load(builder.gep(indices_.data, [first])))
        where = on.load_masked(indices_, first, mask, same)
        on.store(on.load_masked(values_, first, mask, on.constant(0.0)), counts_, at)
        width, length = _width(builder, V_), _width(builder, gathered_)
        rows = []
        for q in range(on.lanes):
            place = on.lane(where, q)
            place = builder.sext(place, LONG) if indices.dtype.bitwidth < 64 else place
            rows.append(builder.mul(place, width))
        with cgutils.for_range_slice(builder, LONG(0), width, LONG(on.lanes), LONG) as (k, _):
            block = on.transpose([on.load(V_, builder.add(row, k)) for row in rows])
            for q, vector in enumerate(block):
                on.store(vector, gathered_, builder.add(builder.mul(builder.add(k, LONG(q)), length), at))
        return context.get_dummy_value()

    return types.void(types.int64, types.int64, types.int64, *arrays), generate


@instruction
def mix_cells(typing: Any, vectors: Any, rank: Any, b: Any, gathered: Any, least: Any, mean: Any) -> Any:
    """Write max(Σ_k b_k gathered_k, least) to `mean`, for a number of cells that is a multiple of a vector."""
    arrays = (b, gathered, mean)

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        cells, rank, *given = arguments
        b_, gathered_, mean_ = _made(context, builder, arrays, [given[0], given[1], given[3]])
        on = Vectors(context, builder, gathered.dtype)
        length, floor = _width(builder, gathered_), on.splat(given[2])
        slot = cgutils.alloca_once(builder, on.type)
        with cgutils.for_range_slice(builder, LONG(0), cells, LONG(on.lanes), LONG) as (at, _):
            builder.store(on.constant(0.0), slot)
            with cgutils.for_range(builder, rank, intp=LONG) as loop:
                coefficient = on.splat(builder.load(builder.gep(b_.data, [loop.index])))
                row = on.load(gathered_, builder.add(builder.mul(loop.index, length), at))
                builder.store(on.multiply_add(coefficient, row, builder.load(slot)), slot)
            total = builder.load(slot)
            on.store(builder.select(builder.fcmp_ordered("<", total, floor), floor, total), mean_, at)
        return context.get_dummy_value()

    return types.void(types.int64, types.int64, b, gathered, least, mean), generate


@instruction
def expected_count(typing: Any, cells: Any, k: Any, counts: Any, gathered: Any, mean: Any) -> Any:
    """Return Σ counts gathered_k / mean."""
    arrays = (counts, gathered, mean)

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        cells, k, *given = arguments
        counts_, gathered_, mean_ = _made(context, builder, arrays, given)
        on = Vectors(context, builder, gathered.dtype)
        row = builder.mul(k, _width(builder, gathered_))
        slot = cgutils.alloca_once(builder, on.type)
        builder.store(on.constant(0.0), slot)
        with cgutils.for_range_slice(builder, LONG(0), cells, LONG(on.lanes), LONG) as (at, _):
            ratio = builder.fdiv(on.load(counts_, at), on.load(mean_, at))
            builder.store(on.multiply_add(on.load(gathered_, builder.add(row, at)), ratio, builder.load(slot)), slot)
        return on.total(builder.load(slot))

    return gathered.dtype(types.int64, types.int64, *arrays), generate


@instruction
def derivatives(
    typing: Any, cells: Any, before: Any, change: Any, k: Any, counts: Any, gathered: Any, least: Any, mean: Any
) -> Any:
    """Move the means by change × gathered_before, then return Σ x w and Σ x w², w = gathered_k / mean.

    The means of one coordinate's step are updated in the pass that derives the next one.
    """
    arrays = (counts, gathered, mean)

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        cells, before, change, k, counts, gathered_, least, mean = arguments
        counts_, gathered_, mean_ = _made(context, builder, arrays, [counts, gathered_, mean])
        on = Vectors(context, builder, gathered.dtype)
        length = _width(builder, gathered_)
        moved, row = builder.mul(before, length), builder.mul(k, length)
        change, floor = on.splat(change), on.splat(least)
        slots = [cgutils.alloca_once(builder, on.type) for _ in range(2)]
        for slot in slots:
            builder.store(on.constant(0.0), slot)
        with cgutils.for_range_slice(builder, LONG(0), cells, LONG(on.lanes), LONG) as (at, _):
            new = on.multiply_add(change, on.load(gathered_, builder.add(moved, at)), on.load(mean_, at))
            new = builder.select(builder.fcmp_ordered("<", new, floor), floor, new)
            on.store(new, mean_, at)
            weight = builder.fdiv(on.load(gathered_, builder.add(row, at)), new)
            ratio = builder.fmul(on.load(counts_, at), weight)
            builder.store(builder.fadd(builder.load(slots[0]), ratio), slots[0])
            builder.store(on.multiply_add(ratio, weight, builder.load(slots[1])), slots[1])
        both = [on.total(builder.load(slot)) for slot in slots]
        return context.make_tuple(builder, signature.return_type, both)

    dtype = gathered.dtype
    result = types.UniTuple(dtype, 2)
    return result(types.int64, types.int64, change, types.int64, counts, gathered, least, mean), generate
