"""What missing cells change: the exposures of both sides, and the totals of sides on a simplex.

A missing cell has no counts, and no exposure either. Where a side may be anything positive, the cell is left out of the
sum that is the exposure of its entries. The conditional of a side on a simplex has no exposure, since it relies on one
that is equal for all its entries. There each entry receives, besides the counts of its observed cells, those that its
missing cells would have (uniformisation, mathematics.md section 13): expected counts for modes and mean fields, drawn
ones for draws. Loadings given the totals N of the observed cells have the row exposure N / Σ of the observed cells'
means, which makes the multinomial given N a Poisson (an MM step).

Under vi with components on the simplex, loadings too receive expected counts of missing cells, so that both sides
raise one bound: the elbo of the counts together with those counts. Rows without any observed cell are left out of that:
they have no exposure at all, which is equal for all entries.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from bayesnmf.inference.problem import Problem, State
from bayesnmf.inference.side import Side
from bayesnmf.inference.summaries import Draw, MeanField

Array = NDArray[Any]


def imputes_loadings(problem: Problem, components: Side) -> bool:
    """Return whether loadings receive counts of missing cells, in place of a smaller exposure.

    They do not where the components are all known, and loadings alone raise the bound of the observed cells.
    """
    return problem.counts.mask is not None and raises_one_bound(problem, components)


def raises_one_bound(problem: Problem, components: Side) -> bool:
    """Return whether loadings would receive counts of missing cells, so that both sides raise one bound."""
    if problem.loadings_prior.support != "positive":
        return True
    prior = problem.components_prior
    known = len(prior.constants.get("at", ())) == len(components.geometric)
    on_simplex = prior.support == "simplex" and not (problem.fixed_components or known)
    return on_simplex and isinstance(problem.loadings_summary, MeanField)


def imputes_components(problem: Problem) -> bool:
    """Return whether components receive counts of missing cells."""
    return problem.counts.mask is not None and problem.components_prior.support == "simplex"


def missing_exposure_of_loadings(problem: Problem, components: Side) -> Array:
    """Return r_i Σ c_j β_kj over the missing cells of each row, (n, K)."""
    mask: Any = problem.counts.mask
    exposed = problem.counts.exposed_components(components.matrix)
    return np.asarray(mask.sums_by_row(exposed.T) * problem.counts.row_factor)


def missing_exposure_of_components(problem: Problem, loadings: Side) -> Array:
    """Return c_j Σ r_i θ_ik over the rows in which each feature is missing, (K, m)."""
    mask: Any = problem.counts.mask
    exposed = problem.counts.exposed_loadings(loadings.matrix)
    return np.asarray(mask.sums_by_feature(exposed).T * problem.counts.feature_factor)


def with_missing_totals(problem: Problem, state: State, side: str, total: Array) -> Array:
    """Return the totals of one side with the counts that its missing cells would have at the geometric means."""
    counts, (U, V) = problem.counts, weights(problem, state)
    mask: Any = counts.mask
    more = U * mask.sums_by_row(V) if side == "loadings" else (V * mask.sums_by_feature(U)).T
    summary = getattr(problem, f"{side}_summary")
    if isinstance(summary, Draw):
        more = summary.rng.poisson(more)
    return total + more.astype(total.dtype)


def weights(problem: Problem, state: State) -> tuple[Array, Array]:
    """Return factors (n, K) and (m, K) in float64 whose products are the expected counts of missing cells."""
    mask: Any = problem.counts.mask
    U = geometric_of(state.loadings) * mask.seen_rows[:, None]
    V = geometric_of(state.components).T * problem.counts.feature_factor[:, None]
    if problem.loadings_prior.support == "simplex":
        return U * _row_exposure(problem, U, V)[:, None], V
    return U * problem.counts.row_factor, V


def geometric_of(side: Side) -> Array:
    """Return geometric means, with the factors of rows or features, in float64."""
    found = np.asarray(side.geometric, np.float64)
    return found if side.log_shift is None else found * np.exp(side.log_shift)


def _row_exposure(problem: Problem, U: Array, V: Array) -> Array:
    """Return the exposures of rows of proportions given the totals of their observed cells, (n,)."""
    totals, observed = problem.counts.row_totals, observed_shares(problem, U, V)
    summary = problem.loadings_summary
    if isinstance(summary, Draw):
        return np.asarray(summary.rng.gamma(totals) / observed)
    return np.asarray(totals / observed)


def observed_shares(problem: Problem, U: Array, V: Array) -> Array:
    """Return what is left of 1 for the observed cells of each row, (n,), for factors of proportions."""
    mask: Any = problem.counts.mask
    return np.maximum(1.0 - mask.products_by_row(U, V), np.finfo(np.float64).tiny)


def gain_of_missing(problem: Problem, state: State) -> float:
    """Return what the objective gains since missing cells have no exposure, in nats."""
    counts = problem.counts
    if problem.loadings_prior.support == "simplex":
        U, V = geometric_of(state.loadings), geometric_of(state.components).T
        return float(-(counts.row_totals * np.log(observed_shares(problem, U, V))).sum())
    mask: Any = counts.mask
    means = counts.exposed_loadings(state.loadings.matrix), counts.exposed_components(state.components.matrix).T
    if not imputes_loadings(problem, state.components):
        return float(mask.products_by_row(*means).sum())
    U, V = weights(problem, state)
    unseen = means[0][~mask.seen_rows].sum(axis=0) @ means[1].sum(axis=0)
    return float(mask.products_by_row(U, V).sum() + unseen)
