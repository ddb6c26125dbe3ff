"""Separate the arguments of a NumPyro program into arrays and constants of the compiled code.

Counts and hyperparameters are arguments of the compiled code, so that a second fit of the same shapes needs no new
compilation. Sizes, words and flat priors determine the code, so they are constants.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

MOST_KEPT = 12  # compiled runs to cache, for each method
Fixed = tuple[tuple[str, Any], ...]


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
