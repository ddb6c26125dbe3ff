"""Convert between the library and its NumPyro programs: arguments, sites and guide parameters, or all of a fit."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import numpy as np

from bayesnmf.data.counts import Counts
from bayesnmf.fitting.checks import check_has_program
from bayesnmf.fitting.problems import mean_field_of_fit
from bayesnmf.inference.problem import Problem, State
from bayesnmf.options import METHODS
from bayesnmf.options.rules import Request
from bayesnmf.priors import Distribution, Priors
from bayesnmf.priors.specification import PARAMETER
from bayesnmf.priors.values import Value, attach_scale, separate_scale
from bayesnmf.results.checks import check_fit, check_knows_priors
from bayesnmf.results.record import FitRecord
from bayesnmf.types import Array

DENSE_ENTRIES = 2_000_000
INTERIOR = 1e-3


@dataclass(frozen=True, eq=False)
class Program:
    """A fit as a NumPyro program: what NumPyro's own functions take; `Fit.program` returns it.

    Attributes
    ----------
    model : callable
        The model, with the allocations summed out.
    guide : callable
        The mean field in the closed-form family, for SVI.
    arguments : dict
        Keywords of both: counts, size, rank, the priors' hyperparameters, and any exposures, dispersion and mask.
    start : dict of ndarray
        Values of the model's sites at the fit, by name, moved slightly away from the boundary, for
        ``numpyro.infer.init_to_value``.
    parameters : dict of ndarray
        Parameters of the guide at the fit's q, by name, for SVI; of other fits none.

    See Also
    --------
    Fit.program : which returns it, with an example.
    """

    model: Callable[..., Any]
    guide: Callable[..., Any]
    arguments: dict[str, Any]
    start: dict[str, Array]
    parameters: dict[str, Array]

    def __repr__(self) -> str:
        arguments = ", ".join(self.arguments)
        return f"<bayesnmf program of sites {', '.join(self.start)}; its arguments: {arguments}>"


def program_of(fit: FitRecord) -> Program:
    """Return a fit as a NumPyro program; see `bayesnmf.Fit.program`."""
    check_fit(fit)
    check_knows_priors(fit, "fit.program()")
    mean_field = fit.estimate.kind == "mean field"
    method = "svi" if mean_field or fit.priors.components == PARAMETER else "nuts"
    options = METHODS[method].options(priors=fit.priors)
    check_has_program(Request(fit.model, method, fit.priors, options, fit.noise, fit.counts, fit.rank))
    module, counts = load_program(fit.model), fit.working_counts.as_type(np.float64)
    value = attach_scale(fit.loadings.astype(np.float64), fit.scale)
    parameters: dict[str, Array] = {}
    if mean_field:
        problem, state = mean_field_of_fit(fit)
        parameters = guide_parameters(state, problem)
    return Program(
        module.program,
        module.guide,
        program_arguments(counts, fit.rank, fit.priors),
        sites_of(value, fit.components.astype(np.float64), fit.priors),
        parameters,
    )


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


def sites_of(value: Value, components: Array, priors: Priors) -> dict[str, Array]:
    """Return values of loadings and components by site, moved slightly away from the boundary, where no NUTS starts."""
    loadings, scale = separate_scale(value)
    values = {"components": move_inside(components), "loadings": move_inside(loadings)}
    sites: dict[str, Array] = {}
    for side, prior in vars(priors).items():
        if prior == PARAMETER:
            continue
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
