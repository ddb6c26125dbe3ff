"""Priors of both sides, and a state to start from: what every class of options holds."""

from __future__ import annotations

from copy import copy, deepcopy
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from bayesnmf import checks
from bayesnmf.priors import Distribution, ScaledProportions

Array = NDArray[Any]


@dataclass(frozen=True, eq=False)
class Priors:
    """Priors of both sides; None is the model's default (table in `bayesnmf.specification`).

    A fit takes parameters from 1e-100 (in float32 1e-20) to 1e8, rates to 1e100 (1e20), and the flat prior Gamma(1, 0).
    The larger a shape or concentration a, the coarser is the objective, which holds a log a: to 1e-16 of that, and in
    float32, whose factors are rounded to 6e-8, to that share of a.

    Arrays among the parameters are copied, 8 bytes a number: what happens to the given ones later changes no fit.

    Attributes
    ----------
    loadings : Gamma, Dirichlet, ScaledDirichlet or None
        Parameters broadcastable to (n, K).
    components : Gamma, Dirichlet, "parameter" or None
        Parameters broadcastable to (K, m). "parameter" has no prior: rows on the simplex, estimated
        (variational EM under vi and svi, maximum likelihood under map).
    """

    loadings: Distribution | None = None
    components: Distribution | Literal["parameter"] | None = None

    def __post_init__(self) -> None:
        checks.check_priors(self)
        _own_sides(self)


@dataclass(frozen=True, eq=False)
class Start:
    """A state to start from: factors, or variational parameters, for each side.

    Under map, gibbs and nuts a factor is taken as it is; under vi and svi the first q is the conditional given the
    expected allocations at the factors. A distribution is the q itself under vi and svi; under map its mean, under
    gibbs and nuts a draw from it. Arrays are copied.

    Attributes
    ----------
    loadings : ndarray (n, K), ScaledProportions or a distribution
    components : ndarray (K, m) or a distribution
    """

    loadings: Array | ScaledProportions | Distribution
    components: Array | Distribution

    def __post_init__(self) -> None:
        _own_sides(self)


def with_sides(priors: Priors, **sides: Any) -> Priors:
    """Return the priors with some sides replaced by others that nobody else can write into; nothing is copied."""
    changed = copy(priors)
    for side, prior in sides.items():
        object.__setattr__(changed, side, prior)
    return changed


def _own_sides(pair: Priors | Start) -> None:
    """Replace both sides by copies that share no array with the given ones; numbers and words stay as they are."""
    for side in ("loadings", "components"):
        value = getattr(pair, side)
        parts = getattr(value, "__dict__", {"": value}).values()
        if not all(isinstance(part, (int, float, np.generic)) for part in parts):
            object.__setattr__(pair, side, deepcopy(value))
