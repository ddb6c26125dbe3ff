"""Totals of the observed cells of counts on disk, after one pass over them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from bayesnmf.data.blocks.store import Store
from bayesnmf.data.counts import Counts
from bayesnmf.data.mask import Mask
from bayesnmf.types import Array


@dataclass(frozen=True)
class ObservedTotals:
    """Totals of observed cells, as a `Store` has those of all cells.

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
    def of(cls, store: Store, blocks: list[slice], mask: Mask) -> ObservedTotals:
        """Return the totals of a store without its missing cells, which is read block by block."""
        of_rows, of_features, constant, nonzeros = [], np.zeros(store.shape[1]), 0.0, 0
        for rows in blocks:
            matrix = mask.rows(rows).apply(store.read(rows.start, rows.stop))
            part = Counts(matrix, np.arange(matrix.shape[0]), np.arange(store.shape[1]))
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
