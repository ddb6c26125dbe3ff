"""The starts that race, and how each is made.

Where a shape or concentration is below 1, each row soon keeps to the components that it has taken, and those of a plain
start are still poor. Sparse priors are therefore led up to: by coordinate descent on the likelihood alone, with
exchanges of components, or by variational inference that settles the loadings afresh in every iteration. Which of them
ends highest differs between data (`benchmarks/defaults.md`).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from bayesnmf.inference.ascent.coordinate_ascent import Schedule, ascend
from bayesnmf.inference.ascent.course import WINDOW
from bayesnmf.inference.ascent.extrapolation import extrapolated
from bayesnmf.inference.ascent.poisson_regression import FLOOR, regression_steps
from bayesnmf.inference.ascent.settled_loadings import SETTLED_ITER, settling_steps
from bayesnmf.inference.sides import Problem, State
from bayesnmf.inference.starts.exchanging import exchanged, rough
from bayesnmf.inference.starts.from_data import (
    at_factors,
    data_state,
    flat_problem,
    flattened_state,
    led_up,
    state_from_word,
)
from bayesnmf.inference.starts.racing import Climb, Show, climbing
from bayesnmf.inference.starts.states import random_state
from bayesnmf.inference.status import INTERRUPTED
from bayesnmf.options import MAP, VI
from bayesnmf.options.algorithms import ALGORITHMS
from bayesnmf.options.defaults import has_sparse_prior

# Iterations without priors, before a sparse one is heeded: few were best on small counts, many on large ones.
FLAT_FROM_SVD, FLAT_FROM_RANDOM = (0, 5), (5, 20, 50)
MOST_EXPLORED = 200  # iterations without priors, those between exchanges of components included
SETTLED_ITERATIONS = 15
THOROUGH, QUICK = 100, SETTLED_ITER  # updates of a row, at most, in each of these
EVEN = 100.0  # concentration of the shares of a nearly even start


class Contestant(NamedTuple):
    """A start that races, and what is done before.

    Attributes
    ----------
    word : {"svd", "random", "even"}
        From a singular value decomposition; counts shared out at random; nearly evenly.
    flat : int
        Iterations of coordinate descent on the likelihood alone
        (`bayesnmf.inference.starts.from_data.flattened_state`).
    explored : bool
        Whether that descent goes on for as long as components can be exchanged with a gain.
    settled : int
        Updates of a row, at most, in each of 15 iterations that settle the loadings afresh.
    """

    word: str
    flat: int = 0
    explored: bool = False
    settled: int = 0


def contestants(options: MAP | VI, number: int) -> list[Contestant]:
    """Return the starts that race: "svd", then random ones; under sparse priors what leads up to them."""
    if not has_sparse_prior(options.priors):
        return [Contestant("svd" if place == 0 else "random") for place in range(number)]
    begun = [Contestant("svd", flat) for flat in FLAT_FROM_SVD] + [Contestant("svd", explored=True)]
    others: list[Contestant] = []
    for place, flat in enumerate(FLAT_FROM_RANDOM):
        if isinstance(options, VI):  # modes have no mean field to settle
            others.append(Contestant("even", settled=QUICK if place == 2 else THOROUGH))
        others.append(Contestant("random", flat))
    return (begun + others * number)[:number]


def begin(
    contestant: Contestant, problem: Problem, rank: int, rng: np.random.Generator, threads: int | None, show: Show
) -> State:
    """Make the state that a contestant starts from.

    Parameters
    ----------
    show : callable
        Progress of an exploration, called with iterations done, iterations in all and the objective.

    Raises
    ------
    KeyboardInterrupt
        Ctrl-C was pressed: a start that is half made is nothing to keep.
    """
    if contestant.explored:
        return _explored(problem, rank, rng, threads, show)
    if contestant.flat:
        return flattened_state(problem, rank, rng, contestant.word, contestant.flat, threads)
    if not contestant.settled:
        return state_from_word(problem, contestant.word, rank, rng)
    state = random_state(problem, rank, rng, EVEN)
    schedule = Schedule("alternating", max_iter=SETTLED_ITERATIONS, tol=0, threads=threads)
    return led_up(problem, state, schedule, settling_steps(schedule, contestant.settled))


def _explored(problem: Problem, rank: int, rng: np.random.Generator, threads: int | None, show: Show) -> State:
    """Carry the conditionals at factors of high likelihood, which exchanges of components have led to."""
    flat = flat_problem(problem.counts)
    schedule = rough(
        Schedule("alternating", sweeps=ALGORITHMS["scd"].sweeps, max_iter=MOST_EXPLORED, window=WINDOW, threads=threads)
    )

    def climber(problem: Problem, state: State) -> Climb:
        steps = extrapolated(regression_steps(problem, schedule, "scd"), FLOOR)
        return climbing(
            lambda problem, held, *given: ascend(problem, held.pop(), given[0], steps, None, given[1]), problem, state
        )

    def show_climb(iteration: int, value: float, *_: object) -> None:
        show(iteration, MOST_EXPLORED, value)

    climb = climber(flat, data_state(flat, rank, rng))
    _, best = exchanged(climber, (climb, climb(schedule, show_climb)), schedule, rng, show_climb, show)
    if best.status.reason == INTERRUPTED:
        raise KeyboardInterrupt
    return at_factors(problem, best.state, threads)
