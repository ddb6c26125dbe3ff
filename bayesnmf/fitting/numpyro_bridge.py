"""Convert between the library and its NumPyro programs: arguments, sites and guide parameters."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import numpy as np

from bayesnmf.data.counts import Counts
from bayesnmf.inference.problem import Problem, State
from bayesnmf.priors import Distribution, Priors
from bayesnmf.priors.specification import PARAMETER
from bayesnmf.priors.values import separate_scale
from bayesnmf.types import Array

DENSE_ENTRIES = 2_000_000
INTERIOR = 1e-3


def load_program(model: str) -> Any:
    """Return the module of a model: `program`, `guide`, `augmented`, …"""
    return import_module(f"bayesnmf.models.{model}")


def program_arguments(counts: Counts, rank: int, priors: Priors, dense: bool | None = None) -> dict[str, Any]:
    """Return the arguments of every program of a model.

    Those of counts with negative binomial noise have its dispersion, those with missing entries say which. By default
    counts are dense if that is faster: in XLA on a CPU, a product of small dense matrices is faster than gathers,
    unless the counts are many and sparse.
    Augmented programs need the nonzero entries, which compiled code cannot find in traced dense counts, so `dense` must
    be False for them.
    """
    from bayesnmf.models.entries import Observed, as_observation, as_triplets

    n, m = counts.shape
    noise, counts = counts.noise.of_program(), counts.plain
    dense = n * m <= DENSE_ENTRIES if dense is None else dense
    exposed: dict[str, Any] = {name: getattr(counts, name) for name in ("row_exposure", "feature_exposure")}
    if (mask := counts.mask) is not None:
        sign = -1.0 if mask.of_missing else 1.0
        exposed["observed"] = Observed(np.asarray(float(mask.of_missing)), as_triplets(sign * mask.pattern))
    return {
        **noise,
        **{name: values for name, values in exposed.items() if values is not None},
        "counts": as_observation(counts.matrix.toarray() if dense else counts.matrix),
        "size": (n, m),
        "rank": rank,
        "loadings": hyperparameters(priors.loadings, (n, rank)),
        "components": hyperparameters(priors.components, (rank, m)),
    }


def hyperparameters(prior: Any, size: tuple[int, int]) -> Any:
    """Return the prior of a factor of the given size as the mapping for programs."""
    return PARAMETER if prior == PARAMETER else prior.program_parameters(size)


def sites_of(state: State, priors: Priors) -> dict[str, Array]:
    """Return the values of a state by site, moved slightly away from the boundary, where NUTS cannot start."""
    loadings, scale = separate_scale(state.loadings.value)
    values = {"components": move_inside(state.components.matrix), "loadings": move_inside(loadings)}
    sites: dict[str, Array] = {}
    for side, prior in vars(priors).items():
        site = prior.sites_of_value(values[side])
        sites |= ({side: site} if site.size else {}) | prior.sites_of_shared(side, values[side])
    return sites if scale is None else {**sites, "scale": move_inside(scale[:, None])[:, 0]}


def move_inside(values: Array) -> Array:
    """Return a mixture of each row with its mean, which has no zeros and the same row sums."""
    return (1 - INTERIOR) * values + INTERIOR * np.maximum(values.mean(axis=-1, keepdims=True), 1e-12)


def guide_parameters(state: State, problem: Problem) -> dict[str, Array]:
    """Return a mean-field state as the parameters of the model's guide, by name."""
    named: dict[str, Array] = {}
    for name, side in state._asdict().items():
        if side.conditional is None:
            named[name] = move_inside(side.matrix)
            continue
        q = side.conditional.broadcast(side.matrix.shape)
        named |= getattr(problem, f"{name}_prior").guide_of_shared(name, q)
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
        none = np.ones((0, problem.counts.shape[1]))  # the guide has no parameters if all components are known
        found = {each: doubles.get(_guide_name(prior, name, each), none) for each in prior.conditional_names}
        q = prior.conditional_of({k: value[:, None] if k in prior.by_row else value for k, value in found.items()})
        sides[name] = summary.of(prior, q)
    return State(**sides)


def _guide_name(q: Distribution, side: str, parameter: str) -> str:
    """Return the guide's name for a parameter of q; parameters with one number per row belong to the scale."""
    return f"scale_{parameter}" if parameter in q.by_row else f"{side}_{parameter}"
