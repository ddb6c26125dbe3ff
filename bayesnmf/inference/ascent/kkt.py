"""Measure how far a mode is from stationary ([C] A.3: Karush-Kuhn-Tucker conditions), and judge convergence by it.

EM can almost stop far from an optimum, since an update multiplies an entry near 0 by a factor, however large the entry
should become. So a settled objective is not enough. The rule requires of the returned state that

- one more EM update would multiply no entry by more than 1.01, that is `least_gradient` ≥ −0.01;
- the KKT residual is at most 1e-5 of all counts, or a tenth of a count, or the requested `kkt_tol`.

Both are computed in the basis of the fit. The first has no unit, and the second scales with the counts. On seven real
matrices, the residual was 5e-9 to 6e-6 of all counts after the objective had settled to 1e-7; at 1e-5, the objective
lacks about 3e-4 of its gain over rank 1.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from bayesnmf.inference.blocked.passes import Pass, pass_over_rows, totals_of
from bayesnmf.inference.problem import Problem, State
from bayesnmf.inference.side import Side
from bayesnmf.inference.sides import (
    Updated,
    Where,
    exposure_of_components,
    exposure_of_loadings,
    given_totals,
    imbalance,
)
from bayesnmf.inference.status import Status
from bayesnmf.kernels.cpu.allocation import Totals
from bayesnmf.kernels.cpu.factors import padded_copy
from bayesnmf.priors.values import attach_scale, separate_scale
from bayesnmf.types import Array

# Value that replaces zeros, relative to the largest entry: large enough that their totals do not underflow.
INSIDE = 1e-12


def kkt_residual(problem: Problem, state: State, totals: Totals) -> float:
    """Return the largest |θ Σβ − A| or |β Σθ − B| over all entries, priors included, in counts ([C] A.3).

    It is 0 at an optimum, but also for entries wrongly stuck at 0, which `least_gradient` detects. `totals` is the
    allocation step at `state`.
    """
    largest = 0.0
    for prior, summary, side, total, exposure in _mode_sides(problem, state, totals):
        if isinstance(total, Updated):  # measured by the pass that updated the loadings
            largest = max(largest, total.imbalance)
            continue
        axis = 0 if side is state.components else 1
        largest = max(largest, imbalance(prior, summary, side, total, exposure, axis))
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

    def measure(part: Problem, here: State, _: Where) -> tuple[None, None, float]:
        return None, None, float(separate_scale(here.loadings.value)[0].max(initial=0))

    largest = pass_over_rows(problem, state, measure, Pass(writes=False, plus=max, reads=False))[0].more

    def lift(part: Problem, here: State, _: Where) -> tuple[Side, None, Array]:
        lifted = _without_zeros(here.loadings.value, 1, largest)
        shares = [separate_scale(each.value)[0] for each in (here.loadings, lifted)]
        return lifted, None, (shares[0] >= shares[1]).any(axis=0)

    found, lifted = pass_over_rows(problem, state, lift, Pass(plus=np.logical_or, reads=False))
    inside = State(lifted, _without_zeros(state.components.value, 0))

    def grow(part: Problem, here: State, at: Where) -> tuple[None, Totals, float]:
        totals = at.allocate(part, here)
        return None, totals, _least_of(replace(part, fixed_components=True), here, totals, found.more)

    grown, _ = pass_over_rows(problem, inside, grow, Pass(writes=False, plus=min, tallies="both"))
    totals = Totals(Updated(inside.loadings, inside.components, 0.0), totals_of(problem, grown), 0.0)  # type: ignore[arg-type]
    return min(grown.more, _least_of(problem, inside, totals, found.more))


def _least_of(problem: Problem, inside: State, totals: Totals, used: Array) -> float:
    """Return the least gradient of the sides with totals, given the components that have a loading."""
    least = np.inf
    for prior, summary, side, total, exposure in _mode_sides(problem, inside, totals):
        if isinstance(total, Updated):
            continue
        update, _ = separate_scale(summary.summarise(prior, total, exposure, side, reuse=True).value)
        growth = np.divide(update, separate_scale(side.value)[0], out=update)
        growth = growth[used] if side is inside.components else growth
        least = min(least, 1.0 - float(growth.max(initial=-np.inf)))
    return least


def _without_zeros(value: Any, component_axis: int, largest: float | None = None) -> Side:
    """Return the side of a value with its zeros replaced by a number that is small beside the largest entry."""
    shares, scale = separate_scale(value)
    top = shares.max(initial=0) if largest is None else largest
    lifted = padded_copy(shares, component_axis)
    np.maximum(lifted, max(INSIDE * top, np.finfo(shares.dtype).tiny), out=lifted)
    return Side(attach_scale(lifted, scale), lifted, None, 0.0)


def _mode_sides(problem: Problem, state: State, totals: Totals) -> list[Any]:
    """Return prior, summary, side, total and exposure of each side that is a mode."""
    loadings, components = problem.loadings_summary, problem.components_summary
    total = given_totals(problem, state, "loadings", totals.loadings)
    exposure = None if isinstance(total, Updated) else exposure_of_loadings(problem, state.components)
    sides: list[Any] = [(problem.loadings_prior, loadings, state.loadings, total, exposure)]
    if not problem.fixed_components:
        prior, exposure = problem.components_prior, exposure_of_components(problem, state.loadings)
        total = given_totals(problem, state, "components", totals.components)
        sides.append((prior, components, state.components, total, exposure))
    return [side for side in sides if side[1].basis is not None]


LEAST_GRADIENT = -0.01
SHARE, COUNTS = 1e-5, 0.1  # limits of the KKT residual: as a share of all counts, and in counts


def checked_status(status: Status, diagnostics: dict[str, float], total: float, kkt_tol: float) -> Status:
    """Return the status of a mode, changed to not converged, with the reason, if the rule fails.

    Parameters
    ----------
    status : Status
        Status with which the ascent stopped.
    diagnostics : dict
        `kkt_residual`, in counts, and `least_gradient`, a pure number, of the returned state.
    total : float
        Sum of all counts.
    kkt_tol : float
        Requested residual, in counts.
    """
    if not status.converged:
        return status
    least, residual = diagnostics["least_gradient"], diagnostics["kkt_residual"]
    limit = max(SHARE * total, COUNTS, kkt_tol)
    if not least >= LEAST_GRADIENT:
        wrong = f"one more EM update would multiply some entry by {1 - least:.3g}"
    elif not residual <= limit:
        wrong = f"the KKT residual is {residual:.3g} counts, above {limit:.3g}"
    else:
        return status
    return status._replace(converged=False, reason=f"{status.reason}, but {wrong}")
