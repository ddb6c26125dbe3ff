"""Draw the clusters that counts come in, or the rates of entries, and the dispersion, between sweeps over both sides.

Given the clusters, loadings and components are those of Poisson counts, with the clusters as the counts: so every Gibbs
sampler works as it is. A count that comes in clusters says as much of its mean as x / (1 + s) Poisson counts, and its
clusters as (λ / s) log(1 + s): at s = 1, 4 and 8 they hold back 28, 50 and 60 % of what a sweep could move.

The dispersion is drawn given the means, with the clusters summed out: a Metropolis step in log s of a length that the
curvature at the first state gives. Factors of batches are drawn given the clusters, or the rates.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from bayesnmf.data.batched import SHAPE
from bayesnmf.data.dispersed import LEAST
from bayesnmf.inference.batch_factors import means_of_batches
from bayesnmf.inference.blocked.passes import Pass, pass_over_rows
from bayesnmf.inference.evidence_of_dispersion import Evidence, ShapeEvidence, evidence_at
from bayesnmf.inference.problem import Problem, State
from bayesnmf.inference.rates import with_drawn_rates
from bayesnmf.inference.sampling.effects import EffectDraws, draw_scale_moves
from bayesnmf.inference.side import spread_at
from bayesnmf.inference.sides import Where, with_rates_at
from bayesnmf.kernels.cpu.clusters import cluster_sums, drawn_clusters
from bayesnmf.kernels.cpu.draws import gamma_draws
from bayesnmf.kernels.cpu.likelihood import entry_rates
from bayesnmf.noise.abilities import DISPERSION
from bayesnmf.priors import Distribution
from bayesnmf.priors.values import separate_scale
from bayesnmf.types import Array

REACH, STEPS = 2.4, 2  # lengths of steps in standard deviations, and steps a sweep


def seed_of_noise(problem: Problem, rng: np.random.Generator) -> int | None:
    """Return a seed for clusters or rates; None if the counts are Poisson, given the factors of any batches."""
    noisy = problem.counts.in_clusters or problem.counts.has_entry_rates
    return int(rng.integers(2**63)) if noisy else None


def with_rates(problem: Problem, state: State, seed: int | None, threads: int | None) -> Problem:
    """Return the problem with drawn rates of entries; the problem itself if its entries have none."""
    if seed is None or not problem.counts.has_entry_rates:
        return problem
    return with_drawn_rates(problem, state, seed, threads)


def with_clusters(problem: Problem, state: State, seed: int | None, threads: int | None, first: int = 0) -> Problem:
    """Return the problem with drawn clusters as Poisson counts, of rows from row `first` on; itself without any."""
    counts: Any = problem.counts
    if seed is None or not counts.in_clusters:
        return problem

    def draw(number: int, rows: slice, part: Any) -> Any:
        here = state._replace(loadings=state.loadings.block(number))
        factors = here.loadings.geometric, here.components.geometric
        return drawn_clusters(part.matrix, *factors, spread_at(part, here), seed, threads, first + rows.start)  # type: ignore[arg-type]

    return replace(problem, counts=counts.with_drawn_clusters(draw))


def log_likelihood_at(problem: Problem, state: State, threads: int | None) -> float:
    """Return ΣX log UV over the nonzeros, or ΣL of counts that cluster: ℓ of `bayesnmf.inference.sides.objective`."""

    def add(part: Problem, here: State, at: Where) -> tuple[None, None, float]:
        matrix, factors = part.counts.matrix, (here.loadings.geometric, here.components.geometric)
        spread, own = spread_at(part.counts, here), 1 if at.beside else threads
        if spread is not None:
            return None, None, float(cluster_sums(matrix, *factors, spread, own)[:, 0].sum())
        return None, None, float((matrix.data * np.log(entry_rates(matrix, *factors, own))).sum())

    return float(pass_over_rows(problem, state, add, Pass(writes=False))[0].more)


class Metropolis:
    """Steps in the logarithms of what is learned, of a length that the curvature at the first state gives.

    Attributes
    ----------
    length : ndarray or None
        Length of the steps in each; None before the first.
    """

    def __init__(self) -> None:
        self.length: Array | None = None

    def draw(self, evidence: Evidence, rng: np.random.Generator) -> Array:
        """Return new values, given what a state says of them."""
        s = evidence.values
        if self.length is None:
            s = evidence.best(s)
            self.length = REACH * evidence.deviation(s)
        now, noise = evidence.log_density(s), evidence.noise
        for _ in range(STEPS):
            new = s * np.exp(self.length * rng.standard_normal(len(s)))
            there = evidence.log_density(np.clip(new, LEAST, noise.largest))
            inside = (new >= LEAST) & (new <= noise.largest) & ~noise.held
            kept = (np.log(rng.random(len(s))) < there - now) & inside
            s, now = np.where(kept, new, s), np.where(kept, there, now)
        return s


class DrawnBeside:
    """Draws beside both sides: of dispersions, effects and factors of batches. The problem changes with them.

    Given the clusters or the rates of a state, which are drawn for it, the shape of factors and then these are drawn as
    of Poisson counts.

    Attributes
    ----------
    problem : Problem
        Problem with what is learned, and the current effects of covariates, but without drawn factors.
    memory : tuple
        What a checkpoint keeps.
    """

    def __init__(self, problem: Problem, rng: np.random.Generator, threads: int | None) -> None:
        self.problem, self.rng, self.threads = problem, rng, threads
        self.steps, self.steps_of_shape = Metropolis(), Metropolis()
        self.factors: Array | None = None
        prior: Any = problem.loadings_prior
        self.effects = EffectDraws(prior) if prior.has_effects else None

    @property
    def drawn(self) -> dict[str, Array]:
        """What is drawn beside both sides and factors, by name."""
        counts: Any = self.problem.counts
        found = {DISPERSION: counts.dispersions} if counts.learned else {}
        if counts.has_factors and counts.learns_shape:
            found[SHAPE] = np.array([counts.shape_of_factors])
        return found if self.effects is None else {**found, **self.effects.drawn}

    def draw_effects(self, loadings: Array, components: Array) -> Array | None:
        """Draw effects given both sides; return logarithms of factors of the components, (K,), None without any."""
        assert self.effects is not None
        self._take_effects(self.effects.draw(loadings, self.rng))
        v = draw_scale_moves(self.problem, components, self.rng)
        if v is not None:
            self._take_effects(self.effects.moved(v))
        return v

    def draw_effects_at(self, state: State) -> State:
        """Draw effects given a state; return the state, with other scales where the counts say nothing of these."""
        if self.effects is None:
            return state
        loadings, _ = separate_scale(state.loadings.whole()[0])
        components = state.components.matrix
        v = self.draw_effects(loadings, components)
        if v is None:
            return state._replace(loadings=state.loadings.unpenalised())
        moved, summary = np.asfortranarray(components * np.exp(v)[:, None]), self.problem.components_summary
        return State(state.loadings.rescaled(np.exp(-v)), summary.at(self.problem.components_prior, moved))  # type: ignore[attr-defined]

    @property
    def given(self) -> Problem:
        """The problem with the current factors of batches, if the counts are in batches."""
        counts: Any = self.problem.counts
        return self.problem if self.factors is None else self._with(counts.with_factors(self.factors, drawn=True))

    @property
    def memory(self) -> Any:
        own = self.problem.counts.memory, self.steps.length, self.steps_of_shape.length, self.factors
        return own if self.effects is None else (own, self.effects.memory)

    @memory.setter
    def memory(self, kept: Any) -> None:
        if self.effects is not None:
            kept, self.effects.memory = kept
            self._take_effects(self.effects.prior)
        memory, self.steps.length, self.steps_of_shape.length, self.factors = kept
        self.problem = self._with(self.problem.counts.recalled(memory))

    def draw(self, state: State) -> None:
        """Draw the dispersion given a state, and then the shape and the factors of batches."""
        counts: Any = self.problem.counts
        draws_factors = counts.has_factors and not counts.held
        if draws_factors and self.factors is None and not counts.summed_out:
            first: Any = with_rates_at(self.problem, state, self.threads).counts
            self.factors = first.factors
        if counts.learned:
            evidence = evidence_at(self.given, state, self.threads)
            self.problem = evidence.taken(self.problem, self.steps.draw(evidence, self.rng))
        if draws_factors:
            self._draw_factors(state)

    def _draw_factors(self, state: State) -> None:
        given = self.given, state, seed_of_noise(self.problem, self.rng), self.threads
        counts: Any = self.problem.counts
        means = means_of_batches(with_rates(*given), state)
        counted = counts.batches.totals(with_clusters(*given).counts) if counts.in_clusters else counts.of_batches
        if counts.learns_shape:
            evidence = ShapeEvidence(counts, counted, means)
            self.problem = evidence.taken(self.problem, self.steps_of_shape.draw(evidence, self.rng))
            counts = self.problem.counts
        shapes = counted + counts.shape_of_factors
        self.factors = gamma_draws(shapes, int(self.rng.integers(2**63)), 1) / (means + counts.shape_of_factors)

    def _with(self, counts: Any) -> Problem:
        return replace(self.problem, counts=counts)

    def _take_effects(self, prior: Distribution) -> None:
        self.problem = replace(self.problem, loadings_prior=prior)
