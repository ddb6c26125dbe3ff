"""Names of rows and features that are given beside the counts, and counts in the order of such names."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from bayesnmf.checks import is_counted, places_of, shown
from bayesnmf.data.conversion import canonical
from bayesnmf.data.counts import Counts
from bayesnmf.data.labels import Order, in_order, listed, order_of, places_among, same_labels
from bayesnmf.data.mask import GroupMask, Mask, as_pattern
from bayesnmf.data.suspicions import warn_of_data


def with_names(counts: Counts, row_names: Any = None, feature_names: Any = None) -> Counts:
    """Return counts with the given names of rows and features in place of those that they have.

    Raises
    ------
    TypeError, ValueError
        Names that are no sequence, or not as many as rows or features.
    """
    named = counts
    for name, given in (("row_names", row_names), ("feature_names", feature_names)):
        if given is not None:
            named = replace(named, **{name: _checked(given, name, getattr(counts, name))})  # type: ignore[arg-type]
    return named


def in_feature_order(counts: Counts, names: np.ndarray, argument: str = "counts", of: str = "fit") -> Counts:
    """Return counts with their features in the order of those of a fit, matched by name.

    Counts without names of features, and those for a fit without, are taken as they are (`bayesnmf.data.labels`).

    Raises
    ------
    ValueError
        Other features, or a file that would have to be written again.

    See Also
    --------
    of_features : Take other features, too.
    """
    given = counts.feature_names
    unnamed = is_counted(given) and not same_labels(given, names)
    places = order_of(None if unnamed else given, names, Order(argument, "feature", of))
    if len(given) != len(names):
        raise ValueError(
            f"{argument} must have the {len(names)} features of the {of}: found {len(given)}; select or pad the columns"
        )
    if places is None:
        return counts
    if not counts.in_memory:
        raise ValueError(
            f"{argument} on disk must have the features of the {of} in their order: column 0 is {shown(given[0])}, not "
            f"{shown(names[0])}; write the file again with its columns in the order of {of}.feature_names"
        )
    return _with_columns(counts, places)


def of_features(counts: Counts, fitted: Counts, argument: str = "counts", of: str = "fit") -> Counts:
    """Return counts of the features of a fit, matched by name: those that they lack are missing cells.

    Features that the fit does not have are left out. A DataWarning says how many there are of each kind. Otherwise the
    rules are those of `in_feature_order`; counts on disk must have the features of the fit, and no others.

    Raises
    ------
    ValueError
        No feature of the fit, names that repeat, or a file that would have to be written again.
    """
    given, names = counts.feature_names, fitted.feature_names
    if is_counted(given) or is_counted(names) or same_labels(given, names):
        return in_feature_order(counts, names, argument, of)
    if not counts.in_memory:
        known = np.isin(given.astype(str), names.astype(str)).sum()
        raise ValueError(
            f"{argument} on disk must have the {len(names):,} features of the {of}, and no others: found "
            f"{len(given):,}, of which {known:,} are among them; read them into memory, as bayesnmf.read_counts does, "
            "where features may be missing"
        )
    places, beyond = places_among(given, names, Order(argument, "feature", of))
    lacking = places < 0
    if lacking.any():
        lost = [str(name) for name in names[lacking]]
        warn_of_data(
            f"{argument} lack {len(lost):,} of the {len(names):,} features of the {of}, which are taken as missing "
            f"cells, not as zeros: {listed(lost)}"
        )
    if beyond:
        warn_of_data(f"{argument} have features that the {of} lacks, {len(beyond):,} left out: {listed(beyond)}")
    found = _with_columns(counts, np.where(lacking, 0, places))
    if not lacking.any():
        return found
    if found.feature_exposure is not None:
        exposure = np.where(lacking, fitted.feature_factor.ravel(), found.feature_exposure)
        found = found.with_exposure(found.row_exposure, exposure)
    mask: Mask = GroupMask.of_groups(np.zeros(counts.shape[0], int), np.where(lacking, 0, 1), 2)
    if found.mask is not None:
        mask = Mask.of(as_pattern(found.mask.missing + mask.missing))
    return replace(found.with_mask(None), feature_names=names).with_mask(mask)


def _with_columns(counts: Counts, places: np.ndarray) -> Counts:
    """Return counts in memory with their features at these places."""
    exposure = counts.feature_exposure
    return replace(
        counts,
        matrix=canonical(counts.matrix[:, places], counts.dtype),
        feature_names=counts.feature_names[places],
        feature_exposure=None if exposure is None else exposure[places],
        mask=None if counts.mask is None else counts.mask.features(places),
    )


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
        return _checked(given, name, old).astype(object)
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


def _checked(given: Any, name: str, old: np.ndarray) -> np.ndarray:
    if isinstance(given, str | bytes) or not hasattr(given, "__len__"):
        raise TypeError(f"{name} must be a list or array of names: found {shown(given)}; give one name for each")
    what = {"row_names": "rows", "feature_names": "features"}.get(name, name)
    names = np.asarray(in_order(given, old, Order(name, what.removesuffix("s"))))
    if names.shape != (len(old),):
        raise ValueError(
            f"{name} must have one name for each of the {len(old)} {what}: found shape {names.shape}; give as many"
        )
    return names
