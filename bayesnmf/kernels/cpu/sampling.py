"""The sampled version of the allocation step: a multinomial draw for every nonzero.

Every row has its own random stream, a function of the seed and the row number only, so the draws do not depend on the
number of threads. Totals are whole numbers, so their sums are exact in any order.
"""

from __future__ import annotations

import math
from threading import get_ident
from typing import Any

import numpy as np
from scipy.sparse import csr_array

from bayesnmf.kernels.cpu.allocation import Totals
from bayesnmf.kernels.cpu.compiling import FAST, compiled_for_kernels, compiled_on_disk
from bayesnmf.kernels.cpu.draws import stream, uniform
from bayesnmf.kernels.cpu.threads import block_count, in_blocks, row_blocks, threads_or_default
from bayesnmf.types import Array

WORK = 10  # cost of one component of a drawn entry, in multiply-adds
ENTRIES = 64  # entries of a row drawn at a time, so that their weights stay in the first-level cache


@compiled_for_kernels(fastmath=FAST)
def _binomial_by_inversion(state: Array, count: int, p: float) -> int:
    """Draw by walking up the distribution function, for count · p < 10 and p ≤ 1/2."""
    odds = p / (1.0 - p)
    while True:
        mass = math.exp(count * math.log1p(-p))
        u = uniform(state)
        drawn = 0
        while u > mass and drawn <= count:
            u -= mass
            drawn += 1
            mass *= odds * (count - drawn + 1) / drawn
        if drawn <= count:
            return drawn


@compiled_for_kernels(fastmath=FAST)
def _stirling_tail(k: float) -> float:
    """Return log k! minus the logarithm of Stirling's formula at k."""
    return math.lgamma(k + 1.0) - (0.9189385332046727 + (k + 0.5) * math.log(k + 1.0) - (k + 1.0))


@compiled_for_kernels(fastmath=FAST)
def _binomial_by_rejection(state: Array, count: int, p: float) -> int:
    """Draw by transformed rejection, BTRS (Hörmann 1993), for count · p ≥ 10 and p ≤ 1/2."""
    spread = math.sqrt(count * p * (1.0 - p))
    b = 1.15 + 2.53 * spread
    a = -0.0873 + 0.0248 * b + 0.01 * p
    centre = count * p + 0.5
    v_r = 0.92 - 4.2 / b
    while True:
        u = uniform(state) - 0.5
        v = uniform(state)
        us = 0.5 - abs(u)
        k = math.floor((2.0 * a / us + b) * u + centre)
        if us >= 0.07 and v <= v_r:
            return int(k)
        if k < 0 or k > count:
            continue
        # What follows is not computed beforehand: most draws were accepted above.
        alpha = (2.83 + 5.1 / b) * spread
        mode = math.floor((count + 1) * p)
        bound = (
            (mode + 0.5) * math.log((mode + 1.0) / (count - mode + 1.0))
            + (count + 1.0) * math.log((count - mode + 1.0) / (count - k + 1.0))
            + (k + 0.5) * math.log((count - k + 1.0) / (k + 1.0))
            + (k - mode) * math.log(p / (1.0 - p))
            + (_stirling_tail(mode) + _stirling_tail(count - mode))
            - _stirling_tail(k)
            - _stirling_tail(count - k)
        )
        if math.log(v * alpha / (a / (us * us) + b)) <= bound:
            return int(k)


@compiled_on_disk(nogil=True, fastmath=FAST)
def binomial(state: Array, count: int, p: float) -> int:
    """Draw from Binomial(count, p)."""
    if count == 0 or p <= 0.0:
        return 0
    if not p < 1.0:  # also if p is NaN, for which rejection would never end
        return count
    if p > 0.5:
        return count - binomial(state, count, 1.0 - p)
    if count * p < 10.0:
        return _binomial_by_inversion(state, count, p)
    return _binomial_by_rejection(state, count, p)


@compiled_for_kernels(inline="always")
def chosen_component(cumulative: Array, u: float) -> int:
    """Return the component into whose share of the cumulative weights u falls."""
    k = 0
    for below in range(len(cumulative) - 1):  # compare with all of them: no branch to mispredict is faster
        k += 1 if u >= cumulative[below] else 0
    return k


@compiled_on_disk(nogil=True, fastmath=FAST)
def add_many(state: Array, count: int, cumulative: Array, a: Array, b: Array) -> None:
    """Add a draw from Multinomial(count, ·) with these cumulative weights to a and b, by conditional binomials."""
    last = len(cumulative) - 1
    total = cumulative[last]
    left = count
    passed = 0.0
    for k in range(last):
        if left == 0:
            return
        drawn = binomial(state, left, (cumulative[k] - passed) / (total - passed))
        a[k] += drawn
        b[k] += drawn
        left -= drawn
        passed = cumulative[k]
    a[last] += left
    b[last] += left


@compiled_on_disk(inline="always")
def add_multinomial(state: Array, count: int, cumulative: Array, a: Array, b: Array) -> None:
    """Add a draw from Multinomial(count, ·) with these cumulative weights to a and b.

    A small count is placed one by one, a large one by conditional binomials.
    """
    rank = len(cumulative)
    if count > 4 * rank:
        add_many(state, count, cumulative, a, b)
        return
    total = cumulative[rank - 1]
    for _ in range(count):
        k = chosen_component(cumulative, uniform(state) * total)
        a[k] += 1
        b[k] += 1


