"""Statistics of one data set, and of many: what predictive checks keep of each replicate."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from bayesnmf.diagnostics.replication import misfits, rates_of, replicate_block, row_blocks
from bayesnmf.results import Fit

Array = NDArray[Any]

MOST_BINS = 40


@dataclass(eq=False)
class Statistics:
    """Those of one data set, added up over blocks of rows; the misfits are at the means of one draw."""

    row_totals: Array
    feature_totals: Array
    row_misfits: Array
    feature_misfits: Array
    histogram: Array
    largest: float = 0.0
    squares: float = 0.0
    nonzeros: int = 0

    def add(self, rows: slice, matrix: csr_array, loadings: Array, components: Array) -> None:
        """Take in the counts of some rows."""
        data = matrix.data.astype(np.float64)
        places = np.repeat(np.arange(matrix.shape[0]), np.diff(matrix.indptr))
        self.row_totals[rows] = np.bincount(places, data, matrix.shape[0])
        self.feature_totals += np.bincount(matrix.indices, data, matrix.shape[1])
        self.row_misfits[rows], of_features = misfits(matrix, loadings, components)
        self.feature_misfits += of_features
        small = np.rint(data[data < len(self.histogram) - 0.5]).astype(np.int64)
        self.histogram += np.bincount(small, minlength=len(self.histogram))[: len(self.histogram)]
        self.histogram[0] += matrix.shape[0] * matrix.shape[1] - len(data)
        self.largest = max(self.largest, float(data.max(initial=0.0)))
        self.squares += float(data @ data)
        self.nonzeros += int(np.count_nonzero(data))

    def scalars(self, cells: int) -> dict[str, float]:
        """Return what `SCALARS` names."""
        total = self.row_totals.sum()
        mean = total / cells
        return {
            "total": float(total),
            "share of zeros": 1 - self.nonzeros / cells,
            "largest count": self.largest,
            "dispersion": float((self.squares / cells - mean**2) / mean) if total else 0.0,
            "misfit": float(self.row_misfits.sum()),
        }


class Side:
    """Rows or features: totals of every replicate, and sums over draws of what is said of the misfit."""

    def __init__(self, observed: Array) -> None:
        self.observed = observed
        self.totals: list[Array] = []
        self.above, self.ours, self.theirs = np.zeros((3, len(observed)))

    def add(self, totals: Array, ours: Array, theirs: Array) -> None:
        """Take in one replicate, and the misfits of the counts and of the replicate."""
        self.totals.append(totals)
        self.above += ties_by_half(ours, theirs)
        self.ours += ours
        self.theirs += theirs

    def ratio(self) -> Array:
        """Mean misfit of the counts over that of their replicates; 1 where neither has any."""
        return np.divide(self.ours, self.theirs, out=np.ones_like(self.ours), where=self.theirs > 0)


class Gathered:
    """What has been gathered of all replicates of a fit."""

    def __init__(self, fit: Fit) -> None:
        self.fit = fit
        self.bins = int(min(fit.counts.matrix.data.max(initial=0.0), MOST_BINS - 1)) + 1
        self.rows, self.features = Side(fit.counts.row_totals), Side(fit.counts.feature_totals)
        self.scalars: list[tuple[dict[str, float], dict[str, float]]] = []
        self.histogram: Array = np.zeros(self.bins, np.int64)
        self.histograms: list[Array] = []

    def visit(self, loadings: Array, components: Array, rng: np.random.Generator) -> None:
        """Draw one replicate, and compare it with the counts, both at the means of this draw."""
        n, m = self.fit.counts.shape
        ours, theirs = (
            Statistics(np.zeros(n), np.zeros(m), np.zeros(n), np.zeros(m), np.zeros(self.bins, np.int64))
            for _ in range(2)
        )
        rates = rates_of(self.fit, np.asarray(loadings, np.float64), np.asarray(components, np.float64))
        for rows, block in row_blocks(self.fit):
            ours.add(rows, block.counts.matrix, rates.loadings[rows], rates.components)
            theirs.add(rows, replicate_block(block, rates, rows, rng), rates.loadings[rows], rates.components)
        self.scalars.append((ours.scalars(n * m), theirs.scalars(n * m)))
        self.histogram = ours.histogram
        self.histograms.append(theirs.histogram)
        self.rows.add(theirs.row_totals, ours.row_misfits, theirs.row_misfits)
        self.features.add(theirs.feature_totals, ours.feature_misfits, theirs.feature_misfits)


def ties_by_half(observed: Array, replicated: Array) -> Array:
    """1 where the replicate is above the observed value, ½ where they are equal, up to the order of a sum."""
    slack = 1e-9 * np.abs(observed)
    above, below = replicated > observed + slack, replicated < observed - slack
    return above + 0.5 * ~(above | below)
