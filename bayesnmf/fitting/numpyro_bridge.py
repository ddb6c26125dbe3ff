"""Between the library and its NumPyro programs: arguments, sites and guide parameters."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bayesnmf.data.counts import Counts
from bayesnmf.inference.sides import Problem, State
from bayesnmf.priors import Dirichlet, Distribution, Gamma, Priors, ScaledDirichlet, ScaledProportions
from bayesnmf.priors.specification import PARAMETER

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
    values = {name: np.asarray(value, np.float64) for name, value in vars(prior).items()}
    if isinstance(prior, ScaledDirichlet):
        for name in ("shape", "rate"):
            values[name] = values[name].ravel() if values[name].size > 1 else values[name].reshape(())
    return values


def sites_of(state: State) -> dict[str, Array]:
    """Return the values of a state by site, pulled a little inside the boundary, where NUTS cannot start."""
    value = state.loadings.value
    sites = {"components": inside(state.components.matrix)}
    if isinstance(value, ScaledProportions):
        return {**sites, "loadings": inside(value.proportions), "scale": inside(value.scale)[:, 0]}
    return {**sites, "loadings": inside(value)}


def inside(values: Array) -> Array:
    """Mix each row with its mean, which leaves its sum as it is."""
    return (1 - INTERIOR) * values + INTERIOR * np.maximum(values.mean(axis=-1, keepdims=True), 1e-12)


def guide_parameters(state: State, problem: Problem) -> dict[str, Array]:
    """Return a mean-field state as the parameters of the model's guide, by name."""
    n, rank = state.loadings.matrix.shape
    q: Any = state.loadings.conditional.broadcast((n, rank))  # type: ignore[union-attr]
    named = {f"loadings_{name}": value for name, value in vars(q).items()}
    if isinstance(q, ScaledDirichlet):
        named = {
            "loadings_concentration": q.concentration,
            "scale_shape": np.asarray(q.shape)[:, 0],
            "scale_rate": np.asarray(q.rate)[:, 0],
        }
    if state.components.conditional is None:
        return {**named, "components": inside(state.components.matrix)}
    components = state.components.conditional.broadcast((rank, problem.counts.shape[1]))
    named.update({f"components_{name}": value for name, value in vars(components).items()})
    return {name: np.ascontiguousarray(value) for name, value in named.items()}


def state_of_parameters(parameters: dict[str, Array], problem: Problem) -> State:
    """Return the parameters of a guide as a mean-field state: the inverse of `guide_parameters`."""
    p = {name: np.asarray(value, np.float64) for name, value in parameters.items()}
    q: Distribution
    if "scale_shape" in p:
        q = ScaledDirichlet(p["loadings_concentration"], p["scale_shape"][:, None], p["scale_rate"][:, None])
    elif "loadings_shape" in p:
        q = Gamma(p["loadings_shape"], p["loadings_rate"])
    else:
        q = Dirichlet(p["loadings_concentration"])
    loadings = problem.loadings_summary.of(problem.loadings_prior, q)
    prior, summary = problem.components_prior, problem.components_summary
    if "components" in p:
        return State(loadings, summary.at(prior, p["components"]))  # type: ignore[attr-defined]
    if "components_shape" in p:
        return State(loadings, summary.of(prior, Gamma(p["components_shape"], p["components_rate"])))
    return State(loadings, summary.of(prior, Dirichlet(p["components_concentration"])))
