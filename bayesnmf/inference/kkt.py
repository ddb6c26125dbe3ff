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
    parts = [
        prior.imbalance(side.value, total, exposure, 1.0 if summary.basis == "natural" else 0.0)
        for prior, summary, side, total, exposure in _modes(problem, state, totals)
    ]
    return max((float(np.abs(part).max(initial=0.0)) for part in parts), default=0.0)


def least_gradient(problem: Problem, state: State) -> float:
    """Return the least of 1 − (EM update) / value over all entries: below 0 at one that should grow. A pure number.

    −0.1: an EM update would make some entry 1.1 times as large. It is the derivative of minus the objective, relative
    to what holds an entry down: 1 − (a − 1 + A) / (θ (b + Σβ)) of a Gamma side (shape a, rate b), 1 − p / (θ Σp) with
    p = α − 1 + A where a side is on the simplex; the priors' 1 falls away in the log basis. Entries at 0 are looked at
    just inside. At an optimum it is 0, to the accuracy of the fit: the growth of entries that are still on the
    move fades along with the residual, and that of one wrongly stuck at 0 stays.
    """
    inside = State(*(side.__class__(_inside(side.value), _inside(side.geometric), None, 0.0) for side in state))
    totals = expected_allocations(problem.counts.matrix, inside.loadings.geometric, inside.components.geometric)
    least = np.inf
    for prior, summary, side, total, exposure in _modes(problem, inside, totals):
        update = summary.carry(prior, total, exposure, side).value
        growth = _shares(update) / _shares(side.value)
        least = min(least, 1.0 - float(growth.max(initial=-np.inf)))
    return least


def _shares(value: Any) -> Array:
    """Return what allocations depend on: proportions without their scale."""
    return value.proportions if isinstance(value, ScaledProportions) else value


def _inside(value: Any) -> Any:
    """Return a factor with its zeros lifted."""
    if isinstance(value, ScaledProportions):
        return value._replace(proportions=_inside(value.proportions))
    return np.maximum(value, max(INSIDE * value.max(initial=0), np.finfo(value.dtype).tiny))


def _modes(problem: Problem, state: State, totals: Totals) -> list[Any]:
    """Prior, summary, side, total and exposure of each side that is a mode."""
    loadings, components = problem.loadings_summary, problem.components_summary
    sides: list[Any] = [
        (problem.loadings_prior, loadings, state.loadings, totals.loadings, exposure_of_loadings(state))
    ]
    if not problem.fixed_components:
        prior, exposure = problem.components_prior, exposure_of_components(state)
        sides.append((prior, components, state.components, totals.components, exposure))
    return [side for side in sides if isinstance(side[1], Mode)]
