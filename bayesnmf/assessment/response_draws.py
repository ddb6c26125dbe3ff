"""Draws of all loadings and components by linear response, for readers of intervals that need draws.

A draw of the linearised mean field moves all expectations together (`bayesnmf.inference.response.solving.draw`). Added
to it are the loadings of every row given the components, with their covariance, and what the expectations leave of the
variance of single entries. Every entry of these normal draws is then brought to a Gamma distribution with the mean of q
and the variance of the draws, a Gaussian copula; shares are divided by their sums. The scale of dirichlet_gamma is
drawn from q. `bayesnmf.linear_response` has exact variances of what it is asked for; here they are those of the draws.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.special import ndtr

from bayesnmf.assessment.checks import check_strict
from bayesnmf.assessment.linear_response import linear_response
from bayesnmf.assessment.response_shapes import gamma_quantiles
from bayesnmf.priors.specification import on_simplex
from bayesnmf.priors.values import rows_to_shares
from bayesnmf.results.estimates import Draws, Intervals
from bayesnmf.results.record import FitRecord
from bayesnmf.types import Array


def draws_of_response(
    fit: FitRecord, number: tuple[int, int], seed: int, threads: int | None = None, report: Any = None
) -> Intervals:
    """Return draws of the linear response of a fit by vi.

    Parameters
    ----------
    fit : FitRecord
        Fit by vi.
    number : tuple of int
        Number of draws in second place, as for a chain; draws of linear response need no warm-up.
    seed : int
        Seed of the draws.
    threads : int, optional
        Number of threads; the draws do not depend on it.
    report : callable, optional
        Progress report.

    Raises
    ------
    ValueError
        The linear response does not exist, as the bound does not curve downwards in every direction.
    """
    response, draws = linear_response(fit, threads=threads), number[1]
    seeds = np.random.SeedSequence([seed, 3]).spawn(draws)
    moved = _moves(response.responses, seeds, report)
    check_strict(response.responses.strict)
    loadings, components = (
        _spread(getattr(response.fit, side), change)
        for side, change in zip(("loadings", "components"), moved, strict=True)
    )
    if fit.priors.loadings.support != "positive":  # type: ignore[union-attr]
        loadings = rows_to_shares(loadings, loadings.sum(axis=-1)).astype(np.float32)
    if on_simplex(fit.priors.components):
        components = rows_to_shares(components, components.sum(axis=-1)).astype(np.float32)
    scale = None
    if fit.scale is not None:
        drawn = response.fit.estimate.take(response.fit, (1, draws), seed, np.arange(1)).scale
        scale = None if drawn is None else drawn.astype(np.float32)
    return Intervals("linear response", Draws(loadings[None], components[None], scale))


def _moves(responses: Any, seeds: list[np.random.SeedSequence], report: Any) -> tuple[Array, Array]:
    """Return normal draws of both sides about their means, (draws, n, K) and (draws, K, m)."""
    coupled = responses.coupled
    of_rows, of = coupled.loadings, coupled.components
    values, vectors = np.linalg.eigh(coupled.rows)
    roots = vectors * np.sqrt(np.maximum(values, 0.0))[:, None, :]
    left = np.sqrt(np.maximum(of_rows.variance() - of_rows.explained(), 0.0))
    free = None if of is None else np.sqrt(np.maximum(of.variance() - of.explained(), 0.0))
    loadings, components = [], []
    for done, (seed, (drawn, _)) in enumerate(zip(seeds, responses.drawn(seeds), strict=True)):
        rng = np.random.default_rng(seed.spawn(1)[0])
        rows, features = responses.changes(drawn)
        noise = np.einsum("ikl,il->ik", roots, rng.standard_normal(left.shape))
        rows = rows + of_rows.mean_change(of_rows.step_of(noise, coupled.no_step()))
        loadings.append((rows + left * rng.standard_normal(left.shape)).astype(np.float32))
        if free is not None:
            features[coupled.free] += free * rng.standard_normal(free.shape)
        components.append(features.astype(np.float32))
        if report is not None:
            report("linear response", done + 1, len(seeds), np.nan)
    return np.stack(loadings), np.stack(components)


def _spread(mean: Array, moved: Array) -> Array:
    """Return draws with Gamma marginals of these means, and with the variances and the order of normal draws."""
    sd = np.sqrt((moved.astype(np.float64) ** 2).mean(axis=0))
    found = np.empty_like(moved)
    for place, each in enumerate(moved):
        level = ndtr(np.divide(each, sd, out=np.zeros(sd.shape), where=sd > 0))
        found[place] = gamma_quantiles(np.asarray(mean, np.float64), sd**2, level)
    return found
