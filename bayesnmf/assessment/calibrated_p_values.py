"""P-values of statistics whose distribution under a right model is known from replicates, singly and all together."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammaincc, stdtr

Array = NDArray[Any]


def tail_probabilities(observed: Array, replicated: Array, least: Array, both: Array) -> Array:
    """Return the probability that one more replicate would lie further out, for every statistic, (s,).

    The replicates are taken as normal, so that a few dozen reach small probabilities: Student's t is the predictive
    distribution of a further one.

    Parameters
    ----------
    observed, replicated : ndarray of shape (s,) and (replicates, s)
    least : ndarray of shape (s,)
        Smallest standard deviation that is believed.
    both : ndarray of bool, (s,)
        Statistics of which small values, too, speak against the model; of the others only large ones do.
    """
    number = len(replicated)
    spread = np.maximum(replicated.std(axis=0, ddof=1), least) * np.sqrt(1 + 1 / number)
    off = observed - replicated.mean(axis=0)
    below = stdtr(number - 1, -np.divide(off, spread, out=np.zeros_like(off), where=spread > 0))
    return np.where(both, 2 * np.minimum(below, 1 - below), below)


def tails_of_all(observed: Array, replicated: Array, least: Array, both: Array) -> tuple[Array, Array]:
    """Return tail probabilities of single statistics, and those of the smallest of all of them, (s,) each.

    The smallest of s independent tail probabilities is below p with probability 1 − (1 − p)^s. Statistics of the same
    counts depend on one another, so s is estimated: each replicate in turn is compared with the others, and
    −log(1 − p) of its smallest probability has mean 1/s.
    """
    single = tail_probabilities(observed, replicated, least, both)
    smallest = np.array(
        [
            tail_probabilities(one, np.delete(replicated, place, axis=0), least, both).min()
            for place, one in enumerate(replicated)
        ]
    )
    number = np.clip(1 / -np.log1p(-np.minimum(smallest, 1 - 1e-9)).mean(), 1, len(observed))
    return single, -np.expm1(number * np.log1p(-np.minimum(single, 1 - 1e-9)))


def upper_tails(observed: Array, replicated: Array) -> Array:
    """Return the same for the upper tail of sums of squares, (s,): Gamma distributions with their means and variances.

    It is 1 where the replicates do not vary.
    """
    mean, variance = replicated.mean(axis=0), replicated.var(axis=0, ddof=1)
    varies = variance > 0
    shape = np.divide(mean**2, variance, out=np.ones_like(mean), where=varies)
    rate = np.divide(mean, variance, out=np.zeros_like(mean), where=varies)
    return gammaincc(shape, rate * observed)
