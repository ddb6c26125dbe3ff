"""The same fit with its components in another order."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bayesnmf.options import Priors
from bayesnmf.results import Draws, FitRecord, VariationalPosterior
from bayesnmf.specification import PARAMETER

Array = NDArray[Any]


def relabel[F: FitRecord](fit: F, order: Array) -> F:
    """Permute loadings, components, posterior and priors: component `order[k]` becomes component k."""
    posterior: Any = fit._posterior
    if isinstance(posterior, Draws):
        posterior = replace(
            posterior,
            loadings=posterior.loadings[..., order],
            components=posterior.components[..., order, :],
        )
    elif isinstance(posterior, VariationalPosterior):
        posterior = VariationalPosterior(
            _permuted(posterior.loadings, order, -1), _permuted(posterior.components, order, -2)
        )
    priors, given = _permuted_priors(fit.priors, order), fit.options.priors  # learned priors are not those given
    return replace(
        fit,
        loadings=fit.loadings[:, order],
        components=fit.components[order],
        multipliers=None if fit.multipliers is None else (fit.multipliers[0][:, order], fit.multipliers[1][order]),
        moments=None if fit.moments is None else {k: _in_order(k, value, order) for k, value in fit.moments.items()},
        priors=priors,
        options=replace(fit.options, priors=priors if given is fit.priors else _permuted_priors(given, order)),
        _posterior=posterior,
    )


def _in_order(name: str, values: Array, order: Array) -> Array:
    """Permute what is known of all draws of one side; a scale has no components."""
    if name.startswith("scale"):
        return values
    return values[order] if name.startswith("components") else values[:, order]


def _permuted_priors(priors: Priors, order: Array) -> Priors:
    return Priors(_permuted(priors.loadings, order, -1), _permuted(priors.components, order, -2))


def _permuted(distribution: Any, order: Array, axis: int) -> Any:
    """Permute every parameter that differs between components."""
    if distribution is None or distribution == PARAMETER:
        return distribution
    changed = {}
    for name, value in vars(distribution).items():
        array = np.asarray(value)
        along = array.ndim >= -axis and array.shape[axis] == len(order) and array.shape[axis] > 1
        changed[name] = np.take(array, order, axis=axis) if along else value
    return replace(distribution, **changed)
