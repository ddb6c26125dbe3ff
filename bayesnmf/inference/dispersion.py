"""Learn a dispersion while a fit goes on: a step of Newton's method in its logarithm at each state."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from bayesnmf.inference.evidence_of_dispersion import MOST, NEAR, evidence_at
from bayesnmf.inference.problem import Problem, State
from bayesnmf.inference.sides import objective, with_rates_at

Learn = Callable[[Problem, State], tuple[Problem, State]]
REST = 8  # most iterations between two steps once steps are short


class DispersionLearner:
    """Replaces the dispersion of a problem by a better one at each state, or after a rest where steps are short.

    Parameters
    ----------
    threads : int or None
    then : callable, optional
        What learns the priors at the same state, after the dispersion.

    Attributes
    ----------
    memory : tuple of int
        What a checkpoint keeps: whether it has begun, the states to wait for, and how many there were to wait for.
    """

    def __init__(self, threads: int | None, then: Learn | None = None) -> None:
        self.threads, self.then = threads, then
        self.begun, self.waits, self.rest = 0, 0, 0

    @property
    def memory(self) -> tuple[int, int, int]:
        return self.begun, self.waits, self.rest

    @memory.setter
    def memory(self, kept: tuple[int, int, int]) -> None:
        self.begun, self.waits, self.rest = kept

    def kept_with(self, problem: Problem) -> Any:
        """Return what a checkpoint keeps of the learner and the dispersion of a problem."""
        counts: Any = problem.counts
        return self.memory, counts.dispersions

    def gone_on(self, problem: Problem, kept: Any) -> Problem:
        """Return a problem with the dispersion that a checkpoint kept, and go on from there."""
        self.memory, dispersions = kept
        counts: Any = problem.counts
        return replace(problem, counts=counts.with_dispersions(dispersions))

    def __call__(self, problem: Problem, state: State) -> tuple[Problem, State]:
        """Return the problem with a new dispersion, and with new priors if these are learned, too."""
        problem = self._with_dispersion(problem, state)
        return (problem, state) if self.then is None else self.then(problem, state)

    def _with_dispersion(self, problem: Problem, state: State) -> Problem:
        if self.waits > 0:
            self.waits -= 1
            return problem
        counts: Any = problem.counts
        s = evidence_at(problem, state, self.threads).best(counts.dispersions, 1 if self.begun else MOST)
        found = replace(problem, counts=counts.with_dispersions(s))
        if not counts.in_clusters:
            found = _without_fall(problem, found, state, self.threads)
        new: Any = found.counts
        short = np.abs(np.log(new.dispersions / counts.dispersions)).max() < NEAR
        self.rest = min(max(2 * self.rest, 1), REST) if short else 0
        self.begun, self.waits = 1, self.rest
        return found


def learner_of(problem: Problem, threads: int | None, then: Learn | None = None) -> DispersionLearner | None:
    """Return what learns the dispersion of a problem, and then its priors; None if there is no dispersion to learn."""
    return DispersionLearner(threads, then) if problem.counts.learned else None


def _without_fall(problem: Problem, found: Problem, state: State, threads: int | None) -> Problem:
    """Return a problem with a new dispersion, closer to the old one if need be, that lowers the objective in no case.

    Newton's method holds ρ, which depends on the dispersion where ceilings bound the rates.
    """
    problem = with_rates_at(problem, state, threads)
    counts: Any = problem.counts
    here = objective(problem, state, 0.0)
    for _ in range(MOST):
        found = with_rates_at(found, state, threads)
        if objective(found, state, 0.0) >= here - np.finfo(np.float64).eps * abs(here):
            return found
        between: Any = found.counts
        found = replace(problem, counts=counts.with_dispersions(np.sqrt(between.dispersions * counts.dispersions)))
    return problem
