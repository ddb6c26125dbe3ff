"""Loadings whose rows change some at a time: rows of a batch, and blocks of rows that settle one after the other."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np

from bayesnmf.data.counts import Counts
from bayesnmf.inference.ascent.settled_loadings import settle_loadings
from bayesnmf.inference.blocked.passes import pass_over_rows
from bayesnmf.inference.blocked.tasks import Pass
from bayesnmf.inference.problem import Problem, State
from bayesnmf.inference.side import Side
from bayesnmf.inference.sides import Where, allocate, objective
from bayesnmf.priors import Distribution

BLOCK_ROWS = 4096  # rows processed at once, so that the extra memory of a pass does not grow with the number of rows


def rows_to_change(loadings: Side, counts: Counts, rank: int) -> Distribution:
    """Return the mean field of loadings with parameters of full size, (n, K) or (n, 1), that can be written to."""
    found: dict[str, Any] = {}
    read: Any = None
    for number, rows in enumerate(counts.blocks):
        read = loadings.block(number).conditional
        for name, values in read.broadcast((rows.stop - rows.start, rank)).parameters.items():
            if name not in found:
                found[name] = counts.new_rows(values.shape[1], values.dtype)
            found[name].append(values)
    whole: Distribution = read.with_parameters({name: each.array(changes=True) for name, each in found.items()})
    return whole


def loadings_at(problem: Problem, q: Distribution) -> Side:
    """Return loadings with this mean field, in memory or in files as the counts are."""

    def work(part: Problem, _: object, at: Where) -> tuple[Side, None, float]:
        summary: Any = part.loadings_summary
        rows = q.rows(at.rows)
        return summary.of(part.loadings_prior, rows.mapped(np.array) if at.beside else rows), None, 0.0

    loadings: Side = pass_over_rows(problem, None, work, Pass(pure=False))[1]  # the rows are not sent anywhere
    return loadings


def settle_blocks(
    problem: Problem, components: Side, q: Distribution, tol: float, max_iter: int, threads: int | None
) -> tuple[float, int]:
    """Settle the loadings given the components, block by block, and compute the elbo of all rows.

    Parameters
    ----------
    problem : Problem
    components : Side
        Components, which stay fixed.
    q : Distribution
        Mean field of the loadings to start from, with arrays of full size; the result overwrites them.
    tol : float
        Tolerance of a row, relative to its largest loading.
    max_iter : int
        Largest number of updates of a row; 0 computes the elbo at `q`.
    threads : int or None
        Number of row blocks processed at once.

    Returns
    -------
    float
        Objective of both sides and all rows, in nats.
    int
        Number of rows that settled.
    """
    bound, rows = components.penalty - problem.counts.log_factorial, 0
    for block, counts in row_blocks_of(problem.counts):
        part = replace(
            problem,
            counts=counts,
            loadings_prior=problem.loadings_prior.rows(block),
            fixed_components=True,
            constant=False,
        )
        state = State(part.loadings_summary.of(part.loadings_prior, q.rows(block)), components)
        settled = settle_loadings(part, state, tol, max_iter, threads)
        loglik = allocate(part, settled.state, threads, "loadings").loglik
        bound += objective(part, settled.state, loglik) - components.penalty
        rows += settled.rows
        put_rows(q, block, settled.state.loadings.conditional)
    return bound, rows


def row_blocks_of(counts: Counts) -> Iterator[tuple[slice, Counts]]:
    """Yield blocks of 4,096 rows with counts in shared memory."""
    for rows, part in counts.parts():
        n = part.shape[0]
        for first, last in pairwise([*range(0, n, BLOCK_ROWS), n]):
            yield slice(rows.start + first, rows.start + last), part.block(first, last)


def put_rows(distribution: Any, rows: Any, new: Any) -> None:
    """Write the parameters of the chosen rows into the arrays of a distribution of full size."""
    for name, value in distribution.parameters.items():
        value[rows] = new.parameters[name]


def rows_of_problem(problem: Problem, rows: Any) -> Problem:
    """Return the problem of the chosen rows."""
    return replace(problem, counts=problem.counts.rows(rows), loadings_prior=problem.loadings_prior.rows(rows))
