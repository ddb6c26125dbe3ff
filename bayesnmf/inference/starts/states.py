"""Make states to start from: from random totals, given factors or given distributions."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from bayesnmf.inference.allocating import spread_at
from bayesnmf.inference.rates import problem_at
from bayesnmf.inference.side import Side
from bayesnmf.inference.sides import Problem, State, exposure_of_components, update_components, update_loadings
from bayesnmf.inference.summaries import MeanField
from bayesnmf.kernels.cpu.allocation import expected_allocations
from bayesnmf.priors import Distribution, ScaledProportions, matrix
from bayesnmf.priors.values import as_scaled_proportions

Array = NDArray[Any]
Given = Array | ScaledProportions | Distribution


def random_state(problem: Problem, rank: int, rng: np.random.Generator) -> State:
    """Return the state of the conditionals given random totals: counts of rows and features times Dirichlet draws."""
    counts, dtype = problem.counts, problem.counts.dtype
    loadings_total, components_total = (
        shared_out(totals, np.ones(rank), rng).astype(dtype, copy=False)
        for totals in (counts.row_totals, counts.feature_totals)
    )
    return state_from_totals(problem, loadings_total, components_total.T)


def shared_out(totals: Array, concentration: Array, rng: np.random.Generator) -> Array:
    """Share out totals (n,) among components at random; return what each receives, (n, K)."""
    shares = rng.dirichlet(concentration, size=len(totals))
    shares *= totals[:, None]
    return shares


def state_from_totals(problem: Problem, loadings_total: Array, components_total: Array) -> State:
    """Return the state of the conditionals given totals (n, K) and (K, m).

    The exposure of the loadings is that of components whose expected counts sum to 1. The totals may be overwritten.
    """
    one = problem.counts.row_factor.astype(loadings_total.dtype)
    loadings = problem.loadings_summary.carry(problem.loadings_prior, loadings_total, one, None, reuse=True)
    given = problem.components_prior, components_total, exposure_of_components(problem, loadings), None
    return State(loadings, problem.components_summary.carry(*given, reuse=True))


def given_state(problem: Problem, loadings: Given, components: Given) -> State:
    """Return the state with given factors or distributions.

    A mean field needs a distribution. For a given factor, q is therefore the conditional given the expected allocations
    and the exposure at the given factors; the exposure of the components is computed at the new q of the loadings.
    """
    sides = (
        given_side(problem, "loadings", loadings),
        given_side(problem, "components", components),
    )
    state = State(*sides)
    bare = [is_bare(problem.loadings_summary, loadings), is_bare(problem.components_summary, components)]
    if not any(bare):
        return state
    problem = problem_at(problem, state)
    factors = state.loadings.geometric, state.components.geometric
    totals = expected_allocations(problem.counts.matrix, *factors, spread=spread_at(problem.counts, state))
    if bare[0]:
        state = update_loadings(problem, state, totals.loadings)
    if bare[1]:
        state = update_components(problem, state, totals.components)
    return state


def is_bare(summary: Any, given: Given) -> bool:
    """Return whether a mean field is asked for and a factor is given."""
    return isinstance(summary, MeanField) and not isinstance(given, Distribution)


def given_side(problem: Problem, name: str, given: Given) -> Side:
    """Return the side of a given factor or distribution."""
    prior = getattr(problem, f"{name}_prior")
    summary = getattr(problem, f"{name}_summary")
    dtype = problem.counts.dtype
    if isinstance(given, Distribution):
        return summary.of(prior, given.mapped(lambda value: value.astype(dtype, copy=False)))
    if prior.support == "scaled simplex" and not isinstance(given, ScaledProportions):
        given = as_scaled_proportions(given)
    if isinstance(given, ScaledProportions):
        given = ScaledProportions(given.proportions.astype(dtype), given.scale.astype(dtype))
    else:
        given = given.astype(dtype, order="F" if name == "components" else "C")
    if is_bare(summary, given):
        return Side(given, matrix(given), None, 0.0)
    return summary.at(prior, given)
