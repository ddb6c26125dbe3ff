"""Collapsed Gibbs sampling: draw the component of every single count given all others, with both sides integrated out.

The chain consists of assignments alone. For each kept draw, loadings and components are drawn from their conditionals
given its totals, so the posterior is the same as that of plain Gibbs sampling ([K] 7-9; mathematics.md section 4).
Components must be on the simplex.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from bayesnmf.inference.ascent.course import Progress
from bayesnmf.inference.marginal.allocation_model import urn_of
from bayesnmf.inference.problem import Problem, State
from bayesnmf.inference.sampling.clusters import DispersionDraws
from bayesnmf.inference.sampling.gibbs import Chain, Schedule, record_chain
from bayesnmf.inference.sides import allocate, objective, update_components, update_loadings
from bayesnmf.kernels.cpu.urn import Tokens, assign_tokens, reassign_tokens


def collapsed_gibbs_chain(
    problem: Problem,
    state: State,
    rng: np.random.Generator,
    schedule: Schedule,
    threads: int | None = None,
    progress: Progress | None = None,
) -> Chain:
    """Run one chain; parameters as in `bayesnmf.inference.sampling.gibbs.gibbs_chain`.

    The first assignments are drawn given the factors of `state`. A sweep uses one thread; `threads` are for the log
    joint, which is computed only for kept draws and reported as NaN for all others. During a long sweep `progress` is
    called several times with the previous sweep, so that it can raise an exception.
    """
    return record_chain(Reassigning(problem, state, rng, threads), schedule, progress)


class Reassigning:
    """Sweeps over all single counts; the first one assigns them given the factors of the start."""

    def __init__(self, problem: Problem, state: State, rng: np.random.Generator, threads: int | None) -> None:
        self.problem, self.state, self.rng, self.threads = problem, state, rng, threads
        self.progress: Progress | None = None
        self.dispersion = DispersionDraws(problem, rng, threads)
        rank, m = state.components.matrix.shape
        self.urn = urn_of(problem.loadings_prior, problem.components_prior, rank, m)  # type: ignore[arg-type]
        self.tokens: Tokens | None = None
        self.done = -1

    def __call__(self, keep: bool) -> tuple[State, float]:
        problem, seed, matrix = self.problem, int(self.rng.integers(2**63)), self.problem.counts.matrix
        if self.tokens is None:
            factors = self.state.loadings.geometric, self.state.components.geometric
            self.tokens = assign_tokens(matrix, *factors, seed, self._call_progress)
        else:
            reassign_tokens(matrix, self.tokens, self.urn, seed, self._call_progress)
        self.done += 1
        if not keep:
            return self.state, math.nan
        state = update_loadings(problem, self.state, self.tokens.loadings)
        self.state = update_components(problem, state, self.tokens.components.T)
        return self.state, objective(problem, self.state, allocate(problem, self.state, self.threads).loglik)

    @property
    def memory(self) -> Any:
        return tuple(self.state), self.tokens, self.done, self.rng.bit_generator.state

    @memory.setter
    def memory(self, kept: Any) -> None:
        sides, self.tokens, self.done, self.rng.bit_generator.state = kept
        self.state = State(*sides)

    def _call_progress(self) -> None:
        if self.progress is not None:
            self.progress(self.done, math.nan, self.state)
