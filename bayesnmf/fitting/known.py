"""Take components that are known beforehand into the prior of the components."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from bayesnmf.data.counts import Counts
from bayesnmf.fitting.checks import check_known_components, check_known_features, check_room_for_known
from bayesnmf.priors import Priors
from bayesnmf.priors.pair import replace_sides
from bayesnmf.priors.partly_known import PartlyKnown
from bayesnmf.priors.specification import stated_components

Array = NDArray[Any]


def with_known_components(priors: Priors, given: Any, counts: Counts, rank: int) -> Priors:
    """Return the priors with the given components as known ones, in the first rows; priors have no None left.

    Parameters
    ----------
    given : array or DataFrame (r, m)
        Known components. Features of a frame are matched by name if the counts have names. They replace components that
        the priors know already.
    """
    known = check_known_components(in_order_of(counts, given), counts.shape[1], priors.components)
    check_room_for_known(known, rank, priors.components)
    free: Any = stated_components(priors.components).of_unknown
    if free.support == "simplex":
        known = known / known.sum(axis=1, keepdims=True)  # to rounding
    return replace_sides(priors, components=PartlyKnown(known, free, np.arange(len(known))))


def in_order_of(counts: Counts, given: Any, argument: str = "fixed_components") -> Any:
    """Return the values of given components with the features in the order of the counts."""
    if not hasattr(given, "columns"):
        return given
    names = counts.feature_names
    unnamed = np.array_equal(names, np.arange(len(names)))
    if unnamed and set(given.columns) != set(names):  # the counts have no names
        return given.to_numpy()
    check_known_features(given.columns, names, argument)
    return given[list(names)].to_numpy()
