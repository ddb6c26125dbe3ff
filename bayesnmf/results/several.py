"""One of several matrices of a fit: a fit of its counts, with its features of the components.

Components on the simplex of all features become those on the simplex of its own (`bayesnmf.results.cutting`).
"""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

import numpy as np

from bayesnmf.checks import check_fraction
from bayesnmf.data.several import check_several
from bayesnmf.noise.abilities import Noise
from bayesnmf.options import Start
from bayesnmf.priors import Priors
from bayesnmf.priors.pair import replace_sides
from bayesnmf.priors.specification import on_simplex
from bayesnmf.priors.values import rows_to_shares
from bayesnmf.results.cutting import CutComponents, ShareOfComponents
from bayesnmf.results.draws import restrict_rows
from bayesnmf.results.intervals import for_intervals
from bayesnmf.results.record import DISPERSION, OF_MATRIX, FitRecord, iterate_draws
from bayesnmf.types import Array

DRAWS = 200


def matrix_of(fit: FitRecord, name: str) -> FitRecord:
    """Return the fit of one of several matrices: of the rows that it has, with its own names of features.

    Raises
    ------
    ValueError
        A fit of one matrix, or another name.
    """
    counts = check_several(fit.counts)
    fit = replace(fit, intervals=for_intervals(fit).intervals)  # those of all matrices
    features, rows = counts.features_of(name), counts.rows_of(name)
    weight = float(counts.matrices.weights[counts.matrices.code(name)])
    part = fit if len(rows) == counts.shape[0] else _of_rows(fit, rows)
    cut = (ShareOfComponents if on_simplex(fit.priors.components) else CutComponents)(part, features, weight)
    priors = replace_sides(part.priors, loadings=cut.loadings_prior(), components=cut.prior(fit.priors.components))
    loadings, scale, components = cut.point()
    own = counts.of(name)
    share = float(part.counts.feature_totals[features].sum() / max(part.counts.total, 1.0))
    return replace(
        part,
        counts=own,
        diagnostics={**part.diagnostics, OF_MATRIX: share},
        noise=_noise(part.noise, features, counts.matrices.code(name)),
        loadings=loadings,
        scale=scale,
        components=components,
        priors=priors,
        options=_options(fit.options, priors),
        residuals=None,
        reference=None,
        multipliers=None if part.multipliers is None else (part.multipliers[0], part.multipliers[1][:, features]),
        statistics=_statistics(part, features, counts.matrices.code(name)),
        moments=cut.moments(),
        intervals=part.intervals and replace(part.intervals, draws=cut.draws(part.intervals.draws)),
        estimate=cut.estimate(),
    )


def _of_rows(fit: FitRecord, rows: Array) -> FitRecord:
    """Return the fit of some rows, with their priors."""
    given: Any = fit.priors.loadings
    return replace(restrict_rows(fit, rows), priors=replace_sides(fit.priors, loadings=given.rows(rows)))


def shares_of_matrices(fit: FitRecord, interval: float = 0.9) -> Any:
    """Return the share of each matrix in the expected counts of each component, as a table.

    Parameters
    ----------
    fit : Fit
        Fit of several matrices.
    interval : float
        Probability of the central intervals.

    Returns
    -------
    DataFrame
        By component and matrix: ``share``, and ``lower`` and ``upper`` where there is a posterior. Shares of a
        component sum to 1, for a row with all features; weights of matrices do not count.
    """
    import pandas as pd

    matrices, tail = check_several(fit.counts).matrices, (1 - check_fraction(interval, "interval")) / 2
    number = len(matrices.names)
    of_matrices = np.eye(number)[matrices.codes] / matrices.weights  # (m, matrices)
    read = for_intervals(fit)
    sums = np.stack([components @ of_matrices for _, components in iterate_draws(read, DRAWS, 0)])
    shares = rows_to_shares(sums, sums.sum(axis=-1))
    index = pd.MultiIndex.from_product([fit.component_labels, matrices.names], names=["component", "matrix"])
    table = pd.DataFrame({"share": shares.mean(axis=0).ravel()}, index=index)
    if read.estimate.kind != "point":
        low, high = np.quantile(shares, (tail, 1 - tail), axis=0)
        table["lower"], table["upper"] = low.ravel(), high.ravel()
    return table


def _options(options: Any, priors: Priors) -> Any:
    """Return the options for one matrix, without a start for all."""
    changed: dict[str, Any] = {"priors": priors}
    if isinstance(getattr(options, "start", None), Start):
        changed["start"] = next(each.default for each in fields(options) if each.name == "start")
    return replace(options, **changed)


def _noise(noise: Noise, features: Array, code: int) -> Noise:
    """Return the noise of one matrix."""
    return noise.of_matrix(code) if noise.by == "matrix" else noise.of_features(features)


def _statistics(fit: FitRecord, features: Array, code: int) -> dict[str, Array] | None:
    """Return the statistics of draws, with the dispersions of one matrix or of its features if these have their own."""
    by = fit.noise.by
    if fit.statistics is None or DISPERSION not in fit.statistics or by not in ("feature", "matrix"):
        return fit.statistics
    return {**fit.statistics, DISPERSION: fit.statistics[DISPERSION][:, :, code if by == "matrix" else features]}
