"""Gibbs sampling: draw allocations given both sides, then each side given its totals.

S_i:j | θ, β ~ Multinomial(X_ij, φ_i:j). Then θ is drawn from its conditional given S and β, and β given S and the new θ
([K] section 3; mathematics.md section 4). Only the totals of the allocations are kept. If both sides have Gamma priors,
the scale of every component is then drawn, too.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from bayesnmf.inference.ascent.coordinate_ascent import Progress
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
    running : Running or None
        Moments that every draw is added to.
    """

    warmup: int
    draws: int
    thin: int
    every: int = 1
    running: Running | None = None

    @property
    def sweeps(self) -> int:
        """Number of sweeps."""
        return self.warmup + self.draws * self.thin


class Chain(NamedTuple):
    """Kept draws of one chain, as pairs of loadings and components, and the log joint of every draw."""

    draws: list[tuple[Value, Value]]
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


def record_chain(step: Callable[[bool], tuple[State, float]], schedule: Schedule, progress: Progress | None) -> Chain:
    """Run a chain and return its draws; after Ctrl-C, the draws so far.

    Parameters
    ----------
    step : callable
        Function that returns the next state and its log joint, first those of the start. Its argument is whether this
        state is a draw.
    schedule : Schedule
        Number of sweeps, and draws to keep.
    """
    warmup, sweeps = schedule.warmup, schedule.sweeps
    kept: list[tuple[Value, Value]] = []
    log_joint: list[float] = []
    try:
        for done in range(sweeps + 1):
            is_draw = done > warmup and (done - warmup) % schedule.thin == 0
            state, value = step(is_draw)
            if is_draw:
                if len(log_joint) % schedule.every == 0:
                    kept.append((state.loadings.value, state.components.value))
                if schedule.running is not None:
                    schedule.running.add(state.loadings.value, state.components.value)  # type: ignore[arg-type]
                log_joint.append(value)
            if progress is not None and done < sweeps:
                progress(done, value, state)
    except KeyboardInterrupt:
        return Chain(kept[: -(-len(log_joint) // schedule.every)], log_joint, interrupted=True)
    return Chain(kept, log_joint, interrupted=False)


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

    def step(keep: bool) -> tuple[State, float]:
        # A sweep computes the log joint of the state before it, so each state is returned after the next sweep.
        nonlocal state
        before = state
        state, log_joint = sweep(problem, before, rng, threads)
        return before, log_joint

    return record_chain(step, schedule, progress)
