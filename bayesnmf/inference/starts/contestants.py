"""The starts that race, and how each is made.

If a shape or concentration is below 1, each row soon keeps its first components, and those of a plain start are still
poor. Starts for sparse priors are therefore prepared first: by coordinate descent on the likelihood alone, with
exchanges of components, or by variational inference that resettles the loadings in every iteration. The best
preparation differs between data sets (`benchmarks/defaults.md`).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from bayesnmf.inference.ascent.coordinate_ascent import Schedule, ascend
from bayesnmf.inference.ascent.course import WINDOW
from bayesnmf.inference.ascent.extrapolation import extrapolated_steps
from bayesnmf.inference.ascent.poisson_regression import FLOOR, regression_steps
from bayesnmf.inference.ascent.settled_loadings import SETTLED_ITER, settling_steps
from bayesnmf.inference.sides import Problem, State
from bayesnmf.inference.starts.exchanging import exchange_components, rough_schedule
from bayesnmf.inference.starts.from_data import (
    data_state,
    flat_problem,
    flattened_state,
    state_after_steps,
    state_at_factors,
    state_from_word,
)
from bayesnmf.inference.starts.racing import Climb, Show, make_climb
from bayesnmf.inference.starts.states import random_state
from bayesnmf.inference.status import INTERRUPTED
from bayesnmf.options.algorithms import ALGORITHMS
from bayesnmf.options.defaults import has_sparse_prior
from bayesnmf.priors import Priors

# Iterations without priors, before sparse priors are used: few were best on small counts, many on large counts.
FLAT_FROM_SVD, FLAT_FROM_RANDOM = (0, 5), (5, 20, 50)
MOST_EXPLORED = 200  # iterations without priors, including those between exchanges of components
SETTLED_ITERATIONS = 15
THOROUGH, QUICK = 100, SETTLED_ITER  # largest number of updates of a row in each of these iterations
EVEN = 100.0  # concentration of the shares of a nearly equal start


class Contestant(NamedTuple):
    """A start that races, and its preparation.

    Attributes
    ----------
    word : {"svd", "random", "even"}
        Kind of start: a singular value decomposition, counts divided at random, or counts divided nearly equally.
    flat : int
        Number of iterations of coordinate descent on the likelihood alone
        (`bayesnmf.inference.starts.from_data.flattened_state`).
    explored : bool
        Whether to continue this descent as long as exchanges of components raise the likelihood.
    settled : int
        Largest number of updates of a row in each of 15 iterations that resettle the loadings; 0 for none.
    """

    word: str
    flat: int = 0
    explored: bool = False
    settled: int = 0


def choose_contestants(priors: Priors, number: int, *, mean_field: bool) -> list[Contestant]:
    """Return the starts that race: "svd", then random ones; with preparations under sparse priors."""
    if not has_sparse_prior(priors):
        return [Contestant("svd" if place == 0 else "random") for place in range(number)]
    begun = [Contestant("svd", flat) for flat in FLAT_FROM_SVD] + [Contestant("svd", explored=True)]
    others: list[Contestant] = []
    for place, flat in enumerate(FLAT_FROM_RANDOM):
        if mean_field:  # only mean fields can be settled
            others.append(Contestant("even", settled=QUICK if place == 2 else THOROUGH))
        others.append(Contestant("random", flat))
    return (begun + others * number)[:number]


def starting_state(
    contestant: Contestant, problem: Problem, rank: int, rng: np.random.Generator, threads: int | None, show: Show
) -> State:
    """Return the state that a contestant starts from.

    Parameters
    ----------
    show : callable
        Function for progress, called with iterations done, iterations in all and the objective.

    Raises
    ------
    KeyboardInterrupt
        Ctrl-C was pressed; an unfinished start is not kept.
    """
    if contestant.explored:
        return _explored_state(problem, rank, rng, threads, show)
    if contestant.flat:
        return flattened_state(problem, rank, rng, contestant.word, contestant.flat, threads)
    if not contestant.settled:
        return state_from_word(problem, contestant.word, rank, rng)
    state = random_state(problem, rank, rng, EVEN)
    schedule = Schedule("alternating", max_iter=SETTLED_ITERATIONS, tol=0, threads=threads)
    return state_after_steps(problem, state, schedule, settling_steps(schedule, contestant.settled))


def _explored_state(problem: Problem, rank: int, rng: np.random.Generator, threads: int | None, show: Show) -> State:
    """Return the state of the conditionals at factors of high likelihood, found by exchanges of components."""
    flat = flat_problem(problem.counts)
    schedule = rough_schedule(
        Schedule("alternating", sweeps=ALGORITHMS["scd"].sweeps, max_iter=MOST_EXPLORED, window=WINDOW, threads=threads)
    )

    def climber(problem: Problem, state: State) -> Climb:
        steps = extrapolated_steps(regression_steps(problem, schedule, "scd"), FLOOR)
        return make_climb(
            lambda problem, held, *given: ascend(problem, held.pop(), given[0], steps, None, given[1]), problem, state
        )

    def show_climb(iteration: int, value: float, *_: object) -> None:
        show(iteration, MOST_EXPLORED, value)

    climb = climber(flat, data_state(flat, rank, rng))
    _, best = exchange_components(climber, (climb, climb(schedule, show_climb)), schedule, rng, show_climb, show)
    if best.status.reason == INTERRUPTED:
        raise KeyboardInterrupt
    return state_at_factors(problem, best.state, threads)
