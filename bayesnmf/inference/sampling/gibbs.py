"""Gibbs sampling: allocations given factors, then each side given its totals.

S_i:j | θ, β ~ Multinomial(X_ij, φ_i:j); θ | S, β and β | S, θ from their conditionals, the second given the new
first ([K] section 3; mathematics.md section 4). Only the totals of the allocations are kept.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from bayesnmf.inference.ascent.coordinate_ascent import Progress
from bayesnmf.inference.sampling.running_moments import Running
from bayesnmf.inference.sides import Problem, State, Value, objective, update_components, update_loadings
from bayesnmf.kernels.cpu.sampling import sampled_allocations

Array = NDArray[Any]


class Schedule(NamedTuple):
    """How many sweeps a chain runs, and what of them is kept.

    Attributes
    ----------
    warmup, draws, thin : int
        Warm-up sweeps, draws, sweeps for each draw.
    every : int
        Of the draws every so many is kept, the first one among them.
    running : Running or None
        What takes in all draws.
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
    """Kept draws of one chain, pairs of loadings and components, and the log joint of every draw."""

    draws: list[tuple[Value, Value]]
    log_joint: list[float]
    interrupted: bool


def most_draws(lengths: list[int]) -> tuple[list[int], int]:
    """Choose chains, of unequal length after Ctrl-C, and a length they all have, so that most draws are kept.

    Without any draw there is nothing to return, and the KeyboardInterrupt goes on.
    """
    longest = sorted(range(len(lengths)), key=lambda chain: -lengths[chain])
    kept = max(range(1, len(lengths) + 1), key=lambda chains: chains * lengths[longest[chains - 1]])
    length = lengths[longest[kept - 1]]
    if length <= 0:
        raise KeyboardInterrupt
    return sorted(longest[:kept]), length


def sweep(problem: Problem, state: State, rng: np.random.Generator, threads: int | None) -> tuple[State, float]:
    """Draw allocations, loadings and components once; also return the log joint of the state swept from."""
    seed = int(rng.integers(2**63))
    totals = sampled_allocations(
        problem.counts.matrix, state.loadings.geometric, state.components.geometric, seed, threads
    )
    log_joint = objective(problem, state, totals.loglik)
    state = update_loadings(problem, state, totals.loadings)
    return update_components(problem, state, totals.components), log_joint


def record(step: Callable[[bool], tuple[State, float]], schedule: Schedule, progress: Progress | None) -> Chain:
    """Run a chain and keep its draws; after Ctrl-C, those there are.

    Parameters
    ----------
    step : callable
        Returns the next state and its log joint, first those of the start. Its argument says whether they are a draw.
    schedule : Schedule
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
        Both sides carried as draws from `rng`.
    state : State
        The start, kept only if it is also a draw of the chain.
    schedule : Schedule
    """

    def step(keep: bool) -> tuple[State, float]:
        # A sweep reports the log joint of the state it leaves, so each state is returned when it is left.
        nonlocal state
        left = state
        state, log_joint = sweep(problem, left, rng, threads)
        return left, log_joint

    return record(step, schedule, progress)
