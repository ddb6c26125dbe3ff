"""Names of rows and features that are given beside the counts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from bayesnmf.checks import places_of, shown
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


def changed_names(old: np.ndarray, given: Any, name: str) -> np.ndarray:
    """Return names of `components`, `rows` or `features` after some or all were changed.

    Parameters
    ----------
    old : ndarray
    given : mapping or list
        Mapping from old names, compared as text, to new ones, or a list of all new names.
    name : str
        Name of the argument.

    Raises
    ------
    TypeError, ValueError
        Old names that do not exist, or a list of another length.
    """
    if not isinstance(given, Mapping):
        return _checked(given, name, len(old)).astype(object)
    names, places = old.astype(object), places_of(old)
    for before, after in given.items():
        if str(before) not in places:
            raise ValueError(
                f"{name} must map names of the fit to new ones: there is no {shown(before)}; the first names are "
                f"{shown(old[:5].tolist())}"
            )
        names[places[str(before)]] = after
    return names


def check_distinct(names: np.ndarray, name: str) -> None:
    """Make names text, and refuse names that are empty or repeat."""
    names[:] = [str(each) for each in names]
    if "" in names or len({*names}) < len(names):
        raise ValueError(f"{name} must have different names: found {shown(names.tolist())}; give each its own")


def _checked(given: Any, name: str, number: int) -> np.ndarray:
    if isinstance(given, str | bytes) or not hasattr(given, "__len__"):
        raise TypeError(f"{name} must be a list or array of names: found {shown(given)}; give one name for each")
    names = np.asarray(given)
    what = {"row_names": "rows", "feature_names": "features"}.get(name, name)
    if names.shape != (number,):
        raise ValueError(
            f"{name} must have one name for each of the {number} {what}: found shape {names.shape}; give as many names"
        )
    return names
