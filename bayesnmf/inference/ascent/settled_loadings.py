"""Settle the loadings given the components: the local problem of new samples and of batches of rows.

Rows are independent given the components, so each row settles separately, and a large matrix can be processed block by
block, or some rows at a time: those of a batch. The local problem is a problem with `fixed_components`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from bayesnmf.data.counts import Counts
from bayesnmf.inference.ascent.coordinate_ascent import Ascent, Iterate, Steps, update_both_sides
from bayesnmf.inference.ascent.course import Schedule
from bayesnmf.inference.blocked.passes import Pass, pass_over_rows, totals_of
from bayesnmf.inference.missing import differs, imputes
from bayesnmf.inference.problem import Problem, State
from bayesnmf.inference.side import MeanField, Mode, Side, side_like, spread_at
from bayesnmf.inference.sides import (
    Where,
    allocate,
    exposure_of_loadings,
    given_totals,
    in_own_unit,
    objective,
    update_components,
    updated_side,
    with_rates_at,
)
from bayesnmf.inference.status import Status
from bayesnmf.kernels.cpu.allocation import Totals
from bayesnmf.kernels.cpu.settling import settled_totals
from bayesnmf.priors import Distribution
from bayesnmf.priors.values import separate_scale
from bayesnmf.types import Array

BLOCK_ROWS = 4096  # rows processed at once, so that the extra memory of a pass does not grow with the number of rows
# Limits for the rows before every step of the components. With a lower tolerance, or with 10 updates, the time to the
# same elbo was longer on newsgroups and nips, K = 20.
SETTLED_TOL, SETTLED_ITER = 1e-3, 15
FINAL_TOL, FINAL_ITER = 1e-4, 1000  # limits for the returned rows; 1e-8 takes 3 times as long and adds 1e-7 of the elbo


class Settled(NamedTuple):
    """Loadings after each row was updated until it settled.

    Attributes
    ----------
    state : State
        State with the new loadings and the given components.
    status : Status
        Whether all rows settled; the reason gives their number and the tolerance, `iterations` the most updates of a
        row.
    rows : int
        Number of rows that settled.
    """

    state: State
    status: Status
    rows: int


def even_loadings(problem: Problem, components: Side, rank: int) -> Side:
    """Return the loadings with each row's counts divided equally between components: a start without randomness."""
    dtype = problem.counts.dtype
    total = np.repeat(problem.counts.row_totals[:, None] / rank, rank, axis=1).astype(dtype)
    exposure = exposure_of_loadings(problem, components)
    if differs(problem, "loadings"):
        exposure = exposure.mean(axis=1, keepdims=True)
    return problem.loadings_summary.summarise(problem.loadings_prior, total, exposure, None, reuse=True)


def settle_loadings(problem: Problem, state: State, tol: float, max_iter: int, threads: int | None) -> Settled:
    """Update each row of the loadings until its entries change by at most `tol` times the largest of them.

    The result for a row does not depend on the other rows.
    """
    if max_iter == 0:
        return Settled(state, Status(False, "no updates", 0), 0)
    tol = attainable_tol(tol, problem.counts.dtype)
    begun = in_own_unit(state.loadings) if problem.counts.in_clusters else state.loadings
    spread = spread_at(problem.counts, State(begun, state.components))
    unequal = imputes(problem, "loadings") or differs(problem, "loadings")
    able = spread is None or problem.loadings_prior.support == "positive"
    able = able and not problem.counts.has_entry_rates  # as exposures would change with the loadings
    if "settled" in problem.loadings_prior.optional and able and not unequal:
        side, expects = state.loadings, isinstance(problem.loadings_summary, MeanField)
        means, _ = separate_scale(side.value)
        added, rate = _added_and_rate(problem, state)
        totals, updates = settled_totals(
            problem.counts.matrix, begun.geometric, means, state.components.geometric, added, rate, tol, max_iter,
            expects=expects, threads=threads, spread=spread,
        )  # fmt: skip
        state = _with_totals(problem, state, totals, reuse=True)
    else:
        state, updates = _settled_by_updates(problem, state, tol, max_iter, threads)
    rows = int(np.count_nonzero(updates > 0))
    status = settled_status(rows, len(updates), tol, int(np.abs(updates).max(initial=0)))
    return Settled(state, status, rows)


