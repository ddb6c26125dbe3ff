"""Gibbs sampling: draw allocations given both sides, then each side given its totals.

S_i:j | θ, β ~ Multinomial(X_ij, φ_i:j). Then θ is drawn from its conditional given S and β, and β given S and the new θ
([K] section 3; mathematics.md section 4). Only the totals of the allocations are kept. If both sides have Gamma priors,
the scale of every component is then drawn, too.
"""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from bayesnmf.inference.ascent.coordinate_ascent import Progress
from bayesnmf.inference.checkpoints.slots import NOWHERE, Slot
from bayesnmf.inference.sampling.draws_on_disk import RunningOnDisk
from bayesnmf.inference.sampling.gibbs_on_disk import sweep_on_disk
from bayesnmf.inference.sampling.running_moments import Running
from bayesnmf.inference.sampling.scales import moves_scales, with_scale_moves
from bayesnmf.inference.sides import Problem, State, objective, update_components, update_loadings
from bayesnmf.kernels.cpu.sampling import sampled_allocations
from bayesnmf.priors.values import Value

Array = NDArray[Any]


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
    """Kept draws of one chain, as pairs of loadings and components, and the log joint of every draw.

    Loadings of counts on disk are `BlockedLoadings`.
    """

    draws: list[tuple[Any, Value]]
    log_joint: list[float]
    interrupted: bool


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
    """Draw allocations, loadings and components once; return the new state and the log joint of the old state."""
    seed = int(rng.integers(2**63))
    totals = sampled_allocations(
        problem.counts.matrix, state.loadings.geometric, state.components.geometric, seed, threads
    )
    log_joint = objective(problem, state, totals.loglik)
    state = update_loadings(problem, state, totals.loadings)
    state = update_components(problem, state, totals.components)
    if not problem.fixed_components and moves_scales(problem):
        state = with_scale_moves(problem, state, rng)
    return state, log_joint


class Sweeps(Protocol):
    """What runs the sweeps of a chain.

    Attributes
    ----------
    memory : object
        What a checkpoint keeps of it, with the state of its random generator.
    """

    memory: Any

    def __call__(self, keep: bool) -> tuple[State, float]:
        """Return the next state and its log joint, first those of the start; `keep` says whether it is a draw."""


def record_chain(sweeps: Sweeps, schedule: Schedule, progress: Progress | None) -> Chain:
    """Run a chain and return its draws; after Ctrl-C, the draws so far.

    Parameters
    ----------
    sweeps : Sweeps
    schedule : Schedule
        Number of sweeps, and draws to keep.
    """
    kept: list[tuple[Any, Value]] = []
    log_joint: list[float] = []
    slot, first = schedule.slot, 0
    ended = slot.result()
    begun = slot.snapshot() if ended is None else ended
    if begun is not None:
        first, pieces, log_joint, sweeps.memory, running = begun
        kept = slot.pieces(pieces)
        if schedule.running is not None:
            schedule.running.memory = running

    def memory(done: int) -> tuple[Any, ...]:
        return done, len(kept), log_joint, sweeps.memory, schedule.running and schedule.running.memory

    try:
        for done in range(first, schedule.sweeps + 1):
            if slot.due():
                slot.save(memory(done))
            is_draw = done > schedule.warmup and (done - schedule.warmup) % schedule.thin == 0
            state, value = sweeps(is_draw)
            if is_draw:
                _record_draw(state, schedule, kept, len(log_joint))
                log_joint.append(value)
            if progress is not None and done < schedule.sweeps:
                progress(done, value, state)
    except KeyboardInterrupt:
        return Chain(kept[: -(-len(log_joint) // schedule.every)], log_joint, interrupted=True)
    if ended is None:
        slot.end(memory(schedule.sweeps + 1))
    return Chain(kept, log_joint, interrupted=False)


def _record_draw(state: State, schedule: Schedule, kept: list[tuple[Any, Value]], number: int) -> None:
    """Keep the draw of this number if it is to be kept, and add it to the moments."""
    loadings: Any = state.loadings
    draw: Any = loadings.value if loadings.in_memory else loadings, state.components.value
    if number % schedule.every == 0:
        kept.append(draw)
        schedule.slot.add(draw)
    if schedule.running is not None:
        schedule.running.add(*draw)


class _Allocating:
    """Sweeps that draw allocations; each computes the log joint of the state before it, which is returned with it."""

    def __init__(self, problem: Problem, state: State, rng: np.random.Generator, threads: int | None) -> None:
        self.problem, self.state, self.rng, self.threads = problem, state, rng, threads

    def __call__(self, keep: bool) -> tuple[State, float]:
        before = self.state
        if self.problem.counts.in_memory:
            self.state, log_joint = sweep(self.problem, before, self.rng, self.threads)
        else:
            self.state, log_joint = sweep_on_disk(self.problem, before, self.rng)
        return before, log_joint

    @property
    def memory(self) -> Any:
        return tuple(self.state), self.rng.bit_generator.state

    @memory.setter
    def memory(self, kept: Any) -> None:
        sides, self.rng.bit_generator.state = kept
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
    return record_chain(_Allocating(problem, state, rng, threads), schedule, progress)
