"""The leading component of each row: the usual assignment of cells, texts or samples.

A component that all rows have, as the ribosomal genes of blood cells, has the largest share in many rows and says
little of any. So the component leads that says most of how the row differs from the others: with the share l_ik of
component k in row i and its mean share m_k, that of the greatest l_ik log(l_ik / m_k), its term of the Kullback-Leibler
divergence of the row from the mean row. The ratio l_ik / m_k, the lift, is large by chance for components that carry
almost nothing, and so does not decide alone. Features of a component are ordered by the same score
(`bayesnmf.results.markers.leading_features`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.special import xlogy

from bayesnmf.checks import check_choice
from bayesnmf.data.suspicions import warn_of_data
from bayesnmf.results.record import FitRecord
from bayesnmf.results.topic_model import to_topic_model
from bayesnmf.types import Array

if TYPE_CHECKING:
    import pandas as pd

ORDERS = ("lift", "share")
TIE = 1e-9  # difference of scores or shares that may be rounding


def leading_components(fit: FitRecord, order: str = "lift") -> pd.DataFrame:
    """Return the leading component of each row, with its share of the row and its lift.

    By "lift", the component leads that says most of how the row differs from the mean row; by "share", that of the
    largest share. Of equal ones the larger share leads, then the first. ``component`` is categorical, and missing in
    rows without counts. ``lift`` is the share over the mean share of the component in all rows, of a projection in
    those of the fit that it was projected onto; a projection from a file, or one matrix of it, does not have these,
    which a DataWarning tells.
    """
    import pandas as pd

    check_choice(order, "order", ORDERS)
    shares, counted = to_topic_model(fit).proportions, fit.counts.row_totals > 0
    mean = mean_shares(shares, counted)
    if fit.reference is not None:
        own = fit.reference.fit
        mean = mean_shares(to_topic_model(own).proportions, own.counts.row_totals > 0)
    elif fit.is_projected:
        warn_of_data(
            "lifts are against the rows of this projection, since a file or one matrix of it does not have those of "
            "the reference: reference.project(...) gives the components that lead against these"
        )
    first, lifts = _leading(shares, mean, order), shares / mean
    labels: Any = fit.component_labels
    codes, rows = np.where(counted, first, -1).astype(np.intp), np.arange(len(shares))
    columns = {
        "component": pd.Categorical.from_codes(codes, labels),
        "share": np.where(counted, shares[rows, first], np.nan),
        "lift": np.where(counted, lifts[rows, first], np.nan),
    }
    return pd.DataFrame(columns, index=pd.Index(fit.row_names, name="row"))


def leading_of(shares: Array, counted: Array) -> Array:
    """Return the position of the leading component of each row, given shares (n, K) and which rows have counts."""
    return _leading(shares, mean_shares(shares, counted), "lift")


def _leading(shares: Array, mean: Array, order: str) -> Array:
    lifts = shares / mean
    score = shares if order == "share" else xlogy(shares, np.where(lifts > 0, lifts, 1.0))
    first: Array = _is_largest(np.where(_is_largest(score), shares, -1.0)).argmax(axis=1)
    return first


def mean_shares(shares: Array, counted: Array) -> Array:
    """Return the mean share of each component in rows with counts, (K,); infinite if none of these has it."""
    mean = shares[counted].mean(axis=0) if counted.any() else np.ones(shares.shape[1])
    return np.where(mean > 0, mean, np.inf)


def _is_largest(values: Array) -> Array:
    return values >= values.max(axis=1, keepdims=True) - TIE
