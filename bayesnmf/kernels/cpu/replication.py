"""Draw counts from their means θβ, and keep the counts or only their statistics; compute misfits of counts.

A row with fewer expected counts than features is drawn count by count: first the number of counts of each component,
then a feature for each count from an alias table (Walker 1977; Vose 1991), which gives the same distribution
([P] 16-17, [GP] D.1). Other rows are drawn entry by entry. Counts that cluster (`dispersed_draws`) are drawn cluster by
cluster in the same way; given the total of a row, from an urn. Every row has its own random stream, and blocks of rows
do not depend on the number of threads; so the results do not either.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from scipy.sparse import csr_array

from bayesnmf.kernels.cpu.compiling import compiled_for_kernels, compiled_on_disk
from bayesnmf.kernels.cpu.dispersed_draws import (
    LINEAR,
    PLAIN,
    POISSON,
    QUADRATIC,
    Noise,
    add_from_rates,
    dispersed_count,
    draw_from_urn,
    grow_clusters,
)
from bayesnmf.kernels.cpu.draws import poisson, stream, uniform
from bayesnmf.kernels.cpu.sampling import add_many, add_multinomial
from bayesnmf.kernels.cpu.threads import SERIAL_WORK, in_blocks, piece_count, row_blocks, threads_or_default
from bayesnmf.types import Array

BLOCKS = 32
WORK = 10  # cost of one drawn count, in multiply-adds


class Law(NamedTuple):
    """What counts are drawn from: the means θβ, row totals if they are given, and the noise.

    Attributes
    ----------
    loadings, features : ndarray of shape (n, K) and (m, K)
        Loadings, and transposed components.
    sums : ndarray of shape (K,)
        Sums of components; of clusters, if counts come in them.
    totals : ndarray of shape (n,) or (0,)
        Given row totals.
    stay, other : ndarray of shape (K, m)
        Alias tables of the components, or of those of clusters.
    noise : Noise
    exposures : ndarray of shape (n,)
        Number of clusters for each expected count of a row.
    """

    loadings: Array
    features: Array
    sums: Array
    totals: Array
    stay: Array
    other: Array
    noise: Noise
    exposures: Array


class RowBlocks(NamedTuple):
    """Bounds of the blocks of rows that are drawn side by side, of shorter pieces, and the multiply-adds, about."""

    bounds: Array
    cuts: Array
    work: int


@compiled_on_disk(nogil=True)
def _fill_alias_tables(V: Array, stay: Array, other: Array) -> None:
    """Make an alias table of every row of V (K, m): feature j stays j with probability stay_j, else becomes other_j."""
    m = V.shape[1]
    small, large = np.empty(m, dtype=np.int64), np.empty(m, dtype=np.int64)
    for k in range(V.shape[0]):
        weight = V[k].sum()
        scale = m / weight if weight > 0.0 else 0.0  # with weight 0, all features are equally likely
        smalls = larges = 0
        for j in range(m):
            stay[k, j] = V[k, j] * scale
            other[k, j] = j
            if stay[k, j] < 1.0:
                small[smalls] = j
                smalls += 1
            else:
                large[larges] = j
                larges += 1
        while smalls > 0 and larges > 0:
            smalls -= 1
            j, donor = small[smalls], large[larges - 1]
            other[k, j] = donor
            stay[k, donor] -= 1.0 - stay[k, j]
            if stay[k, donor] < 1.0:
                larges -= 1
                small[smalls] = donor
                smalls += 1
        for left in range(smalls):  # these are 1 up to rounding, as are those still in `large`
            stay[k, small[left]] = 1.0


@compiled_for_kernels()
def _draw_component_totals(state: Array, expected: Array, total: float, numbers: Array, scratch: Array) -> None:
    """Draw the row's number of counts of each component: Poisson, or multinomial if `total` is not negative."""
    if total < 0:
        for k in range(len(expected)):
            numbers[k] = poisson(state, expected[k])
        return
    cumulative = np.cumsum(expected)
    if not cumulative[-1] > 0.0:  # then every component, or feature, is equally likely
        cumulative = np.arange(1.0, len(expected) + 1.0)
    numbers[:] = 0.0
    add_multinomial(state, int(total), cumulative, numbers, scratch)


@compiled_for_kernels()
def _draw_counts(state: Array, numbers: Array, stay: Array, other: Array, row: Array, touched: Array) -> int:
    """Add single counts to the zeros of `row` (m,); list the nonzero entries in `touched` and return their number."""
    m = len(row)
    nonzeros = 0
    for k in range(len(numbers)):
        for _ in range(int(numbers[k])):
            place = uniform(state) * m
            j = int(place)
            j = j if place - j < stay[k, j] else other[k, j]
            touched[nonzeros] = j  # without branches, as they could not be predicted
            nonzeros += 1 if row[j] == 0.0 else 0
            row[j] += 1.0
    return nonzeros


