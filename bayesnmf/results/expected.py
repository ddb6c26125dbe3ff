"""Expected counts of chosen entries, with intervals: what a fit says of entries that are missing, too."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import numpy as np

from bayesnmf.checks import check_fraction, check_names, check_size
from bayesnmf.priors.specification import MODELS
from bayesnmf.results.draws import LIMIT, chains_and_draws, restrict_rows
from bayesnmf.results.estimates import take_features
from bayesnmf.results.intervals import for_intervals
from bayesnmf.results.record import FitRecord, effective_loadings, factors_of_means

if TYPE_CHECKING:
    import pandas as pd


def expected(
    fit: FitRecord, rows: Iterable[Any] | None = None, features: Iterable[Any] | None = None, interval: float = 0.9
) -> pd.DataFrame:
    """Return the expected counts of all pairs of rows and features, with intervals.

    Intervals are those of the expected count, as `Fit.summary` has of loadings; a count varies around it in addition.

    Parameters
    ----------
    fit : Fit
    rows, features : iterable of names, optional
        Names of rows and features; by default all.
    interval : float
        Probability of the central interval.

    Returns
    -------
    DataFrame
        By row and feature: ``count``, NaN where it is missing, ``mean``, and, with a posterior, ``lower`` and
        ``upper``, of the same draws. Rows without an observed entry have none of these if row totals are given.

    Raises
    ------
    TypeError, ValueError
        Names that the fit does not have; more than 2 GiB of draws.

    Examples
    --------
    >>> import bayesnmf
    >>> counts = [[30, 0, 9], [0, 21, 14], [51, 11, 0]]
    >>> observed = [[True, True, False], [True, True, True], [True, True, True]]
    >>> fit = bayesnmf.fit(counts, rank=1, seed=0, observed=observed)
    >>> table = fit.expected(rows=[0])
    >>> list(table.columns), bool(table.loc[(0, 2), "lower"] < table.loc[(0, 2), "mean"])
    (['count', 'mean', 'lower', 'upper'], True)
    """
    import pandas as pd

    chosen, columns = check_names(rows, fit.row_names, "rows"), check_names(features, fit.feature_names, "features")
    tail = (1 - check_fraction(interval, "interval")) / 2
    part = restrict_rows(fit, chosen)
    loadings, components = part.mean_factors
    means = part.noise.of_features(columns).expected(loadings @ take_features(components, columns))
    counts = np.concatenate(
        [take_features(block.matrix, columns).toarray().astype(np.float64) for _, block in part.counts.parts()]
    )
    if part.counts.mask is not None:
        counts[take_features(part.counts.mask.hidden(slice(None)), columns)] = np.nan
    names = pd.MultiIndex.from_product(
        [part.row_names, take_features(part.feature_names, columns)], names=["row", "feature"]
    )
    table = pd.DataFrame({"count": counts.ravel(), "mean": means.ravel()}, index=names)
    if (read := restrict_rows(for_intervals(fit), chosen)).estimate.kind != "point":
        table["mean"], table["lower"], table["upper"] = _mean_and_interval(read, columns, means.size, tail)
    if part.counts.mask is not None and MODELS[fit.model].given_totals:
        unseen = np.repeat(~part.counts.mask.seen_rows, means.shape[1])
        table.loc[unseen, table.columns != "count"] = np.nan  # of no total
    return table


def _mean_and_interval(part: FitRecord, columns: Any, entries: int, tail: float) -> tuple[Any, Any, Any]:
    """Return means and ends of the intervals of the expected counts, (entries,) each."""
    number = chains_and_draws(part, None, None)
    check_size(8 * number[0] * number[1] * entries, LIMIT, "expected counts of all draws", "choose rows or features")
    whole = part.counts.mask is not None  # totals that are given need all features
    drawn = part.estimate.take(part, number, 0, None if whole else columns)
    loadings = effective_loadings(part, drawn.loadings, drawn.scale, drawn.components)
    components, factors = drawn.components, drawn.factors
    if whole:
        components, factors = take_features(components, columns), take_features(factors, columns)
    left, right = factors_of_means(part, loadings, components, factors, columns)
    rates = part.noise.of_features(columns).expected(left @ right).reshape(-1, entries)
    return rates.mean(axis=0), *np.quantile(rates, (tail, 1 - tail), axis=0)