@compiled_for_kernels(fastmath=FAST)
def _cumulate(u: Array, Vt: Array, features: Array, cumulative: Array) -> None:
    """Fill rows of `cumulative` (3 spare ones) with Σ u_k v_k, four entries at once, as sums are serial chains."""
    last = len(features) - 1
    for q in range(0, last + 1, 4):
        v0, v1 = Vt[features[q]], Vt[features[min(q + 1, last)]]
        v2, v3 = Vt[features[min(q + 2, last)]], Vt[features[min(q + 3, last)]]
        sum0 = sum1 = sum2 = sum3 = 0.0
        for k in range(len(u)):
            sum0 += u[k] * v0[k]
            sum1 += u[k] * v1[k]
            sum2 += u[k] * v2[k]
            sum3 += u[k] * v3[k]
            cumulative[q, k] = sum0
            cumulative[q + 1, k] = sum1
            cumulative[q + 2, k] = sum2
            cumulative[q + 3, k] = sum3


@compiled_for_kernels(inline="always")
def _draw_row(
    features: Array, values: Array, u: Array, Vt: Array, state: Array, cumulative: Array, a: Array, received: Array
) -> float:
    """Add the draws of a row to its totals a (K,) and to `received` (m, K); return the row's ℓ."""
    entries = len(cumulative) - 3
    rank = len(u)
    loglik = 0.0
    for start in range(0, len(features), entries):
        stop = min(start + entries, len(features))
        _cumulate(u, Vt, features[start:stop], cumulative)  # separate from the draws, so that the gathers overlap
        for p in range(start, stop):
            weights = cumulative[p - start]
            loglik += values[p] * np.log(weights[rank - 1])
            if weights[rank - 1] < 1e-290:
                logarithmic_weights(u, Vt[features[p]], weights)
            add_multinomial(state, int(values[p]), weights, a, received[features[p]])
    return loglik


@compiled_for_kernels(fastmath=FAST)
def logarithmic_weights(u: Array, v: Array, cumulative: Array) -> None:
    """Fill the cumulative weights of an entry whose mean underflows, computed with logarithms."""
    top = -math.inf
    for k in range(len(u)):
        cumulative[k] = math.log(max(u[k], 2.3e-308)) + math.log(max(v[k], 2.3e-308))
        top = max(top, cumulative[k])
    running = 0.0
    for k in range(len(u)):
        running += math.exp(cumulative[k] - top)
        cumulative[k] = running


@compiled_on_disk(nogil=True, fastmath=FAST)
def _draw_allocations(
    indptr: Array, indices: Array, values: Array, U: Array, Vt: Array, seed: int, origin: int, start: int, stop: int,
    A: Array, Bt: Array,
) -> float:  # fmt: skip
    """Add the drawn totals of rows to A (n, K) and Bt (m, K); return the rows' ℓ. Row `i` has stream `origin + i`."""
    state = np.empty(1, dtype=np.uint64)
    cumulative = np.empty((ENTRIES + 3, U.shape[1]))
    loglik = 0.0
    for i in range(start, stop):
        state[0] = stream(seed, origin + i)
        a, b = indptr[i], indptr[i + 1]
        loglik += _draw_row(indices[a:b], values[a:b], U[i], Vt, state, cumulative, A[i], Bt)
    return loglik


def sampled_allocations(
    matrix: csr_array, loadings: Array, components: Array, seed: int, threads: int | None = None, first_row: int = 0
) -> Totals:
    """Draw S_i:j ~ Multinomial(X_ij, φ_i:j) with φ_ikj ∝ loadings_ik · components_kj, and return the totals of S.

    Parameters
    ----------
    matrix : csr_array of shape (n, m)
        Whole-number counts.
    loadings, components : ndarray of shape (n, K) and (K, m)
        Positive factors, float64.
    seed : int
        Seed of this draw, below 2**64. The same seed gives the same draw with any number of threads.
    threads : int, optional
        Number of row blocks to work on at once; by default one for each of Numba's threads.
    first_row : int
        Place of the first row in a larger matrix, of which this draw is a part.

    Returns
    -------
    Totals
        Totals of the draw, and ℓ = Σ X log(loadings @ components) at the given factors.
    """
    U, Vt = np.ascontiguousarray(loadings), np.ascontiguousarray(components.T)
    work = WORK * matrix.nnz * U.shape[1]
    threads = threads_or_default(threads, work)
    bounds = row_blocks(matrix.indptr, block_count(work))
    A = np.zeros_like(U)
    at_once = min(threads, len(bounds) - 1)
    partial, unused = np.zeros((at_once, *Vt.shape)), iter(range(at_once))
    own: dict[int, Any] = {}  # sums of whole numbers are exact, so any thread may add any rows
    given = matrix.indptr, matrix.indices, matrix.data, U, Vt, np.uint64(seed), first_row

    def draw(_: int, first: int, last: int) -> float:
        me = get_ident()
        if me not in own:
            own[me] = partial[next(unused)]
        return _draw_allocations(*given, first, last, A, own[me])

    loglik = in_blocks(bounds, draw, threads)
    return Totals(A, partial.sum(axis=0).T, float(np.sum(loglik)))
