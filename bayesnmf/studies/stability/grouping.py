"""Group the fits of many starts into modes: fits whose components are the same up to their order.

The fits are taken in the order of their objectives, the highest first. Each joins the first mode whose leader it
matches, and otherwise leads a mode of its own. So the leader of a mode is its best fit, the first mode is that of the
best fit of all, and the result does not depend on the order in which the fits were made.

Two fits match if the smallest cosine of their matched components is above a threshold. Components are matched one to
one with the largest sum of cosines. Those that are known keep their places, and so do all of them where the priors
differ from component to component, since an exchange of two would then be another mode. A component to which a fit
gives less than half a count is empty: it leaves all expected counts as they are without it, whatever its features.
Empty components have cosine 1 with each other and 0 with all others.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from bayesnmf.fitting.fitted import Fit
from bayesnmf.inference.alignment import assign_components, cosine
from bayesnmf.types import Array

EMPTY = 0.5  # expected counts below which a component is empty


class Found(NamedTuple):
    """Components of one fit.

    Attributes
    ----------
    components : ndarray (K, m)
    size : ndarray (K,)
        Expected counts of each component, over all rows and features.
    """

    components: Array
    size: Array

    @property
    def empty(self) -> Array:
        """Whether each component is empty, (K,)."""
        return self.size < EMPTY


def found_in(fit: Fit) -> Found:
    """Return the components of a fit with their expected counts."""
    return Found(np.asarray(fit.components), np.asarray(fit.expected_sizes, np.float64))


def match_found(one: Found, other: Found, movable: Array) -> tuple[Array, Array]:
    """Match the components of two fits one to one.

    Returns
    -------
    order, cosines : ndarray (K,)
        Component `order[k]` of `one` is matched to component k of `other`, with cosine `cosines[k]`.
    """
    similarity = cosine(one.components.astype(np.float64), other.components.astype(np.float64))
    similarity[one.empty[:, None] != other.empty] = 0.0
    similarity[one.empty[:, None] & other.empty] = 1.0
    order = assign_components(similarity, movable)
    return order, np.minimum(similarity[order, np.arange(len(order))], 1.0)


def least_cosine(one: Found, other: Found, movable: Array) -> float:
    """Return the smallest cosine of the matched components of two fits."""
    return float(match_found(one, other, movable)[1].min())


class Groups(NamedTuple):
    """Modes of several fits.

    Attributes
    ----------
    mode : ndarray of int (R,)
        Number of the mode of each fit; 0 is that of the fit with the highest objective.
    leaders : list of int
        Place of the best fit of each mode.
    """

    mode: Array
    leaders: list[int]


def group_fits(found: Sequence[Found], objectives: Sequence[float], movable: Array, threshold: float) -> Groups:
    """Group fits into modes.

    Parameters
    ----------
    found : sequence of Found
        Components of each fit.
    objectives : sequence of float
        Objective of each fit; NaN is the lowest.
    movable : ndarray of int
        Places of the components that may change places with each other.
    threshold : float
        Smallest cosine that all matched components of two fits must exceed.
    """
    heights = np.nan_to_num(np.asarray(objectives, np.float64), nan=-np.inf, neginf=-np.inf, posinf=np.inf)
    mode, leaders = np.zeros(len(found), np.int64), list[int]()
    for place in np.argsort(-heights, kind="stable").tolist():
        number = mode_of(found[place], [found[leader] for leader in leaders], movable, threshold)
        if number is None:
            number = len(leaders)
            leaders.append(place)
        mode[place] = number
    return Groups(mode, leaders)


def mode_of(found: Found, leaders: Sequence[Found], movable: Array, threshold: float) -> int | None:
    """Return the number of the first mode whose leader matches; None if there is none."""
    for number, leader in enumerate(leaders):
        if least_cosine(found, leader, movable) > threshold:
            return number
    return None
