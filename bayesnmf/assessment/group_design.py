"""Groups of samples, from labels or from factors of two levels, and the contrasts of their means.

The effect of a factor of two levels is the second level minus the first, and the interaction of two is the effect of
one at the second level of the other minus that at the first. Both are averaged over the levels of all other factors.
"""

from __future__ import annotations

from itertools import combinations
from typing import Any, NamedTuple

import numpy as np

from bayesnmf.assessment.checks import check_contrast_weights, check_factors_of_rows
from bayesnmf.results.checks import check_groups
from bayesnmf.results.record import FitRecord
from bayesnmf.types import Array


class Design(NamedTuple):
    """Groups of rows and weighted sums of their means.

    Attributes
    ----------
    groups : list of str
        Names of the groups.
    members : list of ndarray
        Positions of the rows of each group.
    contrasts : dict of ndarray (groups,)
        Weights of each contrast by its name.
    """

    groups: list[str]
    members: list[Array]
    contrasts: dict[str, Array]


def design_of(groups: Any, contrasts: Any, fit: FitRecord) -> Design:
    """Return the groups, with the rows that have counts, and the weights of all contrasts."""
    design = design_of_names(groups, contrasts, fit.row_names)
    return design._replace(members=[rows[fit.counts.row_totals[rows] > 0] for rows in design.members])


def design_of_names(groups: Any, contrasts: Any, row_names: Array) -> Design:
    """Return the groups, with all rows, and the weights of all contrasts."""
    if hasattr(groups, "columns"):
        return _factorial(check_factors_of_rows(groups, contrasts, row_names), len(row_names))
    labels, names = check_groups(groups, row_names)
    if contrasts is None:
        contrasts = {f"{name} - {names[0]}": {name: 1.0, names[0]: -1.0} for name in names[1:]}
    weights = check_contrast_weights(contrasts, names)
    return Design(names, [np.flatnonzero(labels == name) for name in names], weights)


def _factorial(factors: dict[str, tuple[Array, list[str]]], n: int) -> Design:
    """Return the combinations of factors with two levels, with main effects and interactions of two factors."""
    names = list(factors)
    places = np.array(np.meshgrid(*[[0, 1]] * len(names), indexing="ij")).reshape(len(names), -1)  # (factors, groups)
    titles, members = [], []
    for group in places.T:
        inside = np.ones(n, dtype=bool)
        for level, (labels, levels) in zip(group, factors.values(), strict=True):
            inside &= labels == levels[level]
        titles.append(", ".join(f"{name}={factors[name][1][level]}" for name, level in zip(names, group, strict=True)))
        members.append(np.flatnonzero(inside))
    signs = dict(zip(names, 2.0 * places - 1, strict=True))
    half = places.shape[1] / 2
    contrasts = {name: sign / half for name, sign in signs.items()}
    contrasts |= {f"{a}:{b}": 2 * signs[a] * signs[b] / half for a, b in combinations(names, 2)}
    return Design(titles, members, contrasts)
