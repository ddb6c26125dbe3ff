"""Keep statistics of counts that are drawn from the means θβ (`drawn_rows`), and compute misfits of counts.

`replicated_counts` returns the same counts as a sparse matrix.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from scipy.sparse import csr_array

from bayesnmf.kernels.cpu.allocation import row_blocks
from bayesnmf.kernels.cpu.compiling import compiled_for_kernels, compiled_on_disk
from bayesnmf.kernels.cpu.dispersed_draws import PLAIN, Noise
from bayesnmf.kernels.cpu.drawn_rows import BLOCKS, WORK, draw_row, prepare_draws
from bayesnmf.kernels.cpu.streams import stream
from bayesnmf.kernels.cpu.threads import SERIAL_WORK, in_blocks, piece_count, threads_or_default
from bayesnmf.types import Array


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
        ours: tuple[Any, ...] = self
        sums = [mine + its for mine, its in zip(ours[1:], other[1:], strict=True)]
        rows, largest = np.concatenate([self.row_totals, other.row_totals]), max(self.largest, other.largest)
        return CountStatistics(rows, *sums)._replace(largest=largest)


# --- one row -----------------------------------------------------------------------------------------


@compiled_for_kernels(inline="always")
def _excess(x: float, u: Array, v: Array) -> float:
    """Return (√x − √λ)² − λ of an entry with mean λ = u·v: how much its misfit exceeds the misfit of a count of 0."""
    mean = 0.0
    for k in range(len(u)):
        mean += u[k] * v[k]
    return x - 2.0 * math.sqrt(x * mean)


# --- rows --------------------------------------------------------------------------------------------


@compiled_on_disk(nogil=True)
def _replicate_rows(
    U: Array, Vt: Array, sums: Array, totals: Array, tables: tuple[Array, Array], noise: Any, seed: Any, origin: int,
    first: int, last: int, by_row: Array, by_feature: Array, histogram: Array,
) -> tuple[float, float, float]:  # fmt: skip
    """Draw rows: fill their totals and misfits (2, n); add to those of the features (2, m) and to the histogram.

    Row `i` has stream `origin + i`.
    """
    m, rank = Vt.shape
    state = np.empty(1, dtype=np.uint64)
    row, touched = np.zeros(m), np.empty(m + 1, dtype=np.int64)  # one spare element, for entries not new
    numbers, scratch = np.empty(rank), np.zeros(rank)
    largest = squares = nonzeros = 0.0
    for i in range(first, last):
        state[0] = stream(seed, origin + i)
        entries = draw_row(state, i, U, Vt, sums, totals, tables, noise, numbers, scratch, row, touched)
        histogram[0] += m - entries
        nonzeros += entries
        for q in range(entries):
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
    made = prepare_draws(loadings, components, totals, noise)
    blocks = len(made.bounds) - 1
    by_row, by_feature, histogram = np.zeros((2, n)), np.zeros((blocks, 2, m)), np.zeros((blocks, bins), np.int64)

    def draw(block: int, first: int, last: int) -> tuple[float, float, float]:
        mine = by_row, by_feature[block], histogram[block]
        return _replicate_rows(*made.inputs, np.uint64(seed), first_row, first, last, *mine)

    parts = in_blocks(made.bounds, draw, threads_or_default(threads, made.work), made.cuts)
    largest, squares, nonzeros = zip(*parts, strict=True)
    misfits = _with_means(made.inputs[0], np.ascontiguousarray(components), by_row[1], by_feature[:, 1].sum(axis=0))
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
def _draw_rows(
    U: Array, Vt: Array, sums: Array, totals: Array, tables: tuple[Array, Array], noise: Any, seed: Any, first: int,
    last: int, ends: Array, indices: Array, values: Array,
) -> None:  # fmt: skip
    """Draw rows, and write their nonzero entries before `ends` (n,); without room, write their numbers there."""
    m, rank = Vt.shape
    state = np.empty(1, dtype=np.uint64)
    row, touched = np.zeros(m), np.empty(m + 1, dtype=np.int64)  # one spare element, for entries not new
    numbers, scratch = np.empty(rank), np.zeros(rank)
    for i in range(first, last):
        state[0] = stream(seed, i)
        entries = draw_row(state, i, U, Vt, sums, totals, tables, noise, numbers, scratch, row, touched)
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
    made = prepare_draws(loadings, components, totals, noise)
    ends = np.zeros(n, np.int64)

    def draw_into(indices: Array, values: Array) -> None:
        def draw(_: int, first: int, last: int) -> None:
            _draw_rows(*made.inputs, np.uint64(seed), first, last, ends, indices, values)

        in_blocks(made.bounds, draw, threads_or_default(threads, made.work), made.cuts)

    draw_into(np.empty(0, np.int32), np.empty(0))
    np.cumsum(ends, out=ends)
    entries = int(ends[-1]) if n else 0
    indices, values = np.empty(entries, np.int32), np.empty(entries)
    if entries:
        draw_into(indices, values)
    return csr_array((values, indices, np.concatenate([[0], ends])), shape=(n, m))
