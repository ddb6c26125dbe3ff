"""Means of the counts of whole batches at a state, without the factors of the batches."""

from __future__ import annotations

import operator
from typing import Any

import numpy as np

from bayesnmf.inference.missing import geometric_of
from bayesnmf.inference.problem import Problem, State
from bayesnmf.inference.side import empty_side
from bayesnmf.types import Array


class GroupMeans:
    """Sums of the means of the observed entries of each batch and feature, by sums of loadings over batches.

    Parameters
    ----------
    problem : Problem
        Problem of counts in batches.
    state : State
    """

    def __init__(self, problem: Problem, state: State) -> None:
        self.problem, self.state = problem, state
        self.means = self._sums(lambda side: np.asarray(side.matrix, np.float64))

    def of(self, rows: slice) -> Array:
        """Return R of some batches, (batches, m)."""
        return self.means[0][rows]

    def geometric(self, rows: slice) -> Array:
        """Return the same of geometric means."""
        if not hasattr(self, "_geometric"):
            self._geometric = self._sums(geometric_of)
        return self._geometric[0][rows]

    def gap(self, rows: slice) -> Array:
        """Return Σ(E λ − UV) over all entries of the rows of each batch that have observed ones."""
        self.geometric(rows)
        return np.maximum(self.means[1] - self._geometric[1], 0.0)[rows]

    def _sums(self, factor_of: Any) -> tuple[Array, Array]:
        """Return sums over observed entries, (B, m), and over all entries of rows with observed ones, (B,)."""
        counts: Any = self.problem.counts
        components = counts.plain.exposed_components(factor_of(self.state.components))

        def of_rows(part: Problem, here: State, rows: slice) -> Array:
            own: Any = part.counts
            loadings = own.plain.exposed_loadings(factor_of(here.loadings))
            return (
                sums_of_means(own, loadings, components) if own.plain.mask is not None else own.batches.sums(loadings)
            )

        state = State(self.state.loadings, empty_side())
        found = self.problem.over_rows(state, of_rows, operator.add, reads=False)
        if counts.plain.mask is None:
            sums = found @ components
            return sums, sums.sum(axis=1)
        return found[:, :-1], found[:, -1]


def sums_of_means(own: Any, loadings: Array, components: Array) -> Array:
    """Return sums of means over observed entries, and those over all entries of rows with observed ones, (B, m + 1).

    Own are the counts in batches, of the rows of these loadings.
    """
    if own.plain.mask is None:
        sums = own.batches.sums(loadings) @ components
        return np.hstack([sums, sums.sum(axis=1, keepdims=True)])
    loadings = loadings * own.plain.mask.seen_rows[:, None]
    sums = own.batches.sums(loadings) @ components
    whole = sums.sum(axis=1, keepdims=True)
    for batch, (rows, mask) in enumerate(own.missing_parts.parts):
        sums[batch] -= (mask.sums_by_feature(loadings[rows]).T * components).sum(axis=0)
    return np.hstack([np.maximum(sums, 0.0), whole])
