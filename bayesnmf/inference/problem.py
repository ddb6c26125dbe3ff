"""The problem of a fit, and its state of two sides."""

from __future__ import annotations

import operator
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

from bayesnmf.data.counts import Counts
from bayesnmf.inference.side import Side, Summary
from bayesnmf.priors import Distribution


class State(NamedTuple):
    """Both sides: loadings (n, K) and components (K, m)."""

    loadings: Side
    components: Side


class OfRows[Found](Protocol):
    """A function of the problem and the state of some rows, and of their places."""

    def __call__(self, part: Problem, here: State, rows: slice) -> Found:
        """Return what is found in these rows."""


@dataclass(frozen=True)
class Problem:
    """Counts, and the prior and summary of each side.

    With `fixed_components` the components are never updated, as for `transform` of new samples. Without `constant` the
    objective leaves out Σ log X!, which needs a pass over the counts and depends on no parameter. `entries` are the
    counts on a device; the factors are then on the device too.
    """

    counts: Counts
    loadings_prior: Distribution
    components_prior: Distribution
    loadings_summary: Summary
    components_summary: Summary
    fixed_components: bool = False
    constant: bool = True
    entries: Any = None

    def over_rows[Found](
        self, state: State, work: OfRows[Found], plus: Callable[[Found, Found], Found] = operator.add, *, reads: bool
    ) -> Found:
        """Return what is found in all rows at a state: at once, or where rows are on disk added up over blocks.

        Parameters
        ----------
        state : State
        work : callable
            Function of the problem and the state of some rows, and of a slice that says which they are.
        plus : callable
            How to add what two blocks have found, in order.
        reads : bool
            Whether the counts are needed, and not their totals alone.
        """
        if state.loadings.add_up is not None:
            found: Found = state.loadings.add_up(self, state.components, work, plus, reads)
            return found
        return work(self, state, slice(0, self.counts.shape[0]))
