"""How many steps compiled code takes before the host hears of them: about a second's worth, at least one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

SECONDS = 1.0


def next_length(length: int, seconds: float, most: int) -> int:
    """Return how many steps to take next, given how long the last ones took (the first, with compilation)."""
    return int(min(max(length * min(SECONDS / max(seconds, 1e-9), 8.0), 1), most))


def stride[S](step: Callable[[S], tuple[S, Any]], state: S, length: Any, most: int) -> tuple[S, Any]:
    """Take `length` steps, a traced number, and return what they gave: the first entries of arrays of `most`.

    In `jax.lax.scan` the number of steps is compiled in.
    """
    _, given = jax.eval_shape(step, state)
    room = jax.tree.map(lambda each: jnp.zeros((most, *each.shape), each.dtype), given)

    def once(number: Any, carried: tuple[S, Any]) -> tuple[S, Any]:
        state, filled = carried
        state, given = step(state)
        return state, jax.tree.map(lambda all_of, one: all_of.at[number].set(one), filled, given)

    return jax.lax.fori_loop(0, length, once, (state, room))
