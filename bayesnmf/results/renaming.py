"""Give the components, rows and features of a fit other names."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from bayesnmf.data.naming import changed_names, check_distinct
from bayesnmf.results.record import FitRecord


def rename(fit: FitRecord, components: Any, rows: Any, features: Any) -> FitRecord:
    """Return a fit with other names, each given as a list of all names or a mapping from old names to new ones."""
    counts, titles = fit.counts, fit.component_names
    if components is not None:
        titles = changed_names(fit.component_labels, components, "components")
        check_distinct(titles, "components")
    if rows is not None:
        counts = replace(counts, row_names=changed_names(counts.row_names, rows, "rows"))
    if features is not None:
        counts = replace(counts, feature_names=changed_names(counts.feature_names, features, "features"))
    return replace(fit, counts=counts, component_names=titles)
