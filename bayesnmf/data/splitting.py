"""Split counts for held-out scores, by thinning and by withholding rows."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

import numpy as np

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


def split_counts(counts: Counts, keep: float, withhold: float, rng: np.random.Generator) -> Split:
    """Withhold a random fraction `withhold` of the samples, and thin the other samples."""
    rows, others = set_rows_aside(counts.shape[0], withhold, rng)
    train, thinned = thin_counts(counts.rows(rows), keep, rng)
    if len(others) == 0:
        return Split(train, thinned, None, None, keep, rows, others)
    return Split(train, thinned, *thin_counts(counts.rows(others), 0.5, rng), keep, rows, others)


def thin_counts(counts: Counts, keep: float, rng: np.random.Generator) -> tuple[Counts, Counts]:
    """Split every count binomially in two: each unit is kept with probability `keep`."""
    kept = rng.binomial(counts.matrix.data.astype(np.int64), keep).astype(counts.dtype)
    return with_data(counts, kept), with_data(counts, counts.matrix.data - kept)


def with_data(counts: Counts, data: Array) -> Counts:
    """Return counts with other values at the same places; zeros are dropped."""
    matrix = counts.matrix.copy()
    matrix.data[:] = data
    matrix.eliminate_zeros()
    return counts.with_matrix(matrix)


def completed(counts: Counts) -> tuple[Counts, Counts]:
    """Split each row in halves at random, by a seed that depends on its counts alone; return both.

    Only whole counts are held out: what is beyond the whole number stays in the first half.
    """
    matrix = counts.matrix
    held = np.zeros(matrix.nnz, matrix.dtype)
    for start, end in zip(matrix.indptr[:-1], matrix.indptr[1:], strict=True):
        data, places = matrix.data[start:end], matrix.indices[start:end]
        digest = hashlib.blake2b(np.asarray(data, np.float64).tobytes(), digest_size=8)
        digest.update(np.asarray(places, np.int64).tobytes())
        rng = np.random.default_rng(int.from_bytes(digest.digest(), "little"))
        held[start:end] = rng.binomial(data.astype(np.int64), 0.5)
    return with_data(counts, matrix.data - held), with_data(counts, held)
