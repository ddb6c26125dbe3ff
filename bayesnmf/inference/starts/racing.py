"""A short race of a few starts, of which the best goes on.

One start leads to one local optimum of several, and after some iterations the start that is ahead is mostly one that
would end high (`benchmarks/defaults.md`). Where an iteration is cheap there are more starts and a longer race; on large
counts the race is short beside the fit that follows. No more than one other state is held in memory.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from bayesnmf.data.counts import Counts
from bayesnmf.inference.ascent.coordinate_ascent import Ascent, Schedule
from bayesnmf.inference.sides import Problem, State
from bayesnmf.inference.status import INTERRUPTED, NOT_A_NUMBER
from bayesnmf.options.algorithms import ALGORITHMS

MOST_STARTS, LEAST_STARTS = 16, 4
LEAST_STEPS, MOST_STEPS = 50, 200  # allocation steps, or their worth, that every start has
RACE_WORK = 2.5e9  # `work_of` times allocation steps, of all starts together: about a second on two cores
PARAMETER_WORK = 20  # an update of a parameter, in nonzeros of an allocation step
# In labels of progress on the way to a start, whose values are no objectives of the fit.
LEADING_UP = "log-likelihood on the way to start"
Show = Callable[..., None]
Climb = Callable[[Schedule, Show], Ascent]


def work_of(counts: Counts, rank: int) -> int:
    """Return what an allocation step and an update of both sides cost, in multiply-adds."""
    return (counts.nnz + PARAMETER_WORK * sum(counts.shape)) * rank


def number_of_starts(work: int) -> int:
    """Return how many starts race: fewer where an iteration takes long."""
    return int(np.clip(RACE_WORK / (2 * LEAST_STEPS * work), LEAST_STARTS, MOST_STARTS))


def length_of_race(work: int, algorithm: str) -> int:
    """Return how many iterations each start has in the race."""
    steps = RACE_WORK / (number_of_starts(work) * work)
    return int(np.clip(steps, LEAST_STEPS, MOST_STEPS)) // ALGORITHMS[algorithm].allocation_steps


def race(starts: Sequence[Callable[[], Climb]], length: int, schedule: Schedule, show: Show) -> tuple[Climb, Ascent]:
    """Climb for a few iterations from every start; return what climbs on from where the highest ended, and its ascent.

    Parameters
    ----------
    starts : list of callables
        Each makes a start and returns a `Climb` from it: called with a schedule it returns the ascent, and called
        again it goes on from where that ended.
    length : int
        Iterations that each start has.
    schedule : Schedule
        Of the whole ascent.
    show : callable
        Progress: called with iterations done, iterations in all and the objective.
    """
    length = min(length, schedule.max_iter)
    ahead: tuple[Climb, Ascent] | None = None
    for number, start in enumerate(starts):
        try:
            climb = start()
        except KeyboardInterrupt:  # while it was made
            if ahead is None:
                raise
            return ahead[0], interrupted(ahead[1])
        found = climb(
            replace(schedule, max_iter=length),
            lambda done, value, *_, number=number: show(number * length + done, len(starts) * length, value),
        )
        left = found.status.reason == INTERRUPTED
        if ahead is None or height(found) > height(ahead[1]):
            ahead = climb, found
        if left:
            return ahead[0], interrupted(ahead[1])
        del climb, found  # of several states only the best is held
    assert ahead is not None
    return ahead


def climbing(ascent: Callable[[Problem, list[State], Schedule, Show], Ascent], problem: Problem, state: State) -> Climb:
    """Return what climbs from a state and, called again, goes on from where it ended.

    Parameters
    ----------
    ascent : callable
        Takes the state out of its list, so that nobody else holds it: a state is as large as the factors, and lives as
        long as anything refers to it.
    """
    now, held = [problem], [state]

    def climb(schedule: Schedule, show: Show) -> Ascent:
        found = ascent(now[0], held, schedule, show)
        now[0], held[:] = found.problem, [found.state]
        return found

    return climb


def go_on(climb: Climb, sofar: Ascent, schedule: Schedule, show: Show) -> Ascent:
    """Climb on until `schedule` ends it; iterations so far count among its `max_iter`.

    Parameters
    ----------
    show : callable
        Progress: called with the iteration and the objective.
    """
    done = sofar.status.iterations
    trace, residuals = sofar.trace, sofar.residuals
    del sofar  # its state lives on in `climb` alone, which lets go of it
    last = climb(replace(schedule, max_iter=schedule.max_iter - done), lambda more, value, *_: show(done + more, value))
    return last._replace(
        trace=trace + last.trace[1:],
        residuals=residuals + last.residuals[1:],
        status=last.status._replace(iterations=done + last.status.iterations),
    )


def ended(ascent: Ascent, schedule: Schedule) -> bool:
    """Whether nothing is left to be done: iterations are used up, or Ctrl-C or bad numbers ended them."""
    bad = ascent.status.reason in (INTERRUPTED, NOT_A_NUMBER) or height(ascent) == -np.inf
    return bad or ascent.status.iterations >= schedule.max_iter


def interrupted(ascent: Ascent) -> Ascent:
    """Return an ascent that Ctrl-C ended."""
    return ascent._replace(status=ascent.status._replace(converged=False, reason=INTERRUPTED))


def height(ascent: Ascent) -> float:
    """Return the objective that an ascent has reached, −inf where it is not a number."""
    return ascent.trace[-1] if ascent.trace and not np.isnan(ascent.trace[-1]) else -np.inf
