"""Passes over counts that cluster: the sums that a dispersion is learned from, dense weights, and drawn clusters.

The counts of an entry with mean λ and spread s come in clusters, whose number given x counts is that of the tables of a
Chinese restaurant: Σ_{t<x} Bernoulli(λ / (λ + ts)).
"""

from __future__ import annotations

import math
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from scipy.sparse import csr_array

from bayesnmf.kernels.cpu.allocation import Spread, spread_of_entry, spreads_of_row
from bayesnmf.kernels.cpu.compiling import FAST, compiled_for_kernels, compiled_on_disk
from bayesnmf.kernels.cpu.draws import normal, stream, uniform
from bayesnmf.kernels.cpu.rising import rising_sums
from bayesnmf.kernels.cpu.sampling import binomial
from bayesnmf.kernels.cpu.threads import over_rows
from bayesnmf.kernels.cpu.vectors import VECTOR_BYTES
from bayesnmf.types import Array

LEAST = 1e-100  # of means: the product of three is a normal number
STEP = VECTOR_BYTES // 8
DRAWN = 20  # cost of a drawn entry, in multiply-adds
ONE_BY_ONE = 64  # counts up to which each is drawn by itself
ROUNDED = 1e8  # counts, and ratios of mean to spread, above which single clusters do not matter
FALL, TRIED = 0.85, 16.0  # least share of a block's largest probability left at its end, and about most candidates


class Buffers(NamedTuple):
    """Counts, means and spreads of some entries, in whole vectors, and W, L and V of these."""

    counts: Array
    means: Array
    spreads: Array
    weights: Array
    logs: Array
    curvatures: Array


