"""Learn a dispersion while a fit goes on: a step of Newton's method in its logarithm at each state."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from bayesnmf.inference.evidence_of_dispersion import MOST, NEAR, Evidence, evidence_at
from bayesnmf.inference.problem import Problem, State
from bayesnmf.inference.sides import allocate, objective, with_rates_at
from bayesnmf.types import Array

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
        What a checkpoint keeps: whether it has begun, the states to wait for, and how many there were to wait for; then
        the same of a learner that comes after it.
    """

    def __init__(self, threads: int | None, then: Learn | None = None) -> None:
        self.threads, self.then = threads, then
        self.begun, self.waits, self.rest = 0, 0, 0

    @property
    def memory(self) -> tuple[int, ...]:
        others = self.then.memory if isinstance(self.then, DispersionLearner) else ()
        return self.begun, self.waits, self.rest, *others

    @memory.setter
    def memory(self, kept: tuple[int, ...]) -> None:
        self.begun, self.waits, self.rest, *others = kept
        if isinstance(self.then, DispersionLearner):
            self.then.memory = tuple(others)

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
        evidence = self.evidence_at(problem, state)
        s = evidence.best(evidence.values, 1 if self.begun else MOST)
        found = evidence.taken(problem, s)
        if self.may_fall(problem):
            found, s = _without_fall(problem, found, s, evidence, state, self.threads)
        short = np.abs(np.log(s / evidence.values)).max() < NEAR
        self.rest = min(max(2 * self.rest, 1), REST) if short else 0
        self.begun, self.waits = 1, self.rest
        return found

    def evidence_at(self, problem: Problem, state: State) -> Evidence:
        """Return what a state says of what is learned, with the factors of batches that are expected there."""
        given = with_rates_at(problem, state, self.threads) if problem.counts.has_factors else problem
        return evidence_at(given, state, self.threads)

    def may_fall(self, problem: Problem) -> bool:
        """Return whether a step of Newton's method may lower the objective."""
        return not problem.counts.in_clusters


def learner_of(problem: Problem, threads: int | None, then: Learn | None = None) -> DispersionLearner | None:
    """Return what learns the dispersion of a problem, and then its priors; None if there is no dispersion to learn."""
    return DispersionLearner(threads, then) if problem.counts.learned else None


def _without_fall(
    problem: Problem, found: Problem, s: Array, evidence: Evidence, state: State, threads: int | None
) -> tuple[Problem, Array]:
    """Return a problem with new dispersions, closer to the old ones if need be, that lowers the objective in no case.

    Newton's method holds what the state expects of rates and clusters, which depends on the dispersion. The dispersions
    are returned, too.
    """
    problem = with_rates_at(problem, state, threads)
    here = _value_at(problem, state, threads)
    for _ in range(MOST):
        found = with_rates_at(found, state, threads)
        if _value_at(found, state, threads) >= here - np.finfo(np.float64).eps * abs(here):
            return found, s
        s = np.sqrt(s * evidence.values)
        found = evidence.taken(problem, s)
    return problem, evidence.values


def _value_at(problem: Problem, state: State, threads: int | None) -> float:
    """Return the objective at a state but for what no dispersion changes."""
    loglik = allocate(problem, state, threads, "loadings").loglik if problem.counts.in_clusters else 0.0
    return objective(problem, state, loglik)
