"""Values of loadings and components, and formulas over them: NumPy's on the host, JAX's on a device.

A value is a matrix, or proportions with a separate scale. `scipy.special` and `jax.scipy.special` use the same names,
so each formula is written once. On the host, the functions here use less memory or fewer passes over an array where
NumPy allows it.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np
import scipy.special
from numpy.typing import ArrayLike

from bayesnmf.types import Array


class Namespace(NamedTuple):
    """Modules that provide the array functions and the special functions."""

    xp: ModuleType
    special: ModuleType


HOST = Namespace(np, scipy.special)
HELD = (np.ndarray, float, int)  # what is on the host


def on_host(*values: Any) -> bool:
    """Return whether no value is a JAX array, which may be on a device or traced by a compiler."""
    jax = sys.modules.get("jax")
    # Those of NumPy are asked first, as JAX's answer takes longer.
    return jax is None or all(isinstance(value, HELD) or not isinstance(value, jax.Array) for value in values)


def namespace_of(*values: Any) -> Namespace:
    """Return the modules whose functions accept these values."""
    if on_host(*values):
        return HOST
    import jax.numpy
    import jax.scipy.special

    return Namespace(jax.numpy, jax.scipy.special)


def as_array(value: ArrayLike, dtype: Any = None) -> Array:
    """Return a value as an array; a value on a device stays there."""
    return namespace_of(value).xp.asarray(value, dtype)


def float64_on_device(value: ArrayLike) -> Array:
    """Return a value as an array for logarithms and ψ: in float64 on a device, in its own type on the host."""
    return np.asarray(value) if on_host(value) else as_array(value, np.float64)


def as_number(value: Any) -> Any:
    """Return a value of the host as a Python float; a value on a device stays there."""
    return float(value) if on_host(value) else value


def add_to_total(given: Any, total: Array, reuse: bool = False) -> Array:
    """Return given + total in the type of the total; `reuse` allows the result to overwrite the total."""
    here = on_host(total)
    given = (np if here else namespace_of(total).xp).asarray(given, total.dtype)
    if here and reuse and (given.size == 1 or np.broadcast_shapes(given.shape, total.shape) == total.shape):
        return np.add(given, total, out=total)
    return as_array(given + total)


def shape_minus_one(shape: ArrayLike, total: Array | float, reuse: bool = False) -> Array:
    """Return shape − 1 + total in the type of the total, without rounding off totals far below 1."""
    return add_to_total(as_array(shape) - 1, as_array(total), reuse)


def divide_or_keep(peak: Array, by: Array, previous: Any, otherwise: float) -> Array:
    """Return peak / by, which overwrites `peak` on the host.

    Entries where `by` is 0 are taken from `previous`, or are `otherwise` if `previous` is None.
    """
    if not on_host(peak, by):
        xp = namespace_of(peak, by).xp
        quotient = peak / xp.where(by > 0, by, 1)
        return xp.where(by > 0, quotient, otherwise if previous is None else previous).astype(peak.dtype)
    if (by > 0).all():
        fits = peak.shape == np.broadcast_shapes(peak.shape, by.shape)
        return np.divide(peak, by, out=peak if fits else None)
    peak, by = np.broadcast_arrays(peak, by)
    out = np.full_like(peak, otherwise) if previous is None else previous.copy(order="K")
    return np.divide(peak, by, out=out, where=by > 0)


def row_sums(values: Array) -> Array:
    """Return sums over the last axis, (..., 1), in the type of the values."""
    if on_host(values):
        return values.sum(axis=-1, keepdims=True)
    return values.sum(axis=-1, keepdims=True, dtype=np.float64).astype(values.dtype)


def weighted_log_sum(weight: ArrayLike, value: Array) -> Any:
    """Return Σ weight · log value in float64, with 0 · log 0 = 0."""
    if not on_host(weight, value):
        _, special = namespace_of(weight, value)
        return special.xlogy(weight, value.astype(np.float64)).sum()
    weight = np.asarray(weight, np.float64)
    if not weight.any():
        return 0.0
    if not weight.all():
        return float(scipy.special.xlogy(weight, value, dtype=np.float64).sum())
    with np.errstate(divide="ignore"):
        log_value = np.log(value, dtype=np.float64)
    return float(weight.item() * log_value.sum() if weight.size == 1 else np.sum(weight * log_value))


def sum_of_logs(value: Array) -> Any:
    """Return Σ log value in float64."""
    xp = namespace_of(value).xp
    return as_number(xp.log(value).sum(dtype=np.float64))


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
    from bayesnmf.kernels.cpu.factors import padded

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
