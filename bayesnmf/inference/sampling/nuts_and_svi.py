"""NUTS and stochastic variational inference on NumPyro programs, by blocks of compiled steps of about a second each.

The loops are our own, so that warm-up and draws of NUTS share one compilation, progress is reported between blocks, and
Ctrl-C keeps the draws so far. NUTS runs on one thread per chain. SVI is Adam on the elbo, with the closed-form family
as the guide. Compiled code is cached for later fits of the same shapes: counts and hyperparameters are arguments of it;
sizes, words and flat priors determine the code, so they are constants.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Hashable, Mapping
from functools import lru_cache, partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
from numpyro.infer.hmc import hmc
from numpyro.infer.util import constrain_fn, initialize_model, potential_energy

from bayesnmf.inference.sampling.gibbs import choose_chains
from bayesnmf.inference.sampling.kept_programs import compile_kept
from bayesnmf.inference.side_by_side import side_by_side
from bayesnmf.types import Array

SECONDS = 1.0
MOST_KEPT = 12  # compiled runs to cache, for each method
Fixed = tuple[tuple[str, Any], ...]
NUTS_STRIDE, SVI_STRIDE = 10, 100  # largest number of steps before progress is reported and Ctrl-C is noticed
STATISTICS = ("diverging", "num_steps", "accept_prob", "energy")
Programs = tuple[Callable[..., Any], Callable[..., Any]]


def next_length(length: int, seconds: float, most: int) -> int:
    """Return the number of steps of the next block, given the length and duration of the last block."""
    return int(min(max(length * min(SECONDS / max(seconds, 1e-9), 8.0), 1), most))


def run_steps[S](step: Callable[[S], tuple[S, Any]], state: S, length: Any, most: int) -> tuple[S, Any]:
    """Run `length` steps and return the state and their outputs, as the first entries of arrays of length `most`.

    `length` may be a traced number, so one compilation serves all lengths; `jax.lax.scan` would need a fixed one.
    """
    _, output = jax.eval_shape(step, state)
    buffers = jax.tree.map(lambda each: jnp.zeros((most, *each.shape), each.dtype), output)

    def once(number: Any, carried: tuple[S, Any]) -> tuple[S, Any]:
        state, filled = carried
        state, output = step(state)
        return state, jax.tree.map(lambda array, entry: array.at[number].set(entry), filled, output)

    return jax.lax.fori_loop(0, length, once, (state, buffers))


def split_arguments(arguments: Mapping[str, Any]) -> tuple[dict[str, Any], Fixed]:
    """Return the arrays among a program's arguments, and all other arguments in hashable form."""
    traced: dict[str, Any] = {}
    fixed: dict[str, Any] = {}
    for name, value in arguments.items():
        if isinstance(value, Mapping) and np.all(np.asarray(value.get("rate", 1.0)) == 0):
            fixed[name] = tuple((key, float(np.max(number))) for key, number in value.items())  # Gamma(1, 0)
        elif isinstance(value, str | int) or (isinstance(value, tuple) and all(isinstance(v, int) for v in value)):
            fixed[name] = value
        else:
            traced[name] = jax.tree.map(jnp.asarray, value)
    return traced, tuple(fixed.items())


def join_arguments(traced: Mapping[str, Any], fixed: Fixed) -> dict[str, Any]:
    """Return a program's arguments: the inverse of `split_arguments`."""
    joined = dict(traced)
    for name, value in fixed:
        flat = isinstance(value, tuple) and isinstance(value[0], tuple)
        joined[name] = dict(value) if flat else value
    return joined


def shapes_of(values: Any) -> tuple[Hashable, Hashable]:
    """Return the shapes and types of all arrays in a structure, and the structure, in hashable form."""
    leaves, structure = jax.tree.flatten(values)
    return tuple(jax.ShapeDtypeStruct(leaf.shape, leaf.dtype) for leaf in leaves), structure


def placeholders(shapes: tuple[Hashable, Hashable]) -> Any:
    """Return the structure given to `shapes_of`, with shapes in place of arrays, for compilation."""
    leaves, structure = shapes
    return jax.tree.unflatten(structure, leaves)  # type: ignore[arg-type]


Sites = dict[str, Array]


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


