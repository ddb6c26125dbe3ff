"""The sampled twin of the allocation step: a multinomial draw for every nonzero.

Every row has a random stream of its own, a function of the seed and the row number alone, so the draws do not
depend on the number of threads. Totals are whole numbers, so their sums are exact in any order.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numba import njit, prange, uint64
from numpy.typing import NDArray
from scipy.sparse import csr_array

from bayesnmf.kernels.cpu.allocation import Totals, row_blocks, serial_and_parallel, threads_or_default

Array = NDArray[Any]


@njit(cache=True, inline="always")
def _mix(z: Any) -> Any:
    """Return the finaliser of SplitMix64 (Steele, Lea & Flood 2014) of z."""
    z = (z ^ (z >> uint64(30))) * uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> uint64(27))) * uint64(0x94D049BB133111EB)
    return z ^ (z >> uint64(31))


@njit(cache=True, inline="always")
def _uniform(state: Array) -> float:
    """Draw from the open interval (0, 1), 52 bits, and advance the one-element `state`."""
    state[0] += uint64(0x9E3779B97F4A7C15)
    return ((_mix(state[0]) >> uint64(12)) + 0.5) * (1.0 / 4503599627370496.0)


@njit(cache=True, nogil=True)
def _binomial_by_inversion(state: Array, count: int, p: float) -> int:
    """Draw by walking up the distribution function; for count · p < 10, p ≤ 1/2."""
    odds = p / (1.0 - p)
    while True:
        mass = math.exp(count * math.log1p(-p))
        u = _uniform(state)
        drawn = 0
        while u > mass and drawn <= count:
            u -= mass
            drawn += 1
            mass *= odds * (count - drawn + 1) / drawn
        if drawn <= count:
            return drawn


@njit(cache=True, nogil=True)
def _stirling_tail(k: float) -> float:
    """Log k! − log of Stirling's formula at k."""
    return math.lgamma(k + 1.0) - (0.9189385332046727 + (k + 0.5) * math.log(k + 1.0) - (k + 1.0))


@njit(cache=True, nogil=True)
def _binomial_by_rejection(state: Array, count: int, p: float) -> int:
    """Draw by transformed rejection, BTRS (Hörmann 1993); for count · p ≥ 10, p ≤ 1/2."""
    spread = math.sqrt(count * p * (1.0 - p))
    b = 1.15 + 2.53 * spread
    a = -0.0873 + 0.0248 * b + 0.01 * p
    centre = count * p + 0.5
    v_r = 0.92 - 4.2 / b
    alpha = (2.83 + 5.1 / b) * spread
    log_odds = math.log(p / (1.0 - p))
    mode = math.floor((count + 1) * p)
    at_mode = _stirling_tail(mode) + _stirling_tail(count - mode)
    while True:
        u = _uniform(state) - 0.5
        v = _uniform(state)
        us = 0.5 - abs(u)
        k = math.floor((2.0 * a / us + b) * u + centre)
        if us >= 0.07 and v <= v_r:
            return int(k)
        if k < 0 or k > count:
            continue
        v = math.log(v * alpha / (a / (us * us) + b))
        bound = (
            (mode + 0.5) * math.log((mode + 1.0) / (count - mode + 1.0))
            + (count + 1.0) * math.log((count - mode + 1.0) / (count - k + 1.0))
            + (k + 0.5) * math.log((count - k + 1.0) / (k + 1.0))
            + (k - mode) * log_odds
            + at_mode
            - _stirling_tail(k)
            - _stirling_tail(count - k)
        )
        if v <= bound:
            return int(k)


@njit(cache=True, nogil=True)
def _binomial(state: Array, count: int, p: float) -> int:
    """Draw from Binomial(count, p)."""
    if count == 0 or p <= 0.0:
        return 0
    if p >= 1.0:
        return count
    if p > 0.5:
        return count - _binomial(state, count, 1.0 - p)
    if count * p < 10.0:
        return _binomial_by_inversion(state, count, p)
    return _binomial_by_rejection(state, count, p)


