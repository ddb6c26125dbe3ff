"""Exposures of rows and features: how much of each was observed, and so how many counts to expect.

A sample that was sequenced twice as deeply has row exposure 2, and a gene of twice the length feature exposure 2: their
expected counts are r_i c_j (θβ)_ij, and loadings and components are per unit of exposure.
"""

from __future__ import annotations

from typing import Any

from bayesnmf.checks import as_numbers
from bayesnmf.data.checks import check_exposure
from bayesnmf.data.counts import Counts
from bayesnmf.data.labels import Order, in_order
from bayesnmf.types import Array


def with_exposures(counts: Counts, row_exposure: Any = None, feature_exposure: Any = None) -> Counts:
    """Return the counts with the given exposures in place of their own; None keeps those that the counts have.

    Parameters
    ----------
    row_exposure : array, mapping or Series (n,), optional
        Exposure of each sample, above 0. What has labels is matched by name (`bayesnmf.data.labels`); labels that the
        counts do not have are left out.
    feature_exposure : array, mapping or Series (m,), optional
        Exposure of each feature, in the same way.

    Raises
    ------
    TypeError, ValueError
        Exposures of another length, not above 0 or without one of the names.
    """
    rows, features = counts.row_exposure, counts.feature_exposure
    if row_exposure is not None:
        rows = _as_exposure(row_exposure, "row_exposure", counts.row_names, counts.dtype)
    if feature_exposure is not None:
        features = _as_exposure(feature_exposure, "feature_exposure", counts.feature_names, counts.dtype)
    return counts.with_exposure(rows, features)


def _as_exposure(given: Any, argument: str, names: Array, dtype: Any) -> Array:
    """Return given exposures in the order of the names, as an array of float64."""
    ordered = in_order(given, names, Order(argument, argument.removesuffix("_exposure"), more=True))
    values = as_numbers(ordered, argument, "an array or a Series of numbers")
    return check_exposure(values, argument, len(names), dtype)
