"""Settle the loadings of counts on disk given the components, in one pass."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from bayesnmf.inference.allocating import allocate
from bayesnmf.inference.ascent.coordinate_ascent import Ascent
from bayesnmf.inference.ascent.settled_loadings import attainable_tol, even_loadings, settle_loadings, settled_status
from bayesnmf.inference.blocked.passes import Pass, Where, pass_over_rows
from bayesnmf.inference.side import Side
from bayesnmf.inference.sides import Problem, State, objective


def settle_rows(problem: Problem, components: Side, tol: float, max_iter: int) -> Ascent:
    """Return the ascent from equal loadings to settled ones, with the objective at its start and end.

    Parameters
    ----------
    problem : Problem
        Problem with fixed components.
    components : Side
    tol : float
        Tolerance of a row, relative to its largest loading.
    max_iter : int
        Largest number of updates of a row.
    """
    rank = len(components.geometric)

    def work(part: Problem, _: object, __: Where) -> tuple[Side, None, tuple[float, float, int, int]]:
        even = State(even_loadings(part, components, rank), components)
        found = settle_loadings(part, even, tol, max_iter, 1)
        start, end = (_without_components(part, at) for at in (even, found.state))
        return found.state.loadings, None, (start, end, found.rows, found.status.iterations)

    found, loadings = pass_over_rows(problem, None, work, Pass(plus=_add))
    start, end, rows, updates = found.more
    fixed = components.penalty - problem.counts.log_factorial
    status = settled_status(rows, problem.counts.shape[0], attainable_tol(tol, problem.counts.dtype), updates)
    return Ascent(problem, State(loadings, components), [start + fixed, end + fixed], [], status)


def _without_components(part: Problem, state: State) -> float:
    """Return what the rows of a block add to the objective."""
    alone = replace(part, constant=False)
    return objective(alone, state, allocate(alone, state, 1).loglik) - state.components.penalty


def _add(one: tuple[float, float, int, int], two: tuple[float, float, int, int]) -> tuple[float, float, int, int]:
    sums = np.add(one[:2], two[:2]).tolist()
    return sums[0], sums[1], one[2] + two[2], max(one[3], two[3])
