"""Coordinate ascent: EM, multiplicative updates, MAP, variational inference and variational EM in one loop.

Which of them it is follows from the priors and from how each side is carried (`bayesnmf.inference.sides`).
Sources: [GP] alg. 1, 4, 5, 6, 7; [P] 3-4, 34-36; [C] 19-20, 27-28, 45-49; mathematics.md section 4.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np

from bayesnmf.inference.sides import Problem, State, objective, update_components, update_loadings
from bayesnmf.kernels.cpu import Totals, expected_allocations

Progress = Callable[[int, float, State], None]

INTERRUPTED = "interrupted"
NOT_A_NUMBER = "the objective is not a number: priors or counts are beyond the range of this dtype"


class Status(NamedTuple):
    """Whether and why an algorithm stopped."""

    converged: bool
    reason: str
    iterations: int


@dataclass(frozen=True)
class Schedule:
    """When to stop, and in which order to go.

    Attributes
    ----------
    kind : {"joint", "alternating"}
        One allocation step for both sides, or a fresh one for each. Either way the second side's exposure
        uses the first side's new value, without which the objective is not monotone.
    order : {"loadings", "components"}
        The side that is updated first.
    max_iter : int
        Most updates of both sides.
    tol : float
        Stop when the objective changes by less than `tol` times its size; 0 runs all `max_iter`.
    threads : int or None
        Row blocks worked on at once.
    """

    kind: Literal["joint", "alternating"] = "joint"
    order: Literal["loadings", "components"] = "loadings"
    max_iter: int = 1000
    tol: float = 1e-7
    threads: int | None = None


def allocate(problem: Problem, state: State, threads: int | None) -> Totals:
    """Take one allocation step at the geometric means of both sides."""
    return expected_allocations(problem.counts.matrix, state.loadings.geometric, state.components.geometric, threads)


def step(problem: Problem, state: State, totals: Totals, schedule: Schedule) -> State:
    """Update both sides once, given the allocation step at `state`."""
    sides = ("loadings", "components") if schedule.order == "loadings" else ("components", "loadings")
    for position, side in enumerate(sides):
        if position == 1 and schedule.kind == "alternating":
            totals = allocate(problem, state, schedule.threads)
        if side == "loadings":
            state = update_loadings(problem, state, totals.loadings)
        else:
            state = update_components(problem, state, totals.components)
    return state


def coordinate_ascent(
    problem: Problem, state: State, schedule: Schedule, progress: Progress | None = None
) -> tuple[State, list[float], Status]:
    """Iterate from `state` until the objective settles, `max_iter` is reached or Ctrl-C is pressed.

    Returns
    -------
    state : State
        The last complete iterate.
    trace : list of float
        Objective at the start and after each iteration, in nats.
    status : Status
        Why it stopped.
    """
    trace: list[float] = []
    reached = state
    try:
        for iteration in range(schedule.max_iter + 1):
            totals = allocate(problem, state, schedule.threads)
            trace.append(objective(problem, state, totals.loglik))
            reached = state
            if progress is not None:
                progress(iteration, trace[-1], state)
            if np.isnan(trace[-1]):
                return state, trace, Status(False, NOT_A_NUMBER, iteration)
            if settled(trace, schedule.tol):
                return (
                    state,
                    trace,
                    Status(True, f"objective settled to {schedule.tol:g} relative", iteration),
                )
            if iteration < schedule.max_iter:
                state = step(problem, state, totals, schedule)
    except KeyboardInterrupt:
        return reached, trace, Status(False, INTERRUPTED, max(len(trace) - 1, 0))
    return state, trace, Status(False, f"all {schedule.max_iter} iterations done", schedule.max_iter)


def settled(trace: list[float], tol: float) -> bool:
    """Whether the last change of the objective is below `tol` times its size."""
    if tol == 0 or len(trace) < 2 or not np.isfinite(trace[-2]):
        return False
    return abs(trace[-1] - trace[-2]) < tol * max(abs(trace[-1]), 1.0)
