"""What missing entries change: the exposures of both sides, and the totals of sides on a simplex.

A missing entry has no counts, and no exposure either. Where a side may be anything positive, the entry is left out of
the sum that is the exposure of its entries. The conditional of a side on a simplex has no exposure, since it relies on
one that is equal for all its entries. There each entry receives, besides the counts of its observed entries, those that
its missing entries would have (uniformisation, mathematics.md section 13): expected counts for modes and mean fields,
drawn ones for draws. Loadings given the totals N of the observed entries have the row exposure N / Σ of the observed
entries' means, which makes the multinomial given N a Poisson (an MM step).

Under vi with components on the simplex, loadings too receive expected counts of missing entries, so that both sides
raise one bound: the elbo of the counts together with those counts. Rows without any observed entry are left out of
that: they have no exposure at all, which is equal for all entries.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from bayesnmf.inference.draw import Draw
from bayesnmf.inference.problem import Problem, State
from bayesnmf.inference.side import MeanField, Side, Summary, empty_side
from bayesnmf.kernels.cpu.gamma_draws import gamma_draws
from bayesnmf.kernels.cpu.poisson_draws import poisson_draws
from bayesnmf.types import Array


def imputes_loadings(problem: Problem, components: Side) -> bool:
    """Return whether loadings receive counts of missing entries, in place of a smaller exposure.

    They do not where the components are all known, and loadings alone raise the bound of the observed entries.
    """
    return problem.counts.mask is not None and raises_one_bound(problem, components)


def raises_one_bound(problem: Problem, components: Side) -> bool:
    """Return whether loadings would receive counts of missing entries, so that both sides raise one bound."""
    if problem.loadings_prior.support != "positive":
        return True
    prior = problem.components_prior
    known = len(prior.constants.get("at", ())) == len(components.geometric)
    on_simplex = prior.support == "simplex" and not (problem.fixed_components or known)
    return on_simplex and isinstance(problem.loadings_summary, MeanField)


def imputes_components(problem: Problem) -> bool:
    """Return whether components receive counts of missing entries."""
    return problem.counts.mask is not None and problem.components_prior.support == "simplex"


def missing_exposure_of_loadings(problem: Problem, components: Side) -> Array:
    """Return r_i Σ c_j β_kj over the missing entries of each row, (n, K)."""
    mask: Any = problem.counts.mask
    exposed = problem.counts.exposed_components(components.matrix)
    return np.asarray(mask.sums_by_row(exposed.T) * problem.counts.row_factor)


def missing_exposure_of_components(problem: Problem, loadings: Side) -> Array:
    """Return c_j Σ r_i θ_ik over the rows in which each feature is missing, (K, m)."""
    sums = problem.over_rows(State(loadings, empty_side()), _exposed_where_missing, reads=False)
    return np.asarray(sums.T * problem.counts.feature_factor)


def _exposed_where_missing(part: Problem, here: State, rows: slice) -> Array:
    """Return Σ r_i θ_ik over the rows in which each feature is missing, (m, K)."""
    mask: Any = part.counts.mask
    sums: Array = mask.sums_by_feature(part.counts.exposed_loadings(here.loadings.matrix))
    return sums


def with_missing_totals(problem: Problem, state: State, side: str, total: Array) -> Array:
    """Return the totals of one side with the counts that its missing entries would have at the geometric means.

    Those of draws are drawn, with random numbers that belong to rows of the whole.
    """
    summary, of_rows = getattr(problem, f"{side}_summary"), problem.loadings_summary
    seeds = seeds_of_missing(of_rows)
    if side == "loadings":
        mask: Any = problem.counts.mask
        first = getattr(summary, "first", None) or 0
        U, V = weights(problem, state, seeds and seeds[0], first)
        more = U * mask.sums_by_row(V)
        return total + (poisson_draws(more, seeds[1], first) if seeds else more).astype(total.dtype)

    def where_missing(part: Problem, here: State, rows: slice) -> Array:
        mask: Any = part.counts.mask
        sums: Array = mask.sums_by_feature(weights(part, here, seeds and seeds[0], rows.start)[0])
        return sums

    more = (_weights_of_components(problem, state) * problem.over_rows(state, where_missing, reads=False)).T
    return total + (summary.rng.poisson(more) if isinstance(summary, Draw) else more).astype(total.dtype)


def seeds_of_missing(summary: Summary) -> tuple[int, int] | None:
    """Return seeds of the exposures of rows and the counts of their missing entries, for draws; else None."""
    if not isinstance(summary, Draw):
        return None
    one, two = summary.rng.integers(2**63, size=2).tolist()
    return one, two


def _weights_of_components(problem: Problem, state: State) -> Array:
    return geometric_of(state.components).T * problem.counts.feature_factor[:, None]


def weights(problem: Problem, state: State, seed: int | None = None, first: int = 0) -> tuple[Array, Array]:
    """Return factors (n, K) and (m, K) in float64 whose products are the expected counts of missing entries.

    With a seed, exposures of rows given their totals are drawn, those of rows from row `first` on.
    """
    mask: Any = problem.counts.mask
    U = geometric_of(state.loadings) * mask.seen_rows[:, None]
    V = _weights_of_components(problem, state)
    if problem.loadings_prior.support == "simplex":
        totals = problem.counts.row_totals
        exposure = totals if seed is None else _drawn_exposures(totals, seed, first)
        return U * (exposure / observed_shares(problem, U, V))[:, None], V
    return U * problem.counts.row_factor, V


def _drawn_exposures(totals: Array, seed: int, first: int) -> Array:
    """Draw from Gamma(totals, 1), for rows from row `first` on; 0 for rows without counts."""
    counted = totals > 0
    drawn = gamma_draws(np.where(counted, totals, 1.0)[:, None], seed, first_row=first)
    return np.where(counted, drawn[:, 0], 0.0)


def geometric_of(side: Side) -> Array:
    """Return geometric means, with the factors of rows or features, in float64."""
    found = np.asarray(side.geometric, np.float64)
    return found if side.log_shift is None else found * np.exp(side.log_shift)


def observed_shares(problem: Problem, U: Array, V: Array) -> Array:
    """Return what is left of 1 for the observed entries of each row, (n,), for factors of proportions."""
    mask: Any = problem.counts.mask
    return np.maximum(1.0 - mask.products_by_row(U, V), np.finfo(np.float64).tiny)


def gain_of_missing(problem: Problem, state: State) -> float:
    """Return what the objective gains since missing entries have no exposure, in nats."""
    return problem.over_rows(state, _gain_of_rows, reads=False)


def _gain_of_rows(part: Problem, here: State, rows: slice) -> float:
    counts = part.counts
    if part.loadings_prior.support == "simplex":
        U, V = geometric_of(here.loadings), geometric_of(here.components).T
        return float(-(counts.row_totals * np.log(observed_shares(part, U, V))).sum())
    mask: Any = counts.mask
    means = counts.exposed_loadings(here.loadings.matrix), counts.exposed_components(here.components.matrix).T
    if not imputes_loadings(part, here.components):
        return float(mask.products_by_row(*means).sum())
    U, V = weights(part, here)
    unseen = means[0][~mask.seen_rows].sum(axis=0) @ means[1].sum(axis=0)
    return float(mask.products_by_row(U, V).sum() + unseen)
