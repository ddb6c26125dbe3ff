"""Give the components, rows and features of a fit other names."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from bayesnmf.data.naming import changed_names, check_distinct
from bayesnmf.results.record import FitRecord
from bayesnmf.types import Array


def rename(fit: FitRecord, components: Any, rows: Any, features: Any) -> FitRecord:
    """Return a fit with other names, each given as a list of all names or a mapping from old names to new ones."""
    counts, titles = fit.counts, fit.component_names
    if components is not None:
        titles = _titles(fit, components)
        check_distinct(titles, "components")
    if rows is not None:
        counts = replace(counts, row_names=changed_names(counts.row_names, rows, "rows"))
    if features is not None:
        counts = replace(counts, feature_names=changed_names(counts.feature_names, features, "features"))
    return replace(fit, counts=counts, component_names=titles)


def _titles(fit: FitRecord, given: Any) -> Array:
    """Return the new names of the components. In a mapping, the old ones are their names or their numbers."""
    old = np.array(fit.component_titles, dtype=object)
    if isinstance(given, Mapping):
        numbers = {str(k): title for k, title in enumerate(old)}
        given = {key if str(key) in old else numbers.get(str(key), key): new for key, new in given.items()}
    return changed_names(old, given, "components")
