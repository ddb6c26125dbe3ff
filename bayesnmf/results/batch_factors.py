"""The table of the factors of batches."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from bayesnmf.checks import check_fraction
from bayesnmf.results.checks import check_has_batches
from bayesnmf.results.intervals import for_intervals
from bayesnmf.results.record import FitRecord

if TYPE_CHECKING:
    import pandas as pd


def batch_factors(fit: FitRecord, interval: float = 0.9) -> pd.DataFrame:
    """Return the factors of batches and features, with central intervals.

    Intervals are read from draws where the fit has some, or makes them as for other intervals (`Fit.with_intervals`);
    else from q, which is too narrow, or under map from the distribution given the modes.

    Returns
    -------
    DataFrame
        By batch and feature: ``mean``, ``lower`` and ``upper``.

    Raises
    ------
    TypeError, ValueError
        A fit without batches, or an interval that is no share.
    """
    import pandas as pd

    batch = check_has_batches(fit)
    tail = (1 - check_fraction(interval, "interval")) / 2
    levels, size = np.array([tail, 1 - tail]), batch.mean.shape
    drawn = getattr(for_intervals(fit).estimate, "factors", None)
    mean, ends = batch.mean, np.tile(batch.mean, (2, 1, 1))
    if drawn is not None:
        mean, ends = drawn.mean(axis=(0, 1)), np.quantile(drawn, levels, axis=(0, 1))
    elif batch.q is not None:
        ends = batch.q.quantiles(tuple(np.indices(size)), levels)
    names = pd.MultiIndex.from_product([batch.names, fit.feature_names], names=["batch", "feature"])
    return pd.DataFrame({"mean": mean.ravel(), "lower": ends[0].ravel(), "upper": ends[1].ravel()}, index=names)
