"""Extrapolate positive numbers along a line, or along the line of their logarithms."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from bayesnmf.kernels.cpu.compiling import FAST, compiled_on_disk
from bayesnmf.kernels.cpu.factors import VECTOR_BYTES, clear_padding, padded, whole_vectors
from bayesnmf.kernels.cpu.special import powers
from bayesnmf.kernels.cpu.threads import block_count, even_bounds, in_blocks, threads_or_default
from bayesnmf.types import Array

BLOCK = 2048  # numbers in a block, which stays in the first-level cache
COST = 10  # cost of a power, in multiply-adds
MOST = 1e300


@compiled_on_disk(nogil=True, fastmath=FAST)
def _move(rank: int, new: Array, old: Array, weight: float, out: Array) -> None:
    """Fill the first columns of `out`, with a block of rows copied into one run, as powers cost more than the copy."""
    step = VECTOR_BYTES // 8
    at_once = max(BLOCK // rank, 1)
    ratio = np.ones((at_once * rank + step - 1) // step * step)
    for first in range(0, len(new), at_once):
        rows = min(at_once, len(new) - first)
        for r in range(rows):
            for k in range(rank):
                a, b = np.float64(new[first + r, k]), np.float64(old[first + r, k])
                ratio[r * rank + k] = min(max(a / b, 1 / MOST), MOST) if a > 0 and b > 0 else 1.0
        powers((rows * rank + step - 1) // step * step, ratio, weight)
        for r in range(rows):
            for k in range(rank):
                out[first + r, k] = new[first + r, k] * ratio[r * rank + k]


@compiled_on_disk(nogil=True, fastmath=FAST)
def _move_line(new: Array, old: Array, weight: float, floor: float, out: Array) -> None:
    for p in range(len(new)):
        out[p] = max(new[p] + weight * (new[p] - old[p]), floor)


def move_logarithms(new: Array, old: Array, weight: float, threads: int | None = None) -> Array:
    """Return new · (new / old) ** weight, or `new` where either number is not positive.

    Parameters
    ----------
    new, old : ndarray of one shape
        Nonnegative numbers.
    weight : float
        Distance to go beyond `new`, in steps from `old` to `new`.
    threads : int, optional
        Number of blocks to work on at once; the result does not depend on it.
    """
    return _in_blocks(new, old, threads, COST, lambda rank, ends, starts, out: _move(rank, ends, starts, weight, out))


def move(new: Array, old: Array, weight: float, floor: float, threads: int | None = None) -> Array:
    """Return max(new + weight (new − old), floor); the parameters are those of `move_logarithms`."""
    step = new.dtype.type(weight), new.dtype.type(floor)

    def line(_: int, ends: Array, starts: Array, out: Array) -> None:
        _move_line(ends.ravel(), starts.ravel(), *step, out.ravel())

    out = _in_blocks(new, old, threads, 1, line)
    clear_padding(out)
    return out


def _in_blocks(new: Array, old: Array, threads: int | None, cost: int, move: Callable[..., None]) -> Array:
    """Return the array that `move` fills, called with K and blocks of rows of `new` and `old` in whole vectors."""
    turned = new.strides[0] < new.strides[-1]  # components, features in rows
    rows = [np.atleast_2d(each.T if turned else each) for each in (new, old)]
    out = padded(rows[0].shape, new.dtype)
    whole = [whole_vectors(each) for each in (*rows, out)]
    threads = threads_or_default(threads, cost * new.size)
    bounds = even_bounds(len(out), block_count(cost * new.size))
    in_blocks(bounds, lambda _, first, last: move(out.shape[1], *(each[first:last] for each in whole)), threads)
    return out.T if turned else out.reshape(new.shape)
