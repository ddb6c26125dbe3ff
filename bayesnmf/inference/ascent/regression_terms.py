"""The two factors of alternating Poisson regression: their priors, their scales, and the modes that they stand for.

Dirichlet sides are fitted without the constraint and then normalised ([C] lemma 1, cor. 2): if the prior of the
loadings is flat, the scale of a component may move between the sides. A rate τ shared by all loadings of a row only
divides them by r + τ, with the exposure r of the row ([GP] lemma 6.1), so these loadings are fitted with a flat prior
and divided at the end. In between, both sides are times their exposures, and rates are divided by them. Where entries
are missing, each line has the exposure of its observed entries, and both sides must be Gamma: totals of rows would be
those of the observed entries.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from bayesnmf.inference.problem import Problem, State
from bayesnmf.inference.side import Side
from bayesnmf.inference.sides import exposure_left
from bayesnmf.kernels.cpu.factors import scale_rows, sum_rows
from bayesnmf.kernels.cpu.underflow import Spread
from bayesnmf.priors.values import separate_scale
from bayesnmf.types import Array


def exposure_of_observed(problem: Problem, side: str, other: Array) -> Array | None:
    """Return sums of the other factor over the observed entries of each line of a side; None if none are missing."""
    mask = problem.counts.mask
    if mask is None:
        return None
    missing = mask.sums_by_row(other.T) if side == "loadings" else mask.sums_by_feature(other.T)
    return exposure_left(sum_rows(other.T)[None], missing)


def spread_of_factors(problem: Problem) -> Spread | None:
    """Return the spreads of counts that cluster, for the product of the unnormalised factors; None for others."""
    counts = problem.counts
    if (spread := counts.spread(None, None)) is None:
        return None
    rows, features = spread
    by_feature = None if features is None else features * counts.feature_factor
    return rows * _shrinkage(problem)[:, 0], by_feature


def gamma_terms(problem: Problem, rank: int) -> list[tuple[Array, Array]]:
    """Return, for each side, c − 1 and d of Gamma(c, d) priors, with K columns.

    A Dirichlet(η) on a component is replaced by Gamma(η, Σ(η − 1)), for which the optimal sum is 1 ([C] cor. 2).
    """
    dtype, (n, m) = problem.counts.dtype, problem.counts.shape
    components: Any = problem.components_prior
    loadings: Any = problem.loadings_prior
    less, rate = components.regression_terms(m)
    pairs: list[tuple[Any, Any]] = [(0.0, 0.0), (less.T, rate.T)]
    if _both_positive(problem):
        pairs[0] = loadings.regression_terms(n)
    given = problem.counts.row_weights, problem.counts.feature_weights
    for side, exposure in enumerate(given):
        if exposure is not None and (side or _both_positive(problem)):
            pairs[side] = (pairs[side][0], pairs[side][1] / exposure[:, None])

    def rows(each: Any) -> Array:
        each = np.atleast_2d(each)
        return np.broadcast_to(each, (len(each), rank)).astype(dtype)

    return [(rows(less), rows(rate)) for less, rate in pairs]


def unnormalised_rows(problem: Problem, side: Side) -> Array:
    """Return the loadings on the scale of the counts, perhaps without copying them."""
    loadings, _ = separate_scale(side.value)
    if problem.loadings_prior.support != "positive":
        return loadings * problem.counts.row_totals[:, None].astype(loadings.dtype)
    factor = _shrinkage(problem).astype(loadings.dtype)
    return loadings if np.all(factor == 1) else loadings * factor


def unnormalised_components(problem: Problem, state: State) -> Array:
    """Return the components on the scale of the counts, perhaps without copying them."""
    return problem.counts.exposed_components(state.components.matrix)


def scale_loadings(problem: Problem, loadings: Array, ratio: Array) -> None:
    """Multiply loadings by the scales of their components, in place; then scale rows to their totals, if they may.

    Where counts cluster, no totals are known that would be those of the best loadings.
    """
    scale_rows(loadings, ratio)
    if problem.components_prior.support == "simplex" and not problem.counts.in_clusters:
        totals = problem.counts.row_totals[:, None].astype(loadings.dtype)
        sums = loadings.sum(axis=1, keepdims=True)
        loadings *= np.divide(totals, sums, out=np.ones_like(sums), where=(totals > 0) & (sums > 0))


def sums_of_rows(problem: Problem, prior: tuple[Array, Array], loadings: Array) -> Array:
    """Return what the best scale depends on, for the loadings of some rows, (2, K): Σ(a − 1) and Σ bθ, or 0 and Σ θ."""
    if problem.components_prior.support == "simplex":
        return np.zeros((2, loadings.shape[1]))
    if problem.components_prior.flat and problem.loadings_prior.flat:
        return np.stack([np.zeros(loadings.shape[1]), sum_rows(loadings)])
    return np.stack(_sums_of_prior(prior, loadings))


def _sums_of_prior(prior: tuple[Array, Array], value: Array) -> tuple[Array, Array]:
    less, rate = prior
    whole = np.broadcast_to(less, value.shape)
    return whole.sum(axis=0, dtype=np.float64), (rate * value).sum(axis=0, dtype=np.float64)


def scale_of(problem: Problem, prior: tuple[Array, Array], of_rows: Array, components: Array) -> Array:
    """Return r (K,) that loadings are multiplied by and components are divided by, given `sums_of_rows` of all rows.

    With priors Gamma(a, b) and Gamma(c, d), the best r solves P r² − p r − Q = 0 with p = Σ(a − 1) − Σ(c − 1),
    P = Σ bθ and Q = Σ dβ. It is 1 if there is no maximum.
    """
    sums, (n, _) = sum_rows(components.T), problem.counts.shape
    if problem.components_prior.support == "simplex":
        return sums
    if problem.components_prior.flat and problem.loadings_prior.flat:
        return np.sqrt((sums / components.shape[1]) / (of_rows[1] / n))
    (p_loadings, P), (p_components, Q) = of_rows, _sums_of_prior(prior, components.T)
    p = p_loadings - p_components
    root = np.sqrt(p**2 + 4 * P * Q)
    top, bottom = np.where(p > 0, p + root, 2 * Q), np.where(p > 0, 2 * P, root - p)
    return np.divide(top, bottom, out=np.ones_like(top), where=bottom > 0)


def _both_positive(problem: Problem) -> bool:
    """Return whether neither side lies on a simplex."""
    return problem.loadings_prior.support == problem.components_prior.support == "positive"


def _shrinkage(problem: Problem) -> Array:
    """Return r + τ, (1 or n, 1), which divides the loadings ([GP] lemma 6.1); r if τ is part of the regression."""
    if _both_positive(problem):
        return problem.counts.row_factor
    prior: Any = problem.loadings_prior
    _, rate = prior.regression_terms(1)
    return problem.counts.row_factor + rate[:, :1]


def modes_of_components(problem: Problem, components: Array) -> Side:
    """Return the modes that correspond to unnormalised components."""
    if problem.counts.feature_weights is not None:
        components = (components / problem.counts.feature_weights).astype(components.dtype)
    summary: Any = problem.components_summary
    side: Side = summary.at(problem.components_prior, components)
    return side


def modes_of_rows(problem: Problem, before: Side, loadings: Array) -> Side:
    """Return the modes that correspond to unnormalised loadings; rows without counts stay as they were before."""
    prior: Any = problem.loadings_prior
    counts, totals = problem.counts, problem.counts.row_totals[:, None]
    if prior.support != "positive":
        kept, _ = separate_scale(before.value)
        loadings = np.where(totals > 0, loadings / loadings.sum(axis=1, keepdims=True), kept)
    else:
        divisor = _shrinkage(problem).astype(loadings.dtype)
        loadings = loadings if np.all(divisor == 1) else loadings / divisor
    value: Any = loadings
    if prior.support == "scaled simplex":
        exposure = counts.row_factor.astype(loadings.dtype)
        value = prior.with_best_scale(loadings, totals.astype(loadings.dtype), exposure)
    summary: Any = problem.loadings_summary
    side: Side = summary.at(prior, value)
    return side
