"""Run an ascent in several stages, as one ascent with one trace and one status."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from bayesnmf.inference.ascent.coordinate_ascent import Ascent, Schedule
from bayesnmf.inference.problem import Problem, State
from bayesnmf.inference.status import BROKEN, INTERRUPTED, NO_CHANCE

Show = Callable[..., None]


class Climb:
    """An ascent that goes on from its end when it is called again.

    It gives its state away while it runs: no other reference keeps the state in memory, which is as large as the
    factors.

    Parameters
    ----------
    ascent : callable
        Function of a problem, a state, a schedule and what shows progress.
    problem, state : Problem, State
        Where to begin.
    """

    def __init__(self, ascent: Callable[[Problem, State, Schedule, Show], Ascent], problem: Problem, state: State):
        self._ascent, self._problem, self._held = ascent, problem, [state]

    def __call__(self, schedule: Schedule, show: Show) -> Ascent:
        """Run the ascent by a schedule."""
        found = self._ascent(self._problem, self._held.pop(), schedule, show)
        self._problem, self._held = found.problem, [found.state]
        return found


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
        return told_of_no_chance(sofar)
    course = schedule.course(trace=sofar.trace[:-1], residuals=sofar.residuals[:-1])
    course.reach(sofar.trace[-1], residual=sofar.residuals[-1] if sofar.residuals else None)
    return sofar._replace(status=course.status)


def told_of_no_chance(ascent: Ascent) -> Ascent:
    """Return an ascent whose status says so if its counts are impossible at the parameters; others as they are."""
    if ascent.status.reason in BROKEN or last_objective(ascent) > -np.inf:
        return ascent
    return ascent._replace(status=ascent.status._replace(converged=False, reason=NO_CHANCE))


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