def starts_by(
    strategy: str | None, values: list[Sites], program: Callable[..., Any], arguments: dict[str, Any], seed: int
) -> dict[str, jax.Array]:
    """Return unconstrained values of all sites to start chains from, (chains, …).

    Those of each chain are `values`, where they are given, and NumPyro's by its strategy, "uniform" if there is none.
    """
    keys = jax.random.split(jax.random.key(seed), len(values))
    found = []
    for key, given in zip(keys, values, strict=True):
        own = numpyro.infer.init_to_value(values={name: jnp.asarray(value) for name, value in given.items()})
        first = own if strategy is None else getattr(numpyro.infer, f"init_to_{strategy}")
        model = initialize_model(key, program, init_strategy=first, model_kwargs=arguments)
        found.append(model.param_info.z)
    return {name: jnp.stack([each[name] for each in found]) for name in found[0]}


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
    schedule = (options.warmup, options.target_accept, options.max_tree_depth, options.dense_mass)
    compiled = compile_chain(program, fixed, shapes, schedule, jax.config.jax_enable_x64)
    states = [compiled.init(key, first, traced) for key, first in zip(keys, firsts, strict=True)]
    block = partial(compiled.run_steps, traced)
    stop = threading.Event()
    threads = 1 if options.chain_method == "sequential" else len(states)
    kept = run_threads(block, states, steps, stop, lambda done: progress(done, steps * options.chains), threads)
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
    program: Callable[..., Any], fixed: Fixed, shapes: Any, schedule: tuple[int, float, int, bool], _doubles: bool
) -> _Compiled:
    """Return functions compiled for arguments of the given shapes; the schedule is warm-up, acceptance, depth, mass."""
    warmup, target_accept, depth, dense = schedule

    def potential(traced: dict[str, Any]) -> Callable[[dict[str, jax.Array]], jax.Array]:
        return partial(potential_energy, program, (), join_arguments(traced, fixed))

    start_chain, sample = hmc(potential_fn_gen=potential, algo="NUTS")

    def init(key: jax.Array, first: dict[str, jax.Array], traced: dict[str, Any]) -> Any:
        return start_chain(
            first,
            warmup,
            target_accept_prob=target_accept,
            max_tree_depth=depth,
            dense_mass=dense,
            trajectory_length=None,
            model_args=(traced,),
            rng_key=key,
        )

    def steps(traced: dict[str, Any], state: Any, length: Any) -> tuple[Any, dict[str, jax.Array]]:
        def step(state: Any) -> tuple[Any, dict[str, jax.Array]]:
            state = sample(state, (traced,))
            sites = constrain_fn(program, (), join_arguments(traced, fixed), state.z)
            return state, {**sites, **{name: getattr(state, name) for name in STATISTICS}}

        return run_steps(step, state, length, NUTS_STRIDE)

    given = placeholders(shapes)
    compiled_init = compile_kept(jax.jit(init).lower(*given))
    state = jax.eval_shape(init, *given)
    return _Compiled(compiled_init, compile_kept(jax.jit(steps).lower(given[2], state, 1)))


def run_threads(
    block: Callable[[Any, int], Any],
    states: list[Any],
    steps: int,
    stop: threading.Event,
    progress: Callable[[int], None],
    threads: int,
) -> list[list[Sites]]:
    """Run so many chains at once, each on a thread, until all steps are done, or until an exception stops all."""
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
                length = next_length(length, time.perf_counter() - began, NUTS_STRIDE)
                try:
                    progress(sum(done))
                except KeyboardInterrupt:
                    stop.set()
        return kept

    return side_by_side([partial(run, chain) for chain in range(len(states))], threads, stop)


class SviRun(NamedTuple):
    """Parameters of q by name, an estimate of the elbo at each step, and whether Ctrl-C ended the run."""

    parameters: dict[str, Array]
    bounds: Array
    interrupted: bool


def run_svi(
    programs: Programs,
    arguments: dict[str, Any],
    start: dict[str, Array] | None,
    seed: int,
    options: Any,
    progress: Callable[[int, float], None],
) -> SviRun:
    """Fit the guide to the program by `options.max_iter` steps from the parameters `start`, or where the guide starts.

    `programs` is the pair of program and guide. Blocks of up to 100 steps, or about a second, share one compilation.
    The learning rate decays to a tenth over the run.
    """
    traced, fixed = split_arguments(arguments)
    schedule = (options.max_iter, options.learning_rate, options.particles)
    run = build_functions(programs, fixed, shapes_of(traced), schedule, jax.config.jax_enable_x64)
    state = run.init(jax.random.key(seed), start, traced)
    bounds: list[Array] = []
    interrupted = False
    done, length = 0, 1
    try:
        while done < options.max_iter:
            began = time.perf_counter()
            length = min(length, options.max_iter - done)
            state, losses = run.run_steps(state, traced, length)
            bounds.append(-np.asarray(losses)[:length])
            done += length
            length = next_length(length, time.perf_counter() - began, SVI_STRIDE)
            progress(done, float(bounds[-1][-1]))
    except KeyboardInterrupt:
        if not bounds:
            raise
        interrupted = True
    parameters = {name: np.asarray(value) for name, value in run.parameters(state).items()}
    return SviRun(parameters, np.concatenate(bounds), interrupted)


class _Functions(NamedTuple):
    """Functions for the first state, for a block of steps with its losses, and for the parameters of q."""

    init: Callable[[jax.Array, dict[str, Any] | None, dict[str, Any]], Any]
    run_steps: Callable[[Any, dict[str, Any], int], tuple[Any, jax.Array]]
    parameters: Callable[[Any], dict[str, Any]]


@lru_cache(maxsize=MOST_KEPT)
def build_functions(
    programs: Programs, fixed: Fixed, _shapes: Any, schedule: tuple[int, float, int], _doubles: bool
) -> _Functions:
    """Return functions that compile on first use, one set for arguments of each shape."""
    max_iter, learning_rate, particles = schedule

    def rate(step: jax.Array) -> jax.Array:
        return learning_rate * 0.1 ** (step / max_iter)

    svi = numpyro.infer.SVI(
        *programs, numpyro.optim.Adam(rate), numpyro.infer.TraceMeanField_ELBO(num_particles=particles)
    )

    def init(key: jax.Array, start: dict[str, Any] | None, traced: dict[str, Any]) -> Any:
        return svi.init(key, init_params=start, **join_arguments(traced, fixed))

    def steps(state: Any, traced: dict[str, Any], length: Any) -> tuple[Any, jax.Array]:
        arguments = join_arguments(traced, fixed)
        return run_steps(lambda state: svi.update(state, **arguments), state, length, SVI_STRIDE)

    compiled: dict[Hashable, Callable[[Any, dict[str, Any], int], tuple[Any, jax.Array]]] = {}

    def run(state: Any, traced: dict[str, Any], length: int) -> tuple[Any, jax.Array]:
        shapes = shapes_of(state)
        if shapes not in compiled:
            compiled[shapes] = compile_kept(jax.jit(steps).lower(state, traced, 1))
        return compiled[shapes](state, traced, length)

    return _Functions(jax.jit(init), run, svi.get_params)
