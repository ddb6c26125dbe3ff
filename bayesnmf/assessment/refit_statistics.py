"""Statistics of counts beside those of replicates that were fitted as the counts were, with their p-values.

The p-values are those of statistics whose distribution under a right model is known from replicates, singly and all
together.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from bayesnmf.assessment.predictive_statistics import Measured, with_replicates
from bayesnmf.assessment.refitting import Refitted
from bayesnmf.fitting.closed_form import limit_threads
from bayesnmf.fitting.fitted import Fit
from bayesnmf.types import Array

if TYPE_CHECKING:
    import pandas as pd

from scipy.special import gammaincc, stdtr

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


def tail_probabilities(observed: Array, replicated: Array, least: Array, both: Array) -> Array:
    """Return the probability that one more replicate would lie further out, for every statistic, (s,).

    The replicates are taken as normal, so that a few dozen reach small probabilities: Student's t is the predictive
    distribution of a further one.

    Parameters
    ----------
    observed, replicated : ndarray of shape (s,) and (replicates, s)
    least : ndarray of shape (s,)
        Smallest standard deviation that is believed.
    both : ndarray of bool, (s,)
        Statistics of which small values, too, speak against the model; of the others only large ones do.
    """
    number = len(replicated)
    spread = np.maximum(replicated.std(axis=0, ddof=1), least) * np.sqrt(1 + 1 / number)
    off = observed - replicated.mean(axis=0)
    below = stdtr(number - 1, -np.divide(off, spread, out=np.zeros_like(off), where=spread > 0))
    return np.where(both, 2 * np.minimum(below, 1 - below), below)


def tails_of_all(observed: Array, replicated: Array, least: Array, both: Array) -> tuple[Array, Array]:
    """Return tail probabilities of single statistics, and those of the smallest of all of them, (s,) each.

    The smallest of s independent tail probabilities is below p with probability 1 − (1 − p)^s. Statistics of the same
    counts depend on one another, so s is estimated: each replicate in turn is compared with the others, and
    −log(1 − p) of its smallest probability has mean 1/s.
    """
    single = tail_probabilities(observed, replicated, least, both)
    smallest = np.array(
        [
            tail_probabilities(one, np.delete(replicated, place, axis=0), least, both).min()
            for place, one in enumerate(replicated)
        ]
    )
    number = np.clip(1 / -np.log1p(-np.minimum(smallest, 1 - 1e-9)).mean(), 1, len(observed))
    return single, -np.expm1(number * np.log1p(-np.minimum(single, 1 - 1e-9)))


def upper_tails(observed: Array, replicated: Array) -> Array:
    """Return the same for the upper tail of sums of squares, (s,): Gamma distributions with their means and variances.

    It is 1 where the replicates do not vary.
    """
    mean, variance = replicated.mean(axis=0), replicated.var(axis=0, ddof=1)
    varies = variance > 0
    shape = np.divide(mean**2, variance, out=np.ones_like(mean), where=varies)
    rate = np.divide(mean, variance, out=np.zeros_like(mean), where=varies)
    return gammaincc(shape, rate * observed)
