"""Pearson's χ² of counts and their means, with small means pooled, in blocks of rows.

An entry whose mean is small has a χ² of huge variance. Consecutive entries of a row (for χ² by column: of a column)
with means below a limit are added up until the sum of their means reaches it, and count as one entry.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np
from scipy.sparse import csr_array

from bayesnmf.kernels.cpu.compiling import compiled_on_disk
from bayesnmf.kernels.cpu.threads import over_rows
from bayesnmf.types import Array

Hidden = Callable[[slice], Array]
ENTRIES = 2**20  # entries of a block of dense means
VISIT = 4  # cost of an entry, in multiply-adds


@compiled_on_disk(nogil=True)
def _add_rows(counts: Array, means: Array, variances: Array, low: float, sums: Array, first: int, last: int) -> None:
    """Add, for each row, Σ χ², Σ (χ²)² and the number of entries to `sums` (rows, 3)."""
    for i in range(first, last):
        counted = expected = spread = 0.0
        for j in range(counts.shape[1]):
            if means[i, j] >= low:
                square = (counts[i, j] - means[i, j]) ** 2 / variances[i, j]
            else:
                counted += counts[i, j]
                expected += means[i, j]
                spread += variances[i, j]
                if expected < low:
                    continue
                square = (counted - expected) ** 2 / spread
                counted = expected = spread = 0.0
            sums[i, 0] += square
            sums[i, 1] += square * square
            sums[i, 2] += 1


@compiled_on_disk(nogil=True)
def _add_columns(counts: Array, means: Array, low: float, open_: Array, sums: Array, first: int, last: int) -> None:
    """Add the same for each column to `sums` (columns, 3); `open_` (columns, 2) are pools that go on in later rows."""
    for i in range(len(counts)):
        for j in range(first, last):
            if means[i, j] >= low:
                square = (counts[i, j] - means[i, j]) ** 2 / means[i, j]
            else:
                open_[j, 0] += counts[i, j]
                open_[j, 1] += means[i, j]
                if open_[j, 1] < low:
                    continue
                square = (open_[j, 0] - open_[j, 1]) ** 2 / open_[j, 1]
                open_[j] = 0.0
            sums[j, 0] += square
            sums[j, 1] += square * square
            sums[j, 2] += 1


def pearson_sums(
    matrix: csr_array,
    loadings: Array,
    components: Array,
    low: float,
    hidden: Hidden | None = None,
    variances: Callable[[Array, slice], Array] | None = None,
    *,
    by_column: bool = True,
) -> tuple[Array, Array]:
    """Return Σ χ², Σ (χ²)² and the number of entries of each row, (n, 3), and of each column, (m, 3).

    Parameters
    ----------
    matrix : csr_array of shape (n, m)
        Counts.
    loadings, components : ndarray of shape (n, K) and (K, m)
        Factors of the means.
    low : float
        Least mean of an entry that is not pooled with others.
    hidden : callable, optional
        Function of a slice of rows that returns which of their entries are left out, as booleans (rows, m).
    variances : callable, optional
        Function of means (rows, m) and their slice of rows that returns the variances of the counts; by default the
        means. The sums of columns are of Poisson counts.
    by_column : bool
        Whether to compute the second result too; without, it is zeros.
    """
    n, m = matrix.shape
    of_rows, of_columns, open_ = np.zeros((n, 3)), np.zeros((m, 3)), np.zeros((m, 2))
    components = np.asarray(components, np.float64)
    step = max(ENTRIES // max(m, 1), 1)
    for first in range(0, n, step):
        rows = slice(first, first + step)
        means = np.asarray(loadings[rows], np.float64) @ components
        counts = matrix[rows].toarray().astype(np.float64, copy=False)
        if hidden is not None:
            left_out = hidden(rows)
            counts[left_out], means[left_out] = 0.0, 0.0  # add nothing to a pool
        spread = means if variances is None else variances(means, rows)
        over_rows(len(means), VISIT * means.size, partial(_add_rows, counts, means, spread, low, of_rows[rows]))
        if by_column:
            over_rows(m, VISIT * means.size, partial(_add_columns, counts, means, low, open_, of_columns))
    return of_rows, of_columns
