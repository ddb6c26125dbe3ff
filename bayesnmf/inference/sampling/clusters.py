"""Draw the clusters that counts come in, or the rates of entries, and the dispersion, between sweeps over both sides.

Given the clusters, loadings and components are those of Poisson counts, with the clusters as the counts: so every Gibbs
sampler works as it is. A count that comes in clusters says as much of its mean as x / (1 + s) Poisson counts, and its
clusters as (λ / s) log(1 + s): at s = 1, 4 and 8 they hold back 28, 50 and 60 % of what a sweep could move.

The dispersion is drawn given the means, with the clusters summed out: a Metropolis step in log s of a length that the
curvature at the first state gives.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from bayesnmf.data.batched import SHAPE
from bayesnmf.data.dispersed import LEAST
from bayesnmf.inference.blocked.passes import Pass, pass_over_rows
from bayesnmf.inference.evidence_of_dispersion import evidence_at
from bayesnmf.inference.problem import Problem, State
from bayesnmf.inference.rates import with_drawn_rates
from bayesnmf.inference.sampling.effects import EffectDraws, draw_scale_moves
from bayesnmf.inference.sides import Where, spread_at
from bayesnmf.kernels.cpu.clusters import cluster_sums, drawn_clusters
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


class DispersionDraws:
    """Draws beside both sides, of the dispersion if it is learned, and of effects; the problem changes with them.

    Attributes
    ----------
    problem : Problem
        Problem with the current dispersion, and the current effects of covariates.
    memory : tuple
        What a checkpoint keeps.
    """

    def __init__(self, problem: Problem, rng: np.random.Generator, threads: int | None) -> None:
        self.problem, self.rng, self.threads = problem, rng, threads
        self.length: Array | None = None
        self._drawn: Any = None  # the counts with the current factors of batches
        prior: Any = problem.loadings_prior
        self.effects = EffectDraws(prior) if prior.has_effects else None

    @property
    def drawn(self) -> dict[str, Array]:
        """What is drawn beside both sides, by name."""
        own = self.dispersions
        dispersions = {} if own is None else {DISPERSION: own}
        if own is not None and self.problem.counts.has_factors:
            dispersions = {SHAPE: np.asarray(1.0 / own)}
        return dispersions if self.effects is None else {**dispersions, **self.effects.drawn}

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
        return self.problem if self._drawn is None else replace(self.problem, counts=self._drawn)

    @property
    def factors(self) -> Array | None:
        """The current factors of batches, (B, m); None if there are none to draw."""
        return None if self._drawn is None else self._drawn.factors

    def take_factors(self, factors: Array | None) -> None:
        """Take factors of batches (B, m) that have moved together with both sides; None changes nothing."""
        if factors is not None:
            self._drawn = replace(self._drawn, factors=factors)

    @property
    def active(self) -> bool:
        """Whether there is a dispersion to draw."""
        return bool(self.problem.counts.learned)

    @property
    def dispersions(self) -> Array | None:
        """The current dispersions; None if they are not drawn."""
        return self.problem.counts.dispersions if self.active else None  # type: ignore[attr-defined]

    @property
    def memory(self) -> Any:
        own = None if not self.active else (self.dispersions, self.length)
        return own if self.effects is None else (own, self.effects.memory)

    @memory.setter
    def memory(self, kept: Any) -> None:
        if self.effects is not None:
            kept, self.effects.memory = kept
            self._take_effects(self.effects.prior)
        if kept is not None:
            dispersions, self.length = kept
            self._take(dispersions)

    def draw(self, state: State) -> None:
        """Draw the dispersion given a state, and then the factors of batches."""
        if self.active:
            self._draw_dispersion(state)
        counts = self.problem.counts
        if counts.has_factors and not counts.held:
            self._drawn = with_drawn_rates(self.problem, state, int(self.rng.integers(2**63)), self.threads).counts

    def _draw_dispersion(self, state: State) -> None:
        evidence = evidence_at(self.problem, state, self.threads)
        s: Any = self.dispersions
        if self.length is None:
            s = evidence.best(s)
            self.length = REACH * evidence.deviation(s)
        counts: Any = self.problem.counts
        now, held = evidence.log_density(s), counts.noise.held
        for _ in range(STEPS):
            new = s * np.exp(self.length * self.rng.standard_normal(len(s)))
            there = evidence.log_density(np.clip(new, LEAST, counts.noise.largest))
            inside = (new >= LEAST) & (new <= counts.noise.largest) & ~held
            kept = (np.log(self.rng.random(len(s))) < there - now) & inside
            s, now = np.where(kept, new, s), np.where(kept, there, now)
        self._take(s)

    def _take_effects(self, prior: Distribution) -> None:
        self.problem = replace(self.problem, loadings_prior=prior)

    def _take(self, dispersions: Array) -> None:
        counts: Any = self.problem.counts
        self.problem = replace(self.problem, counts=counts.with_dispersions(dispersions))
