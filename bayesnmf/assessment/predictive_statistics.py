"""Statistics of one data set, and of many: the numbers that predictive checks keep of each replicate."""

from __future__ import annotations

from dataclasses import replace
from functools import reduce
from operator import add
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from bayesnmf.fitting.fit import Fit
from bayesnmf.kernels.cpu.replication import CountStatistics, Misfits, misfits, replicated_statistics
from bayesnmf.priors.specification import MODELS
from bayesnmf.results.estimates import TakeRows
from bayesnmf.results.record import effective_loadings

Array = NDArray[Any]
MOST_BINS = 40


def statistics_of(matrix: csr_array, bins: int) -> CountStatistics:
    """Return the statistics of the counts themselves; misfits, which depend on a draw, are empty."""
    n, m = matrix.shape
    data = matrix.data.astype(np.float64)
    places = np.repeat(np.arange(n), np.diff(matrix.indptr))
    small = np.rint(data[data < bins - 0.5]).astype(np.int64)
    histogram = np.bincount(small, minlength=bins)[:bins]
    histogram[0] += n * m - len(data)
    return CountStatistics(
        row_totals=np.bincount(places, data, n),
        feature_totals=np.bincount(matrix.indices, data, m),
        misfits=Misfits(np.empty(0), np.empty(0)),
        histogram=histogram,
        largest=float(data.max(initial=0.0)),
        squares=float(data @ data),
        nonzeros=float(np.count_nonzero(data)),
    )


def named_statistics(found: CountStatistics) -> dict[str, float]:
    """Return the statistics that `bayesnmf.assessment.predictive_checks.SCALARS` names."""
    cells = len(found.row_totals) * len(found.feature_totals)
    total = found.row_totals.sum()
    mean = total / cells
    return {
        "total": float(total),
        "share of zeros": 1 - found.nonzeros / cells,
        "largest count": found.largest,
        "dispersion": float((found.squares / cells - mean**2) / mean) if total else 0.0,
        "misfit": float(found.misfits.rows.sum()),
    }


class Side:
    """Statistics of rows or features: totals of every replicate, and sums of misfits over draws."""

    def __init__(self, observed: Array) -> None:
        self.observed = observed
        self.totals: list[Array] = []
        self.above, self.ours, self.theirs = np.zeros((3, len(observed)))

    def add(self, totals: Array, ours: Array, theirs: Array) -> None:
        """Add the totals of one replicate, and the misfits of the counts and of the replicate."""
        self.totals.append(totals)
        self.above += ties_by_half(ours, theirs)
        self.ours += ours
        self.theirs += theirs

    def ratio(self) -> Array:
        """Return the mean misfit of the counts divided by that of the replicates; 1 if both are 0."""
        return np.divide(self.ours, self.theirs, out=np.ones_like(self.ours), where=self.theirs > 0)


class Gathered:
    """Statistics gathered from all replicates of a fit."""

    def __init__(self, fit: Fit) -> None:
        self.fit = fit
        self.totals = np.rint(fit.counts.row_totals).astype(np.float64) if MODELS[fit.model].given_totals else None
        self.rows, self.features = Side(fit.counts.row_totals), Side(fit.counts.feature_totals)
        self.scalars: list[tuple[dict[str, float], dict[str, float]]] = []
        observed = reduce(add, (statistics_of(part.matrix, MOST_BINS) for _, part in fit.counts.parts()))
        self.bins = int(min(observed.largest, MOST_BINS - 1)) + 1
        self.observed = observed._replace(histogram=observed.histogram[: self.bins])
        self.histograms: list[Array] = []

    def add_replicate(self, take: TakeRows, components: Array, rng: np.random.Generator) -> None:
        """Draw one replicate and compare it with the counts, both at the means of this draw, part by part."""
        exposed = np.asarray(self.fit.counts.exposed_components(components), np.float64)
        seed, found = int(rng.integers(2**63)), []
        for rows, part in self.fit.counts.parts():
            means = effective_loadings(replace(self.fit, counts=part), *take(rows))
            sides = np.asarray(means, np.float64), exposed
            totals = None if self.totals is None else self.totals[rows]
            replicated = replicated_statistics(*sides, totals, self.bins, seed, first_row=rows.start)
            found.append((replicated, misfits(part.matrix, *sides)))
        replicated, ours = (reduce(add, each) for each in zip(*found, strict=True))
        theirs = replicated.misfits
        self.scalars.append((named_statistics(self.observed._replace(misfits=ours)), named_statistics(replicated)))
        self.histograms.append(replicated.histogram)
        self.rows.add(replicated.row_totals, ours.rows, theirs.rows)
        self.features.add(replicated.feature_totals, ours.features, theirs.features)


def ties_by_half(observed: Array, replicated: Array) -> Array:
    """Return 1 where the replicate exceeds the observed value, ½ where they are equal up to the rounding of a sum."""
    slack = 1e-9 * np.abs(observed)
    above, below = replicated > observed + slack, replicated < observed - slack
    return above + 0.5 * ~(above | below)
