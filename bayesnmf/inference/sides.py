"""The updates of both sides of a problem, and its objective.

Given allocations, the loadings and the components are independent, and each has a conjugate conditional,
``prior.conditional(total, exposure)``, which a summary turns into the side (`bayesnmf.inference.summaries`).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from bayesnmf.inference.missing import (
    gain_of_missing,
    imputes_components,
    imputes_loadings,
    missing_exposure_of_components,
    missing_exposure_of_loadings,
    with_missing_totals,
)
from bayesnmf.inference.problem import Problem, State
from bayesnmf.inference.rates import problem_at
from bayesnmf.inference.side import Side, empty_side
from bayesnmf.types import Array

ROUNDING = 1e-12  # share of a whole exposure that a difference of sums may be off by


def exposure_of_loadings(problem: Problem, components: Side) -> Array:
    """Return r_i Σ_j c_j β_kj, (1 or n, K); r_i, (1 or n, 1), for loadings with a scale, as components sum to 1."""
    sums = np.ones((1, 1))
    if problem.loadings_prior.support != "scaled simplex":
        sums = components.exposed_sums(0, problem.counts.feature_weights)[None, :]
    exposure = sums * problem.counts.row_factor
    mask = problem.counts.mask
    if mask is not None and imputes_loadings(problem, components):
        exposure = exposure * mask.seen_rows[:, None]
    elif mask is not None:
        exposure = exposure_left(exposure, missing_exposure_of_loadings(problem, components))
    return exposure.astype(components.dtype)


def exposure_of_components(problem: Problem, loadings: Side) -> Array:
    """Return c_j Σ_i r_i θ_ik, (K, 1 or m), with the exposures r of rows and c of features."""
    sums = _exposed_sums_of_loadings(problem, loadings)[:, None]
    exposure = sums * problem.counts.feature_factor
    if problem.counts.mask is not None and not imputes_components(problem):
        exposure = exposure_left(exposure, missing_exposure_of_components(problem, loadings))
    return exposure.astype(loadings.dtype)


def _exposed_sums_of_loadings(problem: Problem, loadings: Side) -> Array:
    """Return Σ_i r_i θ_ik, (K,), with exposures that may have changed since a pass has written the loadings."""

    def of_rows(part: Problem, here: State, rows: slice) -> Array:
        return here.loadings.exposed_sums(1, part.counts.row_weights)

    if getattr(problem.counts, "learned", False):
        return problem.over_rows(State(loadings, empty_side()), of_rows, reads=False)
    return loadings.exposed_sums(1, problem.counts.row_weights)


def exposure_left(exposure: Array, missing: Array) -> Array:
    """Return exposures less those of missing cells; what is nothing but rounding is 0."""
    left = exposure - missing
    return np.where(left > ROUNDING * exposure, left, 0.0)


def given_totals(problem: Problem, state: State, side: str, total: Array) -> Array:
    """Return the totals that the conditional of a side is given, with those of missing cells where it needs them."""
    if isinstance(total, Updated):
        return total
    imputes = imputes_components(problem) if side == "components" else imputes_loadings(problem, state.components)
    return with_missing_totals(problem, state, side, total) if imputes else total


class Updated(NamedTuple):
    """New loadings in place of their total, where the pass that made an allocation step has also updated them.

    Attributes
    ----------
    loadings : Side
    components : Side
        Components at which they were updated.
    imbalance : float
        How far the loadings before the update were from stationary (`bayesnmf.inference.imbalance`); NaN unless they
        are a mode.
    """

    loadings: Side
    components: Side
    imbalance: float


def update_loadings(problem: Problem, state: State, total: Any, *, reuse: bool = False) -> State:
    """Return the state with the loadings replaced by the summary of their conditional, given their total (n, K).

    With `reuse` the total may be overwritten by the new loadings.
    """
    if isinstance(total, Updated):
        assert total.components is state.components, "the loadings are updated before the components"
        return state._replace(loadings=total.loadings)
    total = given_totals(problem, state, "loadings", total)
    given = problem.loadings_prior, total, exposure_of_loadings(problem, state.components), state.loadings
    return state._replace(loadings=problem.loadings_summary.carry(*given, reuse=reuse))


def update_components(problem: Problem, state: State, total: Array, *, reuse: bool = False) -> State:
    """Return the state with the components replaced by the summary of their conditional, given their total (K, m)."""
    if problem.fixed_components:
        return state
    total = given_totals(problem, state, "components", total)
    given = problem.components_prior, total, exposure_of_components(problem, state.loadings), state.components
    return state._replace(components=problem.components_summary.carry(*given, reuse=reuse))


def objective(problem: Problem, state: State, loglik: float) -> float:
    """Return the objective, the log joint or the elbo, on the Poisson scale, in nats.

    It is ``ℓ − Σ_k (Σ_i r_i Eθ_ik)(Σ_j c_j Eβ_kj) − Σ log X! + penalty(θ) + penalty(β)``, with ℓ = Σ X log(r c UV) and
    UV from the allocation step at `state`. The penalty is the log prior density of a mode or a draw, −KL of a q.
    """
    problem = problem_at(problem, state)
    counts, (loadings, components) = problem.counts, state
    loglik += loadings.shift(counts)
    if components.log_shift is not None:
        loglik += float((counts.feature_totals * components.log_shift.ravel()).sum())
    loglik += counts.log_exposure + counts.log_noise
    sums = _exposed_sums_of_loadings(problem, loadings), components.exposed_sums(0, counts.feature_weights)
    exposure = float(sums[0] @ sums[1])
    if counts.mask is not None:
        loglik += gain_of_missing(problem, state)
    constant = counts.log_factorial if problem.constant else 0.0
    return float(loglik - exposure - constant + loadings.penalty + components.penalty)
