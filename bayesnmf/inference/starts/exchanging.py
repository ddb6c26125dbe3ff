"""Exchanges of components where an ascent has all but ended: some are tried, and one that ends higher is kept.

Two optima of the same counts mostly differ in a few components: where one has two for what needs one, the other spends
them elsewhere. To merge the two and split another (`bayesnmf.inference.starts.split_merge`) is a shorter way to the
higher one than to start anew.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from bayesnmf.inference.ascent.coordinate_ascent import Ascent, Schedule
from bayesnmf.inference.sides import Problem, State
from bayesnmf.inference.starts.racing import (
    LEAST_STARTS,
    Climb,
    Show,
    ended,
    go_on,
    height,
    interrupted,
    number_of_starts,
    work_of,
)
from bayesnmf.inference.starts.split_merge import Exchange, Exchanges
from bayesnmf.inference.status import INTERRUPTED

ROUGH_TOL = 1e-5  # of the ascents before: what an exchange gains is mostly more than what is left to them
GLANCE, TRIAL = 3, 15  # iterations that exchanges have; those of the second kind are the highest after the first
FEWEST_GLANCES, FEWEST_TRIALS = 10, 3  # exchanges tried for so long, where counts are many; up to four times as many
FEWEST = 3  # components
Climber = Callable[[Problem, State], Climb]
Begun = tuple[Climb, Ascent]


def rough(schedule: Schedule) -> Schedule:
    """Return the schedule of the ascents that exchanges come after."""
    return replace(schedule, tol=max(schedule.tol, ROUGH_TOL))


def exchanged(
    climber: Climber, begun: Begun, schedule: Schedule, rng: np.random.Generator, show: Show, search: Show
) -> Begun:
    """Exchange components as long as that leads higher; return what climbs on from there, and the way there.

    Parameters
    ----------
    climber : callable
        Takes a problem and a state, and returns what climbs from there.
    begun : Climb, Ascent
        What climbs on from where the exchanges begin, and the way there.
    schedule : Schedule
        Of the whole ascent. Iterations from an exchange that is kept count among its `max_iter`.
    show, search : callable
        Progress of the ascents, called with the iteration and the objective, and of the trials, called with iterations
        done, iterations in all and the objective.
    """
    climb, best = begun
    while len(best.state.components.geometric) >= FEWEST and not ended(best, schedule):
        try:
            found = _higher(climber, best, schedule, rng, search)
        except KeyboardInterrupt:
            return climb, interrupted(best)
        if found is None:
            break
        climb, best = found
        if not ended(best, schedule):
            best = go_on(climb, best, rough(schedule), show)
    return climb, best


def _higher(climber: Climber, best: Ascent, schedule: Schedule, rng: np.random.Generator, search: Show) -> Begun | None:
    """Return what climbs from an exchange that leads higher, and the way there; None where none of those tried does."""
    exchanges = Exchanges(best.problem, best.state, rng, schedule.threads)
    left = schedule.max_iter - best.status.iterations
    more = number_of_starts(work_of(best.problem.counts, len(best.state.components.geometric))) / LEAST_STARTS
    glances, trials = int(FEWEST_GLANCES * more), int(FEWEST_TRIALS * more)
    chosen, done = exchanges.best(glances), 0
    total = len(chosen) * GLANCE + trials * TRIAL

    def tried(exchange: Exchange, iterations: int) -> Begun:
        nonlocal done
        climb = climber(best.problem, exchanges.state_after(exchange))
        found = climb(
            replace(schedule, max_iter=min(iterations, left), tol=0.0),
            lambda iteration, value, *_: search(done + iteration, total, value),
        )
        done += iterations
        if found.status.reason == INTERRUPTED:
            raise KeyboardInterrupt
        return climb, found

    heights = [height(tried(exchange, GLANCE)[1]) for exchange in chosen]
    for number in np.argsort(heights)[::-1][:trials]:
        climb, found = tried(chosen[number], TRIAL)
        if height(found) > height(best) + ROUGH_TOL * abs(height(best)):  # what is left to `best` may be as much
            return climb, _joined(best, found)
    return None


def _joined(best: Ascent, found: Ascent) -> Ascent:
    """Add to an ascent the iterates of another that are above it."""
    above = [number for number, value in enumerate(found.trace) if value > best.trace[-1]]
    trace = best.trace + [found.trace[number] for number in above]
    residuals = best.residuals + [found.residuals[number] for number in above if found.residuals]
    return found._replace(trace=trace, residuals=residuals, status=found.status._replace(iterations=len(trace) - 1))