@compiled_for_kernels()
def _buffers(length: int) -> Buffers:
    """Return buffers for so many entries."""
    c = max((length + STEP - 1) // STEP, 1) * STEP
    return Buffers(np.empty(c), np.empty(c), np.empty(c), np.empty(c), np.empty(c), np.empty(c))


@compiled_for_kernels()
def _longest_row(indptr: Array, start: int, stop: int) -> int:
    longest = 0
    for i in range(start, stop):
        longest = max(longest, indptr[i + 1] - indptr[i])
    return longest


@compiled_for_kernels()
def _pad(entries: int, buffers: Buffers) -> int:
    """Fill the buffers up to whole vectors with entries without counts; return their length."""
    whole = (entries + STEP - 1) // STEP * STEP
    for p in range(entries, whole):
        buffers.counts[p], buffers.means[p], buffers.spreads[p] = 0.0, 1.0, 1.0
    return whole


@compiled_for_kernels(fastmath=FAST)
def _fill_row(indices: Array, values: Array, u: Array, V: Array, own: float, spreads: Any, buffers: Buffers) -> int:
    """Fill the buffers with the counts, means and spreads of a row; return their length."""
    counts, means, spread = buffers.counts, buffers.means, buffers.spreads
    for p in range(len(indices)):
        v, mean = V[indices[p]], 0.0
        for k in range(len(u)):
            mean += u[k] * v[k]
        counts[p], means[p] = values[p], max(mean, LEAST)
        spread[p] = spread_of_entry(own, spreads, indices[p])
    return _pad(len(indices), buffers)


@compiled_on_disk(nogil=True)
def _sum_rows(
    indptr: Array, indices: Array, values: Array, U: Array, V: Array, spread: Any, start: int, stop: int, out: Array
) -> None:
    buffers = _buffers(_longest_row(indptr, start, stop))
    counts, means, spreads, weights, logs, curvatures = buffers
    for i in range(start, stop):
        a, b = indptr[i], indptr[i + 1]
        whole = _fill_row(indices[a:b], values[a:b], U[i], V, spread[0][i], spreads_of_row(spread[1], i), buffers)
        rising_sums(whole, counts, means, spreads, weights, logs, curvatures)
        total = found = first = second = 0.0
        for p in range(b - a):
            part, square = means[p] * weights[p], means[p] * means[p] * curvatures[p]
            total += logs[p]
            found += values[a + p]
            first += part
            second += square
        out[i, 0], out[i, 1], out[i, 2] = total, found - first, found - 2.0 * first + second


def cluster_sums(
    matrix: csr_array, loadings: Array, components: Array, spread: Spread, threads: int | None = None
) -> Array:
    """Return ΣL, Σ(x − λW) and Σ(x − 2λW + λ²V) of the nonzeros of each row, (n, 3), in float64.

    Parameters
    ----------
    matrix : csr_array of shape (n, m)
        Counts.
    loadings, components : ndarray of shape (n, K) and (K, m)
        Factors, whose products are the means.
    spread : tuple of ndarray (n,) and of ndarray (m,) or None
        Spreads of rows and features, as for `bayesnmf.kernels.cpu.allocation.expected_allocations`.
    """
    U, V = np.ascontiguousarray(loadings), np.ascontiguousarray(components.T)
    out, work = np.empty((matrix.shape[0], 3)), matrix.nnz * (U.shape[1] + DRAWN)
    given = matrix.indptr, matrix.indices, matrix.data, U, V, spread
    over_rows(matrix.indptr, work, lambda first, last: _sum_rows(*given, first, last, out), threads)
    return out


@compiled_on_disk(nogil=True)
def _expect(
    indptr: Array, indices: Array, values: Array, U: Array, V: Array, spread: Any, start: int, stop: int,
    clusters: Array, bends: Array,
) -> None:  # fmt: skip
    buffers = _buffers(_longest_row(indptr, start, stop))
    counts, means, spreads, weights, _, curvatures = buffers
    for i in range(start, stop):
        a, b = indptr[i], indptr[i + 1]
        whole = _fill_row(indices[a:b], values[a:b], U[i], V, spread[0][i], spreads_of_row(spread[1], i), buffers)
        rising_sums(whole, counts, means, spreads, weights, None, curvatures)
        for p in range(b - a):
            clusters[a + p] = means[p] * weights[p]
            bends[a + p] = means[p] * means[p] * curvatures[p]


def expected_clusters(
    matrix: csr_array, loadings: Array, components: Array, spread: Spread, threads: int | None = None
) -> tuple[csr_array, Array]:
    """Return the expected numbers of clusters λW of all counts, and λ²V, (nnz,); parameters as for `cluster_sums`."""
    U, V = np.ascontiguousarray(loadings), np.ascontiguousarray(components.T)
    clusters, bends, work = np.empty(matrix.nnz), np.empty(matrix.nnz), matrix.nnz * (U.shape[1] + DRAWN)
    given = matrix.indptr, matrix.indices, matrix.data, U, V, spread
    over_rows(matrix.indptr, work, lambda first, last: _expect(*given, first, last, clusters, bends), threads)
    return csr_array((clusters, matrix.indices, matrix.indptr), shape=matrix.shape), bends


@compiled_on_disk(nogil=True)
def _sum_entries(counts: Array, means: Array, spreads: Array, out: Array) -> None:
    at = _buffers(len(counts))
    for p in range(len(counts)):
        at.counts[p], at.means[p], at.spreads[p] = counts[p], max(means[p], LEAST), max(spreads[p], LEAST)
    rising_sums(_pad(len(counts), at), at.counts, at.means, at.spreads, at.weights, at.logs, at.curvatures)
    for p in range(len(counts)):
        out[p, 0], out[p, 1], out[p, 2] = at.logs[p], at.weights[p], at.curvatures[p]


def sums_of_entries(counts: Array, means: Array, spreads: Array | float) -> Array:
    """Return L, W and V of single entries, (entries, 3)."""
    given = [np.array(np.broadcast_to(each, np.shape(counts)), np.float64).ravel() for each in (counts, means, spreads)]
    out, entries = np.empty((len(given[0]), 3)), len(given[0])

    def add(first: int, last: int) -> None:
        _sum_entries(*(each[first:last] for each in given), out[first:last])

    over_rows(entries, DRAWN * entries, add, 1)
    return out


@compiled_on_disk(nogil=True)
def _weigh(counts: Array, means: Array, spread: Any, first: int, start: int, stop: int) -> float:
    at, total = _buffers(counts.shape[1]), 0.0
    for i in range(start, stop):
        own, of_row = spread[0][first + i], spreads_of_row(spread[1], first + i)
        for j in range(counts.shape[1]):
            at.counts[j], at.means[j] = counts[i, j], means[i, j]
            at.spreads[j] = spread_of_entry(own, of_row, j)
        rising_sums(_pad(counts.shape[1], at), at.counts, at.means, at.spreads, at.weights, at.logs, None)
        for j in range(counts.shape[1]):
            means[i, j] = at.weights[j]
            total += at.logs[j]
    return total


def weigh_block(counts: Array, means: Array, spread: Spread, first: int) -> float:
    """Replace the means of dense counts by W, for rows from row `first` of the spreads on; return ΣL."""
    weigh = partial(_weigh, counts, means, spread, first)
    return float(sum(over_rows(len(counts), DRAWN * counts.size, weigh, 1)))


@compiled_for_kernels()
def _clusters(state: Array, count: int, ratio: float) -> int:
    """Draw the number of clusters of counts with λ / s = `ratio`, Σ_{t<x} Bernoulli(ratio / (ratio + t)).

    Above `ROUNDED`, from the normal distribution. Above `ONE_BY_ONE`, in blocks over which the probabilities fall
    little: a binomial number of sure successes, and of the rest a binomial number of candidates, each at a place of its
    own and kept with what its probability lacks.
    """
    if ratio > ROUNDED and count > ROUNDED:
        return _many_clusters(state, count, ratio)
    drawn, t = 1, 1
    while t < min(count, ONE_BY_ONE):
        drawn += 1 if uniform(state) * (ratio + t) < ratio else 0
        t += 1
    while t < count:
        here = ratio + t
        last = min(count, t + 1 + int(min(here / FALL - here, here * math.sqrt(TRIED / ratio))))
        top, low = ratio / (ratio + t), ratio / (ratio + last - 1)
        size = last - t
        sure = binomial(state, size, low)
        drawn += sure
        odds = (top - low) / (1.0 - low)
        tried = binomial(state, size - sure, odds)
        drawn += _kept(state, t, size, tried, ratio, top, low)
        t = last
    return drawn


@compiled_for_kernels()
def _many_clusters(state: Array, count: int, ratio: float) -> int:
    """Draw from the normal distribution with the mean and variance of the number of clusters, which is huge."""
    logarithm, share = math.log1p(count / ratio), count / (ratio + count)
    mean = ratio * logarithm + 0.5 * share
    spread = math.sqrt(max(ratio * (logarithm - share), 0.0))
    return int(min(max(mean + spread * normal(state), 1.0), float(count)))


@compiled_for_kernels()
def _kept(state: Array, begun: int, size: int, tried: int, ratio: float, top: float, low: float) -> int:
    """Return how many candidates are kept, each at a place of its own in a block.

    Sure successes are equally likely at any places, so that those without are, too.
    """
    kept = 0
    if top <= low:
        return tried
    places = np.empty(tried, np.int64)
    for c in range(tried):  # Floyd's sample of distinct places
        place = int(uniform(state) * (size - tried + c + 1))
        for other in range(c):
            if places[other] == place:
                place = size - tried + c
                break
        places[c] = place
        p = ratio / (ratio + begun + place)
        if uniform(state) * (top - low) < p - low:
            kept += 1
    return kept


@compiled_on_disk(nogil=True)
def _draw_entries(counts: Array, ratios: Array, seed: Any, start: int, stop: int, out: Array) -> None:
    state = np.empty(1, dtype=np.uint64)
    for p in range(start, stop):
        state[0] = stream(seed, p)
        out[p] = _clusters(state, int(counts[p]), ratios[p])


def drawn_clusters_of_entries(counts: Array, ratios: Array, seed: int) -> Array:
    """Draw the number of clusters of single counts above 0, with means of `ratios` times their spreads, (entries,)."""
    out, given = np.empty(len(counts)), (counts, np.maximum(ratios, LEAST), np.uint64(seed))
    over_rows(len(counts), DRAWN * counts.size, lambda *entries: _draw_entries(*given, *entries, out), 1)
    return out


@compiled_on_disk(nogil=True)
def _draw_clusters(
    indptr: Array, indices: Array, values: Array, U: Array, V: Array, spread: Any, seed: Any, first_row: int,
    start: int, stop: int, out: Array,
) -> None:  # fmt: skip
    state = np.empty(1, dtype=np.uint64)
    buffers = _buffers(_longest_row(indptr, start, stop))
    for i in range(start, stop):
        a, b = indptr[i], indptr[i + 1]
        state[0] = stream(seed, first_row + i)
        _fill_row(indices[a:b], values[a:b], U[i], V, spread[0][i], spreads_of_row(spread[1], i), buffers)
        for p in range(b - a):
            out[a + p] = _clusters(state, int(buffers.counts[p]), buffers.means[p] / buffers.spreads[p])


def drawn_clusters(
    matrix: csr_array, loadings: Array, components: Array, spread: Spread, seed: int, threads: int | None = None,
    first_row: int = 0,
) -> csr_array:  # fmt: skip
    """Draw the number of clusters of every count, given the factors; parameters as for `cluster_sums`.

    The draws depend on the seed, below 2**64, and on the rows of the whole, the first of which is row `first_row`, but
    not on `threads`.
    """
    U, V = np.ascontiguousarray(loadings), np.ascontiguousarray(components.T)
    out, work = np.empty(matrix.nnz), matrix.nnz * (U.shape[1] + DRAWN)
    given = matrix.indptr, matrix.indices, matrix.data, U, V, spread, np.uint64(seed), first_row
    over_rows(matrix.indptr, work, lambda first, last: _draw_clusters(*given, first, last, out), threads)
    return csr_array((out, matrix.indices, matrix.indptr), shape=matrix.shape)
