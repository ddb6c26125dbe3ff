"""Names of rows and features that are given beside the counts, and counts in the order of such names."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from bayesnmf.checks import check_choice, is_counted, places_of, shown
from bayesnmf.data.conversion import canonical
from bayesnmf.data.counts import Counts
from bayesnmf.data.labels import Order, in_order, listed, order_of, places_among, same_labels
from bayesnmf.data.mask import GroupMask, Mask
from bayesnmf.data.several import SeveralCounts
from bayesnmf.data.suspicions import warn_of_data
from bayesnmf.text import readable, whole_names
from bayesnmf.types import Array


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
    check_as_many(given, names, argument, of)
    if places is None:
        return counts
    if not counts.in_memory:
        raise ValueError(
            f"{argument} on disk must have the features of the {of} in their order: column 0 is {shown(given[0])}, not "
            f"{shown(names[0])}; write the file again with its columns in the order of {of}.feature_names"
        )
    return counts.as_one().columns(places)


def of_features(counts: Counts, fitted: Counts, argument: str = "counts", of: str = "fit") -> Counts:
    """Return counts of the features of a fit, matched by name: those that they lack are missing entries.

    Features that the fit does not have are left out. A DataWarning says how many there are of each kind. Otherwise the
    rules are those of `in_feature_order`; counts on disk must have the features of the fit, and no others.

    Raises
    ------
    ValueError
        No feature of the fit, names that repeat, or a file that would have to be written again.
    """
    if isinstance(fitted, SeveralCounts):
        return _of_matrices(counts, fitted, argument, of)
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
    return _gathered(counts, fitted, _places(given, names, argument, of))


def _of_matrices(counts: Counts, fitted: SeveralCounts, argument: str, of: str) -> SeveralCounts:
    """Return counts of the matrices of a fit: by name, or those without matrices by the names of all features."""
    if not counts.rows_held:
        raise ValueError(
            f"{argument} must be in memory for a {of} of several matrices: found counts on disk; read them with "
            "bayesnmf.read_counts"
        )
    told = fitted.matrices
    weights, has = told.weights[told.codes], None
    if isinstance(counts, SeveralCounts):
        own, places = counts.matrices, np.full(fitted.shape[1], -1)
        if counts.has is not None:
            has = np.zeros((counts.shape[0], len(told.names)), bool)
            has[:, [told.names.index(name) for name in own.names if name in told.names]] = counts.has
        for name in own.names:
            here = counts.features_of(name)
            there = fitted.features_of(check_choice(name, f"names of the matrices of {argument}", told.names))
            found = _places(own.features[here], told.features[there], f"{argument} {name!r}", of)
            places[there] = np.where(found < 0, -1, here[found])
        if lost := [name for name in told.names if name not in own.names]:
            warn_of_data(
                f"{argument} lack {', '.join(map(repr, lost))} of the matrices of the {of}, which are taken as missing "
                "entries, not as zeros"
            )
        weights = weights / np.where(places < 0, 1.0, own.weights[own.codes[places]])
    else:
        places = _places(counts.feature_names, fitted.feature_names, argument, of)
    made = _gathered(counts, fitted, places)
    matrix = canonical(made.matrix * weights, made.dtype) if np.any(weights != 1) else made.matrix
    exposures = made.row_exposure, made.feature_exposure
    return SeveralCounts(matrix, made.row_names, fitted.feature_names, *exposures, made.mask, matrices=told, has=has)


def _places(given: Array, names: Array, argument: str, of: str) -> Array:
    """Return the position of each name among the given ones, -1 for missing ones, and say how many these are."""
    if is_counted(given) or is_counted(names) or same_labels(given, names):
        found = order_of(None if is_counted(given) else given, names, Order(argument, "feature", of))
        return np.arange(check_as_many(given, names, argument, of)) if found is None else found
    places, beyond = places_among(given, names, Order(argument, "feature", of))
    if (places < 0).any():
        lost = [str(name) for name in names[places < 0]]
        warn_of_data(
            f"{argument} lack {len(lost):,} of the {len(names):,} features of the {of}, which are taken as missing "
            f"entries, not as zeros: {listed(lost)}"
        )
    if beyond:
        warn_of_data(f"{argument} have features that the {of} lacks, {len(beyond):,} left out: {listed(beyond)}")
    return places


def _gathered(counts: Counts, fitted: Counts, places: Array) -> Counts:
    """Return counts with the features of a fit, which are at these places; those at -1 are missing entries."""
    lacking = places < 0
    found = counts.as_one().columns(np.where(lacking, 0, places))
    if not lacking.any():
        return found
    if found.feature_exposure is not None:
        exposure = np.where(lacking, fitted.feature_factor.ravel(), found.feature_exposure)
        found = found.with_exposure(found.row_exposure, exposure)
    mask: Mask = GroupMask.of_groups(np.zeros(counts.shape[0], int), np.where(lacking, 0, 1), 2)
    if found.mask is not None:
        mask = found.mask.and_features(lacking)
    return replace(found.with_mask(None), feature_names=fitted.feature_names).with_mask(mask)


def check_as_many(given: Array, names: Array, argument: str, of: str) -> int:
    """Return the number of features of a fit; refuse counts that have another one."""
    if len(given) != len(names):
        raise ValueError(
            f"{argument} must have the {len(names)} features of the {of}: found {len(given)}; select or pad the columns"
        )
    return len(names)


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
        if readable(before) not in places:
            raise ValueError(
                f"{name} must map names of the fit to new ones: there is no {shown(before)}; the first names are "
                f"{shown(old[:5].tolist())}"
            )
        names[places[readable(before)]] = after
    return names


def check_distinct(names: np.ndarray, name: str) -> None:
    """Make names text, and refuse names that are empty or repeat."""
    names[:] = [readable(each) for each in names]
    if "" in names or len({*names}) < len(names):
        raise ValueError(f"{name} must have different names: found {shown(names.tolist())}; give each its own")


def _checked(given: Any, name: str, old: np.ndarray) -> np.ndarray:
    if hasattr(given, "get_feature_names_out"):  # CountVectorizer, or a Pipeline of it
        given = given.get_feature_names_out()
    if isinstance(given, str | bytes) or not hasattr(given, "__len__"):
        raise TypeError(f"{name} must be a list or array of names: found {shown(given)}; give one name for each")
    what = {"row_names": "rows", "feature_names": "features"}.get(name, name)
    names = whole_names(in_order(given, old, Order(name, what.removesuffix("s"))))
    if names.shape != (len(old),):
        raise ValueError(
            f"{name} must have one name for each of the {len(old)} {what}: found shape {names.shape}; give as many"
        )
    return names
