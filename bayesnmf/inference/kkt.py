"""How far a mode is from stationary: the Karush-Kuhn-Tucker conditions of MAP and maximum likelihood ([C] A.3)."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from bayesnmf.inference.sides import Mode, Problem, State, exposure_of_components, exposure_of_loadings
from bayesnmf.kernels.cpu import Totals, expected_allocations
from bayesnmf.priors import ScaledProportions

Array = NDArray[Any]

# Zeros are looked at this far inside, relative to the largest entry: far enough that their totals do not underflow.
INSIDE = 1e-12


def kkt_residual(problem: Problem, state: State, totals: Totals) -> float:
    """Return max |θ Σβ − A| and |β Σθ − B| over all entries, priors included, in counts ([C] A.3).

    It is 0 at an optimum, and also at parameters stuck at 0: `least_gradient` tells these apart. `totals` is the
    allocation step at `state`.
    """
    parts = _imbalances(problem, state, totals)
    return max((float(np.abs(part).max(initial=0.0)) for part in parts), default=0.0)


def least_gradient(problem: Problem, state: State) -> float:
    """Return the least derivative of minus the objective, over all entries: below 0 at one that should grow.

    In nats per unit of the factor, along the simplex where the side lives on one. At an optimum it is 0 or above,
    to the accuracy of the fit; what tells an entry wrongly stuck at 0 is a large negative value.
    """
    inside = State(*(side.__class__(_inside(side.value), _inside(side.geometric), None, 0.0) for side in state))
    totals = expected_allocations(problem.counts.matrix, inside.loadings.geometric, inside.components.geometric)
    parts = _imbalances(problem, inside, totals)
    values = [side.value for side in inside]
    least = np.inf
    for part, value in zip(parts, values, strict=False):
        shares = value.proportions if isinstance(value, ScaledProportions) else value
        least = min(least, float((part / shares).min(initial=np.inf)))
    return least


def _inside(value: Any) -> Any:
    """Return a factor with its zeros lifted."""
    if isinstance(value, ScaledProportions):
        return value._replace(proportions=_inside(value.proportions))
    return np.maximum(value, max(INSIDE * value.max(initial=0), np.finfo(value.dtype).tiny))


def _imbalances(problem: Problem, state: State, totals: Totals) -> list[Array]:
    """For each side that is a mode: value × exposure − total, with the prior's part in both, in counts."""
    sides: list[Any] = [
        (problem.loadings_prior, problem.loadings_summary, state.loadings, totals.loadings, exposure_of_loadings)
    ]
    if not problem.fixed_components:
        prior, summary = problem.components_prior, problem.components_summary
        sides.append((prior, summary, state.components, totals.components, exposure_of_components))
    return [
        prior.imbalance(side.value, total, exposure(state), 1.0 if summary.basis == "natural" else 0.0)
        for prior, summary, side, total, exposure in sides
        if isinstance(summary, Mode)
    ]