@compiled_for_kernels()
def _draw_entries(state: Array, u: Array, Vt: Array, total: float, row: Array, touched: Array) -> int:
    """Draw every entry of `row`, which holds zeros; list the nonzero entries in `touched` and return their number."""
    cumulative = np.empty(len(row) if total >= 0 else 0)
    passed = 0.0
    for j in range(len(row)):
        mean = 0.0
        for k in range(len(u)):
            mean += u[k] * Vt[j, k]
        passed += mean
        if total < 0:
            row[j] = poisson(state, mean)
        else:
            cumulative[j] = passed
    if total >= 0:
        add_many(
            state, int(total), cumulative if passed > 0.0 else np.arange(1.0, len(row) + 1.0), row, np.zeros(len(row))
        )
    nonzeros = 0
    for j in range(len(row)):
        if row[j] != 0.0:
            touched[nonzeros] = j
            nonzeros += 1
    return nonzeros


@compiled_for_kernels()
def _draw_dispersed_entries(
    state: Array, u: Array, Vt: Array, total: float, noise: Noise, own: float, row: Array, touched: Array
) -> int:
    """Draw what `_draw_entries` draws, with a noise other than Poisson and the row's own factor of dispersions."""
    means = np.zeros(len(row))
    for j in range(len(row)):
        for k in range(len(u)):
            means[j] += u[k] * Vt[j, k]
    if total >= 0:
        add_from_rates(state, int(total), means, own, row)
    nonzeros = 0
    for j in range(len(row)):
        if total < 0:
            row[j] = dispersed_count(state, noise.kind, means[j], own * noise.features[j])
        if row[j] != 0.0:
            touched[nonzeros] = j
            nonzeros += 1
    return nonzeros


@compiled_for_kernels()
def _draw_row(state: Array, i: int, law: Law, numbers: Array, scratch: Array, row: Array, touched: Array) -> int:
    """Draw the counts of row `i` into the zeros of `row`; list nonzero entries in `touched` and return their number."""
    noise, u = law.noise, law.loadings[i]
    total = law.totals[i] if len(law.totals) > 0 else -1.0
    expected = u * law.sums
    if noise.kind == LINEAR and total < 0:
        expected *= law.exposures[i]  # of clusters
    if noise.kind != QUADRATIC and (total if total >= 0 else expected.sum()) < len(row):
        if noise.kind == LINEAR and total >= 0:
            return draw_from_urn(state, int(total), expected, noise.rows[i], (law.stay, law.other), row, touched)
        _draw_component_totals(state, expected, total, numbers, scratch)
        nonzeros = _draw_counts(state, numbers, law.stay, law.other, row, touched)
        if noise.kind == LINEAR:
            grow_clusters(state, row, touched[:nonzeros], noise.rows[i], noise.features)
        return nonzeros
    if noise.kind == POISSON:
        return _draw_entries(state, u, law.features, total, row, touched)
    return _draw_dispersed_entries(state, u, law.features, total, noise, noise.rows[i], row, touched)


def _prepare_draws(loadings: Array, components: Array, totals: Array | None, noise: Noise) -> tuple[Law, RowBlocks]:
    """Return what counts are drawn from; rows are drawn entry by entry or by components, which takes fewer steps."""
    U, Vt, V = np.ascontiguousarray(loadings), np.ascontiguousarray(components.T), np.ascontiguousarray(components)
    exposures = np.ones(len(U))
    if noise.kind == LINEAR and totals is None:
        if noise.by_feature:
            V = V * (np.log1p(noise.features) / noise.features)
        else:
            exposures = np.log1p(noise.rows) / noise.rows
    sums = V.sum(axis=1)
    tables = np.empty(V.shape), np.empty(V.shape, dtype=np.int32)
    _fill_alias_tables(V, *tables)
    steps = np.minimum((U @ sums) * exposures if totals is None else totals, len(Vt))
    if noise.kind == QUADRATIC:
        steps = np.full(len(U), float(len(Vt)))
    work = WORK * len(sums) * steps.sum()
    until = np.concatenate([[0.0], np.cumsum(steps)])
    bounds, cuts = row_blocks(until, BLOCKS if work > SERIAL_WORK else 1), row_blocks(until, piece_count(work))
    given = np.empty(0) if totals is None else totals
    return Law(U, Vt, sums, given, *tables, noise, exposures), RowBlocks(bounds, cuts, int(work))


