"""Stochastic variational inference: Adam on the elbo of a NumPyro program, with the closed-form family as the guide.

Compiled code is cached for later fits of the same shapes.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import lru_cache
from typing import Any, NamedTuple

import jax
import numpy as np
import numpyro

from bayesnmf.inference.sampling.tracing import MOST_KEPT, Fixed, join_arguments, shapes_of, split_arguments
from bayesnmf.inference.strides import next_length, run_steps
from bayesnmf.types import Array

Programs = tuple[Callable[..., Any], Callable[..., Any]]
STRIDE = 100  # largest number of steps before progress is reported and Ctrl-C is noticed


class SviRun(NamedTuple):
    """Parameters of q by name, an estimate of the elbo at each step, and whether Ctrl-C ended the run."""

    parameters: dict[str, Array]
    bounds: Array
    interrupted: bool


def run_svi(
    programs: Programs,
    arguments: dict[str, Any],
    start: dict[str, Array],
    seed: int,
    options: Any,
    progress: Callable[[int, float], None],
) -> SviRun:
    """Fit the guide to the program by `options.max_iter` steps from the parameters `start`.

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
            length = next_length(length, time.perf_counter() - began, STRIDE)
            progress(done, float(bounds[-1][-1]))
    except KeyboardInterrupt:
        if not bounds:
            raise
        interrupted = True
    parameters = {name: np.asarray(value) for name, value in run.parameters(state).items()}
    return SviRun(parameters, np.concatenate(bounds), interrupted)


class _Functions(NamedTuple):
    """Functions for the first state, for a block of steps with its losses, and for the parameters of q."""

    init: Callable[[jax.Array, dict[str, Any], dict[str, Any]], Any]
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

    def init(key: jax.Array, start: dict[str, Any], traced: dict[str, Any]) -> Any:
        return svi.init(key, init_params=start, **join_arguments(traced, fixed))

    def steps(state: Any, traced: dict[str, Any], length: Any) -> tuple[Any, jax.Array]:
        arguments = join_arguments(traced, fixed)
        return run_steps(lambda state: svi.update(state, **arguments), state, length, STRIDE)

    return _Functions(jax.jit(init), jax.jit(steps), svi.get_params)
