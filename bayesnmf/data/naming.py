"""Names of rows and features that are given beside the counts."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from bayesnmf.checks import shown
from bayesnmf.data.counts import Counts


def with_names(counts: Counts, row_names: Any = None, feature_names: Any = None) -> Counts:
    """Return counts with the given names of rows and features in place of those that they have.

    Raises
    ------
    TypeError, ValueError
        Names that are no sequence, or not as many as rows or features.
    """
    named = counts
    for name, given, number in (
        ("row_names", row_names, counts.shape[0]),
        ("feature_names", feature_names, counts.shape[1]),
    ):
        if given is not None:
            named = replace(named, **{name: _checked(given, name, number)})  # type: ignore[arg-type]
    return named


def _checked(given: Any, name: str, number: int) -> np.ndarray:
    if isinstance(given, str | bytes) or not hasattr(given, "__len__"):
        raise TypeError(f"{name} must be a list or array of names: found {shown(given)}; give one name for each")
    names = np.asarray(given)
    what = "rows" if name == "row_names" else "features"
    if names.shape != (number,):
        raise ValueError(
            f"{name} must have one name for each of the {number} {what}: found shape {names.shape}; are rows and "
            "features exchanged?"
        )
    return names
