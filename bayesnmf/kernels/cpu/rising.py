"""Sums over the steps of a rising product, which take the place of x log λ, x / λ and x / λ² where counts cluster.

With x counts of mean λ and spread s, the negative binomial of linear variance has (mathematics.md section 13) ::

    L = Σ_{t<x} log(λ + ts)        W = Σ_{t<x} 1 / (λ + ts)        V = Σ_{t<x} 1 / (λ + ts)²

Six steps are summed one by one, as two fractions. From there on λ + ts is at least 6 s, so that ψ, logΓ and ψ′ are
known from their asymptotic series; their differences over s are formed so that nothing cancels as s → 0.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from llvmlite import ir
from numba import types
from numba.core import cgutils

from bayesnmf.kernels.cpu.special import DIGAMMA, LOG_GAMMA, polynomial
from bayesnmf.kernels.cpu.vectors import LONG, Vectors, instruction

STEPS = 3  # summed as one fraction
# Even Bernoulli numbers, of ψ′(x) − 1/x − 1/2x² in 1/x³; and 1 / (2k + 1), of artanh.
TRIGAMMA = (1 / 6, -1 / 30, 1 / 42, -1 / 30, 5 / 66, -691 / 2730, 7 / 6)
ARTANH = tuple(1 / (2 * k + 1) for k in range(9))
NEAR = 1 / 9  # of tanh(½ log(b / a)), below which that series is accurate to 1e-17


class Sums(NamedTuple):
    """Vectors of W, L and V; None for those that are not asked for."""

    weight: Any
    log: Any
    curvature: Any


class Rising:
    """Emits these sums for vectors of counts x, means λ > 0 and spreads s > 0, all in double precision."""

    def __init__(self, on: Vectors, log: bool, curvature: bool) -> None:
        self.on, self.builder, self.log, self.curvature = on, on.builder, log, curvature

    def emit(self, x: Any, mean: Any, spread: Any) -> Sums:
        """Return the sums; lanes with x = 0 are 0."""
        b = self.builder
        wanted = (True, self.log, self.curvature)
        slots = [cgutils.alloca_once(b, self.on.type) if each else None for each in wanted]
        self._store(slots, self._few(x, mean, spread, 0), first=True)
        with b.if_then(self._any_above(x, STEPS)):
            self._store(slots, self._few(x, mean, spread, STEPS))
            with b.if_then(self._any_above(x, 2 * STEPS)):
                self._store(slots, self._many(x, mean, spread))
        return Sums(*(None if slot is None else b.load(slot) for slot in slots))

    def _store(self, slots: list[Any], found: Sums, first: bool = False) -> None:
        for slot, value in zip(slots, found, strict=True):
            if slot is not None:
                self.builder.store(value if first else self.builder.fadd(self.builder.load(slot), value), slot)

    def _any_above(self, x: Any, number: int) -> Any:
        above = self.builder.fcmp_ordered(">", x, self.on.constant(float(number)))
        bits = ir.IntType(self.on.lanes)
        return self.builder.icmp_unsigned("!=", self.builder.bitcast(above, bits), ir.Constant(bits, 0))

    def _few(self, x: Any, mean: Any, spread: Any, begun: int) -> Sums:
        """Return the sums over three steps, with one division: 1/a = bc / abc."""
        on, b = self.on, self.builder
        one, nothing = on.constant(1.0), on.constant(0.0)
        within = [b.fcmp_ordered(">", x, on.constant(float(begun + t))) for t in range(STEPS)]
        terms = [on.multiply_add(on.constant(float(begun + t)), spread, mean) for t in range(STEPS)]
        terms = [b.select(inside, term, one) for inside, term in zip(within, terms, strict=True)]
        pair = b.fmul(terms[0], terms[1])
        product = b.fmul(pair, terms[2])
        inverse = b.fdiv(one, product)
        others = [b.fmul(terms[1], terms[2]), b.fmul(terms[0], terms[2]), pair]
        parts = [
            b.select(inside, b.fmul(other, inverse), nothing) for inside, other in zip(within, others, strict=True)
        ]
        weight = b.fadd(b.fadd(parts[0], parts[1]), parts[2])
        squares = nothing
        for part in parts if self.curvature else ():
            squares = on.multiply_add(part, part, squares)
        return Sums(weight, on.log(product) if self.log else None, squares)

    def _many(self, x: Any, mean: Any, spread: Any) -> Sums:
        """Return the sums over all steps but the first six, from a = λ + 6s to b = λ + xs (excluded)."""
        on, b = self.on, self.builder
        begun, half, one = on.constant(2.0 * STEPS), on.constant(0.5), on.constant(1.0)
        n = b.fsub(x, begun)
        n = b.select(b.fcmp_ordered(">", n, on.constant(0.0)), n, on.constant(0.0))
        low = on.multiply_add(begun, spread, mean)
        high = on.multiply_add(n, spread, low)
        u, w = b.fdiv(spread, low), b.fdiv(spread, high)
        squares = b.fmul(u, u), b.fmul(w, w)
        per_sum = b.fdiv(n, b.fadd(low, high))
        y = b.fmul(per_sum, spread)
        near = b.fcmp_ordered("<", y, on.constant(NEAR))
        series = b.fmul(b.fmul(on.constant(2.0), per_sum), polynomial(on, b.fmul(y, y), ARTANH))
        inverse = b.fdiv(one, spread)
        slope = b.select(near, series, b.fmul(on.log(b.fdiv(high, low)), inverse))  # log(b / a) / s

        def difference(coefficients: Any, of_u: Any, of_w: Any) -> Any:
            """Return P(u) − P(w), for the factors of polynomials in squares."""
            each = [b.fmul(f, polynomial(on, s, coefficients)) for f, s in zip((of_u, of_w), squares, strict=True)]
            return b.fsub(*each)

        change = on.multiply_add(half, b.fsub(u, w), difference(DIGAMMA, *squares))
        weight = on.multiply_add(change, inverse, slope)
        log = curvature = None
        if self.log:
            log = on.multiply_add(n, on.log(high), b.fmul(slope, b.fsub(low, b.fmul(half, spread))))
            log = b.fsub(b.fsub(log, n), difference(LOG_GAMMA, u, w))
        if self.curvature:
            cubes = b.fmul(u, squares[0]), b.fmul(w, squares[1])
            change = on.multiply_add(half, b.fsub(*squares), difference(TRIGAMMA, *cubes))
            main = b.fdiv(n, b.fmul(low, high))
            curvature = on.multiply_add(change, b.fmul(inverse, inverse), main)
        return Sums(weight, log, curvature)


@instruction
def rising_sums(
    typing: Any, length: Any, counts: Any, means: Any, spreads: Any, weights: Any, logs: Any, curvatures: Any
) -> Any:
    """Write W, L and V for the first `length` entries, a multiple of a vector, of float64; None skips L or V.

    Counts of 0 give 0; means and spreads must be above 0.
    """
    arrays = (counts, means, spreads, weights, logs, curvatures)
    wanted = [not isinstance(each, types.NoneType) for each in arrays]

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        length, *given = arguments
        made: list[Any] = [
            context.make_array(kind)(context, builder, value=value) if there else None
            for kind, value, there in zip(arrays, given, wanted, strict=True)
        ]
        on = Vectors(context, builder, types.float64)
        rising = Rising(on, wanted[4], wanted[5])
        with cgutils.for_range_slice(builder, LONG(0), length, LONG(on.lanes), LONG) as (at, _):
            found = rising.emit(*(on.load(array, at) for array in made[:3]))
            for value, array in zip(found, made[3:], strict=True):
                if array is not None:
                    on.store(value, array, at)
        return context.get_dummy_value()

    return types.void(types.int64, *arrays), generate


class _Entries:
    """Emits sums of a vector of entries in the dtype of the means; spreads are of float64."""

    def __init__(self, context: Any, builder: Any, dtype: Any) -> None:
        self.on, self.builder = Vectors(context, builder, dtype), builder
        self.wide = Vectors(context, builder, types.float64, self.on.lanes)

    def sums(self, x: Any, mean: Any, spreads: Any, at: Any, curvature: bool) -> tuple[Any, Any]:
        """Return W, and V if asked for."""
        b, double = self.builder, self.on.bits == 64
        given = (x, mean) if double else (b.fpext(x, self.wide.type), b.fpext(mean, self.wide.type))
        found = Rising(self.wide, False, curvature).emit(*given, self.wide.load(spreads, at, self.wide.type))
        both = found.weight, found.curvature
        return both if double else tuple(each and b.fptrunc(each, self.on.type) for each in both)


@instruction
def cluster_entries(typing: Any, entries: Any, counts: Any, spreads: Any, least: Any, means: Any) -> Any:
    """Replace the means by W, or by 0 where mean ≤ `least`; return whether a count is lost that way."""
    kinds = (counts, spreads, means)

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        entries, counts_, spreads_, least, means_ = arguments
        pairs = zip(kinds, [counts_, spreads_, means_], strict=True)
        x, spread, mean = (context.make_array(kind)(context, builder, value=value) for kind, value in pairs)
        emitted = _Entries(context, builder, means.dtype)
        on = emitted.on
        floor, nothing = on.splat(least), on.constant(0.0)
        slot = cgutils.alloca_once_value(builder, nothing)
        with cgutils.for_range_slice(builder, LONG(0), entries, LONG(on.lanes), LONG) as (at, _):
            count, value = on.load(x, at), on.load(mean, at)
            low = builder.fcmp_ordered("<=", value, floor)
            builder.store(builder.fadd(builder.load(slot), builder.select(low, count, nothing)), slot)
            count, value = builder.select(low, nothing, count), builder.select(low, on.constant(1.0), value)
            on.store(emitted.sums(count, value, spread, at, False)[0], mean, at)
        return builder.fcmp_ordered(">", on.total(builder.load(slot)), on.real(0.0))

    return types.boolean(types.int64, counts, spreads, least, means), generate


@instruction
def cluster_derivatives(
    typing: Any, entries: Any, before: Any, change: Any, k: Any, counts: Any, spreads: Any, gathered: Any, least: Any,
    means: Any,
) -> Any:  # fmt: skip
    """Move the means by change × gathered_before, then return Σ W g and Σ V g² with g = gathered_k."""
    kinds = (counts, spreads, gathered, means)

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        entries, before, change, k, counts_, spreads_, gathered_, least, means_ = arguments
        pairs = zip(kinds, [counts_, spreads_, gathered_, means_], strict=True)
        x, spread, factor, mean = (context.make_array(kind)(context, builder, value=value) for kind, value in pairs)
        emitted = _Entries(context, builder, gathered.dtype)
        on = emitted.on
        moved, own = builder.mul(before, entries), builder.mul(k, entries)
        change, floor = on.splat(change), on.splat(least)
        slots = [cgutils.alloca_once_value(builder, on.constant(0.0)) for _ in range(2)]
        with cgutils.for_range_slice(builder, LONG(0), entries, LONG(on.lanes), LONG) as (at, _):
            new = on.multiply_add(change, on.load(factor, builder.add(moved, at)), on.load(mean, at))
            new = builder.select(builder.fcmp_ordered("<", new, floor), floor, new)
            on.store(new, mean, at)
            g = on.load(factor, builder.add(own, at))
            weight, curvature = emitted.sums(on.load(x, at), new, spread, at, True)
            builder.store(on.multiply_add(weight, g, builder.load(slots[0])), slots[0])
            builder.store(on.multiply_add(builder.fmul(curvature, g), g, builder.load(slots[1])), slots[1])
        both = [on.total(builder.load(slot)) for slot in slots]
        return context.make_tuple(builder, signature.return_type, both)

    dtype = gathered.dtype
    result = types.UniTuple(dtype, 2)
    return result(types.int64, types.int64, change, types.int64, counts, spreads, gathered, least, means), generate
