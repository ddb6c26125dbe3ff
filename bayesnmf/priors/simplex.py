"""Normalise rows to the simplex."""

from __future__ import annotations

import numpy as np

from bayesnmf.types import Array


def component_sums(components: Array) -> Array:
    """Return the sum of each component over its features, (..., K).

    Multiply the loadings by these sums when the components are divided by them.
    """
    return components.sum(axis=-1)


def rows_to_shares(values: Array, sums: Array) -> Array:
    """Return `values` divided by their `sums` over the last axis; rows with sum 0 get equal shares."""
    even = np.full_like(values, 1 / values.shape[-1], dtype=np.float64)
    return np.divide(values, sums[..., None], out=even, where=sums[..., None] > 0)
