"""Loadings of counts on disk given the components: rows that settle in one pass, and rows that change one by one."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from bayesnmf.inference.allocating import allocate
from bayesnmf.inference.ascent.coordinate_ascent import Ascent
from bayesnmf.inference.ascent.settled_loadings import attainable_tol, even_loadings, settle_loadings, settled_status
from bayesnmf.inference.blocked.files import RowsInFile
from bayesnmf.inference.blocked.passes import Pass, Where, pass_over_rows
from bayesnmf.inference.side import Side
from bayesnmf.inference.sides import Problem, State, objective
from bayesnmf.priors import Distribution


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


def rows_to_change(loadings: Any, counts: Any, rank: int) -> Distribution:
    """Return the mean field of loadings in files with parameters of full size, (n, K), that can be written to."""
    files: dict[str, RowsInFile] = {}
    read: Any = None
    for number, rows in enumerate(counts.blocks):
        read = loadings.reader.read(number).conditional
        full = read.broadcast((rows.stop - rows.start, rank))
        for name, values in full.parameters.items():
            if name not in files:
                files[name] = RowsInFile(counts.scratch, values.shape[1], values.dtype)
            files[name].append(values)
    whole: Distribution = read.with_parameters({name: file.array(changes=True) for name, file in files.items()})
    return whole


def loadings_at(problem: Problem, q: Distribution) -> Side:
    """Return loadings with this mean field, in memory or in files as the counts are."""
    summary: Any = problem.loadings_summary
    if problem.counts.in_memory:
        side: Side = summary.of(problem.loadings_prior, q)
        return side

    def work(part: Problem, _: object, at: Where) -> tuple[Side, None, float]:
        return summary.of(part.loadings_prior, q.rows(at.rows).mapped(np.array)), None, 0.0

    written: Side = pass_over_rows(problem, None, work, Pass(pure=False))[1]  # the rows are not sent anywhere
    return written


def _without_components(part: Problem, state: State) -> float:
    """Return what the rows of a block add to the objective."""
    alone = replace(part, constant=False)
    return objective(alone, state, allocate(alone, state, 1).loglik) - state.components.penalty


def _add(one: tuple[float, float, int, int], two: tuple[float, float, int, int]) -> tuple[float, float, int, int]:
    sums = np.add(one[:2], two[:2]).tolist()
    return sums[0], sums[1], one[2] + two[2], max(one[3], two[3])
