"""Sums of the columns of a matrix without any rounding, so that rows may be added in any order and in any parts.

A number in float64 is a whole number of up to 53 bits times a power of two. A sum is held as one long whole number in
pieces of 32 bits, of which a number touches three. It is rounded once, at the end.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bayesnmf.kernels.cpu.compiling import compiled_on_disk

Array = NDArray[Any]
PIECES = 68  # 2046 exponents and 53 bits, in pieces of 32 bits, and one piece more for what is carried
LOWEST = 1074  # the last bit of the smallest number is 2^−1074
ROWS = 2**28  # each adds less than 2^34 to a piece, which has room for 2^63


@compiled_on_disk(nogil=True)
def _add_rows(bits: Array, pieces: Array) -> bool:
    """Add rows of numbers, given as their bits, to the pieces (K, PIECES); return whether all were finite."""
    low = 0xFFFFFFFF
    for i in range(bits.shape[0]):
        for k in range(bits.shape[1]):
            number = bits[i, k]
            exponent = (number >> 52) & 0x7FF
            if exponent == 0x7FF:
                return False
            digits = number & 0xFFFFFFFFFFFFF
            if exponent > 0:
                digits, exponent = digits | 0x10000000000000, exponent - 1
            place, shift = exponent >> 5, exponent & 31
            first, second = (digits & low) << shift, (digits >> 32) << shift
            sign = -1 if number < 0 else 1
            pieces[k, place] += sign * (first & low)
            pieces[k, place + 1] += sign * ((first >> 32) + (second & low))
            pieces[k, place + 2] += sign * (second >> 32)
    return True


@compiled_on_disk(nogil=True)
def _carry(pieces: Array) -> None:
    """Leave at most 32 bits in every piece but the last."""
    for k in range(pieces.shape[0]):
        for place in range(pieces.shape[1] - 1):
            over = pieces[k, place] >> 32
            pieces[k, place] -= over << 32
            pieces[k, place + 1] += over


class ExactSums:
    """Sums Σ_i x_ik of the columns of a matrix, (K,), which depend neither on the order of rows nor on their blocks.

    Parameters
    ----------
    rows : ndarray (r, K)
        Rows to begin with.
    """

    def __init__(self, rows: Array) -> None:
        self.pieces = np.zeros((rows.shape[1], PIECES), np.int64)
        self.finite = True
        for first in range(0, len(rows), ROWS):
            part = np.ascontiguousarray(rows[first : first + ROWS], np.float64)
            self.finite &= bool(_add_rows(part.view(np.int64), self.pieces))
            _carry(self.pieces)

    def __add__(self, other: ExactSums) -> ExactSums:
        total = ExactSums(np.empty((0, len(self.pieces))))
        total.pieces, total.finite = self.pieces + other.pieces, self.finite and other.finite
        _carry(total.pieces)
        return total

    def rounded(self) -> Array:
        """Return the sums, (K,), each rounded once to float64; all are NaN if any number was not finite."""
        if not self.finite:
            return np.full(len(self.pieces), np.nan)
        return np.array([_as_float(pieces) for pieces in self.pieces.tolist()])


def _as_float(pieces: list[int]) -> float:
    whole = sum(piece << (32 * place) for place, piece in enumerate(pieces))
    try:
        return whole / (1 << LOWEST)  # a quotient of whole numbers is rounded correctly
    except OverflowError:
        return math.inf if whole > 0 else -math.inf
