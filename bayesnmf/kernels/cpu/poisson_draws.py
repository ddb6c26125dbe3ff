"""Poisson draws, for compiled loops and elementwise."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from bayesnmf.kernels.cpu.compiling import compiled_for_kernels, compiled_on_disk
from bayesnmf.kernels.cpu.streams import normal, stream, uniform
from bayesnmf.kernels.cpu.threads import block_count, even_bounds, in_blocks
from bayesnmf.types import Array

INVERTED = 10.0  # means below which walking up the distribution function is faster than rejection
WORK = 50  # cost of a draw, in multiply-adds
ROUNDED = 1e12  # means above which rounding of log-factorials costs more digits than the normal approximation


@compiled_for_kernels()
def _by_inversion(state: Array, mean: float) -> float:
    """Draw by walking up the distribution function, for means below `INVERTED`."""
    while True:
        mass = math.exp(-mean)
        u = uniform(state)
        drawn = 0.0
        while u > mass and drawn < 1000.0:  # after rounding, the mass may never use up u
            u -= mass
            drawn += 1.0
            mass *= mean / drawn
        if drawn < 1000.0:
            return drawn


@compiled_for_kernels()
def _by_rejection(state: Array, mean: float) -> float:
    """Draw by transformed rejection, PTRS (Hörmann 1993), for means of at least `INVERTED`."""
    spread = math.sqrt(mean)
    b = 0.931 + 2.53 * spread
    a = -0.059 + 0.02483 * b
    v_r = 0.9277 - 3.6224 / (b - 2.0)
    while True:
        u = uniform(state) - 0.5
        v = uniform(state)
        us = 0.5 - abs(u)
        k = np.floor((2.0 * a / us + b) * u + mean + 0.43)
        if us >= 0.07 and v <= v_r:
            return k
        if k < 0 or (us < 0.013 and v > us):
            continue
        # These logarithms are not taken beforehand: most draws were accepted above.
        height = math.log(v) + math.log(1.1239 + 1.1328 / (b - 3.4)) - math.log(a / (us * us) + b)
        if height <= k * math.log(mean) - mean - math.lgamma(k + 1.0):
            return k


@compiled_on_disk(nogil=True)
def poisson(state: Array, mean: float) -> float:
    """Draw from Poisson(mean), as a float; return 0 for a mean of 0, and NaN for NaN."""
    if mean <= 0.0:
        return 0.0
    if mean < INVERTED:
        return _by_inversion(state, mean)
    if mean < ROUNDED:
        return _by_rejection(state, mean)
    return np.floor(mean + math.sqrt(mean) * normal(state) + 0.5)


@compiled_on_disk(nogil=True)
def _draw(means: Array, seed: Any, first: int, start: int, stop: int, out: Array) -> None:
    state = np.empty(1, dtype=np.uint64)
    for i in range(start, stop):
        for k in range(means.shape[1]):
            state[0] = stream(seed, first + i * means.shape[1] + k)
            out[i, k] = poisson(state, means[i, k])


def poisson_draws(means: Array, seed: int, first_row: int = 0) -> Array:
    """Draw from Poisson(means), (n, K), elementwise, in float64.

    Every element has its own random stream, a function of the seed, below 2**64, and of its position in a larger matrix
    in which these rows begin at row `first_row`.
    """
    rows = np.require(means, np.float64, ["C", "W"])
    given, out = (rows, np.uint64(seed), first_row * rows.shape[1]), np.empty_like(rows)
    bounds = even_bounds(len(rows), min(block_count(WORK * rows.size), max(len(rows), 1)))
    in_blocks(bounds, lambda _, first, last: _draw(*given, first, last, out), 1)
    return out
