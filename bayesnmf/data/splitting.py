"""Split counts for held-out scores, by thinning and by withholding rows.

Both parts of counts on disk are written to stores of their own, with the random numbers that they have in memory.
"""

from __future__ import annotations

import hashlib
from copy import deepcopy
from dataclasses import dataclass

import numpy as np
from scipy.sparse import csr_array

from bayesnmf.data.counts import Counts
from bayesnmf.types import Array


@dataclass(frozen=True)
class Split:
    """Counts split into training and held-out counts.

    Attributes
    ----------
    train, thinned : Counts
        Counts to fit, and held-out counts of the same samples from thinning.
    seen, withheld : Counts or None
        Two halves of the counts of samples that are not in `train`.
    keep : float
        Probability with which a count stays in `train`.
    rows, withheld_rows : ndarray
        Positions of the rows of `train` and of those of `withheld` among all.
    """

    train: Counts
    thinned: Counts
    seen: Counts | None
    withheld: Counts | None
    keep: float
    rows: Array
    withheld_rows: Array


def rows_aside(n: int, withhold: float) -> int:
    """Return how many of n rows are withheld."""
    return min(round(withhold * n), n - 1)


def set_rows_aside(n: int, withhold: float, rng: np.random.Generator) -> tuple[Array, Array]:
    """Return the positions of the rows to fit and of those to withhold, drawn at random."""
    aside, order = rows_aside(n, withhold), rng.permutation(n)
    return np.sort(order[aside:]), np.sort(order[:aside])


def undivided(counts: Counts) -> Split:
    """Return counts of which none are held out."""
    rows, none = np.arange(counts.shape[0]), counts.with_matrix(counts.matrix * 0)
    return Split(counts, none, None, None, 1.0, rows, rows[:0])


def split_counts(counts: Counts, keep: float, withhold: float, rng: np.random.Generator) -> Split:
    """Withhold a random fraction `withhold` of the samples, and thin the other samples."""
    rows, others = set_rows_aside(counts.shape[0], withhold, rng)
    train, thinned = thin_counts(counts, keep, rng, rows)
    if len(others) == 0:
        return Split(train, thinned, None, None, keep, rows, others)
    return Split(train, thinned, *thin_counts(counts, 0.5, rng, others), keep, rows, others)


def thin_counts(
    counts: Counts, keep: float, rng: np.random.Generator, rows: Array | None = None
) -> tuple[Counts, Counts]:
    """Split every count, of chosen rows or of all, binomially in two: each unit is kept with probability `keep`."""
    again = deepcopy(rng)

    def kept(drawing: np.random.Generator, matrix: csr_array) -> Array:
        return drawing.binomial(matrix.data.astype(np.int64), keep).astype(matrix.dtype)

    rows = np.arange(counts.shape[0]) if rows is None else rows
    return (
        counts.apart(rows, lambda matrix: with_data(matrix, kept(again, matrix))),
        counts.apart(rows, lambda matrix: with_data(matrix, matrix.data - kept(rng, matrix))),
    )


def with_data(matrix: csr_array, data: Array) -> csr_array:
    """Return a matrix with other values at the same places; zeros are dropped."""
    found = matrix.copy()
    found.data[:] = data
    found.eliminate_zeros()
    return found


def halves_of_rows(counts: Counts) -> tuple[Counts, Counts]:
    """Split each row in halves at random, by a seed that depends on its counts alone; return both.

    Only whole counts are held out: what is beyond the whole number stays in the first half.
    """
    rows = np.arange(counts.shape[0])
    return (
        counts.apart(rows, lambda matrix: with_data(matrix, matrix.data - _held_out(matrix))),
        counts.apart(rows, lambda matrix: with_data(matrix, _held_out(matrix))),
    )


def _held_out(matrix: csr_array) -> Array:
    held = np.zeros(matrix.nnz, matrix.dtype)
    for start, end in zip(matrix.indptr[:-1], matrix.indptr[1:], strict=True):
        data, places = matrix.data[start:end], matrix.indices[start:end]
        digest = hashlib.blake2b(np.asarray(data, np.float64).tobytes(), digest_size=8)
        digest.update(np.asarray(places, np.int64).tobytes())
        rng = np.random.default_rng(int.from_bytes(digest.digest(), "little"))
        held[start:end] = rng.binomial(data.astype(np.int64), 0.5)
    return held
