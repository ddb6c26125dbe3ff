"""Coordinate ascent: EM, multiplicative updates, MAP, variational inference and variational EM in one loop.

The priors and the summary of each side (`bayesnmf.inference.side`) decide which of these algorithms runs.
Sources: [GP] alg. 1, 3, 4, 5, 6, 7; [P] 3-4, 34-36; [C] 19-20, 27-28, 38, 45-49; mathematics.md section 4.

The loop `ascend` also runs coordinate descent (`poisson_regression`) and steps that are extrapolated.

Variational EM replaces priors that are learned by the best ones of their families for the current q (`prior_learner`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from bayesnmf.inference.ascent.course import Course, Progress, Schedule
from bayesnmf.inference.ascent.kkt import kkt_residual
from bayesnmf.inference.blocked.passes import Pass, pass_over_rows
from bayesnmf.inference.blocked.sides import RowSums
from bayesnmf.inference.checkpoints.slots import next_slot
from bayesnmf.inference.problem import Problem, State
from bayesnmf.inference.side import Mode, Side, side_like
from bayesnmf.inference.sides import Where, allocate, objective, update_components, update_loadings, with_rates_at
from bayesnmf.inference.status import Status
from bayesnmf.kernels.cpu.allocation import Sides, Totals
from bayesnmf.kernels.cpu.factors import move, move_logarithms
from bayesnmf.options.algorithms import SCHEDULES
from bayesnmf.priors import Distribution
from bayesnmf.priors.values import namespace_of, on_host
from bayesnmf.types import Array


class Iterate(NamedTuple):
    """State with its totals and objective, and with its problem, since priors may be learned."""

    problem: Problem
    state: State
    totals: Totals
    value: float


class Ascent(NamedTuple):
    """Result of an ascent.

    Attributes
    ----------
    problem : Problem
        Given problem, with learned priors if there are any.
    state : State
        Last complete iterate.
    trace : list of float
        Objective at the start and after each iteration, in nats.
    residuals : list of float
        KKT residuals of the same states, in counts; empty if the schedule does not ask for them.
    status : Status
        Reason for the stop.
    """

    problem: Problem
    state: State
    trace: list[float]
    residuals: list[float]
    status: Status


class Reached:
    """What an ascent has reached.

    Attributes
    ----------
    problem : Problem
        Problem, whose priors and dispersions may have been learned.
    state : State or None
        State, unless the steps remember it.
    course : Course
    steps, learn : object or None
        What proposes steps and what learns, if it remembers anything.
    """

    checkpointed = "learned", "state", "course", "steps", "learn"

    def __init__(self, problem: Problem, state: Any, course: Course, steps: Any = None, learn: Any = None) -> None:
        self.problem, self.state, self.course = problem, state, course
        self.steps, self.learn = (
            each if hasattr(each, "checkpointed") or hasattr(each, "memory") else None for each in (steps, learn)
        )

    @property
    def learned(self) -> tuple[Distribution, Distribution, Any]:
        """Both priors, and what has been learned of the noise and of factors of batches, if the counts have any."""
        problem = self.problem
        return problem.loadings_prior, problem.components_prior, problem.counts.memory

    @learned.setter
    def learned(self, kept: tuple[Distribution, Distribution, Any]) -> None:
        loadings, components, memory = kept
        counts = self.problem.counts.recalled(memory)
        self.problem = replace(self.problem, counts=counts, loadings_prior=loadings, components_prior=components)

    def ascent(self) -> Ascent:
        """Return the result of an ascent that ended here."""
        return Ascent(self.problem, self.state, self.course.trace, self.course.residuals, self.course.status)


# Candidates for the next state, the longest step first; the last one is accepted even if the objective falls. The
# first candidate may overwrite the totals of the iterate, since no later code reads them.
Steps = Callable[[Iterate], Iterator[State]]
Learn = Callable[[Problem, State], tuple[Problem, State]]


def update_side(problem: Problem, state: State, side: str, totals: Totals) -> State:
    """Return the state with one side updated given an allocation step; its total of that side is overwritten."""
    if side == "loadings":
        return update_loadings(problem, state, totals.loadings, reuse=True)
    return update_components(problem, state, totals.components, reuse=True)


def update_both_sides(problem: Problem, state: State, totals: Totals, schedule: Schedule) -> State:
    """Return the state with both sides updated, given the allocation step at `state`; its totals are overwritten."""
    rule = SCHEDULES[schedule.kind]
    moves = rule.moves(schedule.sweeps)
    if not any(fresh for _, fresh in moves) and problem.counts.mask is None:  # which needs them again
        for each in state:
            each.forget()
    for place, fresh in moves:
        side: Any = schedule.sides[place]
        if fresh:
            problem = with_rates_at(problem, state, schedule.threads)
            totals = allocate(problem, state, schedule.threads, side if rule.one_side else "both")
        state = update_side(problem, state, side, totals)
    return state


def plain_steps(schedule: Schedule) -> Steps:
    """Return steps that propose the next iterate of EM or variational inference as the only candidate."""

    def steps(here: Iterate) -> Iterator[State]:
        yield update_both_sides(here.problem, here.state, here.totals, schedule)

    return steps


def ascend(
    problem: Problem,
    state: State,
    schedule: Schedule,
    progress: Progress | None = None,
    steps: Steps | None = None,
    learn: Learn | None = None,
) -> Ascent:
    """Iterate from `state` until the objective settles, `max_iter` is reached or Ctrl-C is pressed.

    Parameters
    ----------
    problem : Problem
    state : State
        State to start from.
    schedule : Schedule
        Order of the updates and stopping rules.
    progress : callable, optional
        Function called with the iteration, the objective and the state.
    steps : callable, optional
        Generator of candidates for the next state; by default the step of EM or variational inference.
    learn : callable, optional
        Function that improves the priors at a state, before the objective is computed.
    """
    steps = steps or plain_steps(schedule)
    slot, course = next_slot("ascent", problem.counts), schedule.course(progress)
    reached = Reached(problem, state, course, steps, learn)
    begun = slot.recall(reached)
    if begun == "ended":
        return reached.ascent()

    def residual() -> float | None:
        return None if schedule.kkt_tol is None else kkt_residual(here.problem, here.state, here.totals)

    with course:
        del state  # so that its memory can be freed when later states replace it
        here = evaluate_state(reached.problem, reached.state, schedule.threads, sides=schedule.visited)
        reached.problem, reached.state = here.problem, here.state
        going = begun == "begun" or course.reach(here.value, here.state, residual=residual())
        while going:
            if slot.due():
                slot.save(reached)
            here = next_iterate(here, steps, learn, schedule.threads, schedule.visited)
            reached.problem, reached.state = here.problem, here.state
            going = course.reach(here.value, here.state, residual=residual())
    if not course.interrupted:
        slot.end(reached)
    return reached.ascent()


def evaluate_state(
    problem: Problem, state: State, threads: int | None, learn: Learn | None = None, sides: Sides = "both"
) -> Iterate:
    """Return a state with its totals, of both sides or of one, and its objective."""
    if learn is not None:
        problem, state = learn(problem, state)
    problem = with_rates_at(problem, state, threads)
    totals = allocate(problem, state, threads, sides)
    return Iterate(problem, state, totals, objective(problem, state, totals.loglik))


def next_iterate(
    here: Iterate, steps: Steps, learn: Learn | None, threads: int | None, sides: Sides = "both"
) -> Iterate:
    """Return the first candidate at which the objective does not fall, except for rounding; else the last one."""
    lowest = here.value - float(np.finfo(here.problem.counts.dtype).eps) * abs(here.value)
    new = here
    for candidate in steps(here):
        new = evaluate_state(here.problem, candidate, threads, learn, sides)
        if new.value >= lowest:
            break
    return new


START, GROWTH, CUT = 0.5, 1.1, 0.5
# Upper limits of the weight; 1 in [C]. On pbmc_facs, K = 10, coordinate descent (2 sweeps) came within 1e-6 of its
# optimum in 58 iterations with limit 2, and in 71 with limit 1; candidates that go too far are rejected.
LIMIT = {"logarithms": 1.0, "parameters": 2.0}


class Extrapolated:
    """Steps that first propose a state beyond that of the given steps, with a monotone safeguard.

    The state moves further along the line from the previous iterate ([C] 55, after Ang & Gillis 2019), by a weight ω
    that grows while this raises the objective. If it does not, the step itself is accepted and ω is cut.

    Parameters
    ----------
    steps : callable
        Steps of an algorithm; all of its candidates follow the extrapolated one.
    floor : float, optional
        Smallest value if the parameters themselves are extrapolated, as for coordinate descent, which can move entries
        away from 0. By default, logarithms are extrapolated: parameters stay positive, since a multiplicative update
        cannot leave 0, and parameters that tend to 0 decrease geometrically.

    Attributes
    ----------
    weight : float
    previous : State or None
        Arrays that define both sides of the last proposal.
    """

    checkpointed = "weight", "previous"

    def __init__(self, steps: Steps, floor: float | None = None) -> None:
        self.steps, self.floor = steps, floor
        self.limit = LIMIT["logarithms" if floor is None else "parameters"]
        self.weight = START
        self.previous: State | None = None

    def __call__(self, here: Iterate) -> Iterator[State]:
        """Yield the candidates for the next state."""
        candidates = self.steps(here)
        new = next(candidates)
        now = State(*(side.bare() for side in new))
        weight, previous, self.previous = self.weight, self.previous, now
        if previous is not None and _shapes(now) == _shapes(previous):
            self.weight = min(weight * GROWTH, self.limit)
            yield extrapolated_state(here.problem, new, previous, self.weight, self.floor)
            self.weight *= CUT
        yield new
        yield from candidates


def _shapes(bare: Any) -> list[tuple[int, ...]]:
    return [shape for side in bare for shape in side.shapes]


def extrapolated_state(problem: Problem, new: State, before: Any, weight: float, floor: float | None) -> State:
    """Return the state at new + weight × (new − before)."""

    def work(part: Problem, here: State, at: Where) -> tuple[Side, None, float]:
        sides = here.loadings, before.loadings.block(at.number)
        return _moved_side(part.loadings_prior, part.loadings_summary, *sides, weight, floor), None, 0.0

    _, loadings = pass_over_rows(problem, new, work)
    sides = new.components, before.components
    return State(loadings, _moved_side(problem.components_prior, problem.components_summary, *sides, weight, floor))


def _moved_side(prior: Distribution, summary: Any, new: Side, old: Any, weight: float, floor: float | None) -> Side:
    pairs = zip(new.parameters, old.parameters, strict=True)
    return side_like(new, prior, summary, [_extrapolated_array(a, b, weight, floor) for a, b in pairs])


def _extrapolated_array(new: Array, old: Array, weight: float, floor: float | None) -> Array:
    if not on_host(new, old):  # without a floor, since coordinate descent runs only on the host
        xp = namespace_of(new, old).xp
        known = (old > 0) & (new > 0)
        ratio = xp.where(known, new, 1) / xp.where(known, old, 1)
        return new * (ratio**weight).astype(new.dtype)
    if floor is not None:
        return move(new, old, weight, floor)
    return move_logarithms(new, old, weight)


def prior_learner(sides: Sequence[str]) -> Learn:
    """Return a function that replaces the priors of the given sides ("loadings", "components") by the best ones."""

    def learn(problem: Problem, state: State) -> tuple[Problem, State]:
        for side in sides:
            if side == "loadings":
                problem, state = _learn_of_loadings(problem, state)
                continue
            q: Any = state.components.conditional
            given: Any = problem.components_prior
            prior = given.learned(q)
            problem = replace(problem, components_prior=prior)
            state = state._replace(components=problem.components_summary.of(prior, q))
        return problem, state

    return learn


def _learn_of_loadings(problem: Problem, state: State) -> tuple[Problem, State]:
    """Learn the prior of the loadings: a pass for the means of their statistics, and one for their divergence.

    Rows with parameters of their own keep their own statistics.
    """
    given: Any = problem.loadings_prior
    shared = not given.has_effects and all(len(np.atleast_2d(each)) == 1 for each in given.parameters.values())

    def add_up(part: Problem, here: State, _: Where) -> tuple[None, None, list[Array]]:
        prior: Any = part.loadings_prior
        found = _statistics_of(prior, here.loadings)
        if not shared:
            return None, None, found
        return None, None, [np.array(len(found[0])), *(each.sum(axis=0, keepdims=True) for each in found)]

    def measure(part: Problem, here: State, _: Where) -> tuple[None, None, RowSums]:
        return None, None, RowSums.of(part.counts, _with_penalty(part, here.loadings))

    kind = Pass(writes=False, reads=False, plus=_add_each if shared else _join_each)
    found, _ = pass_over_rows(problem, state, add_up, kind)
    statistics = [each / found.more[0] for each in found.more[1:]] if shared else found.more
    held: Any = {"shapes": False} if given.has_effects and isinstance(problem.loadings_summary, Mode) else {}
    problem = replace(problem, loadings_prior=given.learned_from(statistics, **held))
    found, _ = pass_over_rows(problem, state, measure, Pass(writes=False, reads=False))
    return problem, state._replace(loadings=state.loadings.with_sums(found.more))


def _statistics_of(prior: Any, side: Side) -> list[Array]:
    """Return the statistics that a prior is learned from, of a mean field or of a mode."""
    found: list[Array] = (
        prior.statistics_of_value(side.value) if side.conditional is None else prior.statistics(side.conditional)
    )
    return found


def _with_penalty(part: Problem, side: Side) -> Side:
    """Return loadings with the term of the objective that belongs to the prior of a problem."""
    summary: Any = part.loadings_summary
    prior, q = part.loadings_prior, side.conditional
    found: Side = summary.at(prior, side.value) if q is None else summary.of(prior, q)
    return found


def _add_each(one: list[Array], two: list[Array]) -> list[Array]:
    return [mine + its for mine, its in zip(one, two, strict=True)]


def _join_each(one: list[Array], two: list[Array]) -> list[Array]:
    return [np.concatenate(both) for both in zip(one, two, strict=True)]
