"""Distributions with a given mean and variance, as intervals of linear response have them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from scipy.special import ndtr, ndtri
from scipy.stats import beta, gamma

from bayesnmf.types import Array


def gamma_quantiles(mean: Array, variance: Array, levels: Array) -> Array:
    """Return quantiles (levels, …) of Gamma distributions; the mean where the variance is 0."""
    with np.errstate(invalid="ignore", divide="ignore"):
        found = gamma.ppf(levels, mean**2 / variance, scale=variance / mean)
    return _known(found, mean, variance)


def beta_quantiles(mean: Array, variance: Array, levels: Array) -> Array:
    """Return quantiles (levels, …) of Beta distributions; NaN where none has such a variance."""
    with np.errstate(invalid="ignore", divide="ignore"):
        total = mean * (1 - mean) / variance - 1
        found = beta.ppf(levels, mean * total, (1 - mean) * total)
    return _known(found, mean, variance)


def normal_quantiles(mean: Array, variance: Array, levels: Array) -> Array:
    """Return quantiles (levels, …) of normal distributions."""
    with np.errstate(invalid="ignore"):
        return np.asarray(mean + np.sqrt(variance) * ndtri(levels))


def _known(found: Any, mean: Array, variance: Array) -> Array:
    return np.where(variance == 0, mean, found)


SHAPES = {"positive": gamma_quantiles, "share": beta_quantiles, "any": normal_quantiles}
"""Quantile functions by the values that a quantity can have: above 0, between 0 and 1, or any."""


def copula_draws(
    marginals: Sequence[tuple[float, str]], covariance: Array, draws: int, rng: np.random.Generator
) -> Array:
    """Return draws (draws, quantities) from a Gaussian copula on marginals, given as means and kinds of values."""
    variance = np.diag(covariance)
    sd = np.sqrt(variance)
    with np.errstate(invalid="ignore", divide="ignore"):  # what is known has no correlation
        correlation = np.nan_to_num(covariance / np.outer(sd, sd))
    np.fill_diagonal(correlation, 1.0)
    values, vectors = np.linalg.eigh(correlation)
    root = vectors * np.sqrt(np.maximum(values, 0))
    levels = ndtr(rng.standard_normal((draws, len(marginals))) @ root.T)
    columns = [
        SHAPES[kind](np.array(mean), np.array(variance[place]), levels[:, place])
        for place, (mean, kind) in enumerate(marginals)
    ]
    return np.column_stack(columns)
