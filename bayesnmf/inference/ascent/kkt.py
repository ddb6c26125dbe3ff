"""How far a mode is from stationary: the Karush-Kuhn-Tucker conditions of MAP and maximum likelihood ([C] A.3)."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from bayesnmf.inference.allocating import allocate
from bayesnmf.inference.sides import Problem, Side, State, exposure_of_components, exposure_of_loadings
from bayesnmf.kernels.cpu.allocation import Totals
from bayesnmf.kernels.cpu.sums import largest_imbalance
from bayesnmf.kernels.cpu.vectors import padded_copy
from bayesnmf.priors.arrays import on_host
from bayesnmf.priors.values import attach_scale, separate_scale

Array = NDArray[Any]
# Zeros are looked at this far inside, relative to the largest entry: far enough that their totals do not underflow.
INSIDE = 1e-12


def kkt_residual(problem: Problem, state: State, totals: Totals) -> float:
    """Return max |θ Σβ − A| and |β Σθ − B| over all entries, priors included, in counts ([C] A.3).

    It is 0 at an optimum, and also at parameters stuck at 0: `least_gradient` tells these apart. `totals` is the
    allocation step at `state`.
    """
    largest = 0.0
    for prior, summary, side, total, exposure in _modes(problem, state, totals):
        value, _ = separate_scale(side.value)
        weight, added = prior.balance(value, total, exposure, 1.0 if summary.basis == "natural" else 0.0)
        if not on_host(value):
            largest = max(largest, float(abs(value * weight - (total + added)).max()))
            continue
        parts = [np.atleast_2d(each) for each in (value, total, weight, added)]
        if side is state.components:
            parts = [each.T for each in parts]
        largest = max(largest, largest_imbalance(*parts))
    return largest


def least_gradient(problem: Problem, state: State) -> float:
    """Return the least of 1 − (EM update) / value over all entries: below 0 at one that should grow. A pure number.

    −0.1: an EM update would make some entry 1.1 times as large. It is the derivative of minus the objective, relative
    to what holds an entry down: 1 − (a − 1 + A) / (θ (b + Σβ)) of a Gamma side (shape a, rate b), 1 − p / (θ Σp) with
    p = α − 1 + A where a side is on the simplex; the priors' 1 falls away in the log basis. Entries at 0 are looked at
    just inside. At an optimum it is 0, to the accuracy of the fit: the growth of entries that are still on the
    move fades along with the residual, and that of one wrongly stuck at 0 stays.
    """
    inside = State(_side_inside(state.loadings.value, 1), _side_inside(state.components.value, 0))
    totals = allocate(problem, inside, None)
    least = np.inf
    for prior, summary, side, total, exposure in _modes(problem, inside, totals):
        update, _ = separate_scale(summary.carry(prior, total, exposure, side, reuse=True).value)
        growth = np.divide(update, separate_scale(side.value)[0], out=update)
        least = min(least, 1.0 - float(growth.max(initial=-np.inf)))
    return least


def _side_inside(value: Any, component_axis: int) -> Side:
    """Carry a factor with its zeros lifted."""
    shares, scale = separate_scale(value)
    lifted = padded_copy(shares, component_axis)
    np.maximum(lifted, max(INSIDE * shares.max(initial=0), np.finfo(shares.dtype).tiny), out=lifted)
    return Side(attach_scale(lifted, scale), lifted, None, 0.0)


def _modes(problem: Problem, state: State, totals: Totals) -> list[Any]:
    """Prior, summary, side, total and exposure of each side that is a mode."""
    loadings, components = problem.loadings_summary, problem.components_summary
    sides: list[Any] = [
        (problem.loadings_prior, loadings, state.loadings, totals.loadings, exposure_of_loadings(state))
    ]
    if not problem.fixed_components:
        prior, exposure = problem.components_prior, exposure_of_components(state)
        sides.append((prior, components, state.components, totals.components, exposure))
    return [side for side in sides if side[1].basis is not None]
