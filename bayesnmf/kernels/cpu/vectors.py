"""Vector instructions for compiled loops, which Numba does not make from its own loops over a few components.

LLVM compiles a short inner loop over components to scalar code, or to vectors with a long scalar rest. Here the vector
instructions are written explicitly: `Vectors` emits them for one dtype inside a Numba `intrinsic`. They are LLVM's
portable vectors of half a cache line; a machine with shorter registers uses two instructions for each.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from llvmlite import ir
from numba.core import cgutils
from numba.extending import intrinsic

# Declares a code generator as a function for compiled loops; Numba's own type annotations count one argument too many.
instruction: Any = intrinsic

# Measured on Zen 4 against 64 bytes, which need more padding; a 64-byte register counts as two there.
VECTOR_BYTES = 32
INT, LONG = ir.IntType(32), ir.IntType(64)

# Coefficients of log((1 + s) / (1 − s)) / s − 2 in s², |s| ≤ 0.1716 (fdlibm's e_log.c and e_logf.c, Sun Microsystems).
LOG_DOUBLE = (
    6.666666666666735130e-01, 3.999999999940941908e-01, 2.857142874366239149e-01, 2.222219843214978396e-01,
    1.818357216161805012e-01, 1.531383769920937332e-01, 1.479819860511658591e-01,
)  # fmt: skip
LOG_SINGLE = (0.66666662693, 0.40000972152, 0.28498786688, 0.24279078841)


class Vectors:
    """Instructions on vectors of one dtype, emitted by the code generator of an intrinsic.

    A vector fills `VECTOR_BYTES`, unless it has as many lanes as one of another dtype.
    """

    def __init__(self, context: Any, builder: Any, dtype: Any, lanes: int | None = None) -> None:
        self.context, self.builder = context, builder
        self.bits = dtype.bitwidth
        self.lanes = lanes or 8 * VECTOR_BYTES // self.bits
        self.real = context.get_value_type(dtype)
        self.type = ir.VectorType(self.real, self.lanes)

    def constant(self, number: Any, type_: Any = None) -> Any:
        """Return a vector whose lanes all hold one number."""
        type_ = type_ or self.type
        return ir.Constant(type_, [number] * type_.count)

    def splat(self, value: Any) -> Any:
        """Return a vector whose lanes all hold one scalar."""
        nothing = ir.Constant(ir.VectorType(value.type, self.lanes), ir.Undefined)
        one = self.builder.insert_element(nothing, value, INT(0))
        return self.builder.shuffle_vector(one, nothing, ir.Constant(ir.VectorType(INT, self.lanes), [0] * self.lanes))

    def lane(self, vector: Any, position: int) -> Any:
        """Return one lane of a vector as a scalar."""
        return self.builder.extract_element(vector, INT(position))

    def pointer(self, array: Any, type_: Any, offset: Any) -> Any:
        """Return the address of the vector that begins at an element of a contiguous array."""
        first = self.builder.bitcast(array.data, type_.element.as_pointer())
        return self.builder.bitcast(self.builder.gep(first, [offset]), type_.as_pointer())

    def load(self, array: Any, offset: Any, type_: Any = None) -> Any:
        """Read the vector that begins at an element of a contiguous array."""
        type_ = type_ or self.type
        loaded = self.builder.load(self.pointer(array, type_, offset))
        loaded.align = _bytes(type_.element)
        return loaded

    def counts(self, array: Any, dtype: Any, offset: Any, mask: Any = None) -> Any:
        """Read a vector of counts, which may be unsigned integers, with 0 in the lanes that a mask leaves out."""
        given = ir.VectorType(self.context.get_value_type(dtype), self.lanes)
        if mask is None:
            loaded = self.load(array, offset, given)
        else:
            loaded = self.load_masked(array, offset, mask, ir.Constant(given, [0] * self.lanes))
        return loaded if given == self.type else self.builder.uitofp(loaded, self.type)

    def store(self, vector: Any, array: Any, offset: Any) -> None:
        """Write a vector to a contiguous array, from an element on."""
        stored = self.builder.store(vector, self.pointer(array, vector.type, offset))
        stored.align = _bytes(vector.type.element)

    def first_lanes(self, count: Any) -> Any:
        """Return a mask of the first `count` lanes."""
        places = ir.Constant(ir.VectorType(INT, self.lanes), list(range(self.lanes)))
        return self.builder.icmp_signed("<", places, self.splat(self.builder.trunc(count, INT)))

    def load_masked(self, array: Any, offset: Any, mask: Any, default: Any) -> Any:
        """Read the lanes of a mask, and take the other lanes from a default."""
        type_ = default.type
        size = _bytes(type_.element)
        kind = "i" if isinstance(type_.element, ir.IntType) else "f"
        pointer = self.pointer(array, type_, offset)
        name = f"llvm.masked.load.v{type_.count}{kind}{8 * size}.p0"
        function = self._intrinsic(name, type_, [pointer.type, INT, mask.type, type_])
        return self.builder.call(function, [pointer, INT(size), mask, default])

    def prefetch(self, array: Any, offset: Any) -> None:
        """Prefetch the cache line of an element."""
        byte = ir.IntType(8).as_pointer()
        function = self._intrinsic("llvm.prefetch.p0", ir.VoidType(), [byte, INT, INT, INT])
        pointer = self.builder.bitcast(self.pointer(array, self.type, offset), byte)
        self.builder.call(function, [pointer, INT(0), INT(3), INT(1)])

    def multiply_add(self, a: Any, b: Any, c: Any) -> Any:
        """Return a b + c."""
        name = f"llvm.fmuladd.v{self.lanes}f{self.bits}"
        return self.builder.call(self._intrinsic(name, self.type, [self.type] * 3), [a, b, c])

    def rounded(self, x: Any) -> Any:
        """Return the nearest whole numbers."""
        return self.builder.call(self._intrinsic(f"llvm.rint.v{self.lanes}f{self.bits}", self.type, [self.type]), [x])

    def sums(self, vectors: Sequence[Any]) -> Any:
        """Return a vector whose lane q is the sum over the lanes of vector q."""
        vectors = list(vectors)
        pairs = range(0, 2 * self.lanes, 2)
        even, odd = (ir.Constant(ir.VectorType(INT, self.lanes), [p + first for p in pairs]) for first in (0, 1))
        while len(vectors) > 1:
            vectors = [
                self.builder.fadd(self.builder.shuffle_vector(a, b, even), self.builder.shuffle_vector(a, b, odd))
                for a, b in zip(vectors[::2], vectors[1::2], strict=True)
            ]
        return vectors[0]

    def transpose(self, vectors: Sequence[Any]) -> list[Any]:
        """Return the transpose: vector k holds lane k of every given vector."""
        vectors, n = list(vectors), self.lanes
        width = 1
        while width < n:
            # Swap off-diagonal blocks of `width` lanes between vectors that are `width` apart.
            low = [lane if lane // width % 2 == 0 else lane - width + n for lane in range(n)]
            high = [lane + width if lane // width % 2 == 0 else lane + n for lane in range(n)]
            masks = [ir.Constant(ir.VectorType(INT, n), lanes_) for lanes_ in (low, high)]
            for q in (q for q in range(n) if q // width % 2 == 0):
                pair = vectors[q], vectors[q + width]
                vectors[q], vectors[q + width] = (self.builder.shuffle_vector(*pair, mask) for mask in masks)
            width *= 2
        return vectors

    def total(self, vector: Any) -> Any:
        """Return the sum over the lanes."""
        return self.lane(self.sums([vector] * self.lanes), 0)

    def log(self, x: Any) -> Any:
        """Return natural logarithms of normal positive numbers, accurate to 1 ulp; infinity and NaN are kept."""
        b, double = self.builder, self.bits == 64
        whole = ir.VectorType(LONG if double else INT, self.lanes)
        digits = self.constant(52 if double else 23, whole)
        least = self.constant(0x3FE6A09E00000000 if double else 0x3F3504F3, whole)  # the root of 1/2
        bits = b.bitcast(x, whole)
        if double:  # AVX2 lacks signed shifts and conversions of 64 bits: exponents + 1,024 are put behind 2⁵²
            above = b.lshr(b.add(b.sub(bits, least), self.constant(1 << 62, whole)), digits)
            put = b.bitcast(b.or_(above, self.constant(0x4330000000000000, whole)), self.type)
            power = b.fsub(put, self.constant(2.0**52 + 1024))
            mantissa = b.bitcast(b.sub(bits, b.sub(b.shl(above, digits), self.constant(1 << 62, whole))), self.type)
        else:
            exponent = b.ashr(b.sub(bits, least), digits)
            power = b.sitofp(exponent, self.type)
            mantissa = b.bitcast(b.sub(bits, b.shl(exponent, digits)), self.type)
        one = self.constant(1.0)
        f = b.fsub(mantissa, one)
        s = b.fdiv(f, b.fadd(mantissa, one))
        z = b.fmul(s, s)
        coefficients = LOG_DOUBLE if double else LOG_SINGLE
        series = self.constant(coefficients[-1])
        for coefficient in coefficients[-2::-1]:
            series = self.multiply_add(series, z, self.constant(coefficient))
        series = b.fmul(series, z)
        log_mantissa = b.fsub(f, b.fmul(s, b.fsub(f, series)))
        scaled = self.multiply_add(power, self.constant(float(np.log(2))), log_mantissa)
        # Added, not selected: where x is overwritten, LLVM makes a masked store of a selection, which is slow on AMD.
        return b.fadd(scaled, b.select(b.fcmp_ordered("<", x, self.constant(float("inf"))), self.constant(0.0), x))

    def _intrinsic(self, name: str, result: Any, arguments: list[Any]) -> Any:
        return cgutils.get_or_insert_function(self.builder.module, ir.FunctionType(result, arguments), name)


def _bytes(type_: Any) -> int:
    return type_.width // 8 if isinstance(type_, ir.IntType) else (8 if isinstance(type_, ir.DoubleType) else 4)
