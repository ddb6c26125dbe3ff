"""Statistics of counts beside those of replicates that were fitted as the counts were, with their p-values."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from bayesnmf.assessment.calibrated_p_values import tails_of_all, upper_tails
from bayesnmf.assessment.predictive_statistics import Measured, with_replicates
from bayesnmf.assessment.refitting import Refitted
from bayesnmf.fitting.closed_form import limit_threads
from bayesnmf.fitting.fitted import Fit

if TYPE_CHECKING:
    import pandas as pd

Array = NDArray[Any]
BOTH = ("total", "share of zeros")  # small values speak against the model, too
LEAST = 10  # refits, below which there are no p-values
# Smallest standard deviation of a statistic around what the fitted means lead to expect, in standard deviations of the
# statistic itself: a fit may reproduce the total up to the pull of its priors, which is no misfit.
LEAST_SPREAD = 0.1


class RefitStatistics:
    """Statistics of the counts of a fit, and of replicates that were fitted as they were.

    Attributes
    ----------
    rows : ndarray
        Positions of the rows that the statistics are of.
    """

    def __init__(self, fit: Fit) -> None:
        self.fit = fit
        self.rows = np.empty(0, np.int64)
        self.measured: list[Measured] = []  # of the counts, then of the replicates

    @property
    def number(self) -> int:
        """Number of refitted replicates."""
        return max(len(self.measured) - 1, 0)

    def visit(self, number: int, seed: int, told: Callable[[int], None]) -> None:
        """Measure the counts, and replicates of them that are fitted again."""
        threads = getattr(self.fit.options, "threads", None)
        with limit_threads(threads):
            first = Refitted.of(self.fit)
            self.rows = first.rows
            self.measured.append(first.measured(threads))
            for done, each in enumerate(first.replicates(number, seed)):
                told(done)
                self.measured.append(each.measured(threads))

    def table(self, interval: float, names: list[str]) -> tuple[pd.DataFrame, dict[str, Array]]:
        """Return the table of `PredictiveChecks`, and the values of its replicates; NaN where there are too few."""
        if self.number < LEAST:
            nothing = np.full((1, len(names)), np.nan)
            return self._with_p_values(nothing[0], nothing, interval, names), {name: np.empty(0) for name in names}
        values = np.array([[each.values[name] for name in names] for each in self.measured])
        expected = np.array([[each.expected[name] for name in names] for each in self.measured])
        off = values - expected
        off[np.abs(off) <= 1e-9 * np.abs(values)] = 0.0  # a fit that reproduces a sum does so up to rounding
        shown = np.maximum(expected[0] + off[1:], 0.0)
        table = self._with_p_values(values[0], shown, interval, names)
        both = np.isin(names, BOTH)
        found = tails_of_all(off[0], off[1:], LEAST_SPREAD * values[1:].std(axis=0), both)
        table["p_value"], table["p_adjusted"] = found
        return table, dict(zip(names, shown.T, strict=True))

    @staticmethod
    def _with_p_values(observed: Array, replicated: Array, interval: float, names: list[str]) -> pd.DataFrame:
        return with_replicates(observed, replicated, interval, names).assign(p_value=np.nan, p_adjusted=np.nan)

    def misfits(self, side: str) -> dict[str, Array]:
        """Return p-values and ratios of the misfits of "rows" or "features"; NaN for rows that were left out."""
        n, m = self.fit.counts.shape
        p, ratio = np.full((2, n if side == "rows" else m), np.nan)
        if self.number >= LEAST:
            found = np.array([getattr(each.misfits, side) for each in self.measured])
            places = self.rows if side == "rows" else slice(None)
            mean = found[1:].mean(axis=0)
            p[places] = upper_tails(found[0], found[1:])
            ratio[places] = np.divide(found[0], mean, out=np.ones_like(mean), where=mean > 0)
        return {"p_value": p, "misfit_ratio": ratio}
