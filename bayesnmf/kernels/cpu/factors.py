"""Factors in memory, padded to whole vectors, and passes over them: sums, scaling, imbalance, extrapolation."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import numpy as np
from numpy.lib.stride_tricks import as_strided

from bayesnmf.kernels.cpu.compiling import FAST, compiled_on_disk
from bayesnmf.kernels.cpu.special import powers
from bayesnmf.kernels.cpu.threads import over_rows
from bayesnmf.kernels.cpu.vectors import VECTOR_BYTES
from bayesnmf.types import Array

LINE_BYTES = 64


class Memory(np.ndarray):
    """The bytes of an array made by `padded`; every view of that array refers to them.

    Attributes
    ----------
    rank, width : int
        Number of components K, that is, of columns before the padding, and of all columns.
    kind : dtype
        Type of the numbers.
    steps : tuple of int
        Bytes from a row to the next, and from a number to the next.
    address, first : int
        Memory address of the first byte, and offset of the first row from it in bytes.
    """

    rank: int
    width: int
    kind: np.dtype
    steps: tuple[int, int]
    address: int
    first: int


def lanes(dtype: Any) -> int:
    """Return how many numbers of a dtype fit into a vector."""
    return VECTOR_BYTES // np.dtype(dtype).itemsize


def aligned(rows: int, width: int, dtype: Any) -> Array:
    """Return an empty array (rows, width) whose first row begins on a cache line."""
    kind = np.dtype(dtype)
    raw = np.empty(rows * width * kind.itemsize + LINE_BYTES, dtype=np.uint8)
    out: Array = np.ndarray((rows, width), kind, raw, -_address(raw) % LINE_BYTES)
    return out


def padded(shape: tuple[int, ...], dtype: Any) -> Array:
    """Return an empty array (rows, K) that is padded in memory with columns of 0 to whole, aligned vectors."""
    return padded_and_whole(shape, dtype)[0]


def padded_and_whole(shape: tuple[int, ...], dtype: Any) -> tuple[Array, Array]:
    """Return an array as `padded` makes it, (rows, K), and the same memory with its columns of 0."""
    (rows, rank), kind = shape, np.dtype(dtype)
    size = kind.itemsize
    step = VECTOR_BYTES // size
    width = -(-rank // step) * step
    memory = Memory((rows * width * size + LINE_BYTES,), np.uint8)  # owns its bytes: NumPy skips views
    memory.rank, memory.width, memory.kind, memory.steps = rank, width, kind, (width * size, size)
    memory.address = address = _address(memory)
    memory.first = first = -address % LINE_BYTES
    out: Array = np.ndarray((rows, width), kind, memory, first)
    if rank == width:
        return out[:, :rank], out
    out[:, rank:] = 0  # code that writes into this memory leaves these columns at 0
    return out[:, :rank], out


def padded_copy(factor: Array, component_axis: int = 1) -> Array:
    """Return a copy of a factor that is `padded` in memory, with components in columns (1) or in rows (0)."""
    rows = factor if component_axis == 1 else factor.T
    out = padded(rows.shape, rows.dtype)
    out[:] = rows
    return out if component_axis == 1 else out.T


def whole_vectors(factor: Array) -> Array:
    """Return (rows, K) with its columns of 0 up to whole vectors: the memory of a `padded` array, otherwise a copy."""
    behind = _with_padding(factor)
    if behind is not None:
        return behind
    return cast(Array, _with_padding(padded_copy(factor)))


def is_padded(factor: Array, component_axis: int = 1) -> bool:
    """Return whether a factor lies in memory as `padded_copy` makes it."""
    return _with_padding(factor if component_axis == 1 else factor.T) is not None


def rows_in_memory(factor: Array) -> Array:
    """Return (rows, K or more) in contiguous memory, with any columns of padding; copy only where necessary."""
    behind = _with_padding(factor)
    return np.ascontiguousarray(factor) if behind is None else behind


def room_for_row(indptr: Array, V: Array, clusters: bool) -> Callable[[], tuple[Array, Array, Array | None]]:
    """Return a function that makes room for what a loop over rows reads again and again.

    That is the components of a row's entries, of V (m, width), in whole vectors and gathered one after another; four
    vectors, each long enough for entries or components; and the spreads of the entries, or None where counts do not
    cluster: kernels for which it is None compile without the code of counts that cluster. Loops make no arrays of their
    own, as each call of NumPy in them takes longer to compile than a loop.
    """
    step = lanes(V.dtype)
    longest = int(np.diff(indptr).max(initial=0)) + step - 1 & -step
    width, kind = V.shape[1], V.dtype

    def room() -> tuple[Array, Array, Array | None]:
        gathered, vectors = np.empty(longest * width, kind), np.empty((4, max(longest, width)), kind)
        return gathered, vectors, np.ones(longest) if clusters else None

    return room


def clear_padding(factor: Array) -> None:
    """Set the padding of an array from `padded`, or of its transpose, to 0 again."""
    rows = factor.T if factor.strides[0] < factor.strides[-1] else np.atleast_2d(factor)
    width = rows.strides[0] // rows.itemsize
    as_strided(rows, (len(rows), width))[:, rows.shape[1] :] = 0


def _with_padding(factor: Array) -> Array | None:
    """Return a `padded` array, or some of its rows, together with its padding; None for any other array."""
    memory = factor.base
    while memory is not None and type(memory) is not Memory:
        memory = getattr(memory, "base", None)
    if memory is None or factor.strides != memory.steps:  # as of a transposed array, or of one of another type
        return None
    if (factor.shape[1], factor.dtype) != (memory.rank, memory.kind):
        return None
    start = _address(factor) - memory.address
    if (start - memory.first) % memory.steps[0]:  # shifted
        return None
    whole: Array = np.ndarray((len(factor), memory.width), memory.kind, memory, start)
    return whole


def _address(array: Any) -> int:
    return int(array.__array_interface__["data"][0])


# Numbers of a factor below which NumPy reads it: within microseconds, and a fit of small counts has less to compile.
SMALL = 2**14


@compiled_on_disk(nogil=True, fastmath=FAST)
def _sum_rows(factor: Array, sums: Array) -> None:
    for i in range(factor.shape[0]):
        for k in range(factor.shape[1]):
            sums[k] += factor[i, k]


def sum_rows(factor: Array) -> Array:
    """Return Σ_i factor_ik, (K,), of a factor (r, K), in float64: float32 sums would lose three digits."""
    rows = rows_in_memory(factor)
    if rows.size <= SMALL and rows.shape[1] > 1:  # NumPy adds one column alone in another order
        sums = np.add.reduce(rows, axis=0, dtype=np.float64)
    else:
        sums = np.zeros(rows.shape[1])
        _sum_rows(rows, sums)
    return sums[: factor.shape[1]]


@compiled_on_disk(nogil=True, fastmath=FAST)
def _scale_rows(factor: Array, scale: Array) -> None:
    for i in range(factor.shape[0]):
        for k in range(factor.shape[1]):
            factor[i, k] *= scale[k]


def scale_rows(factor: Array, scale: Array) -> None:
    """Multiply every row of a factor (r, K) by a scale (K,), in place."""
    if factor.size <= SMALL:
        factor *= scale.astype(factor.dtype)
        return
    rows = whole_vectors(factor)
    whole = np.ones(rows.shape[1], rows.dtype)
    whole[: len(scale)] = scale
    _scale_rows(rows, whole)
    if not np.may_share_memory(rows, factor):
        factor[:] = rows[:, : len(scale)]


@compiled_on_disk(nogil=True, fastmath=FAST)
def _largest_imbalance(value: Array, total: Array, rank: int, weight: Array, added: Array) -> float:
    largest = 0.0
    a, b = int(weight.shape[1] > 1), int(added.shape[1] > 1)
    for i in range(len(value)):
        times, plus = weight[i % len(weight)], added[i % len(added)]
        for k in range(rank):
            found = abs(value[i, k] * times[k * a] - (total[i, k] + plus[k * b]))
            if not found <= largest:  # also if it is NaN
                largest = found
    return largest


def largest_imbalance(value: Array, total: Array, weight: Array, added: Array) -> float:
    """Return max |value · weight − (total + added)|.

    Parameters
    ----------
    value, total : ndarray of shape (r, K)
    weight, added : ndarray, (1 or r, 1 or K)
    """
    rows = (rows_in_memory(each) for each in (value, total))
    given = (np.ascontiguousarray(each, dtype=np.float64) for each in (weight, added))
    return float(_largest_imbalance(*rows, value.shape[1], *given))


DOUBLES = VECTOR_BYTES // 8
MOVED = 2048  # numbers moved at once, which stay in the first-level cache
POWER = 10  # cost of a power, in multiply-adds
MOST_RATIO = 1e300


@compiled_on_disk(nogil=True, fastmath=FAST)
def _move(rank: int, new: Array, old: Array, weight: float, ratio: Array, out: Array) -> None:
    """Fill the first columns of `out`, with a block of rows copied into one run, as powers cost more than the copy."""
    at_once = max(len(ratio) // rank, 1)
    for first in range(0, len(new), at_once):
        last, p = min(first + at_once, len(new)), 0
        for i in range(first, last):
            for k in range(rank):
                a, b = np.float64(new[i, k]), np.float64(old[i, k])
                ratio[p] = min(max(a / b, 1 / MOST_RATIO), MOST_RATIO) if a > 0 and b > 0 else 1.0
                p += 1
        powers((p + DOUBLES - 1) & -DOUBLES, ratio, weight)
        p = 0
        for i in range(first, last):
            for k in range(rank):
                out[i, k] = new[i, k] * ratio[p]
                p += 1


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

    def power(rank: int, ends: Array, starts: Array, out: Array) -> None:
        room = max(min(MOVED, rank * len(ends)), rank) + DOUBLES - 1 & -DOUBLES
        _move(rank, ends, starts, weight, np.ones(room), out)

    return _moved(new, old, threads, POWER, power)


def move(new: Array, old: Array, weight: float, floor: float, threads: int | None = None) -> Array:
    """Return max(new + weight (new − old), floor); the parameters are those of `move_logarithms`."""
    step = new.dtype.type(weight), new.dtype.type(floor)

    def line(_: int, ends: Array, starts: Array, out: Array) -> None:
        _move_line(ends.ravel(), starts.ravel(), *step, out.ravel())

    out = _moved(new, old, threads, 1, line)
    clear_padding(out)
    return out


def _moved(new: Array, old: Array, threads: int | None, cost: int, move: Callable[..., None]) -> Array:
    """Return the array that `move` fills, called with K and blocks of rows of `new` and `old` in whole vectors."""
    turned = new.strides[0] < new.strides[-1]  # components, features in rows
    rows = [np.atleast_2d(each.T if turned else each) for each in (new, old)]
    out, filled = padded_and_whole(rows[0].shape, new.dtype)
    whole = [*map(whole_vectors, rows), filled]

    def move_rows(first: int, last: int) -> None:
        move(out.shape[1], *(each[first:last] for each in whole))

    over_rows(len(out), cost * new.size, move_rows, threads)
    return out.T if turned else out.reshape(new.shape)
