"""Between the library and its NumPyro programs: arguments, sites and guide parameters."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bayesnmf.data.counts import Counts
from bayesnmf.inference.sides import Problem, State
from bayesnmf.priors import Distribution, Priors
from bayesnmf.priors.specification import PARAMETER
from bayesnmf.priors.values import separate_scale

Array = NDArray[Any]
DENSE_CELLS = 2_000_000
INTERIOR = 1e-3


def load_program(model: str) -> Any:
    """Return the module of a model: `program`, `guide`, `augmented`, …"""
    return import_module(f"bayesnmf.models.{model}")


def program_arguments(counts: Counts, rank: int, priors: Priors, dense: bool | None = None) -> dict[str, Any]:
    """Return what every program of a model is called with.

    Counts are dense where that is the faster form, or as told: a product of small dense matrices beats gathers in
    XLA on a CPU unless the counts are many and sparse. Augmented programs, which work on the nonzero cells, can find
    them in concrete counts alone, so that compiled ones must be given them.
    """
    from bayesnmf.models.likelihood import as_observation

    n, m = counts.shape
    dense = n * m <= DENSE_CELLS if dense is None else dense
    return {
        "counts": as_observation(counts.matrix.toarray() if dense else counts.matrix),
        "size": (n, m),
        "rank": rank,
        "loadings": hyperparameters(priors.loadings),
        "components": hyperparameters(priors.components),
    }


def hyperparameters(prior: Any) -> Any:
    """Return a prior as the plain mapping that the programs take; the scale's are (n,) there, (n, 1) here."""
    if prior == PARAMETER:
        return PARAMETER
    values = {name: np.asarray(value, np.float64) for name, value in prior.parameters.items()}
    for name in prior.by_row:
        values[name] = values[name].ravel() if values[name].size > 1 else values[name].reshape(())
    return values


def sites_of(state: State) -> dict[str, Array]:
    """Return the values of a state by site, pulled a little inside the boundary, where NUTS cannot start."""
    loadings, scale = separate_scale(state.loadings.value)
    sites = {"components": inside(state.components.matrix), "loadings": inside(loadings)}
    return sites if scale is None else {**sites, "scale": inside(scale[:, None])[:, 0]}


def inside(values: Array) -> Array:
    """Mix each row with its mean, which leaves its sum as it is."""
    return (1 - INTERIOR) * values + INTERIOR * np.maximum(values.mean(axis=-1, keepdims=True), 1e-12)


def guide_parameters(state: State, problem: Problem) -> dict[str, Array]:
    """Return a mean-field state as the parameters of the model's guide, by name."""
    named: dict[str, Array] = {}
    for name, side in state._asdict().items():
        if side.conditional is None:
            named[name] = inside(side.matrix)
            continue
        q = side.conditional.broadcast(side.matrix.shape)
        for parameter, value in q.parameters.items():
            by_row = parameter in q.by_row
            named[_guide_name(q, name, parameter)] = np.ascontiguousarray(value[:, 0] if by_row else value)
    return named


def state_of_parameters(parameters: dict[str, Array], problem: Problem) -> State:
    """Return the parameters of a guide as a mean-field state: the inverse of `guide_parameters`."""
    doubles = {name: np.asarray(value, np.float64) for name, value in parameters.items()}
    sides = {}
    for name in State._fields:
        prior, summary = getattr(problem, f"{name}_prior"), getattr(problem, f"{name}_summary")
        if name in doubles:
            sides[name] = summary.at(prior, doubles[name])
            continue
        found = {each: doubles[_guide_name(prior, name, each)] for each in prior.parameters}
        q = type(prior)(**{each: value[:, None] if each in prior.by_row else value for each, value in found.items()})
        sides[name] = summary.of(prior, q)
    return State(**sides)


def _guide_name(q: Distribution, side: str, parameter: str) -> str:
    """Return the name that the guide has for a parameter of q: those with one number a row belong to the scale."""
    return f"scale_{parameter}" if parameter in q.by_row else f"{side}_{parameter}"
