"""Expected rates of entries, for dense blocks of rows, and slopes of the log-likelihood by their dispersion.

Given its rate ε ~ Gamma(1/α, 1/α), a count x with mean λ is Poisson with mean ελ. With y = αρ for a mean ρ, rates are
(1 + αx) / (1 + y), and log(1 + y) is taken as log u + (y − (u − 1)) / u with u = 1 + y as it is rounded, which has all
digits for small y, too. Blocks are in float64.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.sparse import csr_array

from bayesnmf.kernels.cpu.compiling import FAST, compiled_for_kernels, compiled_on_disk
from bayesnmf.kernels.cpu.special import exponentials, logarithms
from bayesnmf.kernels.cpu.vectors import VECTOR_BYTES
from bayesnmf.types import Array

STEP = VECTOR_BYTES // 8
WIDTH = 512  # features whose numbers stay in the first-level cache
SMALL_MEAN = 1e-3  # y below which derivatives are series
VECTORS: Any = {"nogil": True, "error_model": "numpy"}  # without a check of divisors, which keeps LLVM from vectors


@compiled_on_disk(nogil=True)
def _fill_dense(indptr: Array, indices: Array, values: Array, first: int, out: Array) -> None:
    for i in range(len(out)):
        for j in range(out.shape[1]):
            out[i, j] = 0.0
        for p in range(indptr[first + i], indptr[first + i + 1]):
            out[i, indices[p]] = values[p]


def dense_rows(matrix: csr_array, rows: slice) -> Array:
    """Return some rows of a sparse matrix as an array in float64."""
    first, last, _ = rows.indices(matrix.shape[0])
    out = np.empty((last - first, matrix.shape[1]))
    _fill_dense(matrix.indptr, matrix.indices, matrix.data, first, out)
    return out


@compiled_for_kernels(**VECTORS)
def _fill_dispersions(s: Array, i: int, own: Array, size: Array) -> None:
    """Write the dispersions of a row, and 1 over these, unless they are those of the row before."""
    if i > 0 and len(s) == 1:
        return
    place, step = i % len(s), int(s.shape[1] > 1)
    for j in range(len(own)):
        own[j] = s[place, j * step]
        size[j] = 1.0 / own[j]


@compiled_for_kernels(**VECTORS)
def _fill_logarithms(rho: Array, own: Array, y: Array, above: Array, rest: Array) -> None:
    """Write y = αρ, 1 + y, and what is to be added to the logarithms of these."""
    for j in range(len(rho)):
        y[j] = own[j] * rho[j]
        above[j] = 1.0 + y[j]
        rest[j] = (y[j] - (above[j] - 1.0)) / above[j]


@compiled_for_kernels(**VECTORS)
def _fill_ratios(x: Array, own: Array, above: Array, rates: Array) -> None:
    for j in range(len(x)):
        rates[j] = (1.0 + own[j] * x[j]) / above[j]


@compiled_for_kernels(fastmath=FAST, **VECTORS)
def _gain(x: Array, rho: Array, size: Array, rates: Array, logs: Array, rest: Array) -> float:
    total = 0.0
    for j in range(len(x)):
        total += rates[j] * rho[j] - (x[j] + size[j]) * (logs[j] + rest[j])
    return total


@compiled_on_disk(nogil=True)
def _fill_rates(x: Array, rho: Array, s: Array, gains: bool, rates: Array) -> float:
    m, gain = x.shape[1], 0.0
    own, size = np.empty(m), np.empty(m)
    y, logs, rest = np.empty(WIDTH), np.ones(WIDTH), np.empty(WIDTH)
    for i in range(len(x)):
        _fill_dispersions(s, i, own, size)
        for first in range(0, m, WIDTH):
            last = min(first + WIDTH, m)
            whole = (last - first + STEP - 1) // STEP * STEP
            _fill_logarithms(rho[i, first:last], own[first:last], y, logs, rest)
            _fill_ratios(x[i, first:last], own[first:last], logs, rates[i, first:last])
            if gains:
                logarithms(whole, logs)
                part = rho[i, first:last], size[first:last], rates[i, first:last]
                gain += _gain(x[i, first:last], *part, logs, rest)
    return gain


def gamma_rates(x: Array, rho: Array, s: Array, *, gains: bool = True) -> tuple[Array, float]:
    """Return (1 + αx) / (1 + αρ) of a block of rows (rows, m), and Σ ερ − (x + 1/α) log(1 + αρ) or 0.

    Dispersions are (rows or 1, m or 1), above 0.
    """
    rates = np.empty_like(rho)
    return rates, _fill_rates(x, rho, s, gains, rates)


@compiled_for_kernels(**VECTORS)
def _fill_slopes(
    x: Array, own: Array, size: Array, y: Array, logs: Array, rest: Array, once: Array, twice: Array
) -> None:  # fmt: skip
    for j in range(len(x)):
        share, square = y[j] / (1.0 + y[j]), y[j] * y[j]
        first = logs[j] + rest[j] - share
        second = share * share - first
        if y[j] < SMALL_MEAN:
            first = square * (1 / 2 - y[j] * (2 / 3 - y[j] * 3 / 4))
            second = square * (1 / 2 - y[j] * (4 / 3 - y[j] * 9 / 4))
        once[j] = size[j] * first - x[j] * share
        twice[j] = size[j] * second - x[j] * share / (1.0 + y[j])


@compiled_on_disk(nogil=True)
def _fill_derivatives(x: Array, rho: Array, s: Array, once: Array, twice: Array) -> None:
    m = x.shape[1]
    whole = (m + STEP - 1) // STEP * STEP
    own, size, y, logs, rest = np.empty(m), np.empty(m), np.empty(m), np.ones(whole), np.empty(m)
    for i in range(len(x)):
        _fill_dispersions(s, i, own, size)
        _fill_logarithms(rho[i], own, y, logs, rest)
        logarithms(whole, logs)
        _fill_slopes(x[i], own, size, y, logs, rest, once[i], twice[i])


def gamma_slopes(x: Array, rho: Array, s: Array) -> tuple[Array, Array]:
    """Return both derivatives of −(x + 1/α) log(1 + αρ) in log α, by series for small αρ; given as `gamma_rates`."""
    once, twice = np.empty_like(rho), np.empty_like(rho)
    _fill_derivatives(x, rho, s, once, twice)
    return once, twice


@compiled_for_kernels(**VECTORS)
def _fill_chances(x: Array, own: Array, exps: Array, chances: Array) -> None:
    """Write (1 − π) e^−ρ in place of e^−ρ; and the probability of a count of 0, or 1 − π for others."""
    for j in range(len(x)):
        exps[j] *= 1.0 - own[j]
        chances[j] = 1.0 - own[j] if x[j] > 0.0 else own[j] + exps[j]


@compiled_for_kernels(fastmath=FAST, **VECTORS)
def _gain_of_zeros(x: Array, rho: Array, own: Array, exps: Array, logs: Array, rates: Array) -> float:
    total = 0.0
    for j in range(len(x)):
        rate = exps[j] / (own[j] + exps[j])
        rates[j] = 1.0 if x[j] > 0.0 else rate
        total += logs[j] if x[j] > 0.0 else rate * rho[j] + logs[j]
    return total


@compiled_on_disk(nogil=True)
def _fill_kinds(x: Array, rho: Array, s: Array, rates: Array) -> float:
    m, gain = x.shape[1], 0.0
    whole = (m + STEP - 1) // STEP * STEP
    own, size, exps, logs = np.empty(m), np.empty(m), np.zeros(whole), np.ones(whole)
    for i in range(len(x)):
        _fill_dispersions(s, i, own, size)
        for j in range(m):
            exps[j] = -rho[i, j]
        exponentials(whole, exps)
        _fill_chances(x[i], own, exps, logs)
        logarithms(whole, logs)
        gain += _gain_of_zeros(x[i], rho[i], own, exps, logs, rates[i])
    return gain


def rates_of_zeros(x: Array, rho: Array, s: Array) -> tuple[Array, float]:
    """Return 1 for counts, and for zeros the probability that they are Poisson; and Σ ερ + log p without x log ρ.

    s are shares of zeros that are none, (rows or 1, m or 1), above 0 and below 1. The mean of counts is left out of
    the sum, as it is of a rate of 1.
    """
    rates = np.empty_like(rho)
    return rates, _fill_kinds(x, rho, s, rates)
