"""Differentiate the sharing of one vector of nonzeros: the innermost part of the tangent of the allocation step."""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils

from bayesnmf.kernels.cpu.share_block import NonzeroBlock
from bayesnmf.kernels.cpu.vectors import Vectors, instruction


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

    def weigh(self, first: Any, cells: Any, at: Any, least: Any) -> None:
        """Store X / mean, Y / mean, the tangent of log mean, and 1 / mean; add to the tangent of the row."""
        on, b, found = self.on, self.builder, self.arrays
        mask = on.first_lanes(cells)
        index, x = self._nonzeros(first, cells, mask)
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

    def answer(self, first: Any, cells: Any, at: Any) -> None:
        """Add to the tangents of the components, given the tangent of the row's factor."""
        on, b, found = self.on, self.builder, self.arrays
        mask = on.first_lanes(cells)
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
def weigh_cells(
    typing: Any, first: Any, cells: Any, at: Any, least: Any, indices: Any, values: Any, bends: Any, u: Any, V: Any,
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
        first, cells, at, least, *given = arguments
        _TangentBlock(context, builder, kinds, given).weigh(first, cells, at, least)
        return context.get_dummy_value()

    return types.void(types.int64, types.int64, types.int64, least, *kinds.values()), generate


@instruction
def answer_cells(
    typing: Any, first: Any, cells: Any, at: Any, indices: Any, u: Any, change: Any, V: Any, ratios: Any, turns: Any,
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
        first, cells, at, *given = arguments
        _TangentBlock(context, builder, kinds, given).answer(first, cells, at)
        return context.get_dummy_value()

    return types.void(types.int64, types.int64, types.int64, *kinds.values()), generate
