"""One step of coordinate ascent on a device, and the objective: `coordinate_ascent.step`, `sides.objective` in JAX."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from scipy.sparse import csr_array

from bayesnmf.inference.ascent.coordinate_ascent import Schedule
from bayesnmf.inference.device.sides import FLOAT, Kind, Parts, Side, carry, given, on_the_simplex, parts_of
from bayesnmf.inference.sides import MeanField, Problem, State
from bayesnmf.kernels.cpu.allocation import Sides, Totals
from bayesnmf.kernels.gpu.allocation import Cells, expected_allocations, place_cells

Pair = tuple[Side, Side]
Stated = tuple[Parts, Parts]  # both sides by their parameters, which is what a loop carries


class Data(NamedTuple):
    """What an ascent is given, on the device: counts and their constants, priors, tolerances."""

    cells: Cells
    priors: tuple[Parts, Parts]
    margins: tuple[Any, Any]
    log_factorial: Any
    tol: Any
    kkt_tol: Any


class Plan(NamedTuple):
    """What is compiled: how sides are carried, and the schedule."""

    kinds: tuple[Kind, Kind]
    first: int
    alternating: bool
    sweeps: int
    window: int
    extrapolate: bool
    residuals: bool


def plan_of(problem: Problem, schedule: Schedule, extrapolate: bool) -> Plan:
    """Return what is compiled for a problem and a schedule."""
    summaries: tuple[Any, Any] = (problem.loadings_summary, problem.components_summary)
    kinds = tuple(
        Kind("mean field", component_axis=each.component_axis)
        if isinstance(each, MeanField)
        else Kind(each.basis, each.estimated)
        for each in summaries
    )
    return Plan(
        kinds,  # type: ignore[arg-type]
        first=0 if schedule.order == "loadings" else 1,
        alternating=schedule.kind == "alternating",
        sweeps=schedule.sweeps,
        window=schedule.window,
        extrapolate=extrapolate,
        residuals=schedule.kkt_tol is not None,
    )


def data_of(device: Any, problem: Problem, state: State, schedule: Schedule) -> Data:
    """Put the counts, the priors and the tolerances on the device."""
    counts = problem.counts
    rank = state.components.geometric.shape[0]
    numbers = (
        (parts_of(problem.loadings_prior), parts_of(problem.components_prior)),
        (counts.row_totals, counts.feature_totals),
        *(np.float64(each) for each in (counts.log_factorial, schedule.tol, schedule.kkt_tol or 0.0)),
    )
    return Data(place_cells(counts.matrix, csr_array(counts.matrix.T), rank, device), *jax.device_put(numbers, device))


def beyond(data: Data, new: Stated, before: Stated, weight: Any) -> Stated:
    """Return the state at new + weight × (new − before), in logarithms of the parameters (`extrapolation`)."""

    def moved(new: Any, old: Any) -> Any:
        known = (old > 0) & (new > 0)
        ratio = jnp.where(known, new, 1) / jnp.where(known, old, 1)
        return new * ratio ** weight.astype(new.dtype)

    further = jax.tree.map(moved, new, before)
    return on_the_simplex(data.priors[0], further[0]), on_the_simplex(data.priors[1], further[1])


def carried(data: Data, plan: Plan, stated: Stated) -> Pair:
    """Carry both sides of a state."""
    return tuple(map(given, plan.kinds, data.priors, stated))  # type: ignore[return-value]


def like(new: Any, old: Any) -> Any:
    """Broadcast to the shapes of a loop's state."""
    return jax.tree.map(lambda a, b: jnp.broadcast_to(a, b.shape), new, old)


def _allocate(data: Data, state: Pair, sides: Sides) -> Totals:
    return expected_allocations(data.cells, state[0].geometric, state[1].geometric, sides=sides)


def _needed(side: int, plan: Plan) -> Sides:
    """Whose totals are needed to update one side: both under joint, where the other side goes on with them."""
    if not plan.alternating:
        return "both"
    return "loadings" if side == 0 else "components"


def totals_of(data: Data, state: Pair, plan: Plan) -> Totals:
    """Take the allocation step of an iterate."""
    return _allocate(data, state, "both" if plan.residuals else _needed(plan.first, plan))


def step(data: Data, state: Pair, totals: Totals, plan: Plan) -> Pair:
    """Update both sides once, given the allocation step at `state` (`coordinate_ascent.step`)."""
    for position, side in enumerate((plan.first, 1 - plan.first)):
        needed = _needed(side, plan)
        if position == 1 and plan.alternating:
            totals = _allocate(data, state, needed)
        if plan.sweeps > 1 and (position == 0 or plan.alternating):
            state, totals = _sweep_more(data, state, side, totals, plan)
        state = _update(data, state, side, totals, plan)
    return state


def _sweep_more(data: Data, state: Pair, side: int, totals: Totals, plan: Plan) -> tuple[Pair, Totals]:
    """Update one side all times but the last, each followed by a fresh allocation step."""
    needed = _needed(side, plan)

    def once(_: Any, at: tuple[Pair, Totals]) -> tuple[Pair, Totals]:
        state = like(_update(data, at[0], side, at[1], plan), at[0])
        return state, _allocate(data, state, needed)

    return jax.lax.fori_loop(0, plan.sweeps - 1, once, (state, _only(needed, totals)))


def _only(needed: Sides, totals: Totals) -> Totals:
    """Leave out the totals that are not needed, as `expected_allocations` does."""
    empty = totals.loadings[:0]
    A = empty if needed == "components" else totals.loadings
    return totals._replace(loadings=A, components=empty.T if needed == "loadings" else totals.components)


def _update(data: Data, state: Pair, side: int, totals: Totals, plan: Plan) -> Pair:
    """Update one side given an allocation step and the other side's exposure."""
    total: Any = totals[side]
    exposure = _exposures(state)[side].astype(total.dtype)
    new = carry(plan.kinds[side], data.priors[side], total, exposure, state[side])
    return (new, state[1]) if side == 0 else (state[0], new)


def _exposures(state: Pair) -> tuple[Any, Any]:
    """Σ_j β_kj (1, K) for the loadings, Σ_i θ_ik (K, 1) for the components, float64."""
    loadings, components = state
    return (
        components.matrix.sum(axis=1, dtype=FLOAT)[None, :],
        loadings.matrix.sum(axis=0, dtype=FLOAT)[:, None],
    )


def objective(data: Data, state: Pair, loglik: Any) -> Any:
    """The one objective, as `sides.objective` states it."""
    for side, margin in zip(state, data.margins, strict=True):
        if side.log_shift is not None:
            loglik += (margin * jnp.where(margin > 0, side.log_shift.ravel(), 0)).sum()
    exposures = [each.ravel() for each in _exposures(state)]
    return loglik - (exposures[0] * exposures[1]).sum() - data.log_factorial + sum(side.penalty for side in state)


def residual_of(data: Data, state: Pair, totals: Totals, plan: Plan) -> Any:
    """The KKT residual, as `kkt.kkt_residual` states it."""
    found = jnp.zeros((), FLOAT)
    for kind, prior, side, total, exposure in zip(
        plan.kinds, data.priors, state, totals[:2], _exposures(state), strict=True
    ):
        less = 1.0 if kind.carried == "natural" else 0.0
        found = jnp.maximum(found, jnp.abs(prior[0].imbalance(side.value[0], total, exposure, less)).max())
    return found
