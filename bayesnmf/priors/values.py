"""Values of loadings and components: a matrix, or proportions and a scale that stand apart."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]


class ScaledProportions(NamedTuple):
    """Loadings as proportions (n, K), rows on the simplex, and a scale (n, 1)."""

    proportions: Array
    scale: Array


Value = Array | ScaledProportions


def matrix(value: Value) -> Array:
    """Return a value as one matrix: scale times proportions where they stand apart."""
    return value.scale * value.proportions if isinstance(value, ScaledProportions) else value


def split(value: Value) -> tuple[Array, Array | None]:
    """Return the loadings without their scale, (..., n, K), and the scale, (..., n); None where there is none."""
    if isinstance(value, ScaledProportions):
        return value.proportions, value.scale[..., 0]
    return value, None


def join(loadings: Array, scale: Array | None) -> Value:
    """Return the value that `split` takes apart."""
    return loadings if scale is None else ScaledProportions(loadings, scale[..., None])


def stacked(values: Sequence[Value]) -> Value:
    """Return values stacked along a new first axis."""
    shares, scales = zip(*map(split, values), strict=True)
    return join(np.stack(shares), None if scales[0] is None else np.stack(scales))


def parts_of(value: Value) -> tuple[Array, ...]:
    """Return the arrays that a value consists of."""
    return tuple(value) if isinstance(value, ScaledProportions) else (value,)


def split_scale(loadings: Array) -> ScaledProportions:
    """Return rows as proportions times a scale; a row of zeros has even proportions."""
    scale = loadings.sum(axis=-1, keepdims=True)
    even = np.full_like(loadings, 1 / loadings.shape[-1])
    return ScaledProportions(np.divide(loadings, scale, out=even, where=scale > 0), scale)
