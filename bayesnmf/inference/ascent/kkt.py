"""Measure how far a mode is from stationary, by the Karush-Kuhn-Tucker conditions ([C] A.3)."""

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
# Value that replaces zeros, relative to the largest entry: large enough that their totals do not underflow.
INSIDE = 1e-12


def kkt_residual(problem: Problem, state: State, totals: Totals) -> float:
    """Return the largest |θ Σβ − A| or |β Σθ − B| over all entries, priors included, in counts ([C] A.3).

    It is 0 at an optimum, but also for entries wrongly stuck at 0, which `least_gradient` detects. `totals` is the
    allocation step at `state`.
    """
    largest = 0.0
    for prior, summary, side, total, exposure in _mode_sides(problem, state, totals):
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
    """Return the smallest 1 − (EM update) / value over all entries, a pure number; below 0, some entry should grow.

    For example, −0.1 means that an EM update would multiply some entry by 1.1. The number is a relative derivative of
    minus the objective: 1 − (a − 1 + A) / (θ (b + Σβ)) for a Gamma side (shape a, rate b), and 1 − p / (θ Σp) with
    p = α − 1 + A for a side on the simplex; in the log basis the −1 is left out. Zeros are first replaced by a small
    positive value. At an optimum the result is 0, to the accuracy of the fit. During a fit, it tends to 0 along with
    the residual, except for an entry wrongly stuck at 0. Components without any loading have no effect, whatever their
    entries are: only their loadings count, which tell whether they should have one.
    """
    inside = State(_without_zeros(state.loadings.value, 1), _without_zeros(state.components.value, 0))
    totals = allocate(problem, inside, None)
    used = (separate_scale(state.loadings.value)[0] >= separate_scale(inside.loadings.value)[0]).any(axis=0)
    least = np.inf
    for prior, summary, side, total, exposure in _mode_sides(problem, inside, totals):
        update, _ = separate_scale(summary.carry(prior, total, exposure, side, reuse=True).value)
        growth = np.divide(update, separate_scale(side.value)[0], out=update)
        growth = growth[used] if side is inside.components else growth
        least = min(least, 1.0 - float(growth.max(initial=-np.inf)))
    return least


def _without_zeros(value: Any, component_axis: int) -> Side:
    """Return the side of a value with its zeros replaced by a small positive number."""
    shares, scale = separate_scale(value)
    lifted = padded_copy(shares, component_axis)
    np.maximum(lifted, max(INSIDE * shares.max(initial=0), np.finfo(shares.dtype).tiny), out=lifted)
    return Side(attach_scale(lifted, scale), lifted, None, 0.0)


def _mode_sides(problem: Problem, state: State, totals: Totals) -> list[Any]:
    """Return prior, summary, side, total and exposure of each side that is a mode."""
    loadings, components = problem.loadings_summary, problem.components_summary
    exposure = exposure_of_loadings(problem, state.components)
    sides: list[Any] = [(problem.loadings_prior, loadings, state.loadings, totals.loadings, exposure)]
    if not problem.fixed_components:
        prior, exposure = problem.components_prior, exposure_of_components(problem, state.loadings)
        sides.append((prior, components, state.components, totals.components, exposure))
    return [side for side in sides if side[1].basis is not None]
