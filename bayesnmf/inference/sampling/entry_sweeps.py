"""Run one chain of Gibbs sampling with the allocations summed out; `marginal_gibbs` has what a sweep does."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from bayesnmf.inference.ascent.course import Progress
from bayesnmf.inference.problem import Problem, State
from bayesnmf.inference.sampling.batch_moves import with_batch_moves
from bayesnmf.inference.sampling.clusters import (
    DispersionDraws,
    log_likelihood_at,
    seed_of_noise,
    with_clusters,
    with_rates,
)
from bayesnmf.inference.sampling.gibbs import Chain, Schedule, record_chain
from bayesnmf.inference.sampling.marginal_gibbs import Factors, factors_of, state_of
from bayesnmf.inference.sides import objective


def marginal_gibbs_chain(
    problem: Problem,
    state: State,
    rng: np.random.Generator,
    schedule: Schedule,
    threads: int | None = None,
    progress: Progress | None = None,
) -> Chain:
    """Run one chain; parameters as in `bayesnmf.inference.sampling.gibbs.gibbs_chain`.

    The log joint is computed for draws alone, and reported as NaN for all other sweeps.
    """
    return record_chain(Entries(problem, state, rng, threads), schedule, progress)


class Entries:
    """Sweeps over the entries; the start is returned first, as it is."""

    def __init__(self, problem: Problem, state: State, rng: np.random.Generator, threads: int | None) -> None:
        self.state, self.rng, self.threads = state, rng, threads
        self.dispersion = DispersionDraws(problem, rng, threads)
        self.progress: Progress | None = None
        self.factors: Factors | None = None

    def __call__(self, keep: bool) -> tuple[State, float]:
        problem = self.dispersion.problem
        if self.factors is None:
            self.factors = factors_of(problem, self.state, self.rng)
            return self.state, np.nan
        counts = problem.counts
        if counts.in_clusters or counts.has_entry_rates or counts.has_factors:
            self._draw_noise(self.factors)
        self.factors.sweep(self.threads)
        if counts.has_factors:
            self._move_scales(self.factors)
        if self.dispersion.effects is not None:
            self._draw_effects(self.factors)
        if counts.has_entry_rates or counts.has_factors:  # in the unit that a checkpoint is read in
            self.factors.see(self.dispersion.problem)
        if not keep:
            return self.state, np.nan
        problem = self.dispersion.problem
        state = state_of(self.factors, problem)
        return state, objective(problem, state, log_likelihood_at(problem, state, self.threads))

    def _draw_noise(self, factors: Factors) -> None:
        """Draw the dispersion, and the clusters or rates that the next sweep is given."""
        state = state_of(factors, self.dispersion.problem)
        self.dispersion.draw(state)
        problem = self.dispersion.given
        given = state, seed_of_noise(problem, self.rng), self.threads
        factors.see(with_clusters(with_rates(problem, *given), *given))

    def _draw_effects(self, factors: Factors) -> None:
        """Draw the effects of covariates, and scales of components with them."""
        loadings = factors.loadings()
        v = self.dispersion.draw_effects(loadings, (factors.beta[0] / factors.features).T)
        if v is not None:
            factors.theta *= np.exp(-v)
            factors.beta *= np.exp(v)
        factors.problem = replace(factors.problem, loadings_prior=self.dispersion.problem.loadings_prior)

    def _move_scales(self, factors: Factors) -> None:
        """Move the scales of features and of rows of batches, beside those of drawn factors of batches."""
        given = self.dispersion.given
        moved, of_batches = with_batch_moves(given, state_of(factors, given), self.rng)
        self.dispersion.take_factors(of_batches)
        factors.theta[0] = moved.loadings.matrix * factors.rows
        factors.beta[0] = moved.components.matrix.T * factors.features

    @property
    def memory(self) -> Any:
        return self.factors and self.factors.memory, self.rng.bit_generator.state, self.dispersion.memory

    @memory.setter
    def memory(self, kept: Any) -> None:
        factors, state, self.dispersion.memory = kept
        if factors is not None:
            self.factors = factors_of(self.dispersion.problem, self.state, self.rng)
            self.factors.memory = factors
        self.rng.bit_generator.state = state
