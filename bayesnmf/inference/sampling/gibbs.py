"""Gibbs sampling: draw allocations given both sides, then each side given its totals.

S_i:j | θ, β ~ Multinomial(X_ij, φ_i:j). Then θ is drawn from its conditional given S and β, and β given S and the new θ
([K] section 3; mathematics.md section 4). Only the totals of the allocations are kept. If both sides have Gamma priors,
the scale of every component is then drawn, too.
"""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol

import numpy as np

from bayesnmf.inference.ascent.course import NOWHERE, Progress, Slot
from bayesnmf.inference.blocked.passes import pass_over_rows
from bayesnmf.inference.blocked.sides import RowSums
from bayesnmf.inference.blocked.tasks import Pass
from bayesnmf.inference.missing import imputes, seeds_of_missing
from bayesnmf.inference.problem import Problem, State
from bayesnmf.inference.sampling.batch_moves import with_batch_moves
from bayesnmf.inference.sampling.clusters import (
    DispersionDraws,
    log_likelihood_at,
    seed_of_noise,
    with_clusters,
    with_rates,
)
from bayesnmf.inference.sampling.draws_on_disk import RunningOnDisk
from bayesnmf.inference.sampling.running_moments import Running
from bayesnmf.inference.sampling.scales import moves_scales, with_scale_moves
from bayesnmf.inference.side import Side
from bayesnmf.inference.sides import Where, objective, update_components, update_loadings
from bayesnmf.inference.starts.states import skip_rows
from bayesnmf.kernels.cpu.allocation import Totals
from bayesnmf.kernels.cpu.sampling import sampled_allocations
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
    return with_batch_moves(problem, state, rng)[0], log_joint  # factors are drawn again before they are kept


def _plus(one: RowSums | None, two: RowSums | None) -> RowSums | None:
    return None if one is None or two is None else one + two


class Sweeps(Protocol):
    """What runs the sweeps of a chain.

    Attributes
    ----------
    memory : object
        What a checkpoint keeps of it, with the state of its random generator.
    progress : callable or None
        What a long sweep calls now and then, so that it can raise an exception.
    dispersion : DispersionDraws
        Dispersion and effects of the last draw.
    """

    memory: Any
    progress: Progress | None
    dispersion: DispersionDraws

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

    def __init__(self, sweeps: Sweeps, slot: Slot = NOWHERE, running: Running | RunningOnDisk | None = None) -> None:
        self.sweeps, self.slot, self.running = sweeps, slot, running
        self.kept: list[Any] = []
        self.log_joint: list[float] = []
        self.beside: list[dict[str, Array]] = []
        self.done, self.thin = 0, 1
        self._places: list[int] = []  # of the kept draws among the pieces of the slot
        self._added = 0
        ended = slot.result()
        self._ended = ended is not None
        begun = slot.snapshot() if ended is None else ended
        if begun is not None:
            self.done, self.thin, self._added, places, self.log_joint, self.beside, sweeps.memory, kept = begun
            pieces = slot.pieces(self._added)
            self._places = places.tolist()
            self.kept = [pieces[place] for place in self._places]
            if running is not None:
                running.memory = kept

    @property
    def memory(self) -> tuple[Any, ...]:
        """What a checkpoint keeps, beside the draws."""
        places = np.array(self._places, np.int64)
        running = self.running and self.running.memory
        return (
            self.done, self.thin, self._added, places, self.log_joint, self.beside, self.sweeps.memory, running
        )  # fmt: skip

    def run(self, schedule: Schedule, progress: Progress | None) -> Chain:
        """Run the chain to the end of a schedule and return its draws; after Ctrl-C, the draws so far."""
        self._thin_to(schedule.thin)
        self.sweeps.progress = progress
        try:
            for done in range(self.done, schedule.sweeps + 1):
                if self.slot.due():
                    self.slot.save(self.memory)
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
            self.slot.end(self.memory)

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

    def __init__(self, problem: Problem, state: State, rng: np.random.Generator, threads: int | None) -> None:
        self.dispersion = DispersionDraws(problem, rng, threads)
        self.state, self.rng, self.threads = state, rng, threads
        self.progress: Progress | None = None

    def __call__(self, keep: bool) -> tuple[State, float]:
        before = self.state
        self.dispersion.draw(before)
        before = self.dispersion.draw_effects_at(before)
        self.state, log_joint = sweep(self.dispersion.given, before, self.rng, self.threads)
        return before, log_joint

    @property
    def memory(self) -> Any:
        return tuple(self.state), self.rng.bit_generator.state, self.dispersion.memory

    @memory.setter
    def memory(self, kept: Any) -> None:
        sides, self.rng.bit_generator.state, self.dispersion.memory = kept
        self.state = State(*sides)


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
