"""Match components by cosine: find the best assignment of one set to another."""

from __future__ import annotations

from typing import Any

import numpy as np

from bayesnmf.types import Array


def normalise_rows(values: Array) -> Array:
    """Return rows divided by their Euclidean length; rows of zeros stay zero."""
    length = np.linalg.norm(values, axis=-1, keepdims=True)
    return np.divide(values, length, out=np.zeros_like(values, dtype=np.float64), where=length > 0)


def match_fits(fit: Any, reference: Any) -> Array:
    """Return the order of the components of a fit (or a simulation) that agrees best with those of a reference.

    They are compared by the counts that they predict, that is, times the exposure of the features: a cosine of
    components per unit of exposure would depend on the units in which features are counted.
    """
    both = (each.counts.exposed_components(each.components) for each in (fit, reference))
    return match_components(*both)


def fit_cosines(fit: Any, reference: Any, order: Array) -> Array:
    """Return the cosines of matched components of two fits, compared as by `match_fits`, (K,)."""
    ours, theirs = (each.counts.exposed_components(each.components) for each in (fit, reference))
    return np.diagonal(cosine(ours[order], theirs))


def cosine(components: Array, reference: Array) -> Array:
    """Return the cosines between all pairs of components: (..., K, m) and (K', m) give (..., K, K')."""
    return normalise_rows(components) @ normalise_rows(reference).T


def match_components(components: Array, reference: Array, among: Array | None = None) -> Array:
    """Return the order of `components` that agrees best with `reference`: the one with the largest total cosine.

    Parameters
    ----------
    components, reference : ndarray of shape (K, m)
        Components to reorder, and components to match.
    among : ndarray of int, optional
        Places of the components that may change places with each other; by default all.

    Returns
    -------
    ndarray of shape (K,)
        `components[order]` is matched to `reference`.
    """
    return assign_components(cosine(components, reference), among)


def assign_components(similarity: Array, among: Array | None = None) -> Array:
    """Return the order of components with the largest total similarity to reference components.

    Parameters
    ----------
    similarity : ndarray of shape (K, K)
        Similarity of each component (rows) to each reference component (columns).
    among : ndarray of int, optional
        Places of the components that may change places with each other; by default all.

    Returns
    -------
    ndarray of shape (K,)
        Component `order[k]` is assigned to reference component k.
    """
    from scipy.optimize import linear_sum_assignment  # slow to import, and most fits do not need it

    places = np.arange(len(similarity)) if among is None else among
    order = np.arange(len(similarity))
    order[places] = places[linear_sum_assignment(similarity[np.ix_(places, places)].T, maximize=True)[1]]
    return order


def match_draws(components: Array, reference: Array, among: Array | None = None) -> Array:
    """Match every draw (..., K, m) to one reference (K, m), as `match_components` does; return orders (..., K)."""
    leading = components.shape[:-2]
    orders = np.empty((*leading, len(reference)), dtype=np.intp)
    for index in np.ndindex(leading):
        orders[index] = match_components(components[index], reference, among)
    return orders


def reorder(values: Array, orders: Array, axis: int) -> Array:
    """Permute the component axis of draws by `orders` (..., K); axis −1 for loadings, −2 for components."""
    other = -2 if axis == -1 else -1
    return np.take_along_axis(values, np.expand_dims(orders, other), axis=axis)
