"""Counts on disk with missing entries: their totals, after one pass over them, and what stands in their place."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.sparse import csr_array

from bayesnmf.data.counts import Counts
from bayesnmf.data.mask import Mask
from bayesnmf.types import Array


@dataclass(frozen=True)
class ObservedTotals:
    """Totals of observed entries, as a `Store` has those of all entries.

    Attributes
    ----------
    of_rows, feature_totals : ndarray (n,) and (m,)
        Sums of rows and features, in float64.
    log_factorial : float
        Σ log X!.
    nnz : int
    """

    of_rows: Array
    feature_totals: Array
    log_factorial: float
    nnz: int

    @classmethod
    def of(cls, matrices: Iterable[csr_array], features: int) -> ObservedTotals:
        """Return the totals of the counts of all blocks of rows, in order."""
        of_rows, of_features, constant, nonzeros = [], np.zeros(features), 0.0, 0
        for matrix in matrices:
            part = Counts(matrix, np.arange(matrix.shape[0]), np.arange(features))
            of_rows.append(part.row_totals)
            of_features += part.feature_totals
            constant, nonzeros = constant + part.log_factorial, nonzeros + part.nnz
        return cls(np.concatenate(of_rows), of_features, constant, nonzeros)

    @property
    def total(self) -> float:
        """Sum of all counts."""
        return float(self.feature_totals.sum())

    def row_totals(self, first: int, last: int) -> Array:
        """Return the sums of the rows from `first` to `last` (excluded), in float64."""
        return self.of_rows[first:last]


@dataclass(frozen=True, eq=False)
class Filling:
    """What takes the place of missing entries in every block.

    Attributes
    ----------
    mask : Mask
    means : tuple of array, (n,) and (m,), or None
        Factors whose products are put there; None puts zeros there.
    """

    mask: Mask
    means: tuple[Array, Array] | None

    def apply(self, matrix: csr_array, rows: Any) -> csr_array:
        """Return the counts of some rows with their missing entries filled, in float64."""
        mask, seen = self.mask.rows(rows), matrix.astype(np.float64)
        seen = mask.apply(seen) if seen.nnz else seen
        return seen if self.means is None else mask.filled(seen, self.means[0][rows], self.means[1])
