"""Statistics of one data set, and of many: what predictive checks keep of each replicate."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from bayesnmf.diagnostics.replication import Rates, misfits, rates_of, replicate_block, row_blocks
from bayesnmf.results import Fit

Array = NDArray[Any]

MOST_BINS = 40


class Statistics:
    """Those of one data set that depend on nothing but its counts, added up over blocks of rows."""

    def __init__(self, shape: tuple[int, int], bins: int) -> None:
        self.cells = shape[0] * shape[1]
        self.row_totals, self.feature_totals = np.zeros(shape[0]), np.zeros(shape[1])
        self.histogram: Array = np.zeros(bins, np.int64)
        self.largest, self.squares, self.nonzeros = 0.0, 0.0, 0

    def add(self, rows: slice, matrix: csr_array) -> None:
        """Take in the counts of some rows."""
        data = matrix.data.astype(np.float64)
        places = np.repeat(np.arange(matrix.shape[0]), np.diff(matrix.indptr))
        self.row_totals[rows] = np.bincount(places, data, matrix.shape[0])
        self.feature_totals += np.bincount(matrix.indices, data, matrix.shape[1])
        small = np.rint(data[data < len(self.histogram) - 0.5]).astype(np.int64)
        self.histogram += np.bincount(small, minlength=len(self.histogram))[: len(self.histogram)]
        self.histogram[0] += matrix.shape[0] * matrix.shape[1] - len(data)
        self.largest = max(self.largest, float(data.max(initial=0.0)))
        self.squares += float(data @ data)
        self.nonzeros += int(np.count_nonzero(data))

    def scalars(self, misfit: Misfit) -> dict[str, float]:
        """Return what `SCALARS` names; `misfit` is at the means of one draw."""
        total = self.row_totals.sum()
        mean = total / self.cells
        return {
            "total": float(total),
            "share of zeros": 1 - self.nonzeros / self.cells,
            "largest count": self.largest,
            "dispersion": float((self.squares / self.cells - mean**2) / mean) if total else 0.0,
            "misfit": float(misfit.rows.sum()),
        }


class Misfit:
    """How far counts are from the means of one draw, by row and by feature, added up over blocks of rows."""

    def __init__(self, shape: tuple[int, int]) -> None:
        self.rows, self.features = np.zeros(shape[0]), np.zeros(shape[1])

    def add(self, rows: slice, matrix: csr_array, rates: Rates) -> None:
        """Take in the counts of some rows."""
        self.rows[rows], of_features = misfits(matrix, rates.loadings[rows], rates.components)
        self.features += of_features


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
        self.observed = Statistics(fit.counts.shape, self.bins)
        for rows, block in row_blocks(fit):
            self.observed.add(rows, block.counts.matrix)
        self.histograms: list[Array] = []

    def visit(self, loadings: Array, components: Array, rng: np.random.Generator) -> None:
        """Draw one replicate, and compare it with the counts, both at the means of this draw."""
        shape = self.fit.counts.shape
        replicated, ours, theirs = Statistics(shape, self.bins), Misfit(shape), Misfit(shape)
        rates = rates_of(self.fit, np.asarray(loadings, np.float64), np.asarray(components, np.float64))
        for rows, block in row_blocks(self.fit):
            drawn = replicate_block(block, rates, rows, rng)
            replicated.add(rows, drawn)
            ours.add(rows, block.counts.matrix, rates)
            theirs.add(rows, drawn, rates)
        self.scalars.append((self.observed.scalars(ours), replicated.scalars(theirs)))
        self.histograms.append(replicated.histogram)
        self.rows.add(replicated.row_totals, ours.rows, theirs.rows)
        self.features.add(replicated.feature_totals, ours.features, theirs.features)


def ties_by_half(observed: Array, replicated: Array) -> Array:
    """1 where the replicate is above the observed value, ½ where they are equal, up to the order of a sum."""
    slack = 1e-9 * np.abs(observed)
    above, below = replicated > observed + slack, replicated < observed - slack
    return above + 0.5 * ~(above | below)
