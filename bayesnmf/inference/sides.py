"""The allocation step at a state, the updates of both sides of a problem, and its objective.

Given allocations, the loadings and the components are independent, and each has a conjugate conditional,
``prior.conditional(total, exposure)``, which a summary turns into the side (`bayesnmf.inference.side`).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from bayesnmf.data.counts import Counts
from bayesnmf.inference.batch_factors import problem_at
from bayesnmf.inference.missing import (
    differs,
    exposed_where_missing,
    exposure_given_totals,
    gain_of_missing,
    imputes,
    missing_exposure_of_loadings,
    with_missing_totals,
)
from bayesnmf.inference.problem import OfRows, Problem, State
from bayesnmf.inference.side import Side, Summary, empty_side, spread_at
from bayesnmf.kernels.cpu.allocation import Sides, Totals, expected_allocations, gathers_columns
from bayesnmf.kernels.cpu.dense import dense_allocations, is_dense
from bayesnmf.kernels.cpu.factors import largest_imbalance
from bayesnmf.priors import Distribution
from bayesnmf.priors.values import on_host, separate_scale
from bayesnmf.types import Array


def in_own_unit(side: Side) -> Side:
    """Return loadings whose geometric means include the factors of rows, which matter where counts cluster."""
    if side.log_shift is None:
        return side
    return Side(side.value, (side.geometric * np.exp(side.log_shift)).astype(side.dtype), None, 0.0)


def allocate_at_means(counts: Counts, loadings: Array, components: Array, threads: int | None = None) -> Totals:
    """Return the totals of an allocation step at factors (n, K) and (K, m) whose products are the means."""
    return expected_allocations(counts.matrix, loadings, components, threads, spread=counts.spread_of_means())


def _allocate_on_device(entries: Any, loadings: Any, components: Any, sides: Sides) -> Totals:
    """Return the totals of an allocation step on the devices that hold the counts."""
    from bayesnmf.kernels.gpu.allocation import Entries, compiled_allocations, compiled_on_shards

    allocations = compiled_allocations if isinstance(entries, Entries) else compiled_on_shards
    return allocations(entries, loadings, components, sides=sides)


def allocate(problem: Problem, state: State, threads: int | None, sides: Sides = "both") -> Totals:
    """Return the totals, of both sides or of one, from an allocation step at the geometric means of both sides."""
    if state.loadings.allocate is not None:
        return state.loadings.allocate(problem, state.components, sides)
    counts, U, V = problem.counts, state.loadings.geometric, state.components.geometric
    if problem.entries is not None:
        return _allocate_on_device(problem.entries, U, V, sides)
    spread = spread_at(counts, state)
    if is_dense(counts.matrix):
        totals = dense_allocations(counts.dense, U, V, sides, spread, threads)
        if totals is not None:
            return totals
    apart = sides != "loadings" and gathers_columns(counts.matrix, U.shape[1], spread)
    return expected_allocations(
        counts.matrix, U, V, threads, transposed=counts.transposed if apart else None, sides=sides, spread=spread
    )


class Where(NamedTuple):
    """A block of rows, and how to work on it.

    Attributes
    ----------
    number : int
    rows : slice
    threads : int or None
        Number of threads to work with; None chooses the fastest.
    beside : bool
        Whether other blocks are worked on at the same time.
    tally : object
        Totals of the components that the block adds to, if the pass has them.
    """

    number: int
    rows: slice
    threads: int | None = None
    beside: bool = False
    tally: Any = None

    def allocate(self, part: Problem, here: State, sides: Sides = "both") -> Totals:
        """Return the totals of an allocation step of this block; those of the components may be added elsewhere.

        Of counts on disk, totals of the components are scattered by one thread, as blocks run side by side: the numbers
        then depend neither on threads nor on a library for matrix products.
        """
        if self.tally is not None:
            received, loglik = self.tally.add(part.counts.matrix, here.loadings.geometric, spread_at(part.counts, here))
            return Totals(received, here.components.geometric[:, :0], loglik)
        if not self.beside:
            return allocate(part, here, self.threads, sides)
        factors = here.loadings.geometric, here.components.geometric
        return expected_allocations(
            part.counts.matrix, *factors, threads=1, sides=sides, spread=spread_at(part.counts, here)
        )


ROUNDING = 1e-12  # share of a whole exposure that a difference of sums may be off by


def exposure_of_loadings(problem: Problem, components: Side) -> Array:
    """Return r_i Σ_j c_j β_kj over observed entries, (1 or n, K); r_i, (1 or n, 1), where β sums to 1 over all of them.

    Loadings with a scale have components that sum to 1.
    """
    sums = np.ones((1, 1))
    if problem.loadings_prior.support != "scaled simplex":
        sums = components.exposed_sums(0, problem.counts.feature_weights)[None, :]
    exposure = sums * problem.counts.row_factor
    mask = problem.counts.mask
    if mask is not None and imputes(problem, "loadings"):
        exposure = exposure * mask.seen_rows[:, None]
    elif mask is not None:
        exposure = exposure_left(exposure, missing_exposure_of_loadings(problem, components))
    return exposure.astype(components.dtype)


def exposure_of_components(problem: Problem, loadings: Side) -> Array:
    """Return c_j Σ_i r_i θ_ik, (K, 1 or m), with the exposures r of rows and c of features."""
    counts = problem.counts
    left_out = counts.mask is not None and not imputes(problem, "components")
    given = problem, State(loadings, empty_side())
    sums, missing = _exposed_sums_and(*given, exposed_where_missing if left_out else None)
    exposure = sums[:, None] * counts.feature_factor
    if left_out:
        exposure = exposure_left(exposure, missing.T * counts.feature_factor)
    return exposure.astype(loadings.dtype)


def _exposed_sums_and(problem: Problem, state: State, work: OfRows[Any] | None) -> tuple[Array, Any]:
    """Return Σ_i r_i θ_ik, (K,), and what is found in all rows, or 0: in one pass where exposures may have moved.

    They have if they are others than when a pass over the rows has written the loadings.
    """

    def of_rows(part: Problem, here: State, rows: slice) -> tuple[Array, Any]:
        found = 0.0 if work is None else work(part, here, rows)
        return here.loadings.exposed_sums(1, part.counts.row_weights), found

    if problem.counts.exposures_move:
        return problem.over_rows(state, of_rows, _add_both, reads=False)
    sums = state.loadings.exposed_sums(1, problem.counts.row_weights)
    return sums, 0.0 if work is None else problem.over_rows(state, work, reads=False)


def _add_both(one: tuple[Any, Any], two: tuple[Any, Any]) -> tuple[Any, Any]:
    return one[0] + two[0], one[1] + two[1]


def exposure_left(exposure: Array, missing: Array) -> Array:
    """Return exposures less those of missing entries; what is nothing but rounding is 0."""
    left = exposure - missing
    return np.where(left > ROUNDING * exposure, left, 0.0)


def exposure_of(problem: Problem, state: State, side: str) -> Array:
    """Return the exposure of a side at a state; given totals, that of the multinomials' linearisation."""
    given = problem.loadings_prior.support == "simplex" and differs(problem, side)
    if side == "components":
        exposure = exposure_given_totals(problem, state) if given else exposure_of_components(problem, state.loadings)
        return exposure.astype(state.loadings.dtype)
    exposure = exposure_of_loadings(problem, state.components)
    if not given:
        return exposure
    observed = (exposure * state.loadings.matrix).sum(axis=1, dtype=np.float64)
    per_count = problem.counts.row_totals / np.maximum(observed, np.finfo(np.float64).tiny)
    return (exposure * per_count[:, None]).astype(exposure.dtype)


