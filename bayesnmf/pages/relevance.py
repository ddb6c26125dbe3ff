"""The features that lead a component at every relevance, as whole numbers from which a page orders them.

The relevance of feature j in component k is λ log p_kj + (1 − λ) log(p_kj / p_j), where p_kj is the share of the
feature in the expected counts of the component and p_j that in all expected counts (Sievert & Shirley 2014). Both
logarithms are rounded to 10⁻⁴ and multiplied by 10⁴, and λ is l / 20. Relevances times 20 are then whole numbers, which
are the same in Python and in a browser, and so is the order; features of one relevance are in the order of their share.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from bayesnmf.results.topic_model import TopicModel
from bayesnmf.types import Array

LEVELS = 20  # settings of λ above 0
SHOWN = 30
UNIT = 10_000


class Leading(NamedTuple):
    """Features that lead a component at some setting of λ, by share, and their logarithms of share and lift."""

    features: Array
    weight: Array
    lift: Array

    def order(self, level: int) -> Array:
        """Return the places of the `SHOWN` leading ones at λ = level / 20, as the page orders them."""
        score = level * self.weight + (LEVELS - level) * self.lift
        if len(score) > SHOWN:  # only those at or above the last that is shown are put in order
            chosen = np.flatnonzero(score >= np.partition(score, -SHOWN)[-SHOWN])
            return chosen[np.argsort(-score[chosen], kind="stable")][:SHOWN]
        return np.argsort(-score, kind="stable")


def frequencies(model: TopicModel, sizes: Array) -> Array:
    """Return the share of each feature in all expected counts, (m,), given those of each component, (K,)."""
    weights = sizes / sizes.sum() if sizes.sum() > 0 else np.full(len(sizes), 1 / len(sizes))
    return np.asarray(weights @ model.components)


def leading(shares: Array, frequency: Array) -> Leading:
    """Return the features that are among the first `SHOWN` of a component, with shares (m,), at any setting of λ."""
    order = np.argsort(-shares, kind="stable")
    order = order[(shares[order] > 0) & (frequency[order] > 0)]  # none of a component without counts
    weight = np.log(shares[order])
    both = (weight, weight - np.log(frequency[order]))
    whole = Leading(order, *(np.rint(UNIT * each).astype(np.int64) for each in both))
    places = np.unique(np.concatenate([whole.order(level) for level in range(LEVELS + 1)]))
    return Leading(*(each[places] for each in whole))
