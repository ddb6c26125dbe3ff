"""ψ, entropies, powers and exp of vectors, in double precision, without branches or calls."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils

from bayesnmf.kernels.cpu.vectors import INT, LONG, Vectors, instruction

# ψ(x) = ψ(x + SHIFT) − Σ 1 / (x + i), and logΓ likewise: from x = SHIFT on, the series below are accurate to 1e-16.
SHIFT = 10
# Coefficients from Bernoulli numbers: B_2k / 2k of ψ(x) − log x + 1/2x in −1/x², and B_2k / (2k (2k − 1)) of logΓ.
DIGAMMA = (1 / 12, -1 / 120, 1 / 252, -1 / 240, 1 / 132, -691 / 32760, 1 / 12)
LOG_GAMMA = (1 / 12, -1 / 360, 1 / 1260, -1 / 1680, 1 / 1188, -691 / 360360, 1 / 156)
HALF_LOG_TWO_PI = 0.9189385332046727

LOG_TWO = (0.693147180369123816490, 1.90821492927058770002e-10)  # its leading bits, and the remainder
LEAST_EXPONENT, LARGEST_EXPONENT = -708.0, 709.0  # exp of these is a normal number
EXP_TERMS = 13


def polynomial(on: Vectors, x: Any, coefficients: Any) -> Any:
    """Return the polynomial in x with these coefficients, the constant first."""
    value = on.constant(coefficients[-1])
    for coefficient in coefficients[-2::-1]:
        value = on.multiply_add(value, x, on.constant(coefficient))
    return value


class _Shifted(NamedTuple):
    """y = x, or x + SHIFT for small x; ψ(x) = log y − `rest`; `product` is Π (x + i), or 1 without a shift."""

    small: Any
    y: Any
    rest: Any
    product: Any
    inverse: Any
    square: Any
    series: Any


def _shifted(on: Vectors, x: Any) -> _Shifted:
    b = on.builder
    one, half = on.constant(1.0), on.constant(0.5)
    # Σ 1 / (x + i) is the derivative of Π (x + i) divided by the product: one division instead of ten.
    product, slope, factor = x, one, x
    for _ in range(SHIFT - 1):
        factor = b.fadd(factor, one)
        slope = on.multiply_add(slope, factor, product)
        product = b.fmul(product, factor)
    small = b.fcmp_ordered("<", x, on.constant(float(SHIFT)))
    product, slope = b.select(small, product, one), b.select(small, slope, on.constant(0.0))
    y = b.select(small, b.fadd(x, on.constant(float(SHIFT))), x)
    r = b.fdiv(one, y)
    s = b.fmul(r, r)
    series = b.fmul(r, polynomial(on, s, DIGAMMA))
    rest = b.fadd(b.fmul(r, b.fadd(half, series)), b.fdiv(slope, product))
    return _Shifted(small, y, rest, product, r, s, series)


def _digamma_and_excess(on: Vectors, x: Any) -> tuple[Any, Any]:
    b = on.builder
    half = on.constant(0.5)
    small, y, rest, product, r, s, series = _shifted(on, x)
    log_y = on.log(y)
    gamma_series = b.fmul(r, polynomial(on, s, LOG_GAMMA))
    psi = b.fsub(log_y, rest)
    log_gamma = b.fsub(b.fmul(b.fsub(y, half), log_y), y)
    log_gamma = b.fadd(log_gamma, b.fadd(on.constant(HALF_LOG_TWO_PI), gamma_series))
    log_gamma = b.fsub(log_gamma, on.log(product))
    near = b.fsub(b.fsub(b.fmul(x, psi), log_gamma), x)
    # x ψ, logΓ and x cancel for large x; this formula cancels them exactly, before rounding.
    far = b.fsub(b.fmul(half, log_y), on.constant(0.5 + HALF_LOG_TWO_PI))
    far = b.fsub(far, b.fadd(series, gamma_series))
    return psi, b.select(small, near, far)


def _exp(on: Vectors, x: Any) -> Any:
    b = on.builder
    x = b.select(b.fcmp_ordered("<", x, on.constant(LEAST_EXPONENT)), on.constant(LEAST_EXPONENT), x)
    x = b.select(b.fcmp_ordered(">", x, on.constant(LARGEST_EXPONENT)), on.constant(LARGEST_EXPONENT), x)
    whole = on.rounded(b.fmul(x, on.constant(float(1 / np.log(2)))))
    r = on.multiply_add(whole, on.constant(-LOG_TWO[0]), x)
    r = on.multiply_add(whole, on.constant(-LOG_TWO[1]), r)
    factorials = np.cumprod([1.0, *range(1, EXP_TERMS + 1)])
    value = polynomial(on, r, [float(1 / each) for each in factorials])
    integers = ir.VectorType(LONG, on.lanes)
    exponent = b.fptosi(whole, ir.VectorType(INT, on.lanes))
    power = b.shl(b.sext(exponent, integers), on.constant(52, integers))
    return b.bitcast(b.add(b.bitcast(value, integers), power), on.type)


@instruction
def digamma_and_excess(typing: Any, length: Any, x: Any, psi: Any, excess: Any) -> Any:
    """Write ψ(x) and x ψ(x) − logΓ(x) − x for the first `length` numbers of x > 0, a multiple of a vector."""
    arrays = (x, psi, excess)

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        length, *given = arguments
        made = [context.make_array(kind)(context, builder, value=v) for kind, v in zip(arrays, given, strict=True)]
        on = Vectors(context, builder, types.float64)
        with cgutils.for_range_slice(builder, LONG(0), length, LONG(on.lanes), LONG) as (at, _):
            for value, array in zip(_digamma_and_excess(on, on.load(made[0], at)), made[1:], strict=True):
                on.store(value, array, at)
        return context.get_dummy_value()

    return types.void(types.int64, *arrays), generate


@instruction
def scaled_exp_digamma(typing: Any, length: Any, x: Any, scale: Any, shift: Any, out: Any) -> Any:
    """Write scale · exp(ψ(x) + shift) for the first `length` numbers of x > 0, a multiple of a vector.

    As ψ(x) = log y − rest, no logarithm is taken. exp(shift − rest) is clipped to 3e-308 and 8e307.
    """
    arrays = (x, scale, out)

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        length, x_, scale_, shift, out_ = arguments
        given = zip(arrays, (x_, scale_, out_), strict=True)
        made = [context.make_array(kind)(context, builder, value=value) for kind, value in given]
        on = Vectors(context, builder, types.float64)
        shift = on.splat(shift)
        with cgutils.for_range_slice(builder, LONG(0), length, LONG(on.lanes), LONG) as (at, _):
            found = _shifted(on, on.load(made[0], at))
            times = builder.fmul(found.y, on.load(made[1], at))
            on.store(builder.fmul(times, _exp(on, builder.fsub(shift, found.rest))), made[2], at)
        return context.get_dummy_value()

    return types.void(types.int64, x, scale, types.float64, out), generate


def _in_place(x: Any, function: Any) -> Any:
    """Return the instruction that replaces the first numbers of x, a multiple of a vector, by a function of them."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        length, given = arguments
        array = context.make_array(x)(context, builder, value=given)
        on = Vectors(context, builder, types.float64)
        with cgutils.for_range_slice(builder, LONG(0), length, LONG(on.lanes), LONG) as (at, _):
            on.store(function(on, on.load(array, at)), array, at)
        return context.get_dummy_value()

    return types.void(types.int64, x), generate


