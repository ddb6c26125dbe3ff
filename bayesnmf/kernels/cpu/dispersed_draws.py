"""Draws for compiled loops of counts that vary more than Poisson counts: clusters, rates of entries, and urns.

With linear variance λ (1 + s), counts come in a Poisson number of clusters, whose sizes have the logarithmic
distribution with p = s / (1 + s); or their rates are s times Gamma(λ / s). With quadratic variance λ + α λ², rates are
λ α times Gamma(1 / α). Given the total of a row, counts with linear variance are drawn from an urn (Hoppe 1984): each
is a new draw, or that of an earlier count.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from bayesnmf.kernels.cpu.compiling import compiled_for_kernels
from bayesnmf.kernels.cpu.draws import gamma_at_least_one, poisson, uniform
from bayesnmf.kernels.cpu.sampling import add_many, chosen_component
from bayesnmf.types import Array

POISSON, LINEAR, QUADRATIC = 0, 1, 2


class Noise(NamedTuple):
    """Noise of counts that are drawn.

    Attributes
    ----------
    kind : int
        `POISSON`, `LINEAR` or `QUADRATIC`.
    rows, features : ndarray of shape (n,) and (m,)
        Factors of the dispersions of entries, which are above 0: those of rows are 1 if features have their own, else
        those of features are.
    by_feature : bool
        Whether features have their own dispersions.
    """

    kind: int
    rows: Array
    features: Array
    by_feature: bool = False


PLAIN = Noise(POISSON, np.empty(0), np.empty(0))


@compiled_for_kernels()
def _cluster_size(state: Array, s: float) -> int:
    """Draw from the logarithmic distribution with p = s / (1 + s), by the algorithm LK of Kemp (1981)."""
    v = uniform(state)
    if v * (1.0 + s) >= s:
        return 1
    beyond = math.exp(-uniform(state) * math.log1p(s))  # 1 − q
    q = 1.0 - beyond
    if v <= q * q:
        return 1 + int(math.log(v) / math.log1p(-beyond))
    return 1 if v > q else 2


@compiled_for_kernels()
def grow_clusters(state: Array, row: Array, entries: Array, own: float, features: Array) -> None:
    """Replace numbers of clusters in some entries of a row by the counts in them."""
    for j in entries:
        counts = 0.0
        for _ in range(int(row[j])):
            counts += _cluster_size(state, own * features[j])
        row[j] = counts


@compiled_for_kernels()
def _log_gamma(state: Array, shape: float) -> float:
    """Draw the logarithm of a draw from Gamma(shape, 1), which is finite for every shape above 0."""
    if shape >= 1.0:
        return math.log(gamma_at_least_one(state, shape))
    return math.log(gamma_at_least_one(state, shape + 1.0)) + math.log(uniform(state)) / shape


@compiled_for_kernels()
def dispersed_count(state: Array, kind: int, mean: float, s: float) -> float:
    """Draw a count: its rate first, then a Poisson count."""
    if mean <= 0.0:
        return 0.0
    if kind == LINEAR:
        return poisson(state, s * math.exp(_log_gamma(state, mean / s)))
    return poisson(state, mean * s * math.exp(_log_gamma(state, 1.0 / s)))


@compiled_for_kernels()
def add_from_rates(state: Array, count: int, means: Array, s: float, row: Array) -> None:
    """Add `count` counts to the entries of a row, given their total: shares of Gamma rates first."""
    cumulative, top, running = np.empty(len(means)), -math.inf, 0.0
    for j in range(len(means)):
        cumulative[j] = _log_gamma(state, means[j] / s) if means[j] > 0.0 else -math.inf
        top = max(top, cumulative[j])
    for j in range(len(means)):
        running += math.exp(cumulative[j] - top) if top > -math.inf else 1.0
        cumulative[j] = running
    add_many(state, count, cumulative, row, np.zeros(len(row)))


@compiled_for_kernels()
def draw_from_urn(
    state: Array, count: int, expected: Array, s: float, tables: tuple[Array, Array], row: Array, touched: Array
) -> int:
    """Add counts to the zeros of a row, given their total; list nonzero entries in `touched`, and return their number.

    The t-th count is new with probability r / (r + t), r = Σ expected / s; else it is in the entry of an earlier one.
    """
    cumulative, places, nonzeros = np.cumsum(expected), np.empty(count, np.int64), 0
    ratio = cumulative[-1] / s
    if not ratio > 0.0:  # then every component is equally likely
        cumulative = np.arange(1.0, len(expected) + 1.0)
    for t in range(count):
        if t > 0 and uniform(state) * (ratio + t) >= ratio:
            j = places[int(uniform(state) * t)]
        else:
            k = chosen_component(cumulative, uniform(state) * cumulative[-1])
            place = uniform(state) * len(row)
            j = int(place)
            j = j if place - j < tables[0][k, j] else tables[1][k, j]
        places[t] = j
        touched[nonzeros] = j
        nonzeros += 1 if row[j] == 0.0 else 0
        row[j] += 1.0
    return nonzeros
