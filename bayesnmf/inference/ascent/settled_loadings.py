"""The loadings given the components: the local problem of new samples, and of the batches of a stream.

Rows are independent given the components, so each settles by itself, and a large matrix can be worked on block by
block. A problem with `fixed_components` is such a problem.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from bayesnmf.data.counts import Counts
from bayesnmf.inference.allocating import allocate
from bayesnmf.inference.ascent.coordinate_ascent import Ascent, Iterate, Schedule, Steps, step, update
from bayesnmf.inference.sides import (
    MeanField,
    Mode,
    Problem,
    Side,
    State,
    exposure_of_loadings,
    objective,
    update_loadings,
)
from bayesnmf.inference.status import Status
from bayesnmf.kernels.cpu.allocation import row_blocks
from bayesnmf.kernels.cpu.settling import settled_totals
from bayesnmf.priors import Distribution
from bayesnmf.priors.values import separate_scale

Array = NDArray[Any]
BLOCK_ROWS = 4096  # worked on at once: what a pass needs beside its result does not grow with the rows
# Of the rows before every step of the components. Rows settled further, or by 10 updates, were slower to the same bound
# on newsgroups and nips, K = 20.
SETTLED_TOL, SETTLED_ITER = 1e-3, 15
FINAL_TOL, FINAL_ITER = 1e-4, 1000  # the rows of what is returned; 1e-8 adds some 1e-7 of the bound, thrice as slowly


class Settled(NamedTuple):
    """Loadings of which each row has settled by itself.

    Attributes
    ----------
    state : State
        The components as given.
    status : Status
        Whether all rows settled, how many and to what tolerance, and the updates of the row that took most.
    rows : int
        How many settled.
    """

    state: State
    status: Status
    rows: int


def even_loadings(problem: Problem, components: Side, rank: int) -> Side:
    """Carry the conditional of loadings whose counts are shared out evenly: a start without randomness."""
    dtype = problem.counts.dtype
    total = np.repeat(problem.counts.row_totals[:, None] / rank, rank, axis=1).astype(dtype)
    exposure = components.sums(0)[None, :].astype(dtype)
    return problem.loadings_summary.carry(problem.loadings_prior, total, exposure, None, reuse=True)


def settle(problem: Problem, state: State, tol: float, max_iter: int, threads: int | None) -> Settled:
    """Update the loadings of every row until they change by at most `tol` of the largest of them.

    What a row ends at does not depend on the rows it comes with.
    """
    if max_iter == 0:
        return Settled(state, Status(False, "no updates", 0), 0)
    tol = within_rounding(tol, problem.counts.dtype)
    if "settled" in problem.loadings_prior.optional:
        side, expects = state.loadings, isinstance(problem.loadings_summary, MeanField)
        means, _ = separate_scale(side.value)
        added, rate = _added_and_rate(problem, state)
        totals, updates = settled_totals(
            problem.counts.matrix, side.geometric, means, state.components.geometric, added, rate, tol, max_iter,
            expects=expects, threads=threads,
        )  # fmt: skip
    else:
        totals, updates = _totals_by_updates(problem, state, tol, max_iter, threads)
    rows = int(np.count_nonzero(updates > 0))
    status = settled_status(rows, len(totals), tol, int(np.abs(updates).max(initial=0)))
    return Settled(update_loadings(problem, state, totals, reuse=True), status, rows)


def _totals_by_updates(
    problem: Problem, state: State, tol: float, max_iter: int, threads: int | None
) -> tuple[Array, Array]:
    """Return what `settled_totals` does, by whole updates: for families without a compiled loop."""
    means, _ = separate_scale(state.loadings.value)
    totals = np.array(allocate(problem, state, threads, "loadings").loadings)
    updates = np.zeros(len(totals), np.int64)
    moving = np.ones(len(totals), bool)
    for done in range(1, max_iter + 1):
        state = update_loadings(problem, state, totals)
        now, _ = separate_scale(state.loadings.value)
        change = np.abs(now - means).max(axis=1) > tol * now.max(axis=1)
        updates[moving] = np.where(change[moving], -done, done)
        moving &= change
        if not moving.any():
            break
        totals[moving] = allocate(problem, state, threads, "loadings").loadings[moving]
        means = now
    return totals, updates


def _added_and_rate(problem: Problem, state: State) -> tuple[Array, Array | None]:
    """Return what is added to the totals of the loadings, and the rate of their conditional, if it has one."""
    prior, summary, rank = problem.loadings_prior, problem.loadings_summary, len(state.components.geometric)
    less = 1.0 if isinstance(summary, Mode) and summary.basis == "natural" else 0.0

    def rows(given: Any) -> Array:
        given = np.atleast_2d(given)
        return np.broadcast_to(given, (len(given), rank))

    added, rate = prior.settled_terms(exposure_of_loadings(state))
    return rows(added) - less, None if rate is None else rows(rate)


def within_rounding(tol: float, dtype: Any) -> float:
    """Return a tolerance that values of this type can meet; 0, which none need meet, as it is."""
    return max(tol, 4 * float(np.finfo(dtype).eps)) if tol else 0.0


def settled_status(rows: int, n: int, tol: float, iterations: int) -> Status:
    """Say how many of n rows settled."""
    return Status(rows == n, f"{rows} of {n} rows settled to {tol:.1g} relative", iterations)


def settling_steps(schedule: Schedule, most: int = SETTLED_ITER) -> Steps:
    """Propose the components' update at loadings that settle anew from even ones, and a plain step otherwise.

    A row is updated `most` times at most.

    With small concentrations, rows commit to components early, while the components are still poor. Starting the
    loadings afresh lets the rows reconsider, as scikit-learn's LDA does in every iteration.
    """

    def steps(here: Iterate) -> Iterator[State]:
        fixed, components = replace(here.problem, fixed_components=True), here.state.components
        state = State(even_loadings(fixed, components, len(components.geometric)), components)
        state = settle(fixed, state, SETTLED_TOL, most, schedule.threads).state
        totals = allocate(here.problem, state, schedule.threads, "components")
        yield update(here.problem, state, "components", totals)
        yield step(here.problem, here.state, here.totals, schedule)

    return steps


def local_pass(
    problem: Problem, components: Side, q: Distribution, tol: float, max_iter: int, threads: int | None
) -> tuple[float, int]:
    """Settle the loadings given the components, block by block, and take the bound of all rows.

    Parameters
    ----------
    q : Distribution
        Mean field of the loadings, with arrays of full size: the start, which is overwritten by the end.
    max_iter : int
        Most updates of a row; 0 takes the bound at `q` as it is.

    Returns
    -------
    float
        The objective, in nats: both sides and every row.
    int
        How many rows settled.
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
        settled = settle(part, state, tol, max_iter, threads)
        loglik = allocate(part, settled.state, threads, "loadings").loglik
        bound += objective(part, settled.state, loglik) - components.penalty
        rows += settled.rows
        put_rows(q, block, settled.state.loadings.conditional)
    return bound, rows


