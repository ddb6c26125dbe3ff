"""Run compiled steps in blocks of about a second, so that the host can report progress in between."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

SECONDS = 1.0


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