def given_totals(problem: Problem, state: State, side: str, total: Array) -> Array:
    """Return the totals that the conditional of a side is given, with those of missing entries where it needs them."""
    if isinstance(total, Updated) or not imputes(problem, side):
        return total
    return with_missing_totals(problem, state, side, total)


def conditional_of(problem: Problem, state: State, side: str, total: Array, prior: Any = None) -> Any:
    """Return the conditional of a side given its total, from which a mean field differs by its natural gradient.

    The prior is that of the problem, or another one of the same family.
    """
    prior = getattr(problem, f"{side}_prior") if prior is None else prior
    given = given_totals(problem, state, side, total), exposure_of(problem, state, side)
    if differs(problem, side):
        return prior.near_conditional(*given, getattr(state, side).conditional, whole=True)
    return prior.conditional(*given)


def updated_side(problem: Problem, state: State, side: str, total: Array, *, reuse: bool = False) -> Side:
    """Return the summary of the conditional of a side, given its total with what it receives for missing entries.

    With `reuse` the total may be overwritten.
    """
    prior, summary = getattr(problem, f"{side}_prior"), getattr(problem, f"{side}_summary")
    exposure, before = exposure_of(problem, state, side), getattr(state, side)
    if not differs(problem, side):
        updated: Side = summary.summarise(prior, total, exposure, before, reuse=reuse)
        return updated
    q = before.conditional
    if q is None:
        q = prior.conditional(np.array(total), exposure.mean(axis=1, keepdims=True))
    near: Side = summary.of(prior, prior.near_conditional(total, exposure, q))
    return near


