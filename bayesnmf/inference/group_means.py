"""Means of the counts of whole batches at a state, without the factors of the batches."""

from __future__ import annotations

import operator
from typing import Any

import numpy as np

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
        counts: Any = problem.counts
        components = counts.plain.exposed_components(np.asarray(state.components.matrix, np.float64))

        def of_rows(part: Problem, here: State, rows: slice) -> Array:
            own: Any = part.counts
            loadings = own.plain.exposed_loadings(np.asarray(here.loadings.matrix, np.float64))
            whole = own.plain.mask is None
            return own.batches.sums(loadings) if whole else sums_of_means(own, loadings, components)

        found = problem.over_rows(State(state.loadings, empty_side()), of_rows, operator.add, reads=False)
        self.means = found @ components if counts.plain.mask is None else found

    def of(self, rows: slice) -> Array:
        """Return R of some batches, (batches, m)."""
        return np.array(self.means[rows])


def sums_of_means(own: Any, loadings: Array, components: Array) -> Array:
    """Return sums of means over the observed entries of each batch and feature, (B, m).

    Own are the counts in batches, of the rows of these loadings.
    """
    sums = own.batches.sums(loadings) @ components
    if own.plain.mask is None:
        return np.asarray(sums)
    for batch, (rows, mask) in enumerate(own.missing_parts):
        sums[batch] -= (mask.sums_by_feature(loadings[rows]).T * components).sum(axis=0)
    return np.maximum(sums, 0.0)
