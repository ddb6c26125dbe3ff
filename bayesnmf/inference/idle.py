"""Components that carry nothing of their own: copies of others, or what the prior alone has shaped."""

from __future__ import annotations

import numpy as np

from bayesnmf.priors import Distribution
from bayesnmf.types import Array

ALIKE = 0.99  # cosine of components that are one; of different ones it was at most 0.81 on real and simulated counts


def find_idle(components: Array, sizes: Array, prior: Distribution) -> Array:
    """Return the components that are copies of a larger one, in order: the cosine of both is above 0.99.

    What the prior alone shapes is returned too: components that are alike, or like their prior's mean, with less than a
    tenth of an even share of the expected counts. Known components are left out.

    Parameters
    ----------
    components : ndarray of shape (K, m)
        Components, in any unit.
    sizes : ndarray of shape (K,)
        Expected counts of each component.
    prior : Distribution
        Prior of the components.
    """
    rank, norms = len(components), np.linalg.norm(components, axis=1)
    profiles = components / np.where(norms > 0, norms, 1.0)[:, None]
    alike = np.triu(profiles @ profiles.T > ALIKE, 1)
    alike |= alike.T
    smaller = (sizes[:, None] < sizes) | ((sizes[:, None] == sizes) & np.tri(rank, k=-1, dtype=bool))
    copies = (alike & smaller).any(axis=1)
    shaped = alike.any(axis=1) | _like_their_prior(prior, profiles)
    known = getattr(prior, "constants", {}).get("at", ())
    return np.setdiff1d(np.flatnonzero(copies | (shaped & (sizes < sizes.sum() / (10 * rank)))), known)


def _like_their_prior(prior: Distribution, profiles: Array) -> Array:
    """Return whether each component, given at length 1, is in proportion to its prior's mean, (K,) or (1,)."""
    if not prior.proper:
        return np.zeros(1, dtype=bool)
    means = np.broadcast_to(prior.broadcast(profiles.shape).typical(), profiles.shape)
    return np.einsum("km,km->k", profiles, means) > ALIKE * np.linalg.norm(means, axis=1)
