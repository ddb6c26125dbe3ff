"""Vector loops over the nonzeros of one row: the innermost parts of coordinate descent and of settling rows.

The components at the nonzeros of a row are gathered once, transposed, into `gathered` (K, whole vectors of entries), so
that every coordinate reads contiguous numbers. After the last nonzero the first one is repeated with a count of 0, so
that no loop has a remainder.
"""

from __future__ import annotations

from typing import Any

from numba import types
from numba.core import cgutils

from bayesnmf.kernels.cpu.vectors import LONG, Vectors, instruction

AT_ONCE = 4  # vectors summed in parallel; the number of lanes of either dtype is a multiple of this


def _as_arrays(context: Any, builder: Any, kinds: Any, values: Any) -> list[Any]:
    return [context.make_array(kind)(context, builder, value=value) for kind, value in zip(kinds, values, strict=True)]


def _width(builder: Any, array: Any) -> Any:
    return cgutils.unpack_tuple(builder, array.shape, 2)[1]


@instruction
def gather_entries(
    typing: Any, first: Any, entries: Any, at: Any, indices: Any, values: Any, V: Any, counts: Any, gathered: Any
) -> Any:
    """Write at most one vector of nonzeros, from position `first`, to `counts` and `gathered` from column `at` on.

    V (m, K) is padded to whole vectors; `gathered` has as many rows as V has columns.
    """
    arrays = (indices, values, V, counts, gathered)

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        first, entries, at, *given = arguments
        indices_, values_, V_, counts_, gathered_ = _as_arrays(context, builder, arrays, given)
        on = Vectors(context, builder, V.dtype)
        mask = on.first_lanes(entries)
        same = on.splat(builder.load(builder.gep(indices_.data, [first])))
        where = on.load_masked(indices_, first, mask, same)
        on.store(on.counts(values_, values.dtype, first, mask), counts_, at)
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
def mix_entries(typing: Any, vectors: Any, rank: Any, b: Any, gathered: Any, least: Any, mean: Any) -> Any:
    """Write max(Σ_k b_k gathered_k, least) to `mean`, for a number of entries that is a multiple of a vector."""
    arrays = (b, gathered, mean)

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        entries, rank, *given = arguments
        b_, gathered_, mean_ = _as_arrays(context, builder, arrays, [given[0], given[1], given[3]])
        on = Vectors(context, builder, gathered.dtype)
        length, floor = _width(builder, gathered_), on.splat(given[2])
        slots = [cgutils.alloca_once(builder, on.type) for _ in range(AT_ONCE)]

        def mix(at: Any, many: int) -> None:
            for slot in slots[:many]:
                builder.store(on.constant(0.0), slot)
            places = [builder.add(at, LONG(q * on.lanes)) for q in range(many)]
            with cgutils.for_range(builder, rank, intp=LONG) as loop:
                coefficient = on.splat(builder.load(builder.gep(b_.data, [loop.index])))
                row = builder.mul(loop.index, length)
                for slot, place in zip(slots, places, strict=False):
                    vector = on.load(gathered_, builder.add(row, place))
                    builder.store(on.multiply_add(coefficient, vector, builder.load(slot)), slot)
            for slot, place in zip(slots, places, strict=False):
                total = builder.load(slot)
                on.store(builder.select(builder.fcmp_ordered("<", total, floor), floor, total), mean_, place)

        # Several vectors in parallel: with one alone, each addition would wait for the one before it.
        step = LONG(AT_ONCE * on.lanes)
        whole = builder.mul(builder.sdiv(entries, step), step)
        with cgutils.for_range_slice(builder, LONG(0), whole, step, LONG) as (at, _):
            mix(at, AT_ONCE)
        with cgutils.for_range_slice(builder, whole, entries, LONG(on.lanes), LONG) as (at, _):
            mix(at, 1)
        return context.get_dummy_value()

    return types.void(types.int64, types.int64, b, gathered, least, mean), generate