def with_settled_loadings(ascent: Ascent, threads: int | None) -> Ascent:
    """Settle the loadings of every row at the components that an ascent ended with; its last bound is then theirs.

    An ascent stops when its objective does, and some rows may still be on the move.
    """
    problem, (loadings, components) = ascent.problem, ascent.state
    q = full_size(loadings.conditional, (problem.counts.shape[0], len(components.matrix)))
    bound, _ = local_pass(problem, components, q, FINAL_TOL, FINAL_ITER, threads)
    if not bound >= ascent.trace[-1]:  # to rounding they had settled
        return ascent
    state = State(problem.loadings_summary.of(problem.loadings_prior, q), components)
    return ascent._replace(state=state, trace=[*ascent.trace[:-1], bound])


# --- some of the rows --------------------------------------------------------------------------------


def row_blocks_of(counts: Counts, nonzeros: int | None = None) -> Iterator[tuple[slice, Counts]]:
    """Cut counts into blocks of rows that share their memory, of 4,096 rows or of about so many nonzeros."""
    matrix, n = counts.matrix, counts.shape[0]
    bounds = [*range(0, n, BLOCK_ROWS), n]
    if nonzeros is not None:
        bounds = row_blocks(matrix.indptr, -(-counts.nnz // nonzeros) or 1).tolist()
    for first, last in pairwise(bounds):
        yield slice(first, last), counts.block(first, last)


def full_size(q: Any, size: tuple[int, int]) -> Any:
    """Return a copy with parameters of full size, (n, K) or (n, 1), to be written into row by row."""
    return q.broadcast(size).mapped(np.array)


def put_rows(distribution: Any, rows: Any, new: Any) -> None:
    """Write the parameters of some rows into arrays of full size."""
    for name, value in distribution.parameters.items():
        value[rows] = new.parameters[name]


def rows_of_problem(problem: Problem, rows: Any) -> Problem:
    """Return the problem of some of the rows."""
    return replace(problem, counts=problem.counts.rows(rows), loadings_prior=problem.loadings_prior.rows(rows))
