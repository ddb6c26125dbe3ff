"""Rates that entries share: the solution of their equation, and sums of the means of those entries."""

from __future__ import annotations

import numpy as np

from bayesnmf.kernels.cpu.compiling import FAST, compiled_on_disk
from bayesnmf.kernels.cpu.factors import rows_in_memory
from bayesnmf.kernels.cpu.threads import over_rows
from bayesnmf.types import Array

MOST_STEPS, SETTLED = 100, 1e-7  # the error after a step is about the square of that step, relative
COST = 20  # cost of an entry, in multiply-adds


@compiled_on_disk(nogil=True, fastmath=FAST)
def _solve_rows(
    peak: Array, length: int, exposure: Array, target: Array, d: Array, start: int, stop: int, rates: Array
) -> None:
    many, each = int(len(exposure) > 1), int(exposure.shape[1] > 1)
    for i in range(start, stop):
        row, spent, goal, base = peak[i], exposure[i * many], target[i], d[i]
        whole, most, without = 0.0, 0.0, 0.0
        for k in range(length):
            if spent[k * each] > 0:
                whole += row[k]
                most += row[k] / spent[k * each]
            else:
                without += row[k]
        # Were all exposures whole / most, the equation would be quadratic, with a solution that is never too large.
        mean = whole / most if most > 0 else 1.0
        b = base * mean + whole + without - goal
        root = np.sqrt(b * b + 4 * base * max(goal - without, 0.0) * mean)
        rate = 2 * max(goal - without, 0.0) * mean / (b + root) if b > 0 else (root - b) / (2 * base)
        rate = max(rate, 1e-200)
        for _ in range(MOST_STEPS):
            value, slope = base * rate + without, base
            for k in range(length):
                if spent[k * each] > 0:
                    inverse = 1 / (rate + spent[k * each])
                    share = row[k] * inverse
                    value += share * rate
                    slope += share * spent[k * each] * inverse
            step = (goal - value) / slope
            rate = max(rate + step, rate / 2)
            if abs(step) <= SETTLED * rate:
                break
        rates[i] = rate


def solve_shared_rates(peak: Array, exposure: Array, target: Array, d: Array, threads: int | None = None) -> Array:
    """Return the rates ξ (r,) with d ξ + Σ_k peak ξ / (ξ + exposure) = target in every row.

    The left side is increasing and concave in ξ, so there is one solution, which Newton's steps approach from below.

    Parameters
    ----------
    peak : ndarray of shape (r, L)
        Nonnegative numbers.
    exposure : ndarray, (1 or r, 1 or L)
        Nonnegative numbers.
    target, d : ndarray of shape (r,)
        Positive numbers.
    threads : int, optional
        Number of row blocks to work on at once; the result does not depend on it.
    """
    rows, length = peak.shape
    whole, rates = rows_in_memory(peak), np.empty(rows)
    given = [np.ascontiguousarray(each, dtype=np.float64) for each in (exposure, target, d)]
    over_rows(
        rows, COST * peak.size, lambda first, last: _solve_rows(whole, length, *given, first, last, rates), threads
    )
    return rates


@compiled_on_disk(nogil=True, fastmath=FAST)
def _sum_ratios(shape: Array, length: int, rate: Array, start: int, stop: int, sums: Array) -> None:
    many, each = int(len(rate) > 1), int(rate.shape[1] > 1)
    for i in range(start, stop):
        total = 0.0
        for k in range(length):
            total += shape[i, k] / rate[i * many, k * each]
        sums[i] = total


def sum_ratios(shape: Array, rate: Array, threads: int | None = None) -> Array:
    """Return Σ_k shape / rate of every row (r,), in float64; rates are (1 or r, 1 or L)."""
    rows, length = shape.shape
    whole, sums = rows_in_memory(shape), np.empty(rows)
    given = np.ascontiguousarray(rate) if 1 in rate.shape else rows_in_memory(rate)
    over_rows(
        rows, COST * shape.size, lambda first, last: _sum_ratios(whole, length, given, first, last, sums), threads
    )
    return sums