@instruction
def exponentials(typing: Any, length: Any, x: Any) -> Any:
    """Replace the first `length` numbers of x, a multiple of a vector, by exp(x), clipped to 3e-308 and 8e307."""
    return _in_place(x, _exp)


@instruction
def logarithms(typing: Any, length: Any, x: Any) -> Any:
    """Replace the first `length` numbers of x, normal and above 0, a multiple of a vector, by log x."""
    return _in_place(x, Vectors.log)


@instruction
def weighted_logarithms(typing: Any, length: Any, weight: Any, x: Any) -> Any:
    """Return Σ weight · log x over the first `length` numbers, a multiple of a vector, of x, normal and above 0."""
    arrays = (weight, x)

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        length, *given = arguments
        made = [context.make_array(kind)(context, builder, value=v) for kind, v in zip(arrays, given, strict=True)]
        on = Vectors(context, builder, types.float64)
        total = cgutils.alloca_once_value(builder, on.constant(0.0))
        with cgutils.for_range_slice(builder, LONG(0), length, LONG(on.lanes), LONG) as (at, _):
            weights, logs = on.load(made[0], at), on.log(on.load(made[1], at))
            builder.store(on.multiply_add(weights, logs, builder.load(total)), total)
        return on.total(builder.load(total))

    return types.float64(types.int64, *arrays), generate


@instruction
def powers(typing: Any, length: Any, x: Any, exponent: Any) -> Any:
    """Replace the first `length` numbers of x, normal and above 0, a multiple of a vector, by x ** exponent."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        length, given, exponent = arguments
        array = context.make_array(x)(context, builder, value=given)
        on = Vectors(context, builder, types.float64)
        weight = on.splat(exponent)
        with cgutils.for_range_slice(builder, LONG(0), length, LONG(on.lanes), LONG) as (at, _):
            on.store(_exp(on, builder.fmul(weight, on.log(on.load(array, at)))), array, at)
        return context.get_dummy_value()

    return types.void(types.int64, x, types.float64), generate
