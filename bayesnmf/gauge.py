"""What the likelihood does not fix: the order of the components, and their scale.

Components of different fits, chains and draws are matched here before anything is compared, and factors of Poisson
rates become proportions of a multinomial topic model and back.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]


def normalise_rows(values: Array) -> Array:
    """Rows divided by their Euclidean length; rows of zeros stay zero."""
    length = np.linalg.norm(values, axis=-1, keepdims=True)
    return np.divide(values, length, out=np.zeros_like(values, dtype=np.float64), where=length > 0)


def cosine(components: Array, reference: Array) -> Array:
    """Cosines between all pairs of components: (..., K, m) and (K', m) give (..., K, K')."""
    return normalise_rows(components) @ normalise_rows(reference).T


def match_components(components: Array, reference: Array) -> Array:
    """Order of `components` that agrees best with `reference` (the assignment of greatest total cosine).

    Parameters
    ----------
    components, reference : ndarray of shape (K, m)

    Returns
    -------
    ndarray of shape (K,)
        `components[order]` is matched to `reference`.
    """
    from scipy.optimize import linear_sum_assignment  # a fit need not wait for it

    similarity = cosine(components, reference)
    return linear_sum_assignment(similarity.T, maximize=True)[1]


def match_draws(components: Array, reference: Array) -> Array:
    """Match every draw (..., K, m) to one reference (K, m); return orders (..., K)."""
    leading = components.shape[:-2]
    orders = np.empty((*leading, len(reference)), dtype=np.intp)
    for index in np.ndindex(leading):
        orders[index] = match_components(components[index], reference)
    return orders


def reorder(values: Array, orders: Array, axis: int) -> Array:
    """Permute the component axis of draws by `orders` (..., K); axis −1 for loadings, −2 for components."""
    other = -2 if axis == -1 else -1
    return np.take_along_axis(values, np.expand_dims(orders, other), axis=axis)


def component_sums(components: Array) -> Array:
    """Sum of each component over its features, (..., K): what `loadings` must be multiplied by for simplex rows."""
    return components.sum(axis=-1)


def shares(values: Array, sums: Array) -> Array:
    """`values` divided by their `sums` over the last axis; even shares where the sum is 0."""
    even = np.full_like(values, 1 / values.shape[-1], dtype=np.float64)
    return np.divide(values, sums[..., None], out=even, where=sums[..., None] > 0)


class TopicModel(NamedTuple):
    """Poisson factors as a multinomial topic model and the totals of its samples ([C] lemma 1).

    Counts are Poisson(θβ) if and only if sample i has Poisson(s_i) counts in all, shared out among the features by
    Multinomial((LF)_i). Any leading axes, of draws, come before those named here.

    Attributes
    ----------
    proportions : ndarray (..., n, K)
        L, the share of each component in the expected counts of a sample; rows sum to 1.
    components : ndarray (..., K, m)
        F, the share of each feature in a component; rows sum to 1.
    totals : ndarray (..., n)
        s, the expected total of each sample, in counts.
    sums : ndarray (..., K)
        u, the sum over features of each component as it was before: 1 for components on the simplex.
    """

    proportions: Array
    components: Array
    totals: Array
    sums: Array


def to_topic_model(loadings: Array, components: Array) -> TopicModel:
    """Split Poisson factors θ (..., n, K), β (..., K, m) into proportions and totals ([C] lemma 1).

    u_k = Σ_j β_kj, s_i = Σ_k θ_ik u_k, F_k = β_k / u_k, L_i = θ_i ∘ u / s_i. A component of zeros and the proportions
    of a sample of zeros become even shares.
    """
    sums = component_sums(components)
    expected = loadings * sums[..., None, :]
    totals = expected.sum(axis=-1)
    return TopicModel(shares(expected, totals), shares(components, sums), totals, sums)


def from_topic_model(model: TopicModel) -> tuple[Array, Array]:
    """Return the Poisson factors: β = diag(u) F and θ = diag(s) L diag(u)⁻¹ ([C] lemma 1).

    The loadings of a component whose sum is 0 are not determined, and 0.
    """
    expected = model.totals[..., None] * model.proportions
    sums = model.sums[..., None, :]
    loadings = np.divide(expected, sums, out=np.zeros_like(expected), where=sums > 0)
    return loadings, model.sums[..., None] * model.components