def _with_totals(problem: Problem, state: State, totals: Array, *, reuse: bool = False) -> State:
    """Return the state with updated loadings, given their totals with what they receive for missing entries."""
    return state._replace(loadings=updated_side(problem, state, "loadings", totals, reuse=reuse))


def _settled_by_updates(
    problem: Problem, state: State, tol: float, max_iter: int, threads: int | None
) -> tuple[State, Array]:
    """Return the state with settled loadings, and how many updates each row took, negative if it has not settled.

    This is by updates of all rows, where there is no compiled loop. What a row receives for missing entries is in its
    totals, so that a row which has settled stays as it is while others move; a mean field that is updated from its last
    one is held.
    """
    means, _ = separate_scale(state.loadings.value)
    problem = with_rates_at(problem, state, threads)
    found = allocate(problem, state, threads, "loadings").loadings
    totals = np.array(given_totals(problem, state, "loadings", found))
    updates = np.zeros(len(totals), np.int64)
    moving = np.ones(len(totals), bool)
    for done in range(1, max_iter + 1):
        state = _held(problem, state, _with_totals(problem, state, totals), moving)
        now, _ = separate_scale(state.loadings.value)
        change = np.abs(now - means).max(axis=1) > tol * now.max(axis=1)
        updates[moving] = np.where(change[moving], -done, done)
        moving &= change
        if not moving.any():
            break
        found = allocate(problem, state, threads, "loadings").loadings
        problem = with_rates_at(problem, state, threads, moving)
        totals[moving] = given_totals(problem, state, "loadings", found)[moving]
        means = now
    if differs(problem, "loadings"):
        return state, updates
    return _with_totals(problem, state, totals, reuse=True), updates


def _held(problem: Problem, before: State, after: State, moving: Array) -> State:
    """Return the state after an update, with the rows as before that do not move and would be updated again."""
    if moving.all() or not differs(problem, "loadings"):
        return after
    pairs = zip(after.loadings.parameters, before.loadings.parameters, strict=True)
    rows = [np.where(moving[:, None], new, old) for new, old in pairs]
    loadings = side_like(after.loadings, problem.loadings_prior, problem.loadings_summary, rows)
    return after._replace(loadings=loadings)


def _added_and_rate(problem: Problem, state: State) -> tuple[Array, Array | None]:
    """Return the parameter added to the totals of the loadings, and the rate of their conditional if it has one."""
    prior: Any = problem.loadings_prior
    summary, rank = problem.loadings_summary, len(state.components.geometric)
    less = 1.0 if isinstance(summary, Mode) and summary.basis == "natural" else 0.0

    def rows(given: Any) -> Array:
        given = np.atleast_2d(given)
        return np.broadcast_to(given, (len(given), rank))

    added, rate = prior.settled_terms(exposure_of_loadings(problem, state.components))
    return rows(added) - less, None if rate is None else rows(rate)


def attainable_tol(tol: float, dtype: Any) -> float:
    """Return `tol`, raised to a value that numbers of this type can reach; 0 stays 0."""
    return max(tol, 4 * float(np.finfo(dtype).eps)) if tol else 0.0


def settled_status(rows: int, n: int, tol: float, iterations: int) -> Status:
    """Return the status for `rows` of n settled rows."""
    return Status(rows == n, f"{rows} of {n} rows settled to {tol:.1g} relative", iterations)


