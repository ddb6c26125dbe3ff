"""Extrapolation of positive numbers along the line of their logarithms."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
from numba import prange
from numpy.typing import NDArray

from bayesnmf.kernels.cpu.allocation import threads_or_default
from bayesnmf.kernels.cpu.compiling import serial_and_parallel
from bayesnmf.kernels.cpu.special import powers
from bayesnmf.kernels.cpu.vectors import VECTOR_BYTES

Array = NDArray[Any]

BLOCK = 2048  # numbers worked on at a time: they stay in the first-level cache
COST = 10  # multiply-adds that a power is worth
MOST = 1e300


def _move(new: Array, old: Array, weight: float, bounds: Array, out: Array) -> None:
    step = VECTOR_BYTES // 8
    for block in prange(len(bounds) - 1):
        ratio = np.ones(BLOCK)
        for first in range(bounds[block], bounds[block + 1], BLOCK):
            length = min(BLOCK, bounds[block + 1] - first)
            for p in range(length):
                a, b = np.float64(new[first + p]), np.float64(old[first + p])
                ratio[p] = min(max(a / b, 1 / MOST), MOST) if a > 0 and b > 0 else 1.0
            powers((length + step - 1) // step * step, ratio, weight)
            for p in range(length):
                out[first + p] = new[first + p] * ratio[p]


_MOVE = serial_and_parallel(_move, "_move_logarithms")


def move_logarithms(new: Array, old: Array, weight: float, threads: int | None = None) -> Array:
    """Return new (new / old) ** weight; new where either is not positive.

    Parameters
    ----------
    new, old : ndarray of one shape
        Nonnegative.
    weight : float
        How far beyond `new`, in steps from `old` to it.
    threads : int, optional
        Blocks worked on at once; the result does not depend on it.
    """
    order: Literal["C", "F"] = "F" if new.flags.f_contiguous and not new.flags.c_contiguous else "C"
    out = np.empty(new.shape, new.dtype, order=order)
    flat = [np.asarray(each, order=order).ravel(order="K") for each in (new, old)]
    blocks = threads_or_default(threads, COST * new.size)
    bounds = np.linspace(0, new.size, blocks + 1).astype(np.int64)
    _MOVE[blocks > 1](*flat, weight, bounds, out.ravel(order="K"))
    return out
