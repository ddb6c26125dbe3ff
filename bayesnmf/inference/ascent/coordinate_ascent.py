"""Coordinate ascent: EM, multiplicative updates, MAP, variational inference and variational EM in one loop.

Which of them it is follows from the priors and from how each side is carried (`bayesnmf.inference.sides`).
Sources: [GP] alg. 1, 3, 4, 5, 6, 7; [P] 3-4, 34-36; [C] 19-20, 27-28, 38, 45-49; mathematics.md section 4.

The loop itself, `ascend`, is also that of coordinate descent (`poisson_regression`) and of acceleration
(`extrapolation`): they propose other steps.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np

from bayesnmf.inference.allocating import allocate
from bayesnmf.inference.ascent.course import Course
from bayesnmf.inference.ascent.kkt import kkt_residual
from bayesnmf.inference.sides import Problem, State, objective, update_components, update_loadings
from bayesnmf.inference.status import Status
from bayesnmf.kernels.cpu.allocation import Sides, Totals
from bayesnmf.options.schedules import SCHEDULES

Progress = Callable[..., None]


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
    sweeps : int
        Updates of the first side in a row, each from a fresh allocation step ([GP] alg. 3: several for each sample
        before the components move); alternating, of both sides ([C] alg. 1 with [C] 38).
    max_iter : int
        Most updates of both sides.
    tol : float
        Stop when the objective changes by less than `tol` times its size; 0 does not stop there.
    window : int
        Over how many iterations. One is enough for plain steps; others may happen to be short.
    kkt_tol : float or None
        Stop when the KKT residual, in counts, is at most this; 0 does not stop there, None does not compute it.
    threads : int or None
        Row blocks worked on at once.
    """

    kind: Literal["joint", "alternating"] = "joint"
    order: Literal["loadings", "components"] = "loadings"
    sweeps: int = 1
    max_iter: int = 1000
    tol: float = 1e-7
    window: int = 1
    kkt_tol: float | None = None
    threads: int | None = None

    def course(self, progress: Progress | None = None, **more: Any) -> Course:
        """Return the course that these rules end; `more` as in `Course`."""
        return Course(self.max_iter, self.tol, self.window, self.kkt_tol, progress, **more)

    @property
    def sides(self) -> tuple[str, str]:
        """Both sides, in order."""
        return ("loadings", "components") if self.order == "loadings" else ("components", "loadings")

    @property
    def visited(self) -> Sides:
        """Whose totals are taken at an iterate: those that a step begins with, and KKT residuals ask for."""
        first_alone = SCHEDULES[self.kind].one_side and self.order == "loadings" and self.kkt_tol is None
        return "loadings" if first_alone else "both"


class Iterate(NamedTuple):
    """A state with its allocation step and its objective; the problem too, since priors may be learned."""

    problem: Problem
    state: State
    totals: Totals
    value: float


class Ascent(NamedTuple):
    """What an ascent returns.

    Attributes
    ----------
    problem : Problem
        As given, but for learned priors.
    state : State
        The last complete iterate.
    trace : list of float
        Objective at the start and after each iteration, in nats.
    residuals : list of float
        KKT residual of the same states, in counts; empty where the schedule does not ask for it.
    status : Status
        Why it stopped.
    """

    problem: Problem
    state: State
    trace: list[float]
    residuals: list[float]
    status: Status


# Candidates for the next state, the boldest first; the last one is taken even if the objective falls. The first one
# may use up the totals of the iterate: nothing reads them any more.
Steps = Callable[[Iterate], Iterator[State]]
Learn = Callable[[Problem, State], tuple[Problem, State]]


def update(problem: Problem, state: State, side: str, totals: Totals) -> State:
    """Update one side given an allocation step, whose total for it is used up."""
    if side == "loadings":
        return update_loadings(problem, state, totals.loadings, reuse=True)
    return update_components(problem, state, totals.components, reuse=True)


def step(problem: Problem, state: State, totals: Totals, schedule: Schedule) -> State:
    """Update both sides once, given the allocation step at `state`, whose totals are used up."""
    rule = SCHEDULES[schedule.kind]
    moves = rule.moves(schedule.sweeps)
    if not any(fresh for _, fresh in moves):
        for each in state:
            each.forget()
    for place, fresh in moves:
        side: Any = schedule.sides[place]
        if fresh:
            totals = allocate(problem, state, schedule.threads, side if rule.one_side else "both")
        state = update(problem, state, side, totals)
    return state


def plain_steps(schedule: Schedule) -> Steps:
    """Propose the one next iterate of EM or variational inference."""

    def steps(here: Iterate) -> Iterator[State]:
        yield step(here.problem, here.state, here.totals, schedule)

    return steps


def ascend(
    problem: Problem,
    state: State,
    schedule: Schedule,
    steps: Steps | None = None,
    learn: Learn | None = None,
    progress: Progress | None = None,
) -> Ascent:
    """Iterate from `state` until the objective settles, `max_iter` is reached or Ctrl-C is pressed.

    Parameters
    ----------
    steps : callable, optional
        Proposes next states; by default those of EM or variational inference.
    learn : callable, optional
        Improves the priors of a state, before its objective is taken.
    """
    steps = steps or plain_steps(schedule)
    course = schedule.course(progress)
    reached = problem, state

    def residual() -> float | None:
        return None if schedule.kkt_tol is None else kkt_residual(here.problem, here.state, here.totals)

    with course:
        here = visit(problem, state, schedule.threads, sides=schedule.visited)
        del state  # not to be held beside its successors
        reached = here.problem, here.state
        while course.reach(here.value, here.state, residual=residual()):
            here = next_iterate(here, steps, learn, schedule.threads, schedule.visited)
            reached = here.problem, here.state
    return Ascent(*reached, course.trace, course.residuals, course.status)


def visit(
    problem: Problem, state: State, threads: int | None, learn: Learn | None = None, sides: Sides = "both"
) -> Iterate:
    """Take the allocation step, for the totals of both sides or of the loadings, and the objective at a state."""
    if learn is not None:
        problem, state = learn(problem, state)
    totals = allocate(problem, state, threads, sides)
    return Iterate(problem, state, totals, objective(problem, state, totals.loglik))


def next_iterate(
    here: Iterate, steps: Steps, learn: Learn | None, threads: int | None, sides: Sides = "both"
) -> Iterate:
    """Take the first candidate at which the objective does not fall, to rounding; else the last."""
    lowest = here.value - float(np.finfo(here.problem.counts.dtype).eps) * abs(here.value)
    new = here
    for candidate in steps(here):
        new = visit(here.problem, candidate, threads, learn, sides)
        if new.value >= lowest:
            break
    return new
