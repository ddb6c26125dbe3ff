"""Share a vector of nonzeros of one row among the components: the innermost part of the allocation step."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils

from bayesnmf.kernels.cpu.rising import Rising
from bayesnmf.kernels.cpu.vectors import INT, LONG, Vectors, instruction

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