@njit(cache=True, nogil=True)
def _multinomial(state: Array, count: int, cumulative: Array, drawn: Array) -> None:
    """Draw from Multinomial(count, ·), cumulative weights given, into `drawn`.

    Few counts are placed one by one, many by conditional binomials.
    """
    rank = len(cumulative)
    drawn[:] = 0
    total = cumulative[rank - 1]
    if count <= 4 * rank:
        for _ in range(count):
            u = _uniform(state) * total
            k = 0
            for below in range(rank - 1):  # all of them: without a branch to mispredict it is faster
                k += 1 if u >= cumulative[below] else 0
            drawn[k] += 1
        return
    left = count
    passed = 0.0
    for k in range(rank - 1):
        if left == 0:
            return
        drawn[k] = _binomial(state, left, (cumulative[k] - passed) / (total - passed))
        left -= drawn[k]
        passed = cumulative[k]
    drawn[rank - 1] = left


def _draw_allocations(
    indptr: Array, indices: Array, values: Array, U: Array, Vt: Array, bounds: Array, seed: int, A: Array,
    partial: Array,
) -> Array:  # fmt: skip
    """Fill A (n, K) and, per block, B (m, K) with drawn totals; return ℓ of each block."""
    n_blocks = bounds.shape[0] - 1
    rank = U.shape[1]
    loglik = np.zeros(n_blocks)
    for block in prange(n_blocks):
        state = np.empty(1, dtype=np.uint64)
        cumulative = np.empty(rank)
        drawn = np.empty(rank, dtype=np.int64)
        sum_log = 0.0
        for i in range(bounds[block], bounds[block + 1]):
            state[0] = _mix(uint64(seed) + _mix(uint64(i) + uint64(0x9E3779B97F4A7C15)))
            for p in range(indptr[i], indptr[i + 1]):
                j = indices[p]
                mean = 0.0
                for k in range(rank):
                    mean += U[i, k] * Vt[j, k]
                    cumulative[k] = mean
                sum_log += values[p] * np.log(mean)
                if mean < 1e-290:
                    _logarithmic_weights(U[i], Vt[j], cumulative)
                _multinomial(state, int(values[p]), cumulative, drawn)
                for k in range(rank):
                    A[i, k] += drawn[k]
                    partial[block, j, k] += drawn[k]
        loglik[block] = sum_log
    return loglik


@njit(cache=True, nogil=True)
def _logarithmic_weights(u: Array, v: Array, cumulative: Array) -> None:
    """Cumulative weights of a cell whose mean underflows, with the exponent range that logarithms have."""
    weight = np.log(np.maximum(u, 2.3e-308)) + np.log(np.maximum(v, 2.3e-308))
    cumulative[:] = np.cumsum(np.exp(weight - weight.max()))


_DRAW_ALLOCATIONS = serial_and_parallel(_draw_allocations)


def sampled_allocations(
    matrix: csr_array, loadings: Array, components: Array, seed: int, threads: int | None = None
) -> Totals:
    """Draw S_i:j ~ Multinomial(X_ij, φ_i:j), φ_ikj ∝ loadings_ik · components_kj, and return its totals.

    Parameters
    ----------
    matrix : csr_array of shape (n, m)
        Whole-number counts.
    loadings, components : ndarray of shape (n, K) and (K, m)
        Positive factors, float64.
    seed : int
        Of this draw, below 2**64. The same seed gives the same draw on any number of threads.
    threads : int, optional
        Row blocks worked on at once; by default one for each of Numba's threads.

    Returns
    -------
    Totals
        Drawn totals, and ℓ = Σ X log(loadings @ components) at the given factors.
    """
    U, Vt = np.ascontiguousarray(loadings), np.ascontiguousarray(components.T)
    bounds = row_blocks(matrix.indptr, threads_or_default(threads, matrix.nnz * U.shape[1]))
    A = np.zeros_like(U)
    partial = np.zeros((len(bounds) - 1, *Vt.shape))
    draw = _DRAW_ALLOCATIONS[len(bounds) > 2]
    loglik = draw(matrix.indptr, matrix.indices, matrix.data, U, Vt, bounds, np.uint64(seed), A, partial)
    return Totals(A, partial.sum(axis=0).T, float(loglik.sum()))
