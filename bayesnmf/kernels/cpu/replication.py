"""Draw counts from the means θβ row by row, keeping only statistics of them, and compute misfits of counts.

A row with fewer expected counts than features is drawn count by count: first the number of counts of each component,
then a feature for each count from an alias table (Walker 1977; Vose 1991), which gives the same distribution
([P] 16-17, [GP] D.1). Other rows are drawn cell by cell. Every row has its own random stream, and sums are taken over
blocks of rows that do not depend on the number of threads; so the results do not either.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from bayesnmf.kernels.cpu.allocation import row_blocks
from bayesnmf.kernels.cpu.compiling import compiled_on_disk
from bayesnmf.kernels.cpu.poisson_draws import poisson
from bayesnmf.kernels.cpu.sampling import add_many, add_multinomial
from bayesnmf.kernels.cpu.streams import stream, uniform
from bayesnmf.kernels.cpu.threads import SERIAL_WORK, in_blocks, piece_count, threads_or_default

Array = NDArray[Any]

BLOCKS = 32
WORK = 10  # cost of one drawn count, in multiply-adds


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
        Number of cells that hold 0, 1, 2, ….
    largest, squares, nonzeros : float
        Largest count, sum of squared counts, and number of cells that are not 0.
    """

    row_totals: Array
    feature_totals: Array
    misfits: Misfits
    histogram: Array
    largest: float
    squares: float
    nonzeros: float

    def __add__(self, other: CountStatistics) -> CountStatistics:  # type: ignore[override]
        ours: tuple[Any, ...] = self
        sums = [mine + its for mine, its in zip(ours[1:], other[1:], strict=True)]
        rows, largest = np.concatenate([self.row_totals, other.row_totals]), max(self.largest, other.largest)
        return CountStatistics(rows, *sums)._replace(largest=largest)


# --- one row -----------------------------------------------------------------------------------------


@compiled_on_disk(nogil=True)
def fill_alias_tables(V: Array, stay: Array, other: Array) -> None:
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


@compiled_on_disk(nogil=True)
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


@compiled_on_disk(nogil=True)
def _draw_counts(state: Array, numbers: Array, stay: Array, other: Array, row: Array, touched: Array) -> int:
    """Add single counts to the zeros of `row` (m,); list the nonzero cells in `touched` and return their number."""
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


@compiled_on_disk(nogil=True)
def _draw_cells(state: Array, u: Array, Vt: Array, total: float, row: Array, touched: Array) -> int:
    """Draw every cell of `row`, which holds zeros; list the nonzero cells in `touched` and return their number."""
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


@compiled_on_disk(nogil=True)
def draw_row(
    state: Array, u: Array, Vt: Array, sums: Array, total: float, tables: tuple[Array, Array], numbers: Array,
    scratch: Array, row: Array, touched: Array,
) -> int:  # fmt: skip
    """Draw the counts of a row into the zeros of `row`; list the nonzero cells in `touched` and return their number."""
    expected = u * sums
    if (total if total >= 0 else expected.sum()) < len(row):
        _draw_component_totals(state, expected, total, numbers, scratch)
        return _draw_counts(state, numbers, tables[0], tables[1], row, touched)
    return _draw_cells(state, u, Vt, total, row, touched)


@compiled_on_disk(inline="always")
def _excess(x: float, u: Array, v: Array) -> float:
    """Return (√x − √λ)² − λ of a cell with mean λ = u·v: how much its misfit exceeds the misfit of a count of 0."""
    mean = 0.0
    for k in range(len(u)):
        mean += u[k] * v[k]
    return x - 2.0 * math.sqrt(x * mean)


# --- rows --------------------------------------------------------------------------------------------


@compiled_on_disk(nogil=True)
def _replicate_rows(
    U: Array, Vt: Array, sums: Array, totals: Array, tables: tuple[Array, Array], seed: Any, origin: int, first: int,
    last: int, by_row: Array, by_feature: Array, histogram: Array,
) -> tuple[float, float, float]:  # fmt: skip
    """Draw rows: fill their totals and misfits (2, n); add to those of the features (2, m) and to the histogram.

    Row `i` has stream `origin + i`.
    """
    m, rank = Vt.shape
    state = np.empty(1, dtype=np.uint64)
    row, touched = np.zeros(m), np.empty(m + 1, dtype=np.int64)  # one spare element, for cells not new
    numbers, scratch = np.empty(rank), np.zeros(rank)
    largest = squares = nonzeros = 0.0
    for i in range(first, last):
        state[0] = stream(seed, origin + i)
        total = totals[i] if len(totals) > 0 else -1.0
        cells = draw_row(state, U[i], Vt, sums, total, tables, numbers, scratch, row, touched)
        histogram[0] += m - cells
        nonzeros += cells
        for q in range(cells):
            j = touched[q]
            x = row[j]
            row[j] = 0.0
            excess = _excess(x, U[i], Vt[j])
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
    first_row: int = 0,
) -> CountStatistics:  # fmt: skip
    """Draw counts X ~ Poisson(loadings @ components), or multinomial given row totals, and return their statistics.

    Parameters
    ----------
    loadings, components : ndarray of shape (n, K) and (K, m)
        Nonnegative factors, in float64.
    totals : ndarray of shape (n,) or None
        Row totals, whole numbers in float64; None for Poisson counts.
    bins : int
        Number of bins of the histogram, which covers the counts below it.
    seed : int
        Seed of this draw, below 2**64. The same seed gives the same statistics with any number of threads.
    first_row : int
        Place of the first row in a larger matrix, of which this draw is a part.
    """
    n, m = len(loadings), components.shape[1]
    U, Vt, V = np.ascontiguousarray(loadings), np.ascontiguousarray(components.T), np.ascontiguousarray(components)
    sums = V.sum(axis=1)
    tables = np.empty(V.shape), np.empty(V.shape, dtype=np.int32)
    fill_alias_tables(V, *tables)
    given = np.empty(0) if totals is None else totals
    steps = np.minimum(U @ sums if totals is None else totals, m)
    work = WORK * len(sums) * steps.sum()
    until = np.concatenate([[0.0], np.cumsum(steps)])
    bounds, cuts = row_blocks(until, BLOCKS if work > SERIAL_WORK else 1), row_blocks(until, piece_count(work))
    blocks = len(bounds) - 1
    by_row, by_feature, histogram = np.zeros((2, n)), np.zeros((blocks, 2, m)), np.zeros((blocks, bins), np.int64)

    def draw(block: int, first: int, last: int) -> tuple[float, float, float]:
        mine = by_row, by_feature[block], histogram[block]
        return _replicate_rows(U, Vt, sums, given, tables, np.uint64(seed), first_row, first, last, *mine)

    parts = in_blocks(bounds, draw, threads_or_default(threads, int(work)), cuts)
    largest, squares, nonzeros = zip(*parts, strict=True)
    misfits = _with_means(U, V, by_row[1], by_feature[:, 1].sum(axis=0))
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
    """Add the means of all cells to the excesses of the nonzero cells."""
    return Misfits(rows + loadings @ components.sum(axis=1), features + loadings.sum(axis=0) @ components)