class Misfits(NamedTuple):
    """Freeman–Tukey misfit Σ (√x − √λ)² of every row (n,) and of every feature (m,)."""

    rows: Array
    features: Array

    def __add__(self, other: Misfits) -> Misfits:  # type: ignore[override]
        return Misfits(np.concatenate([self.rows, other.rows]), self.features + other.features)


class CountStatistics(NamedTuple):
    """Statistics of one matrix of drawn counts; those of matrices with the same features can be added.

    Attributes
    ----------
    row_totals, feature_totals : ndarray of shape (n,) and (m,)
    misfits : Misfits
        Misfits to the means that the counts are drawn from.
    histogram : ndarray of shape (bins,)
        Number of entries that hold 0, 1, 2, ….
    largest, squares, nonzeros : float
        Largest count, sum of squared counts, and number of entries that are not 0.
    """

    row_totals: Array
    feature_totals: Array
    misfits: Misfits
    histogram: Array
    largest: float
    squares: float
    nonzeros: float

    def __add__(self, other: CountStatistics) -> CountStatistics:  # type: ignore[override]
        return CountStatistics(
            np.concatenate([self.row_totals, other.row_totals]),
            self.feature_totals + other.feature_totals,
            self.misfits + other.misfits,
            self.histogram + other.histogram,
            max(self.largest, other.largest),
            self.squares + other.squares,
            self.nonzeros + other.nonzeros,
        )


@compiled_for_kernels(inline="always")
def _excess(x: float, u: Array, v: Array) -> float:
    """Return (√x − √λ)² − λ of an entry with mean λ = u·v: how much its misfit exceeds the misfit of a count of 0."""
    mean = 0.0
    for k in range(len(u)):
        mean += u[k] * v[k]
    return x - 2.0 * math.sqrt(x * mean)


@compiled_on_disk(nogil=True)
def _replicate_rows(
    law: Law, seed: Any, origin: int, first: int, last: int, by_row: Array, by_feature: Array, histogram: Array
) -> tuple[float, float, float]:
    """Draw rows: fill their totals and misfits (2, n); add to those of the features (2, m) and to the histogram.

    Row `i` has stream `origin + i`.
    """
    m, rank = law.features.shape
    state = np.empty(1, dtype=np.uint64)
    row, touched = np.zeros(m), np.empty(m + 1, dtype=np.int64)  # one spare element, for entries not new
    numbers, scratch = np.empty(rank), np.zeros(rank)
    largest = squares = nonzeros = 0.0
    for i in range(first, last):
        state[0] = stream(seed, origin + i)
        entries = _draw_row(state, i, law, numbers, scratch, row, touched)
        histogram[0] += m - entries
        nonzeros += entries
        for q in range(entries):
            j = touched[q]
            x = row[j]
            row[j] = 0.0
            excess = _excess(x, law.loadings[i], law.features[j])
            by_row[0, i] += x
            by_row[1, i] += excess
            by_feature[0, j] += x
            by_feature[1, j] += excess
            squares += x * x
            largest = max(largest, x)
            if x < len(histogram):
                histogram[int(x)] += 1
    return largest, squares, nonzeros


def replicated_statistics(
    loadings: Array, components: Array, totals: Array | None, bins: int, seed: int, threads: int | None = None,
    first_row: int = 0, noise: Noise = PLAIN,
) -> CountStatistics:  # fmt: skip
    """Draw counts with means loadings @ components, or shares of them given row totals, and return their statistics.

    Parameters
    ----------
    loadings, components : ndarray of shape (n, K) and (K, m)
        Nonnegative factors, in float64.
    totals : ndarray of shape (n,) or None
        Row totals, whole numbers in float64, if counts are multinomial, or Dirichlet-multinomial with linear variance.
    bins : int
        Number of bins of the histogram, which covers the counts below it.
    seed : int
        Seed of this draw, below 2**64. The same seed gives the same statistics with any number of threads.
    first_row : int
        Place of the first row in a larger matrix, of which this draw is a part.
    noise : Noise
        How counts vary; by default as Poisson counts, or multinomial ones.
    """
    n, m = len(loadings), components.shape[1]
    law, blocks = _prepare_draws(loadings, components, totals, noise)
    number = len(blocks.bounds) - 1
    by_row, by_feature, histogram = np.zeros((2, n)), np.zeros((number, 2, m)), np.zeros((number, bins), np.int64)

    def draw(block: int, first: int, last: int) -> tuple[float, float, float]:
        mine = by_row, by_feature[block], histogram[block]
        return _replicate_rows(law, np.uint64(seed), first_row, first, last, *mine)

    parts = in_blocks(blocks.bounds, draw, threads_or_default(threads, blocks.work), blocks.cuts)
    largest, squares, nonzeros = zip(*parts, strict=True)
    misfits = _with_means(law.loadings, np.ascontiguousarray(components), by_row[1], by_feature[:, 1].sum(axis=0))
    of_features = by_feature[:, 0].sum(axis=0)
    return CountStatistics(
        by_row[0], of_features, misfits, histogram.sum(axis=0), max(largest), float(np.sum(squares)), sum(nonzeros)
    )


