"""Expected counts of chosen entries, with intervals: what a fit says of entries that are missing, too.

Expected allocations are the part of every count that each component produced.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from bayesnmf.checks import check_fraction, check_names, check_size
from bayesnmf.kernels.cpu.dense import entry_allocations
from bayesnmf.priors.specification import MODELS
from bayesnmf.results.draws import LIMIT, chains_and_draws, restrict_rows
from bayesnmf.results.estimates import take_features
from bayesnmf.results.intervals import for_intervals
from bayesnmf.results.record import FitRecord, effective_loadings, factors_of_means, iterate_draws
from bayesnmf.types import Array

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


MOST_DRAWS = 200


def allocations(fit: FitRecord, rows: Iterable[Any] | None = None) -> Array:
    """Return expected allocations (rows, K, m): X_ij φ_ikj with the shares φ_i:j of the components ([P] 16-17, [K] 5).

    Parameters
    ----------
    fit : Fit
    rows : iterable of names, optional
        Names of the rows, in the order wanted; all rows by default.

    Returns
    -------
    ndarray of shape (rows, K, m)
        Allocations, in counts: at the multipliers under bld, at the modes under map, at exp E log (the optimal φ of
        the augmented elbo) under vi and svi, and the mean over up to 200 draws, evenly spaced among all chains, under
        gibbs and nuts.

    Raises
    ------
    ValueError
        The fit has no row with a given name, or the array would take more than 2 GiB.
    """
    positions = check_names(rows, fit.row_names, "rows")
    n = fit.counts.shape[0] if positions is None else len(positions)
    size = 8 * n * fit.rank * fit.counts.shape[1]
    check_size(size, LIMIT, "the allocations", "choose some rows with rows=")
    part = restrict_rows(fit, positions)
    matrix = part.counts.matrix
    entries = np.zeros((len(matrix.indices), fit.rank))
    taken = 0
    for loadings, components in _factors(part):
        entries += entry_allocations(matrix, loadings, components)
        taken += 1
    out = np.zeros((n, fit.rank, fit.counts.shape[1]))
    row_of_entry = np.repeat(np.arange(n), np.diff(matrix.indptr))
    out[row_of_entry, :, matrix.indices] = entries / taken
    return out


def _factors(fit: FitRecord) -> Iterator[tuple[Array, Array]]:
    """Yield pairs of loadings and components; counts are allocated in proportion to their products."""
    q: Any = fit.estimate
    if fit.multipliers is not None:
        yield fit.multipliers
    elif q.kind == "mean field":
        log_loadings = q.loadings.expected_log()
        loadings = np.exp(log_loadings - log_loadings.max(axis=1, keepdims=True))
        if q.components is None:
            yield loadings, fit.components
        else:
            log_components = q.components.expected_log()
            yield loadings, np.exp(log_components - log_components.max(axis=0))
    else:
        yield from iterate_draws(fit, MOST_DRAWS, 0, shares=True)
