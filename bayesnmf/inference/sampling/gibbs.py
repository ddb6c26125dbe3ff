"""Gibbs sampling, in three ways: what a sweep of each draws, and the loop that records their chains.

*Allocations*: draw allocations given both sides, then each side given its totals. S_i:j | θ, β ~ Multinomial(X_ij,
φ_i:j). Then θ is drawn from its conditional given S and β, and β given S and the new θ ([K] section 3; mathematics.md
section 4). Only the totals of the allocations are kept. If both sides have Gamma priors, the scale of every component
is then drawn, too.

*Marginal*: draw the entries of both sides with the allocations summed out (`marginal_gibbs`).

*Collapsed*: draw the component of every single count given all others, with both sides integrated out. The chain
consists of assignments alone. For each kept draw, loadings and components are drawn from their conditionals given its
totals, so the posterior is the same as that of plain Gibbs sampling ([K] 7-9; mathematics.md section 4). Components
must be on the simplex.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any, NamedTuple, Protocol

import numpy as np

from bayesnmf.inference.ascent.course import Progress
from bayesnmf.inference.blocked.passes import Pass, pass_over_rows
from bayesnmf.inference.blocked.sides import RowSums
from bayesnmf.inference.checkpoints.slots import NOWHERE, Slot
from bayesnmf.inference.marginal.allocation_model import urn_of
from bayesnmf.inference.missing import imputes, seeds_of_missing
from bayesnmf.inference.problem import Problem, State
from bayesnmf.inference.sampling.batch_moves import with_batch_moves
from bayesnmf.inference.sampling.clusters import (
    DrawnBeside,
    log_likelihood_at,
    seed_of_noise,
    with_clusters,
    with_rates,
)
from bayesnmf.inference.sampling.marginal_gibbs import Factors, factors_of, state_of
from bayesnmf.inference.sampling.running_moments import Running, RunningOnDisk
from bayesnmf.inference.sampling.scales import moves_scales, with_scale_moves
from bayesnmf.inference.side import Side
from bayesnmf.inference.sides import Where, allocate, objective, update_components, update_loadings
from bayesnmf.inference.starts.states import skip_rows
from bayesnmf.kernels.cpu.allocation import Totals
from bayesnmf.kernels.cpu.sampling import sampled_allocations
from bayesnmf.kernels.cpu.urn import Tokens, assign_tokens, reassign_tokens
from bayesnmf.types import Array


class Schedule(NamedTuple):
    """Number of sweeps of a chain, and draws to keep.

    Attributes
    ----------
    warmup, draws, thin : int
        Number of warm-up sweeps, of draws, and of sweeps per draw.
    every : int
        Distance between kept draws; the first draw is kept.
    running : Running, RunningOnDisk or None
        Moments that every draw is added to.
    slot : Slot
        Place of the chain in a checkpoint.
    """

    warmup: int
    draws: int
    thin: int
    every: int = 1
    running: Running | RunningOnDisk | None = None
    slot: Slot = NOWHERE

    @property
    def sweeps(self) -> int:
        """Number of sweeps."""
        return self.warmup + self.draws * self.thin


class Chain(NamedTuple):
    """Kept draws of one chain, pairs of loadings and components; for every draw the log joint and what else is drawn.

    Loadings of counts on disk are `BlockedLoadings`. Beside them are dispersions and effects, if they are drawn. Draws
    of counts in batches have a third part, the factors.
    """

    draws: list[Any]
    log_joint: list[float]
    interrupted: bool
    beside: list[dict[str, Array]]


def choose_chains(lengths: list[int]) -> tuple[list[int], int]:
    """Return the chains and the common length that keep the most draws; lengths differ after Ctrl-C.

    Raises
    ------
    KeyboardInterrupt
        No chain has a draw.
    """
    longest = sorted(range(len(lengths)), key=lambda chain: -lengths[chain])
    kept = max(range(1, len(lengths) + 1), key=lambda chains: chains * lengths[longest[chains - 1]])
    length = lengths[longest[kept - 1]]
    if length <= 0:
        raise KeyboardInterrupt
    return sorted(longest[:kept]), length


def sweep(problem: Problem, state: State, rng: np.random.Generator, threads: int | None) -> tuple[State, float]:
    """Draw allocations, loadings and components once; return the new state and the log joint of the old state.

    Clusters are allocated where the counts come in clusters; where entries have rates, they are exposed to drawn ones.
    Random numbers belong to rows, so draws do not depend on how the rows are cut into blocks.
    """
    noise = seed_of_noise(problem, rng)
    given = with_rates(problem, state, noise, threads)
    seed, unknown = int(rng.integers(2**63)), np.isnan(state.loadings.penalty)  # after a move of their scale

    def update(part: Problem, here: State, at: Where) -> tuple[Side, Totals, RowSums | None]:
        summary: Any = part.loadings_summary
        now = summary.at(part.loadings_prior, here.loadings.value) if unknown else None
        factors, first = (here.loadings.geometric, here.components.geometric), at.rows.start
        own = 1 if at.beside else threads
        poisson = with_clusters(part, here, noise, own, first)
        totals = sampled_allocations(poisson.counts.matrix, *factors, seed, own, first)
        if noise is not None:
            totals = totals._replace(loglik=log_likelihood_at(part, here, own))
        drawn = update_loadings(poisson, here, totals.loadings).loadings
        return drawn, totals, None if now is None else RowSums.of(part.counts, now)

    found, loadings = pass_over_rows(given, state, update, Pass(plus=_plus))
    skip_rows(problem.loadings_summary, problem.loadings_prior, len(state.components.geometric), again=True)
    if imputes(given, "loadings"):
        seeds_of_missing(problem.loadings_summary)  # takes what all rows take
    before = state if found.more is None else state._replace(loadings=state.loadings.with_sums(found.more))
    log_joint = objective(problem, before, found.loglik)
    assert found.components is not None
    state = update_components(given, State(loadings, state.components), found.components.T)
    if not problem.fixed_components and moves_scales(problem):
        state = with_scale_moves(problem, state, rng)
    return state, log_joint


def _plus(one: RowSums | None, two: RowSums | None) -> RowSums | None:
    return None if one is None or two is None else one + two


class Sweeps(Protocol):
    """What runs the sweeps of a chain.

    Attributes
    ----------
    progress : callable or None
        What a long sweep calls now and then, so that it can raise an exception.
    dispersion : DrawnBeside
        Dispersion and effects of the last draw.
    """

    progress: Progress | None
    dispersion: DrawnBeside

    def __call__(self, keep: bool) -> tuple[State, float]:
        """Return the next state and its log joint, first those of the start; `keep` says whether it is a draw."""


class Recording:
    """The draws of a chain so far; it goes on with every call of `run`, after a checkpoint from where it was.

    Parameters
    ----------
    sweeps : Sweeps
    slot : Slot
        Place of the chain in a checkpoint, which keeps every draw that ever was kept.
    running : Running, RunningOnDisk or None
        Moments that every draw is added to.
    """

    checkpointed = "done", "thin", "log_joint", "beside", "sweeps", "running", "_places", "_added"

    def __init__(self, sweeps: Sweeps, slot: Slot = NOWHERE, running: Running | RunningOnDisk | None = None) -> None:
        self.sweeps, self.slot, self.running = sweeps, slot, running
        self.log_joint: list[float] = []
        self.beside: list[dict[str, Array]] = []
        self.done, self.thin = 0, 1
        self._places: list[int] = []  # of the kept draws among the pieces of the slot
        self._added = 0
        self._ended = slot.recall(self) == "ended"
        pieces = slot.pieces(self._added)
        self.kept = [pieces[place] for place in self._places]

    def run(self, schedule: Schedule, progress: Progress | None) -> Chain:
        """Run the chain to the end of a schedule and return its draws; after Ctrl-C, the draws so far."""
        self._thin_to(schedule.thin)
        self.sweeps.progress = progress
        try:
            for done in range(self.done, schedule.sweeps + 1):
                if self.slot.due():
                    self.slot.save(self)
                is_draw = done > schedule.warmup and (done - schedule.warmup) % schedule.thin == 0
                state, value = self.sweeps(is_draw)
                if is_draw:
                    self._record(state, schedule.every)
                    self.log_joint.append(value)
                    self.beside.append(self.sweeps.dispersion.drawn)
                self.done = done + 1
                if progress is not None and done < schedule.sweeps:
                    progress(done, value, state)
        except KeyboardInterrupt:
            kept = self.kept[: -(-len(self.log_joint) // schedule.every)]
            return Chain(kept, self.log_joint, True, self.beside[: len(self.log_joint)])
        return Chain(self.kept, self.log_joint, False, self.beside)

    def end(self) -> None:
        """Say that the chain has ended, so that a later call has its draws at once."""
        if not self._ended:
            self.slot.end(self)

    def _thin_to(self, thin: int) -> None:
        """Drop the draws that a chain with this many sweeps per draw would not have."""
        if self.log_joint:
            times = thin // self.thin
            kept = slice(times - 1, None, times)
            self.kept, self.log_joint, self._places = self.kept[kept], self.log_joint[kept], self._places[kept]
            self.beside = self.beside[kept]
        self.thin = thin

    def _record(self, state: State, every: int) -> None:
        """Keep the next draw if it is to be kept, and add it to the moments."""
        loadings: Any = state.loadings
        own: Any = loadings.drawn, state.components.value
        factors = self.sweeps.dispersion.factors
        draw: Any = own if factors is None else (*own, factors)
        if len(self.log_joint) % every == 0:
            self.kept.append(draw)
            self.slot.add(draw)
            self._places.append(self._added)
            self._added += 1
        if self.running is not None:
            self.running.add(*own)


def record_chain(sweeps: Sweeps, schedule: Schedule, progress: Progress | None) -> Chain:
    """Run a chain by one schedule and return its draws; after Ctrl-C, the draws so far."""
    recording = Recording(sweeps, schedule.slot, schedule.running)
    chain = recording.run(schedule, progress)
    if not chain.interrupted:
        recording.end()
    return chain


class Allocating:
    """Sweeps that draw allocations; each computes the log joint of the state before it, which is returned with it."""

    checkpointed = "state", "rng", "dispersion"

    def __init__(self, problem: Problem, state: State, rng: np.random.Generator, threads: int | None) -> None:
        self.dispersion = DrawnBeside(problem, rng, threads)
        self.state, self.rng, self.threads = state, rng, threads
        self.progress: Progress | None = None

    def __call__(self, keep: bool) -> tuple[State, float]:
        before, factors = with_batch_moves(self.dispersion.given, self.state, self.rng)
        self.dispersion.factors = self.dispersion.factors if factors is None else factors
        self.dispersion.draw(before)
        before = self.dispersion.draw_effects_at(before)
        self.state, log_joint = sweep(self.dispersion.given, before, self.rng, self.threads)
        return before, log_joint


def gibbs_chain(
    problem: Problem,
    state: State,
    rng: np.random.Generator,
    schedule: Schedule,
    threads: int | None = None,
    progress: Progress | None = None,
) -> Chain:
    """Run one chain.

    Parameters
    ----------
    problem : Problem
        Problem with draws from `rng` as the summaries of both sides.
    state : State
        State to start from, which is not a draw.
    schedule : Schedule
        Number of sweeps, and draws to keep.
    """
    return record_chain(Allocating(problem, state, rng, threads), schedule, progress)


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
        self.dispersion = DrawnBeside(problem, rng, threads)
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
        problem = self.dispersion.given
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
        self.dispersion.factors = self.dispersion.factors if of_batches is None else of_batches
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

    checkpointed = "state", "tokens", "done", "rng"

    def __init__(self, problem: Problem, state: State, rng: np.random.Generator, threads: int | None) -> None:
        self.problem, self.state, self.rng, self.threads = problem, state, rng, threads
        self.progress: Progress | None = None
        self.dispersion = DrawnBeside(problem, rng, threads)
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

    def _call_progress(self) -> None:
        if self.progress is not None:
            self.progress(self.done, math.nan, self.state)
