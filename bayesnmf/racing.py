"""A short race of a few starts, of which the best goes on.

One start leads to one local optimum of several, and after some iterations the start that is ahead is mostly one that
would end high (`benchmarks/defaults.md`). Where an iteration is cheap there are more starts and a longer race; on large
counts the race is short beside the fit that follows. No more than one other state is held in memory.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from bayesnmf.counts import Counts
from bayesnmf.defaults import sparse
from bayesnmf.inference.coordinate_ascent import INTERRUPTED, Ascent, Schedule
from bayesnmf.options import MAP, VI

MOST_STARTS, LEAST_STARTS = 16, 4
LEAST_STEPS, MOST_STEPS = 50, 200  # allocation steps, or their worth, that every start has
RACE_WORK = 1e9  # `work_of` times allocation steps, of all starts together: about a second on two cores
PARAMETER_WORK = 20  # an update of a parameter, in nonzeros of an allocation step
ALLOCATION_STEPS = {"em": 2, "coordinate": 3, "scd": 5, "ccd": 5, "settled": 8}  # what an iteration costs, about

# Iterations without priors, before a sparse one is heeded: few were best on small counts, many on large ones.
FLAT_FROM_SVD, FLAT_FROM_RANDOM = (0, 5, 50), (5, 20, 50)
SETTLED_ITERATIONS = 15

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
    return int(np.clip(steps, LEAST_STEPS, MOST_STEPS)) // ALLOCATION_STEPS[algorithm]


class Contestant(NamedTuple):
    """A start that races, and what is done before.

    Attributes
    ----------
    word : {"svd", "random", "even"}
        From a singular value decomposition; counts shared out at random; nearly evenly.
    flat : int
        Iterations of coordinate descent on the likelihood alone (`bayesnmf.inference.data_start.flattened_state`).
    settled : int
        Iterations of variational inference that settles the loadings afresh.
    """

    word: str
    flat: int = 0
    settled: int = 0


def contestants(options: MAP | VI, number: int) -> list[Contestant]:
    """Return the starts that race: "svd", then random ones. Sparse priors are led up to, in several ways.

    Where a shape or concentration is below 1, each row soon keeps to the components that it has taken, and from a plain
    start these are still poor.
    """
    if not sparse(options.priors):
        return [Contestant("svd" if place == 0 else "random") for place in range(number)]
    begun = [Contestant("svd", flat) for flat in FLAT_FROM_SVD]
    settled = [Contestant("even", settled=SETTLED_ITERATIONS)] if isinstance(options, VI) else []  # for mean fields
    others = [each for flat in FLAT_FROM_RANDOM for each in (*settled, Contestant("random", flat))]
    return (begun + others * number)[:number]


def race(starts: Sequence[Callable[[], Climb]], length: int, schedule: Schedule, show_race: Show, show: Show) -> Ascent:
    """Climb for a few iterations from every start, and from where the highest is until it has converged.

    Parameters
    ----------
    starts : list of callables
        Each makes a start and returns a `Climb` from it: called with a schedule it returns the ascent, and called
        again it goes on from where that ended.
    length : int
        Iterations that each start has.
    schedule : Schedule
        Of the whole ascent; the iterations of the winner in the race count among its `max_iter`.
    show_race, show : callable
        Progress of the race, called with iterations done, iterations in all and the objective, and that of the winner,
        called with the iteration and the objective.
    """
    length = min(length, schedule.max_iter)
    ahead: tuple[Climb, Ascent] | None = None
    for number, start in enumerate(starts):
        try:
            climb = start()
        except KeyboardInterrupt:  # while it was made
            if ahead is None:
                raise
            return _interrupted(ahead[1])
        found = climb(
            replace(schedule, max_iter=length),
            lambda done, value, *_, number=number: show_race(number * length + done, len(starts) * length, value),
        )
        interrupted = found.status.reason == INTERRUPTED
        if ahead is None or height(found) > height(ahead[1]):
            ahead = climb, found
        if interrupted:
            return _interrupted(ahead[1])
        del climb, found  # of several states only the best is held
    assert ahead is not None
    climb, best = ahead
    done, rest = best.status.iterations, schedule.max_iter - best.status.iterations
    if best.status.converged or not rest or height(best) == -np.inf:
        return best
    trace, residuals = best.trace, best.residuals
    del ahead, best  # its state lives on in `climb` alone, which lets go of it
    last = climb(replace(schedule, max_iter=rest), lambda iteration, value, *_: show(done + iteration, value))
    return last._replace(
        trace=trace + last.trace[1:],
        residuals=residuals + last.residuals[1:],
        status=last.status._replace(iterations=done + last.status.iterations),
    )


def _interrupted(ascent: Ascent) -> Ascent:
    return ascent._replace(status=ascent.status._replace(converged=False, reason=INTERRUPTED))


def height(ascent: Ascent) -> float:
    """Return the objective that an ascent has reached, −inf where it is not a number."""
    return ascent.trace[-1] if ascent.trace and not np.isnan(ascent.trace[-1]) else -np.inf
