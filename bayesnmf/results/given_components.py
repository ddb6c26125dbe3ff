"""Rows given the components of a fit: the problem of their loadings, and how far means bend to the counts of a row."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from scipy.sparse import csr_array

from bayesnmf.data.counts import Counts
from bayesnmf.inference.ascent.settled_loadings import FINAL_TOL, settle_rows
from bayesnmf.inference.problem import Problem
from bayesnmf.inference.side import MeanField, Mode, Side
from bayesnmf.kernels.cpu.pearson import pearson_sums
from bayesnmf.kernels.cpu.replication import replicated_counts
from bayesnmf.options.methods import basis_of_mode
from bayesnmf.priors.specification import PARAMETER, stated_components
from bayesnmf.priors.values import separate_scale
from bayesnmf.results.draws import restrict_rows
from bayesnmf.results.record import FitRecord, effective_loadings
from bayesnmf.types import Array

ROWS, MOST = 400, 100  # rows of replicates, and most updates of each: 1,000 change what they take up by 0.7 %


def components_of(fit: FitRecord) -> Side:
    """Return the components of a fit as a side: their mean field, or a point."""
    prior = stated_components(fit.priors.components)
    q: Any = fit.estimate.components if fit.estimate.kind == "mean field" else None
    if q is not None and "mean_field" in prior.optional:
        return MeanField(component_axis=0).of(prior, q)
    return Mode(estimated=fit.priors.components == PARAMETER).at(prior, np.asfortranarray(fit.components))


def loadings_given_components(fit: FitRecord, counts: Counts) -> Problem:
    """Return the problem of the loadings of new rows, by the mode of a fit that has no posterior, else by vi."""
    prior: Any = fit.priors.loadings
    of_rows = prior.of_new_rows(fit.loadings)
    summary: Any = MeanField(component_axis=1)
    if fit.estimate.kind == "point":
        summary = Mode(basis_of_mode(fit.options))
    elif "mean_field" not in of_rows.optional:
        summary = Mode()
    of_components = stated_components(fit.priors.components)
    return Problem(counts, of_rows, of_components, summary, Mode(), fixed_components=True)


def taken_up_by_loadings(fit: FitRecord, low: float) -> float:
    """Return by how much Pearson's χ² of a row of Poisson counts is below its entries once its loadings are fitted.

    Rows of the fit, each more than once if they are few, are replicated at its means and fitted again, all at once. The
    χ² of a replicate around the means that it was drawn at has its number of entries as its mean, so what it is above
    that by chance is subtracted, by its regression: what is left varies as the loadings do, not as all entries do.

    Parameters
    ----------
    fit : FitRecord
    low : float
        Expected count below which entries are pooled.
    """
    n = fit.counts.shape[0]
    number = min(n, ROWS)
    rows = np.tile(_in_own_order(fit.counts)[np.arange(number) * n // number], -(-ROWS // number))
    part, components = restrict_rows(fit, rows), components_of(fit)
    left, right = (np.asarray(each, np.float64) for each in part.mean_factors)
    drawn = _replicated(left, right)
    mask = part.counts.mask
    drawn = drawn if mask is None else mask.apply(drawn)
    counts = part.counts.with_matrix(drawn.astype(fit.counts.dtype, copy=False))
    problem = loadings_given_components(fit, counts)
    problem = replace(problem, loadings_prior=problem.loadings_prior.rows(rows))
    settled = settle_rows(problem, components, FINAL_TOL, MOST).state.loadings
    again = effective_loadings(replace(part, counts=counts), *separate_scale(settled.value), np.asarray(fit.components))
    hidden = None if mask is None else mask.hidden
    factors = (left, np.asarray(again, np.float64))
    before, after = (pearson_sums(drawn, each, right, low, hidden, by_column=False)[0] for each in factors)
    taken, chance = after[:, 2] - after[:, 0], before[:, 2] - before[:, 0]
    deviation = chance - chance.mean()
    share = deviation @ taken / max(deviation @ deviation, np.finfo(np.float64).tiny)
    return float(taken.mean() - share * chance.mean())


def _in_own_order(counts: Counts) -> Array:
    """Return the rows in an order that depends on what is counted in them, not on their order or that of features."""
    totals, squares, products = counts.feature_totals, *np.empty((2, counts.shape[0]))
    for rows, part in counts.parts():
        matrix = part.matrix.astype(np.float64)
        squares[rows], products[rows] = matrix.power(2) @ totals, matrix @ totals
    factor = np.broadcast_to(counts.row_factor[:, 0], counts.shape[:1])
    return np.lexsort((factor, squares, products, counts.row_totals))


def _replicated(left: Array, right: Array) -> csr_array:
    """Return Poisson counts with means `left` @ `right`, the same for any order of components and of features."""
    sizes = left.sum(axis=0) * right.sum(axis=1), left.sum(axis=0) @ right
    components, features = (np.argsort(each, kind="stable") for each in sizes)
    drawn = replicated_counts(left[:, components], right[np.ix_(components, features)], None, 0)
    drawn = csr_array(drawn[:, np.argsort(features)])
    drawn.sort_indices()
    return drawn
