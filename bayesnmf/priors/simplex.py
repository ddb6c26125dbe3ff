"""Rows as proportions."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]


def component_sums(components: Array) -> Array:
    """Sum of each component over its features, (..., K): what `loadings` must be multiplied by for simplex rows."""
    return components.sum(axis=-1)


def shares(values: Array, sums: Array) -> Array:
    """`values` divided by their `sums` over the last axis; even shares where the sum is 0."""
    even = np.full_like(values, 1 / values.shape[-1], dtype=np.float64)
    return np.divide(values, sums[..., None], out=even, where=sums[..., None] > 0)
