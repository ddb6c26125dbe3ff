"""NUTS on a NumPyro program: one compiled block of steps, run on one thread per chain.

NumPyro's kernel does the sampling. The loop is our own, so that warm-up and draws share one compilation, progress is
reported, and Ctrl-C keeps the draws so far. Compiled code is cached for later fits of the same shapes.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from functools import lru_cache, partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
from numpyro.infer.hmc import hmc
from numpyro.infer.util import constrain_fn, potential_energy

from bayesnmf.inference.sampling.gibbs import choose_chains
from bayesnmf.inference.sampling.tracing import (
    MOST_KEPT,
    Fixed,
    join_arguments,
    placeholders,
    shapes_of,
    split_arguments,
)
from bayesnmf.inference.side_by_side import side_by_side
from bayesnmf.inference.strides import next_length, run_steps
from bayesnmf.types import Array

Sites = dict[str, Array]
STRIDE = 10  # largest number of steps before progress is reported and Ctrl-C is noticed
STATISTICS = ("diverging", "num_steps", "accept_prob", "energy")


class NutsRun(NamedTuple):
    """Draws by site, (chains, draws, …), sampler statistics of the same shape, and whether Ctrl-C ended the run."""

    draws: Sites
    statistics: Sites
    interrupted: bool


def unconstrain(values: Sites, on_simplex: frozenset[str]) -> dict[str, jax.Array]:
    """Return sites (chains, …) mapped to the real line, on which NUTS works."""
    support = (numpyro.distributions.constraints.positive, numpyro.distributions.constraints.simplex)
    return {
        name: numpyro.distributions.biject_to(support[name in on_simplex]).inv(jnp.asarray(value))
        for name, value in values.items()
    }


def run_nuts(
    program: Callable[..., Any],
    arguments: dict[str, Any],
    starts: dict[str, jax.Array],
    seed: int,
    options: Any,
    progress: Callable[[int, int], None],
) -> NutsRun:
    """Run warm-up and draws of all chains.

    Parameters
    ----------
    program : callable
        NumPyro program, called with `arguments`.
    starts : dict of array (chains, …)
        Unconstrained values to start from.
    seed : int
        Seed of all chains.
    options : bayesnmf.NUTS
        Chains, draws, warm-up, acceptance and depth.
    progress : callable
        Function called with the number of steps done and of all steps, for all chains and with warm-up.
    """
    steps = options.warmup + options.draws
    progress(0, steps * options.chains)
    traced, fixed = split_arguments(arguments)
    keys = jax.random.split(jax.random.key(seed), options.chains)
    firsts = [{name: value[c] for name, value in starts.items()} for c in range(options.chains)]
    shapes = shapes_of((keys[0], firsts[0], traced))
    schedule = (options.warmup, options.target_accept, options.max_tree_depth)
    compiled = compile_chain(program, fixed, shapes, schedule, jax.config.jax_enable_x64)
    states = [compiled.init(key, first, traced) for key, first in zip(keys, firsts, strict=True)]
    block = partial(compiled.run_steps, traced)
    stop = threading.Event()
    kept = run_threads(block, states, steps, stop, lambda done: progress(done, steps * options.chains))
    lengths = [min(sum(len(part["num_steps"]) for part in chain) - options.warmup, options.draws) for chain in kept]
    chains, length = choose_chains(lengths)
    drawn = slice(options.warmup, options.warmup + length)
    draws = {
        name: np.stack([np.concatenate([part[name] for part in kept[c]])[drawn] for c in chains])
        for name in kept[chains[0]][0]
    }
    statistics = {name: draws.pop(name) for name in STATISTICS}
    return NutsRun(draws, statistics, interrupted=stop.is_set())


class _Compiled(NamedTuple):
    """Compiled functions: the first state from key, start and traced arguments, and steps from these and a state."""

    init: Callable[[jax.Array, dict[str, jax.Array], dict[str, Any]], Any]
    run_steps: Callable[[dict[str, Any], Any, Any], tuple[Any, dict[str, jax.Array]]]


@lru_cache(maxsize=MOST_KEPT)
def compile_chain(
    program: Callable[..., Any], fixed: Fixed, shapes: Any, schedule: tuple[int, float, int], _doubles: bool
) -> _Compiled:
    """Return functions compiled for arguments of the given shapes; the schedule is warm-up, acceptance and depth."""
    warmup, target_accept, depth = schedule

    def potential(traced: dict[str, Any]) -> Callable[[dict[str, jax.Array]], jax.Array]:
        return partial(potential_energy, program, (), join_arguments(traced, fixed))

    start_chain, sample = hmc(potential_fn_gen=potential, algo="NUTS")

    def init(key: jax.Array, first: dict[str, jax.Array], traced: dict[str, Any]) -> Any:
        return start_chain(
            first,
            warmup,
            target_accept_prob=target_accept,
            max_tree_depth=depth,
            trajectory_length=None,
            model_args=(traced,),
            rng_key=key,
        )

    def steps(traced: dict[str, Any], state: Any, length: Any) -> tuple[Any, dict[str, jax.Array]]:
        def step(state: Any) -> tuple[Any, dict[str, jax.Array]]:
            state = sample(state, (traced,))
            sites = constrain_fn(program, (), join_arguments(traced, fixed), state.z)
            return state, {**sites, **{name: getattr(state, name) for name in STATISTICS}}

        return run_steps(step, state, length, STRIDE)

    given = placeholders(shapes)
    compiled_init = jax.jit(init).lower(*given).compile()
    state = jax.eval_shape(init, *given)
    return _Compiled(compiled_init, jax.jit(steps).lower(given[2], state, 1).compile())


def run_threads(
    block: Callable[[Any, int], Any],
    states: list[Any],
    steps: int,
    stop: threading.Event,
    progress: Callable[[int], None],
) -> list[list[Sites]]:
    """Run each chain on its own thread until all steps are done, or until an exception stops all chains."""
    done = [0] * len(states)
    doubles = jax.config.jax_enable_x64

    def run(chain: int) -> list[Sites]:
        kept: list[Sites] = []
        state, length = states[chain], 1
        with jax.enable_x64(doubles):  # the setting applies to one thread only
            while done[chain] < steps and not stop.is_set():
                began = time.perf_counter()
                length = min(length, steps - done[chain])
                state, drawn = block(state, length)
                kept.append({name: np.array(value[:length]) for name, value in drawn.items()})
                done[chain] += length
                length = next_length(length, time.perf_counter() - began, STRIDE)
                try:
                    progress(sum(done))
                except KeyboardInterrupt:
                    stop.set()
        return kept

    return side_by_side([partial(run, chain) for chain in range(len(states))], len(states), stop)
