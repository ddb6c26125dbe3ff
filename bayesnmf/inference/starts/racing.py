"""Run a short race of a few starts, and continue from the best.

Each start leads to one of several local optima, and the start that leads after some iterations mostly ends high too
(`benchmarks/defaults.md`). If an iteration is cheap there are more starts and a longer race; on large counts the race
is short compared with the fit that follows. Apart from the current state, only the best one is kept in memory.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from bayesnmf.data.counts import Counts
from bayesnmf.inference.ascent.coordinate_ascent import Ascent, Schedule
from bayesnmf.inference.sides import Problem, State
from bayesnmf.inference.status import BROKEN, INTERRUPTED, NO_CHANCE
from bayesnmf.options.algorithms import ALGORITHMS

MOST_STARTS, LEAST_STARTS = 16, 4
LEAST_STEPS, MOST_STEPS = 50, 200  # limits of the work for each start, in allocation steps
RACE_WORK = 2.5e9  # `work_of` times allocation steps, for all starts together: about a second on two cores
PARAMETER_WORK = 20  # cost of an update of one parameter, in nonzeros of an allocation step
# Label of progress while a start is prepared, when the values are not objectives of the fit.
LEADING_UP = "log-likelihood on the way to start"
Show = Callable[..., None]
Climb = Callable[[Schedule, Show], Ascent]


def work_of(counts: Counts, rank: int) -> int:
    """Return the cost of an allocation step and an update of both sides, in multiply-adds."""
    return (counts.nnz + PARAMETER_WORK * sum(counts.shape)) * rank


def number_of_starts(work: int) -> int:
    """Return the number of starts that race; there are fewer if an iteration is expensive."""
    return int(np.clip(RACE_WORK / (2 * LEAST_STEPS * work), LEAST_STARTS, MOST_STARTS))


def length_of_race(work: int, algorithm: str) -> int:
    """Return the number of iterations of each start in the race."""
    steps = RACE_WORK / (number_of_starts(work) * work)
    return int(np.clip(steps, LEAST_STEPS, MOST_STEPS)) // ALGORITHMS[algorithm].allocation_steps


def race(starts: Sequence[Callable[[], Climb]], length: int, schedule: Schedule, show: Show) -> tuple[Climb, Ascent]:
    """Run a few iterations from every start; return the climb and the ascent with the highest objective.

    Parameters
    ----------
    starts : list of callables
        Functions that make a start and return a `Climb` from it. A climb, called with a schedule, returns the ascent;
        a second call continues from its end.
    length : int
        Number of iterations from each start.
    schedule : Schedule
        Schedule of the whole ascent.
    show : callable
        Function for progress, called with iterations done, iterations in all and the objective.
    """
    length = min(length, schedule.max_iter)
    ahead: tuple[Climb, Ascent] | None = None
    for number, start in enumerate(starts):
        try:
            climb = start()
        except KeyboardInterrupt:  # while the start was made
            if ahead is None:
                raise
            return ahead[0], as_interrupted(ahead[1])
        found = climb(
            replace(schedule, max_iter=length),
            lambda done, value, *_, number=number: show(number * length + done, len(starts) * length, value),
        )
        stopped = found.status.reason == INTERRUPTED
        if ahead is None or last_objective(found) > last_objective(ahead[1]):
            ahead = climb, found
        if stopped:
            return ahead[0], as_interrupted(ahead[1])
        del climb, found  # keeps only the best state in memory
    assert ahead is not None
    return ahead


def make_climb(
    ascent: Callable[[Problem, list[State], Schedule, Show], Ascent], problem: Problem, state: State
) -> Climb:
    """Return a function that runs an ascent from a state and, if called again, continues from its end.

    Parameters
    ----------
    ascent : callable
        Function that runs the ascent. It takes the state out of a list, so that no other reference keeps the state in
        memory: a state is as large as the factors.
    """
    now, held = [problem], [state]

    def climb(schedule: Schedule, show: Show) -> Ascent:
        found = ascent(now[0], held, schedule, show)
        now[0], held[:] = found.problem, [found.state]
        return found

    return climb


def continue_climb(climb: Climb, sofar: Ascent, schedule: Schedule, show: Show) -> Ascent:
    """Continue an ascent until `schedule` ends it; earlier iterations count towards its `max_iter`.

    Parameters
    ----------
    show : callable
        Function for progress, called with the iteration and the objective.
    """
    done = sofar.status.iterations
    trace, residuals = sofar.trace, sofar.residuals
    del sofar  # now only `climb` refers to its state, and can free it
    last = climb(replace(schedule, done=done), lambda more, value, *_: show(done + more, value))
    return last._replace(trace=trace + last.trace[1:], residuals=residuals + last.residuals[1:])


def finish_climb(climb: Climb, sofar: Ascent, schedule: Schedule, show: Show) -> Ascent:
    """Continue an ascent of several stages to its end, with a status by the rules of the whole ascent.

    The stages before end by rules of their own, such as a higher tolerance. Parameters as for `continue_climb`.
    """
    if not has_ended(sofar, schedule):
        return continue_climb(climb, sofar, schedule, show)
    if sofar.status.reason in BROKEN:
        return sofar
    if last_objective(sofar) == -np.inf:
        return sofar._replace(status=sofar.status._replace(converged=False, reason=NO_CHANCE))
    course = schedule.course(trace=sofar.trace[:-1], residuals=sofar.residuals[:-1])
    course.reach(sofar.trace[-1], residual=sofar.residuals[-1] if sofar.residuals else None)
    return sofar._replace(status=course.status)


def has_ended(ascent: Ascent, schedule: Schedule) -> bool:
    """Return whether an ascent cannot continue: iterations used up, Ctrl-C, or an objective that is not finite."""
    bad = ascent.status.reason in BROKEN or last_objective(ascent) == -np.inf
    return bad or ascent.status.iterations >= schedule.max_iter


def as_interrupted(ascent: Ascent) -> Ascent:
    """Return an ascent with the status of an interrupt by Ctrl-C."""
    return ascent._replace(status=ascent.status._replace(converged=False, reason=INTERRUPTED))


def last_objective(ascent: Ascent) -> float:
    """Return the last objective of an ascent, or −inf if it is NaN."""
    return ascent.trace[-1] if ascent.trace and not np.isnan(ascent.trace[-1]) else -np.inf