@compiled_on_disk(nogil=True)
def _add_excesses(
    indptr: Array, indices: Array, values: Array, U: Array, Vt: Array, first: int, last: int, rows: Array,
    features: Array,
) -> None:  # fmt: skip
    for i in range(first, last):
        for p in range(indptr[i], indptr[i + 1]):
            j = indices[p]
            excess = _excess(values[p], U[i], Vt[j])
            rows[i] += excess
            features[j] += excess


def misfits(matrix: csr_array, loadings: Array, components: Array, threads: int | None = None) -> Misfits:
    """Compute the Freeman–Tukey misfits of counts (n, m) from the means loadings @ components, in O(nnz K)."""
    n, m = matrix.shape
    U, Vt = np.ascontiguousarray(loadings), np.ascontiguousarray(components.T)
    work = WORK * matrix.nnz * U.shape[1]
    bounds = row_blocks(matrix.indptr, BLOCKS if work > SERIAL_WORK else 1)
    rows, features = np.zeros(n), np.zeros((len(bounds) - 1, m))
    given = (matrix.indptr, matrix.indices, matrix.data.astype(np.float64, copy=False), U, Vt)

    def add(block: int, first: int, last: int) -> None:
        _add_excesses(*given, first, last, rows, features[block])

    in_blocks(bounds, add, threads_or_default(threads, work), row_blocks(matrix.indptr, piece_count(work)))
    return _with_means(U, components, rows, features.sum(axis=0))


def _with_means(loadings: Array, components: Array, rows: Array, features: Array) -> Misfits:
    """Add the means of all entries to the excesses of the nonzero entries."""
    return Misfits(rows + loadings @ components.sum(axis=1), features + loadings.sum(axis=0) @ components)


@compiled_on_disk(nogil=True)
def _draw_rows(law: Law, seed: Any, first: int, last: int, ends: Array, indices: Array, values: Array) -> None:
    """Draw rows, and write their nonzero entries before `ends` (n,); without room, write their numbers there."""
    m, rank = law.features.shape
    state = np.empty(1, dtype=np.uint64)
    row, touched = np.zeros(m), np.empty(m + 1, dtype=np.int64)  # one spare element, for entries not new
    numbers, scratch = np.empty(rank), np.zeros(rank)
    for i in range(first, last):
        state[0] = stream(seed, i)
        entries = _draw_row(state, i, law, numbers, scratch, row, touched)
        if len(indices) == 0:
            ends[i] = entries
        else:
            places, end = np.sort(touched[:entries]), ends[i]
            for q in range(entries):
                indices[end - entries + q] = places[q]
                values[end - entries + q] = row[places[q]]
        row[touched[:entries]] = 0.0


def replicated_counts(
    loadings: Array, components: Array, totals: Array | None, seed: int, threads: int | None = None,
    noise: Noise = PLAIN,
) -> csr_array:  # fmt: skip
    """Draw counts with means loadings @ components, or shares of them given row totals, as a canonical matrix (n, m).

    Rows are drawn twice, first to see how many entries are not 0; their streams give the same counts both times.

    Parameters
    ----------
    loadings, components : ndarray of shape (n, K) and (K, m)
        Nonnegative factors, in float64.
    totals : ndarray of shape (n,) or None
        Row totals, whole numbers in float64, if counts are multinomial, or Dirichlet-multinomial with linear variance.
    seed : int
        Seed of this draw, below 2**64. The same seed gives the same counts with any number of threads.
    noise : Noise
        How counts vary; by default as Poisson counts, or multinomial ones.
    """
    n, m = len(loadings), components.shape[1]
    law, blocks = _prepare_draws(loadings, components, totals, noise)
    ends = np.zeros(n, np.int64)

    def draw_into(indices: Array, values: Array) -> None:
        def draw(_: int, first: int, last: int) -> None:
            _draw_rows(law, np.uint64(seed), first, last, ends, indices, values)

        in_blocks(blocks.bounds, draw, threads_or_default(threads, blocks.work), blocks.cuts)

    draw_into(np.empty(0, np.int32), np.empty(0))
    np.cumsum(ends, out=ends)
    entries = int(ends[-1]) if n else 0
    indices, values = np.empty(entries, np.int32), np.empty(entries)
    if entries:
        draw_into(indices, values)
    return csr_array((values, indices, np.concatenate([[0], ends])), shape=(n, m))
