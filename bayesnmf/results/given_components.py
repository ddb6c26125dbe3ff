"""Rows given the components of a fit: the problem of their loadings, and how far means bend to the counts of a row."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from bayesnmf.data.counts import Counts
from bayesnmf.inference.ascent.settled_loadings import FINAL_ITER, FINAL_TOL, settle_rows
from bayesnmf.inference.problem import Problem
from bayesnmf.inference.side import MeanField, Mode, Side
from bayesnmf.kernels.cpu.pearson import pearson_sums
from bayesnmf.kernels.cpu.replication import replicated_counts
from bayesnmf.options.methods import basis_of_mode
from bayesnmf.priors.specification import PARAMETER, stated_components
from bayesnmf.priors.values import separate_scale
from bayesnmf.results.draws import restrict_rows
from bayesnmf.results.record import FitRecord, effective_loadings

ROWS = 400  # rows of replicates: with 79 signatures, the mean of what they take up is known within 0.5


def components_of(fit: FitRecord) -> Side:
    """Return the components of a fit as a side: their mean field, or a point."""
    prior = stated_components(fit.priors.components)
    if fit.estimate.kind == "mean field" and fit.estimate.components is not None:
        return MeanField(component_axis=0).of(prior, fit.estimate.components)
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

    Rows of the fit, each more than once if they are few, are replicated at its means and fitted again.

    Parameters
    ----------
    fit : FitRecord
    low : float
        Expected count below which entries are pooled.
    """
    n = fit.counts.shape[0]
    number = min(n, ROWS)
    rows = np.arange(number) * n // number
    part, components = restrict_rows(fit, rows), components_of(fit)
    problem = loadings_given_components(fit, part.counts)
    problem = replace(problem, loadings_prior=problem.loadings_prior.rows(rows))
    left, right = (np.asarray(each, np.float64) for each in part.mean_factors)
    mask, found = part.counts.mask, []
    for seed in range(-(-ROWS // number)):
        drawn = replicated_counts(left, right, None, seed)
        drawn = drawn if mask is None else mask.apply(drawn)
        counts = part.counts.with_matrix(drawn.astype(fit.counts.dtype, copy=False))
        settled = settle_rows(replace(problem, counts=counts), components, FINAL_TOL, FINAL_ITER).state.loadings
        again = effective_loadings(
            replace(part, counts=counts), *separate_scale(settled.value), np.asarray(fit.components)
        )
        hidden = None if mask is None else mask.hidden
        sums, _ = pearson_sums(drawn, np.asarray(again, np.float64), right, low, hidden, by_column=False)
        found.append(np.mean(sums[:, 2] - sums[:, 0]))
    return float(np.mean(found))