@instruction
def divide_entries(typing: Any, entries: Any, counts: Any, least: Any, mean: Any) -> Any:
    """Replace the means by counts / mean, or by 0 where mean ≤ `least`; return whether a count is lost that way."""
    arrays = (counts, mean)

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        entries, counts_, least, mean_ = arguments
        counts_, mean_ = _as_arrays(context, builder, arrays, [counts_, mean_])
        on = Vectors(context, builder, mean.dtype)
        floor, nothing = on.splat(least), on.constant(0.0)
        slot = cgutils.alloca_once(builder, on.type)
        builder.store(nothing, slot)
        with cgutils.for_range_slice(builder, LONG(0), entries, LONG(on.lanes), LONG) as (at, _):
            count, value = on.load(counts_, at), on.load(mean_, at)
            low = builder.fcmp_ordered("<=", value, floor)
            builder.store(builder.fadd(builder.load(slot), builder.select(low, count, nothing)), slot)
            on.store(builder.select(low, nothing, builder.fdiv(count, value)), mean_, at)
        return builder.fcmp_ordered(">", on.total(builder.load(slot)), on.real(0.0))

    return types.boolean(types.int64, counts, least, mean), generate


@instruction
def expected_counts(typing: Any, entries: Any, gathered: Any, ratio: Any, out: Any) -> Any:
    """Write Σ gathered_k ratio for every k. With ratio = counts / mean, that is the expected count per unit of b_k.

    `out` has as many elements as `gathered` has rows.
    """
    arrays = (gathered, ratio, out)

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        entries, *given = arguments
        gathered_, ratio_, out_ = _as_arrays(context, builder, arrays, given)
        on = Vectors(context, builder, gathered.dtype)
        rows, length = cgutils.unpack_tuple(builder, gathered_.shape, 2)
        slots = [cgutils.alloca_once(builder, on.type) for _ in range(AT_ONCE)]
        with cgutils.for_range_slice(builder, LONG(0), rows, LONG(AT_ONCE), LONG) as (k, _):
            for slot in slots:
                builder.store(on.constant(0.0), slot)
            begins = [builder.mul(builder.add(k, LONG(q)), length) for q in range(AT_ONCE)]
            with cgutils.for_range_slice(builder, LONG(0), entries, LONG(on.lanes), LONG) as (at, _):
                weight = on.load(ratio_, at)
                for slot, begin in zip(slots, begins, strict=True):
                    vector = on.load(gathered_, builder.add(begin, at))
                    builder.store(on.multiply_add(vector, weight, builder.load(slot)), slot)
            sums = on.sums([builder.load(slot) for slot in slots] * (on.lanes // AT_ONCE))
            for q in range(AT_ONCE):
                builder.store(on.lane(sums, q), builder.gep(out_.data, [builder.add(k, LONG(q))]))
        return context.get_dummy_value()

    return types.void(types.int64, *arrays), generate


@instruction
def derivatives(
    typing: Any, entries: Any, before: Any, change: Any, k: Any, counts: Any, gathered: Any, least: Any, mean: Any
) -> Any:
    """Move the means by change × gathered_before, then return Σ x w and Σ x w² with w = gathered_k / mean.

    The pass that computes the derivatives of one coordinate also applies the step of the coordinate before it.
    """
    arrays = (counts, gathered, mean)

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        entries, before, change, k, counts, gathered_, least, mean = arguments
        counts_, gathered_, mean_ = _as_arrays(context, builder, arrays, [counts, gathered_, mean])
        on = Vectors(context, builder, gathered.dtype)
        length = _width(builder, gathered_)
        moved, row = builder.mul(before, length), builder.mul(k, length)
        change, floor = on.splat(change), on.splat(least)
        slots = [cgutils.alloca_once(builder, on.type) for _ in range(2)]
        for slot in slots:
            builder.store(on.constant(0.0), slot)
        with cgutils.for_range_slice(builder, LONG(0), entries, LONG(on.lanes), LONG) as (at, _):
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