def settling_steps(schedule: Schedule) -> Steps:
    """Return steps that propose an update of the components at resettled loadings, then a plain step.

    The loadings start from equal ones and get at most 15 updates per row. With small concentrations, rows commit to
    components early, while the components are still poor. A new start of the loadings lets the rows reconsider, as in
    every iteration of scikit-learn's LDA.
    """

    def steps(here: Iterate) -> Iterator[State]:
        yield _resettled(here)
        yield update_both_sides(here.problem, here.state, here.totals, schedule)

    return steps


def with_settled_loadings(ascent: Ascent) -> Ascent:
    """Return an ascent with the loadings of every row settled given its components, and with their elbo.

    An ascent stops when its objective settles, but some rows may not have settled by then. Parameters of the prior that
    rows share keep their q meanwhile, so that rows settle by themselves.
    """
    problem, state = ascent.problem, ascent.state

    def work(part: Problem, here: State, at: Where) -> tuple[Side, Totals, float]:
        q: Any = here.loadings.conditional
        prior, summary = part.loadings_prior, part.loadings_summary
        plain, _ = prior.expected_prior(q)
        part = replace(part, loadings_prior=plain, fixed_components=True)
        settled = settle_loadings(part, here, FINAL_TOL, FINAL_ITER, at.threads).state
        if plain is not prior:
            settled = settled._replace(loadings=summary.of(prior, settled.loadings.conditional))  # type: ignore[arg-type]
        return settled.loadings, at.allocate(part, settled, "loadings"), 0.0

    found, settled = pass_over_rows(problem, state, work)
    state = state._replace(loadings=settled)
    bound = objective(problem, state, found.loglik)
    if not bound >= ascent.trace[-1]:  # the rows had settled except for rounding
        return ascent
    return ascent._replace(state=state, trace=[*ascent.trace[:-1], bound])


def _resettled(here: Iterate) -> State:
    """Return the state with loadings settled from equal ones, then an update of the components, in one pass.

    Where entries are missing, both raise the bound of the problem, whose components are not fixed.
    """
    problem = here.problem

    def work(part: Problem, here: State, at: Where) -> tuple[Side, Totals, float]:
        even = State(even_loadings(part, here.components, len(here.components.geometric)), here.components)
        settled = settle_loadings(part, even, SETTLED_TOL, SETTLED_ITER, at.threads).state
        return settled.loadings, at.allocate(part, settled, "components"), 0.0

    found, settled = pass_over_rows(problem, here.state, work)
    state = here.state._replace(loadings=settled)
    return update_components(with_rates_at(problem, state), state, totals_of(problem, found), reuse=True)


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

    def work(part: Problem, _: object, at: Where) -> tuple[Side, None, tuple[float, float, int, int]]:
        even = State(even_loadings(part, components, rank), components)
        found = settle_loadings(part, even, tol, max_iter, at.threads)
        start, end = (_without_components(part, each, at.threads) for each in (even, found.state))
        return found.state.loadings, None, (start, end, found.rows, found.status.iterations)

    found, loadings = pass_over_rows(problem, None, work, Pass(plus=_add_progress))
    start, end, rows, updates = found.more
    fixed = components.penalty - problem.counts.log_factorial
    status = settled_status(rows, problem.counts.shape[0], attainable_tol(tol, problem.counts.dtype), updates)
    return Ascent(problem, State(loadings, components), [start + fixed, end + fixed], [], status)


def _without_components(part: Problem, state: State, threads: int | None) -> float:
    """Return what the rows of a block add to the objective."""
    alone = replace(part, constant=False)
    return objective(alone, state, allocate(part, state, threads, "loadings").loglik) - state.components.penalty


type Progress = tuple[float, float, int, int]  # objectives at start and end, settled rows, most updates


def _add_progress(one: Progress, two: Progress) -> Progress:
    sums = np.add(one[:2], two[:2]).tolist()
    return sums[0], sums[1], one[2] + two[2], max(one[3], two[3])


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
