"""The priors of both sides, and which components they name, or let change places."""

from __future__ import annotations

from copy import copy, deepcopy
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np

from bayesnmf.priors.checks import check_priors
from bayesnmf.priors.families import Distribution
from bayesnmf.priors.specification import PARAMETER, Shapes, default_components, default_loadings
from bayesnmf.priors.values import ScaledProportions, on_host, others
from bayesnmf.types import Array


@dataclass(frozen=True, eq=False)
class Priors:
    """Priors of both sides; None is the model's default (docs/models.md).

    Parameters may be from 1e-100 to 1e8 and rates up to 1e100 (in float32 from 1e-20, and rates up to 1e20); the flat
    prior Gamma(1, 0) is allowed too. Large shapes or concentrations a make the objective less accurate, since it
    contains a log a: its rounding error is 1e-16 of this term, and 6e-8 of a in float32.

    Arrays are copied in float64, so later changes to the given arrays do not affect a fit.

    Attributes
    ----------
    loadings : Gamma, HierarchicalGamma, Dirichlet, ScaledDirichlet or None
        Prior of the loadings, with parameters broadcastable to (n, K).
    components : Gamma, HierarchicalGamma, Dirichlet, "parameter" or None
        Prior of the components, with parameters broadcastable to (K, m). "parameter" means no prior: the components
        are estimated, with rows on the simplex, by variational EM under vi and svi, by maximum likelihood under map.

    Raises
    ------
    TypeError, ValueError
        A prior of another class, or a parameter that is negative, 0 where it may not be, or not finite.

    See Also
    --------
    Gamma, Dirichlet, ScaledDirichlet, HierarchicalGamma

    Examples
    --------
    >>> import bayesnmf
    >>> sparse = bayesnmf.Priors(bayesnmf.Gamma(0.3, 0.1), bayesnmf.Dirichlet(0.1))
    >>> counts = [[3, 0, 1], [0, 2, 4], [5, 1, 0], [0, 3, 6]]
    >>> fit = bayesnmf.fit(counts, rank=2, seed=0, options=bayesnmf.VI(priors=sparse))
    >>> float(fit.priors.components.concentration)
    0.1
    """

    loadings: Distribution | None = None
    components: Distribution | Literal["parameter"] | None = None

    def __post_init__(self) -> None:
        check_priors(self)
        copy_sides(self)
        for side in ("loadings", "components"):
            object.__setattr__(self, side, _on_side(getattr(self, side), side))


def components_exchangeable(priors: Priors) -> bool:
    """Return whether all components have the same priors, so that relabelling them leaves the posterior unchanged."""
    for prior, axis in ((priors.loadings, -1), (priors.components, -2)):
        if prior == PARAMETER:
            continue
        for parameter in prior.parameters.values():  # type: ignore[union-attr]
            array = np.atleast_2d(np.asarray(parameter))
            if not np.all(array == np.take(array, [0], axis=axis)):
                return False
    return True


def with_defaults(
    priors: Priors, model: str, mean_total: float, rank: int, exposure: Array, shapes: Shapes, seen: float = 1.0
) -> Priors:
    """Return the priors with the model's defaults, of these shapes, in place of None.

    `mean_total` is the mean row total per unit of the rows' exposure, `exposure` (m,) that of the features, and
    `seen` the share of the features that have counts.
    """
    loadings, components = priors.loadings, priors.components
    if components is None:
        components = default_components(model, len(exposure), shapes, seen)
    if loadings is None:
        loadings = default_loadings(model, mean_total, rank, components, exposure, shapes)
    return replace_sides(priors, loadings=loadings, components=components)


def replace_sides(priors: Priors, **sides: Any) -> Priors:
    """Return the priors with some sides replaced, without a copy: no other code may write into the given arrays."""
    changed = copy(priors)
    for side, prior in sides.items():
        object.__setattr__(changed, side, _on_side(prior, side))
    return changed


def _on_side(prior: Any, side: str) -> Any:
    return prior.on_side(side) if isinstance(prior, Distribution) else prior


def copy_sides(pair: Any) -> None:
    """Replace both sides of priors, or of a start, by copies that share no array with the given ones."""
    for side in ("loadings", "components"):
        value = getattr(pair, side)
        parts = getattr(value, "__dict__", {"": value}).values()
        if not all(isinstance(part, (int, float, np.generic)) for part in parts):
            object.__setattr__(pair, side, _copied(value))


def _copied(value: Any) -> Any:
    """Return a copy whose arrays are those of NumPy: arrays of JAX would be taken for arrays on a device."""
    if isinstance(value, Distribution):
        return value.with_parameters({name: _copied(part) for name, part in value.parameters.items()})
    if isinstance(value, ScaledProportions):
        return ScaledProportions(*map(_copied, value))
    return deepcopy(value) if on_host(value) else np.array(value)


def with_favoured(prior: Distribution, members: Array, strength: float, rank: int) -> Distribution:
    """Return the prior of components of which the first favour features; `members` (r, m) says which ones."""
    name, size = prior.counted, (rank, members.shape[1])
    counts = np.array(np.broadcast_to(np.asarray(prior.parameters[name], np.float64), size))
    counts[: len(members)] += strength * members / members.sum(axis=1, keepdims=True)
    return replace(prior, **{name: counts})  # type: ignore[type-var]


def favoured(prior: Distribution) -> Array:
    """Return how much each component's prior favours single features, (K, m), in counts; (0, m) if none does.

    A component favours features if, beside what all components have, it has more prior counts for them than for most
    others.
    """
    value = np.atleast_2d(np.asarray(getattr(prior, prior.counted, 0.0)))
    if len(prior.given_rows[1]):  # known components are more than a few features
        return np.zeros((0, value.shape[1]))
    beyond = value - value.min(axis=0)
    beyond -= beyond.min(axis=1, keepdims=True)
    beyond[(beyond > 0).mean(axis=1) > 0.5] = 0
    return beyond if len(beyond) > 1 and beyond.any() else beyond[:0]


def free_components(prior: Distribution, rank: int) -> Array:
    """Return the components that are not known, as indices."""
    return others(prior.constants.get("at", np.zeros(0, np.int64)), rank)


def movable_components(priors: Priors, rank: int) -> Array:
    """Return the components that may change places: the largest group of those not known that have the same priors."""
    free = np.arange(rank) if priors.components == PARAMETER else free_components(priors.components, rank)  # type: ignore[arg-type]
    if not len(free):
        return free
    groups = np.zeros(len(free), np.intp)
    for prior, axis in ((priors.loadings, -1), (priors.components, -2)):
        for parameter in {} if prior == PARAMETER else prior.parameters.values():  # type: ignore[union-attr]
            lines = np.moveaxis(np.atleast_2d(np.asarray(parameter)), axis, 0)
            if len(lines) > 1:
                lines = lines if len(lines) == len(free) else lines[free]
                _, found = np.unique(lines.reshape(len(free), -1), axis=0, return_inverse=True)
                _, groups = np.unique(np.column_stack([groups, found]), axis=0, return_inverse=True)
    largest = groups == np.bincount(groups, minlength=1).argmax()
    return free[largest] if largest.sum() > 1 or len(free) == 1 else free[:0]
