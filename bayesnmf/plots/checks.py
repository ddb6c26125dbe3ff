"""Checks of what the figures are asked to draw; every message names the argument, the rule and the cure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from bayesnmf.results import Fit


def check_fits(fits: Any) -> None:
    """Refuse anything but a mapping of labels to fits."""
    if not isinstance(fits, Mapping) or not all(isinstance(fit, Fit) for fit in fits.values()):
        raise TypeError(
            f"fits must map labels to fits, as in {{'vi': fit}}: found {type(fits).__name__}; "
            "put a single fit in a dict"
        )
    if not fits:
        raise ValueError("fits must not be empty; give at least one fit, as in {'vi': fit}")


def check_fit(fit: Any) -> None:
    """Refuse anything but one fit."""
    if not isinstance(fit, Fit):
        raise TypeError(f"fit must be one Fit: found {type(fit).__name__}; give fits['vi'] rather than all of them")


def check_groups(groups: Any, row_names: np.ndarray) -> tuple[np.ndarray, list[Any]]:
    """Return the group of each row as an array of text (n,), and the groups in order; one group where none is given.

    A mapping or a Series is looked up by row name, names compared as text.
    """
    n = len(row_names)
    if groups is None:
        return np.full(n, "", dtype=object), [""]
    if isinstance(groups, str) or not isinstance(groups, Iterable):
        raise TypeError(f"groups must be a list, a mapping or a Series: found {groups!r}; give one entry for each row")
    categories = getattr(getattr(groups, "cat", groups), "categories", ())  # of a pandas Categorical or Series of it
    if hasattr(groups, "to_dict"):
        groups = groups.to_dict()
    if isinstance(groups, Mapping):
        by_name = {str(name): group for name, group in groups.items()}
        lost = [name for name in row_names if str(name) not in by_name]
        if lost:
            raise ValueError(
                f"groups must name every row: {len(lost)} of {n} have none, the first is {lost[0]!r}; "
                "key them by fit.row_names, or give a list in the order of the rows"
            )
        groups = [by_name[str(name)] for name in row_names]
    labels = np.array([str(group) for group in groups], dtype=object)
    if len(labels) != n:
        raise ValueError(f"groups must have one entry for each of {n} rows: found {len(labels)}")
    present = set(labels)
    order = dict.fromkeys([*map(str, categories), *labels])  # a missing value is in no category
    return labels, [name for name in order if name in present]


def check_matchable(fits: Mapping[str, Fit]) -> None:
    """Refuse fits whose components cannot be matched one to one."""
    check_fits(fits)
    first = next(iter(fits.values()))
    for label, fit in fits.items():
        if fit.components.shape != first.components.shape:
            raise ValueError(
                "fits must have the same rank and features, else their components do not match: "
                f"{label!r} has components of shape {fit.components.shape}, the first {first.components.shape}; "
                "fit with one rank"
            )
        if not np.array_equal(fit.feature_names, first.feature_names):
            raise ValueError(f"fits must have the same features in the same order: those of {label!r} differ")


def check_same_unit(proportions: Mapping[str, bool]) -> None:
    """Refuse to draw proportions and counts on one axis."""
    if len(set(proportions.values())) > 1:
        mixed = ", ".join(f"{label!r}: {'proportions' if p else 'counts'}" for label, p in proportions.items())
        raise ValueError(f"fits must state their loadings in one unit: found {mixed}; draw one figure for each unit")


def check_image_shape(shape: Any, features: int) -> tuple[int, int]:
    """Return the height and width of images that hold all features."""
    if len(shape) != 2 or shape[0] * shape[1] != features:
        raise ValueError(f"image_shape must be (height, width) with {features} pixels: found {shape}")
    return int(shape[0]), int(shape[1])


def check_axes(found: int, needed: int) -> None:
    """Refuse another number of axes than there are panels."""
    if found != needed:
        raise ValueError(f"axes must be {needed} axes, one a panel: found {found}; leave axes out for a new figure")


def check_any_objective(found: int) -> None:
    """Refuse to draw objectives of chains alone."""
    if not found:
        raise ValueError(
            "fits must have an objective that is climbed, by 'map', 'vi' or 'svi': found chains only; "
            "draw each with plots.chains(fit)"
        )
