"""The priors of both sides."""

from __future__ import annotations

from copy import copy, deepcopy
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from bayesnmf.priors.checks import check_priors
from bayesnmf.priors.families import Distribution
from bayesnmf.priors.specification import PARAMETER

Array = NDArray[Any]


@dataclass(frozen=True, eq=False)
class Priors:
    """Priors of both sides; None is the model's default (table in `bayesnmf.priors.specification`).

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
        check_priors(self)
        own_sides(self)


def exchangeable(priors: Priors) -> bool:
    """Whether the priors treat all components alike, so that relabelling them leaves the posterior unchanged."""
    for prior, axis in ((priors.loadings, -1), (priors.components, -2)):
        if prior == PARAMETER:
            continue
        for parameter in vars(prior).values():
            array = np.atleast_2d(np.asarray(parameter))
            if not np.all(array == np.take(array, [0], axis=axis)):
                return False
    return True


def with_sides(priors: Priors, **sides: Any) -> Priors:
    """Return the priors with some sides replaced by others that nobody else can write into; nothing is copied."""
    changed = copy(priors)
    for side, prior in sides.items():
        object.__setattr__(changed, side, prior)
    return changed


def own_sides(pair: Any) -> None:
    """Replace both sides of priors, or of a start, by copies that share no array with the given ones.

    Numbers and words stay as they are.
    """
    for side in ("loadings", "components"):
        value = getattr(pair, side)
        parts = getattr(value, "__dict__", {"": value}).values()
        if not all(isinstance(part, (int, float, np.generic)) for part in parts):
            object.__setattr__(pair, side, deepcopy(value))