class Updated(NamedTuple):
    """New loadings in place of their total, where the pass that made an allocation step has also updated them.

    Attributes
    ----------
    loadings : Side
    components : Side
        Components at which they were updated.
    imbalance : float
        How far the loadings before the update were from stationary (`bayesnmf.inference.sides`); NaN unless they
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
    return state._replace(loadings=updated_side(problem, state, "loadings", total, reuse=reuse))


def update_components(problem: Problem, state: State, total: Array, *, reuse: bool = False) -> State:
    """Return the state with the components replaced by the summary of their conditional, given their total (K, m)."""
    if problem.fixed_components:
        return state
    total = given_totals(problem, state, "components", total)
    return state._replace(components=updated_side(problem, state, "components", total, reuse=reuse))


def with_rates_at(problem: Problem, state: State, threads: int | None = None, moving: Array | None = None) -> Problem:
    """Return the problem with the expected factors and rates at a state; the problem itself where counts have none.

    With `moving`, booleans (n,), the other rows keep the rates that they have; factors of batches, which belong to all
    rows together, then stay.
    """
    if not problem.counts.waits_for(state, moving):
        return problem
    return problem_at(problem, state, threads, moving)


def objective(problem: Problem, state: State, loglik: float) -> float:
    """Return the objective, the log joint or the elbo, on the Poisson scale, in nats.

    It is ``ℓ − Σ_k (Σ_i r_i Eθ_ik)(Σ_j c_j Eβ_kj) − Σ log X! + penalty(θ) + penalty(β)``, with ℓ = Σ X log(r c UV) and
    UV from the allocation step at `state`. The penalty is the log prior density of a mode or a draw, −KL of a q.
    """
    given, problem = problem, with_rates_at(problem, state)
    if problem is not given and problem.counts.in_clusters:  # which depend on the factors that have changed
        loglik = allocate(problem, state, None, "loadings").loglik
    counts, (loadings, components) = problem.counts, state
    loglik += loadings.shift(counts)
    if components.log_shift is not None:
        loglik += float((counts.feature_totals * components.log_shift.ravel()).sum())
    loglik += counts.log_exposure + counts.log_noise
    sums, gain = _exposed_sums_and(problem, state, None if counts.mask is None else gain_of_missing)
    loglik += gain
    exposure = float(sums @ components.exposed_sums(0, counts.feature_weights))
    constant = counts.log_factorial if problem.constant else 0.0
    return float(loglik - exposure - constant + loadings.penalty + components.penalty)


def imbalance(
    prior: Distribution, summary: Summary, side: Side, total: Array, exposure: Array, component_axis: int
) -> float:
    """Return the largest |θ Σβ − A| of a side over all entries, prior included; components are in columns (1) or rows.

    It is 0 at a stationary mode.
    """
    value, _ = separate_scale(side.value)
    weight, added = prior.balance(value, total, exposure, 1.0 if summary.basis == "natural" else 0.0)
    if not on_host(value):
        return float(abs(value * weight - (total + added)).max())
    parts = [np.atleast_2d(each) for each in (value, total, weight, added)]
    return largest_imbalance(*(parts if component_axis == 1 else [each.T for each in parts]))
