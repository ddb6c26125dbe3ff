"""What missing entries change: the exposures of both sides, and the totals of sides on a simplex.

A missing entry has no counts, and no exposure either: it is left out of the sum that is the exposure of an entry of a
side, Σ of the expectations of the other side over observed entries. Where a side may be anything positive, nothing
else changes. The conditional of a side on a simplex has no exposure, since it relies on one that is equal for all its
entries, so there

- a mean field moves towards the best one of its family (`bayesnmf.priors.dirichlet`), which raises the elbo of the
  observed entries;
- for modes and draws each entry receives, besides the counts of its observed entries, those that its missing entries
  would have (uniformisation, noise.md): expected counts, or drawn ones.

Loadings given the totals N of the observed entries have the row exposure N / Σ of the observed entries' means, which
makes the multinomial given N a Poisson (an MM step).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from bayesnmf.inference.problem import Problem, State
from bayesnmf.inference.side import Draw, MeanField, Side, Summary
from bayesnmf.kernels.cpu.draws import gamma_draws, poisson_draws
from bayesnmf.priors import Distribution
from bayesnmf.types import Array


def imputes(problem: Problem, side: str) -> bool:
    """Return whether a side receives counts of missing entries, in place of a smaller exposure."""
    return _on_simplex_beside_missing(problem, side) and not _is_mean_field(problem, side)


def differs(problem: Problem, side: str) -> bool:
    """Return whether a side is a mean field on a simplex whose entries have different exposures."""
    return _on_simplex_beside_missing(problem, side) and _is_mean_field(problem, side)


def _on_simplex_beside_missing(problem: Problem, side: str) -> bool:
    prior: Distribution = getattr(problem, f"{side}_prior")
    return problem.counts.mask is not None and prior.support != "positive"


def _is_mean_field(problem: Problem, side: str) -> bool:
    return isinstance(getattr(problem, f"{side}_summary"), MeanField)


def missing_exposure_of_loadings(problem: Problem, components: Side) -> Array:
    """Return r_i Σ c_j β_kj over the missing entries of each row, (n, K)."""
    mask: Any = problem.counts.mask
    exposed = problem.counts.exposed_components(components.matrix)
    return np.asarray(mask.sums_by_row(exposed.T) * problem.counts.row_factor)


def exposed_where_missing(part: Problem, here: State, rows: slice) -> Array:
    """Return Σ r_i θ_ik over some rows in which each feature is missing, (m, K)."""
    mask: Any = part.counts.mask
    sums: Array = mask.sums_by_feature(part.counts.exposed_loadings(here.loadings.matrix))
    return sums


def exposure_given_totals(problem: Problem, state: State) -> Array:
    """Return Σ of N θ_ik / Σ of the observed means of a row over the rows in which each feature is observed, (K, m)."""

    def of_rows(part: Problem, here: State, rows: slice) -> Array:
        mask: Any = part.counts.mask
        U, _ = weights(part, here)
        return np.asarray(U.sum(axis=0)[:, None] - mask.sums_by_feature(U).T)

    return np.maximum(problem.over_rows(state, of_rows, reads=False), 0.0)


def with_missing_totals(problem: Problem, state: State, side: str, total: Array) -> Array:
    """Return the totals of a side that is a mode or a draw, with the counts that its missing entries would have.

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

    V = state.components.matrix.T * problem.counts.feature_factor[:, None]
    more = (V * problem.over_rows(state, where_missing, reads=False)).T
    return total + (summary.rng.poisson(more) if isinstance(summary, Draw) else more).astype(total.dtype)


def seeds_of_missing(summary: Summary) -> tuple[int, int] | None:
    """Return seeds of the exposures of rows and the counts of their missing entries, for draws; else None."""
    if not isinstance(summary, Draw):
        return None
    one, two = summary.rng.integers(2**63, size=2).tolist()
    return one, two


def weights(problem: Problem, state: State, seed: int | None = None, first: int = 0) -> tuple[Array, Array]:
    """Return factors (n, K) and (m, K) in float64 whose products are the expected counts of missing entries.

    With a seed, exposures of rows given their totals are drawn, those of rows from row `first` on.
    """
    counts, mask = problem.counts, problem.counts.mask
    U = np.asarray(state.loadings.matrix, np.float64) * mask.seen_rows[:, None]  # type: ignore[union-attr]
    V = np.asarray(state.components.matrix, np.float64).T * counts.feature_factor[:, None]
    if problem.loadings_prior.support == "simplex":
        exposure = counts.row_totals if seed is None else _drawn_exposures(counts.row_totals, seed, first)
        return U * (exposure / observed_shares(problem, U, V))[:, None], V
    return U * counts.row_factor, V


def _drawn_exposures(totals: Array, seed: int, first: int) -> Array:
    """Draw from Gamma(totals, 1), for rows from row `first` on; 0 for rows without counts."""
    counted = totals > 0
    drawn = gamma_draws(np.where(counted, totals, 1.0)[:, None], seed, first_row=first)
    return np.where(counted, drawn[:, 0], 0.0)


def observed_shares(problem: Problem, U: Array, V: Array) -> Array:
    """Return what is left of 1 for the observed entries of each row, (n,), for factors of proportions."""
    mask: Any = problem.counts.mask
    return np.maximum(1.0 - mask.products_by_row(U, V), np.finfo(np.float64).tiny)


def gain_of_missing(part: Problem, here: State, rows: slice) -> float:
    """Return what the objective gains since missing entries of some rows have no exposure, in nats."""
    counts, mask = part.counts, part.counts.mask
    loadings, components = here.loadings.matrix, counts.exposed_components(here.components.matrix).T
    if part.loadings_prior.support == "simplex":
        return float(-(counts.row_totals * np.log(observed_shares(part, loadings, components))).sum())
    gain = counts.gain_of_rates  # which is found with the exposures of rows, if it is asked for before these
    return gain + float(mask.products_by_row(counts.exposed_loadings(loadings), components).sum())  # type: ignore[union-attr]
