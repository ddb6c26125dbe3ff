"""Passes over a factor that need no copy of it: sums over rows, scaling of rows, and the largest imbalance."""

from __future__ import annotations

import numpy as np

from bayesnmf.kernels.cpu.compiling import FAST, compiled_on_disk
from bayesnmf.kernels.cpu.vectors import rows_in_memory, whole_vectors
from bayesnmf.types import Array


@compiled_on_disk(nogil=True, fastmath=FAST)
def _sum_rows(factor: Array, sums: Array) -> None:
    for i in range(factor.shape[0]):
        for k in range(factor.shape[1]):
            sums[k] += factor[i, k]


def sum_rows(factor: Array) -> Array:
    """Return Σ_i factor_ik, (K,), of a factor (r, K), in float64: float32 sums would lose three digits."""
    rows = rows_in_memory(factor)
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
