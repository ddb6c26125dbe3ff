"""Statistics of one data set and its means, and of many replicates: the numbers that predictive checks keep."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import reduce
from operator import add
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from scipy.sparse import csr_array

from bayesnmf.assessment.replicates import replicate_of, totals_to_replicate
from bayesnmf.data.mask import Mask
from bayesnmf.fitting.fitted import Fit
from bayesnmf.kernels.cpu.replication import Misfits, misfits, replicated_statistics
from bayesnmf.noise.abilities import Distributed, distribution_of
from bayesnmf.noise.poisson import POISSON
from bayesnmf.results.record import FitRecord, effective_loadings, factors_of_means
from bayesnmf.results.replication import Replicating
from bayesnmf.types import Array

if TYPE_CHECKING:
    import pandas as pd

MOST_BINS, BLOCK, ENTRIES = 40, 2**18, 2**16


class Measured(NamedTuple):
    """Statistics of counts whose means were fitted to them.

    Attributes
    ----------
    values, expected : dict of float
        The statistics that `bayesnmf.assessment.predictive_checks.SCALARS` names, and what the fitted means lead to
        expect; 0 for the misfit, which compares both.
    misfits : Misfits
    """

    values: dict[str, float]
    expected: dict[str, float]
    misfits: Misfits


def measure(
    matrix: csr_array, loadings: Array, components: Array, threads: int | None, noise: Distributed = POISSON,
    mask: Mask | None = None,
) -> Measured:  # fmt: skip
    """Return the statistics of counts (n, m), and of their means, loadings (n, K) @ components (K, m), and noise.

    They are those of the observed entries if some are missing.
    """
    n, m = matrix.shape
    entries = max(n * m - (0 if mask is None else mask.number), 1)
    data = matrix.data.astype(np.float64, copy=False)
    zeros, squares = _expected_zeros_and_squares(noise, loadings, components, mask)
    loadings, components = noise.factors_of_expected(loadings, components)
    largest = expected_largest = 0.0
    if len(data):
        place = int(data.argmax())
        row = int(np.searchsorted(matrix.indptr, place, side="right")) - 1
        largest, expected_largest = float(data[place]), float(loadings[row] @ components[:, matrix.indices[place]])
    found = misfits(matrix, loadings, components, threads)
    total = float(loadings.sum(axis=0) @ components.sum(axis=1))
    if mask is not None:
        found, missing = _of_observed(found, mask, loadings, components)
        total -= missing
    return Measured(
        {
            "total": float(data.sum()),
            "share of zeros": 1 - len(data) / entries,
            "largest count": largest,
            "dispersion": _dispersion(float(data.sum()), float(data @ data), entries),
            "misfit": float(found.rows.sum()),
        },
        {
            "total": total,
            "share of zeros": zeros / entries,
            "largest count": expected_largest,
            "dispersion": _dispersion(total, squares, entries),
            "misfit": 0.0,
        },
        found,
    )


def _of_observed(found: Misfits, mask: Mask, loadings: Array, components: Array) -> tuple[Misfits, float]:
    """Return misfits of counts without those of missing entries, which are their means, and the sum of these means."""
    rows, features = mask.products_by_row(loadings, components.T), mask.sums_by_feature(loadings).T * components
    left = Misfits(
        np.where(mask.seen_rows, found.rows - rows, 0.0),
        np.where(mask.seen_features, found.features - features.sum(axis=0), 0.0),
    )
    return left, float(rows.sum())


def _dispersion(total: float, squares: float, entries: int) -> float:
    """Return the variance of the entries divided by their mean; 0 without counts."""
    mean = total / entries
    return (squares / entries - mean**2) / mean if total else 0.0


def _expected_zeros_and_squares(
    noise: Distributed, loadings: Array, components: Array, mask: Mask | None
) -> tuple[float, float]:
    """Return the expected number of zeros and the sum of expected squares of observed entries, some rows at a time."""
    step, zeros, squares = max(BLOCK // components.shape[1], 1), 0.0, 0.0
    for first in range(0, len(loadings), step):
        rows = slice(first, first + step)
        means, own = loadings[rows] @ components, noise.of_rows(rows)
        if mask is None:
            zeros += float(own.zeros(means).sum())
            continue
        seen = ~mask.hidden(rows)
        zeros += float(own.zeros(means)[seen].sum())
        means = own.expected(means)
        squares += float((own.variances(means) + means**2)[seen].sum())
    return zeros, noise.sum_of_squares(loadings, components) if mask is None else squares


class Gathered:
    """Totals and histograms gathered from all replicates of a fit."""

    def __init__(self, fit: Fit) -> None:
        self.fit = fit
        self.totals = totals_to_replicate(fit)
        parts = [
            (_small_counts(part.matrix, part.mask), part.matrix.data.max(initial=0)) for _, part in fit.counts.parts()
        ]
        bins = int(min(max(largest for _, largest in parts), MOST_BINS - 1)) + 1
        self.observed = np.sum([histogram for histogram, _ in parts], axis=0)[:bins]
        self.rows: list[Array] = []
        self.features: list[Array] = []
        self.histograms: list[Array] = []

    def visit(self, drawn: Iterable[Replicating], rng: np.random.Generator, told: Callable[[int], None]) -> None:
        """Draw a replicate at every draw."""
        for done, each in enumerate(drawn):
            told(done)
            self.add_replicate(each, rng)

    def add_replicate(self, drawn: Replicating, rng: np.random.Generator) -> None:
        """Draw one replicate at the means of this draw, part by part."""
        take, components, factors = drawn
        seed, found = int(rng.integers(2**63)), []

        def sides(fit: FitRecord, rows: slice) -> tuple[Array, Array]:
            loadings = effective_loadings(fit, *take(rows), components)
            left, right = factors_of_means(fit, loadings, components, factors)
            return np.asarray(left, np.float64), np.asarray(right, np.float64)

        mask, noise = self.fit.counts.mask, distribution_of(self.fit.noise)
        if mask is not None or noise.compiled(self.fit.counts.shape) is None:
            matrix = replicate_of(self.fit, sides(self.fit, slice(0, self.fit.counts.shape[0])), seed)
            self._keep(matrix.sum(axis=1), matrix.sum(axis=0), _small_counts(matrix, mask)[: len(self.observed)])
            return
        for rows, part in self.fit.counts.parts():
            totals = None if self.totals is None else self.totals[rows]
            own: Any = noise.of_rows(rows).compiled(part.shape)
            factors_of_part = sides(replace(self.fit, counts=part), rows)
            bins = len(self.observed)
            found.append(replicated_statistics(*factors_of_part, totals, bins, seed, first_row=rows.start, noise=own))
        replicated = reduce(add, found)
        self._keep(replicated.row_totals, replicated.feature_totals, replicated.histogram)

    def _keep(self, rows: Array, features: Array, histogram: Array) -> None:
        self.rows.append(rows)
        self.features.append(features)
        self.histograms.append(histogram)


def _small_counts(matrix: csr_array, mask: Mask | None) -> Array:
    """Return the number of observed entries that hold 0, 1, 2, …, up to `MOST_BINS` of them."""
    n, m = matrix.shape
    small = np.rint(matrix.data[matrix.data < MOST_BINS - 0.5]).astype(np.int64)
    histogram = np.bincount(small, minlength=MOST_BINS)
    histogram[0] += n * m - matrix.nnz - (0 if mask is None else mask.number)
    return histogram


def with_replicates(observed: Array, replicated: Sequence[Array] | Array, interval: float, names: Any) -> pd.DataFrame:
    """Return the observed values beside the mean and the interval of their replicates, one array for each draw."""
    import pandas as pd

    tail, found = (1 - interval) / 2, []
    for first in range(0, len(observed), ENTRIES):  # the replicates of all rows together are large
        part = np.array([each[first : first + ENTRIES] for each in replicated])
        found.append([part.mean(axis=0), *np.quantile(part, [tail, 1 - tail], axis=0)])
    mean, low, high = (np.concatenate(each) for each in zip(*found, strict=True))
    return pd.DataFrame({"observed": observed, "mean": mean, "low": low, "high": high}, index=names)
