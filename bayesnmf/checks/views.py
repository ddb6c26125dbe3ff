"""Checks of factors that are seen as a topic model, and back."""

from __future__ import annotations

from typing import Any

import numpy as np

from bayesnmf.checks.values import as_numbers, shown


def check_factors(pair: Any) -> tuple[np.ndarray, np.ndarray]:
    """Return loadings (…, n, K) and components (…, K, m) in float64; refuse what cannot be multiplied."""
    if not isinstance(pair, tuple | list) or len(pair) != 2:
        raise TypeError(f"a topic model is made of a Fit or of (loadings, components): found {type(pair).__name__}")
    loadings, components = (
        _nonnegative(values, name, 2) for values, name in zip(pair, ("loadings", "components"), strict=True)
    )
    if loadings.shape[:-2] != components.shape[:-2] or loadings.shape[-1] != components.shape[-2]:
        raise ValueError(
            "loadings (…, n, K) and components (…, K, m) must have the same draws and the same K: found shapes "
            f"{loadings.shape} and {components.shape}; transpose one of them"
        )
    return loadings, components


def check_topic_model(model: Any) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Return proportions, components, totals and sums in float64; refuse what does not fit together."""
    names = ("proportions", "components", "totals", "sums")
    if not isinstance(model, tuple | list) or len(model) != len(names):
        raise TypeError(f"topic_model must be what to_topic_model returns, ({', '.join(names)}): found {shown(model)}")
    wanted = zip(model, names, (2, 2, 1, 1), strict=True)
    proportions, components, totals, sums = (_nonnegative(values, name, axes) for values, name, axes in wanted)
    check_factors((proportions, components))
    for name, found, needed in (
        ("totals", totals.shape, proportions.shape[:-1]),
        ("sums", sums.shape, components.shape[:-1]),
    ):
        if found != needed:
            raise ValueError(f"{name} must have shape {needed}: found {found}; take it from to_topic_model")
    return proportions, components, totals, sums


def check_no_draws(draws: Any, chains: Any) -> None:
    """Refuse to draw from plain arrays."""
    if draws is not None or chains is not None:
        raise ValueError("draws and chains need a Fit: arrays have no posterior; give the arrays of draws themselves")


def _nonnegative(values: Any, name: str, axes: int) -> np.ndarray:
    array = as_numbers(values, name, "an array of numbers")
    if array.ndim < axes:
        raise ValueError(f"{name} must have at least {axes} axes: found {array.ndim}")
    if not np.all(np.isfinite(array)) or np.any(array < 0):
        raise ValueError(f"{name} must be nonnegative and finite; clip it at 0")
    return array
