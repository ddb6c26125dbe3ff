"""Make states to start from: from random totals, given factors or given distributions."""

from __future__ import annotations

from typing import Any

import numpy as np

from bayesnmf.inference.allocating import allocate
from bayesnmf.inference.blocked.passes import pass_over_rows
from bayesnmf.inference.blocked.tasks import Pass, Where
from bayesnmf.inference.problem import Problem, State
from bayesnmf.inference.rates import problem_at
from bayesnmf.inference.side import Side, empty_side
from bayesnmf.inference.sides import exposure_of_components, update_components, update_loadings
from bayesnmf.inference.summaries import MeanField, skip_rows
from bayesnmf.priors import Distribution, ScaledProportions, matrix
from bayesnmf.priors.values import as_scaled_proportions, rows_of_value
from bayesnmf.types import Array

Given = Array | ScaledProportions | Distribution


def random_state(problem: Problem, rank: int, rng: np.random.Generator) -> State:
    """Return the state of the conditionals given random totals: counts of rows and features times Dirichlet draws."""
    dtype = problem.counts.dtype

    def share_out(part: Problem, _: Any, __: Where) -> tuple[Side, None, float]:
        total = shared_out(part.counts.row_totals, np.ones(rank), rng).astype(dtype, copy=False)
        return Side(total, total, None, 0.0), None, 0.0

    def work(part: Problem, here: State, _: Where) -> tuple[Side, None, float]:
        return loadings_of_totals(part, here.loadings.matrix), None, 0.0

    _, totals = pass_over_rows(problem, None, share_out, Pass(pure=False, reads=False))
    total = shared_out(problem.counts.feature_totals, np.ones(rank), rng).astype(dtype, copy=False)
    _, loadings = pass_over_rows(problem, State(totals, empty_side()), work, Pass(reads=False))
    return with_components(problem, loadings, total.T)


def shared_out(totals: Array, concentration: Array, rng: np.random.Generator) -> Array:
    """Share out totals (n,) among components at random; return what each receives, (n, K)."""
    shares = rng.dirichlet(concentration, size=len(totals))
    shares *= totals[:, None]
    return shares


def loadings_of_totals(part: Problem, total: Array) -> Side:
    """Return the loadings given their totals, which may be overwritten.

    The exposure is that of components whose expected counts sum to 1.
    """
    one = part.counts.row_factor.astype(total.dtype)
    return part.loadings_summary.carry(part.loadings_prior, total, one, None, reuse=True)


def with_components(problem: Problem, loadings: Side, total: Array) -> State:
    """Return the state of loadings that a pass has made and of components given their totals, (K, m)."""
    skip_rows(problem.loadings_summary, problem.loadings_prior, len(total), again=False)
    given = problem.components_prior, total, exposure_of_components(problem, loadings), None
    return State(loadings, problem.components_summary.carry(*given, reuse=True))


def state_of_totals(problem: Problem, loadings_total: Array, components_total: Array) -> State:
    """Return the state of the conditionals given totals (n, K) and (K, m), which may be overwritten."""
    return with_components(problem, loadings_of_totals(problem, loadings_total), components_total)


def given_state(problem: Problem, loadings: Given, components: Given) -> State:
    """Return the state with given factors or distributions.

    A mean field needs a distribution. For a given factor, q is therefore the conditional given the expected allocations
    and the exposure at the given factors; the exposure of the components is computed at the new q of the loadings.
    """

    def work(part: Problem, _: Any, at: Where) -> tuple[Side, None, float]:
        return given_side(part, "loadings", _rows_of(loadings, at.rows)), None, 0.0

    _, side = pass_over_rows(problem, None, work, Pass(pure=False, reads=False))  # given rows are sent nowhere
    state = State(side, given_side(problem, "components", components))
    if isinstance(loadings, Distribution):
        skip_rows(problem.loadings_summary, problem.loadings_prior, len(state.components.geometric), again=False)
    bare = is_bare(problem.loadings_summary, loadings), is_bare(problem.components_summary, components)
    if not any(bare):
        return state
    problem = problem_at(problem, state)
    totals = allocate(problem, state, None)
    if bare[0]:
        state = update_loadings(problem, state, totals.loadings)
    return update_components(problem, state, totals.components) if bare[1] else state


def _rows_of(given: Given, rows: slice) -> Given:
    if isinstance(given, Distribution):
        return given.rows(rows)
    return rows_of_value(given, rows)


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
