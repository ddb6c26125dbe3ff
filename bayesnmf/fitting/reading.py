"""Read the counts of a fit: from where they are, with what is told of them beside."""

from __future__ import annotations

from typing import Any

import numpy as np

from bayesnmf.data.blocks.opening import open_counts, open_several
from bayesnmf.data.conversion import as_counts, is_several
from bayesnmf.data.counts import Counts
from bayesnmf.data.exposures import with_exposures
from bayesnmf.data.missing import with_missing, without_missing
from bayesnmf.data.naming import with_names
from bayesnmf.fitting.job import ProgressReport

Entries = tuple[Any, Any, Any]  # missing entries that are left to be told: of an array, observed, missing


def read_counts(
    counts: Any,
    options: Any,
    weights: Any,
    observed: Any,
    missing: Any,
    layer: str | None,
    feature_labels: str | None,
    told: ProgressReport,
) -> tuple[Counts, Entries]:
    """Return counts as the package has them, and the missing entries that are left to be told.

    Those of an array are taken at once, others from where they are, and several matrices are joined.
    """
    dtype = getattr(options, "dtype", "float64")
    if is_several(counts) or weights is not None:
        given = {"observed": observed, "missing": missing, "weights": weights}
        return open_several(counts, dtype, layer, feature_labels, told, **given), (None, None, None)
    marked = missing is not None or isinstance(counts, np.ma.MaskedArray)
    counts, own = without_missing(counts, missing) if marked else (counts, None)
    if isinstance(counts, np.ndarray):
        data = as_counts(counts, dtype=dtype, layer=layer, feature_labels=feature_labels)
    else:
        data = open_counts(counts, dtype, layer, feature_labels, told, missing)
    return data, (own, observed, missing)


def with_told(
    data: Counts,
    entries: Entries,
    row_names: Any = None,
    feature_names: Any = None,
    row_exposure: Any = None,
    feature_exposure: Any = None,
) -> Counts:
    """Return counts with the names, exposures and missing entries that are given beside them."""
    if row_names is not None or feature_names is not None:
        data = with_names(data, row_names, feature_names)
    if row_exposure is not None or feature_exposure is not None:
        data = with_exposures(data, row_exposure, feature_exposure)
    return with_missing(data, *entries) if any(each is not None for each in entries) else data
