"""Values of loadings and components: a matrix, or proportions with a separate scale; and rows as shares."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from bayesnmf.types import Array


class ScaledProportions(NamedTuple):
    """Loadings as proportions (n, K), with rows on the simplex, and a scale (n, 1)."""

    proportions: Array
    scale: Array


Value = Array | ScaledProportions


def matrix(value: Value) -> Array:
    """Return a value as one matrix: scale times proportions if they are separate."""
    return value.scale * value.proportions if isinstance(value, ScaledProportions) else value


def separate_scale(value: Value) -> tuple[Array, Array | None]:
    """Return the loadings without their scale, (..., n, K), and the scale, (..., n), or None if there is no scale."""
    if isinstance(value, ScaledProportions):
        return value.proportions, value.scale[..., 0]
    return value, None


def attach_scale(loadings: Array, scale: Array | None) -> Value:
    """Return the value with these loadings and this scale: the inverse of `separate_scale`."""
    return loadings if scale is None else ScaledProportions(loadings, scale[..., None])


def stack_values(values: Sequence[Value]) -> Value:
    """Return values stacked along a new first axis."""
    shares, scales = zip(*map(separate_scale, values), strict=True)
    return attach_scale(np.stack(shares), None if scales[0] is None else np.stack(scales))


def parts_of(value: Value) -> tuple[Array, ...]:
    """Return the arrays that a value consists of."""
    return tuple(value) if isinstance(value, ScaledProportions) else (value,)


def rows_of_value(value: Any, rows: Any) -> Any:
    """Return some rows of a value."""
    return ScaledProportions(*(part[rows] for part in value)) if isinstance(value, ScaledProportions) else value[rows]


def as_scaled_proportions(loadings: Array) -> ScaledProportions:
    """Return loadings as proportions and a scale; a row of zeros gets equal proportions."""
    scale = loadings.sum(axis=-1, keepdims=True)
    even = np.full_like(loadings, 1 / loadings.shape[-1])
    return ScaledProportions(np.divide(loadings, scale, out=even, where=scale > 0), scale)


def joined(some: Array, free: Array, at: Array) -> Array:
    """Return a matrix with some rows at given places and the others in order, in the type of the others and padded."""
    from bayesnmf.kernels.cpu.vectors import padded

    rank = len(at) + len(free)
    out = padded((some.shape[1], rank), free.dtype).T
    out[at] = some
    out[others(at, rank)] = free
    return out


def others(at: Array, rank: int) -> Array:
    """Return the places among `rank` rows that are not in `at`."""
    return np.setdiff1d(np.arange(rank), at)


def component_sums(components: Array) -> Array:
    """Return the sum of each component over its features, (..., K).

    Multiply the loadings by these sums when the components are divided by them.
    """
    return components.sum(axis=-1)


def rows_to_shares(values: Array, sums: Array) -> Array:
    """Return `values` divided by their `sums` over the last axis; rows with sum 0 get equal shares."""
    even = np.full_like(values, 1 / values.shape[-1], dtype=np.float64)
    return np.divide(values, sums[..., None], out=even, where=sums[..., None] > 0)
