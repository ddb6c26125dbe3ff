"""Draw uniform, normal, Gamma and Poisson numbers, for compiled loops and elementwise.

Each row or element has a random stream of its own, a function of a seed and of its number only: SplitMix64 (Steele, Lea
& Flood 2014) started at a hash of both. So draws depend neither on the number of threads nor on the memory layout.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numba import int64, uint64

from bayesnmf.kernels.cpu.compiling import FAST, compiled_for_kernels, compiled_on_disk
from bayesnmf.kernels.cpu.threads import block_count, in_blocks, over_rows, threads_or_default
from bayesnmf.types import Array

LAYERS, TAIL = 128, 3.442619855899  # layers of the ziggurat, and start of its tail (Doornik 2005, ZIGNOR)


@compiled_for_kernels(inline="always")
def mix(z: Any) -> Any:
    """Return the SplitMix64 finaliser of z."""
    z = (z ^ (z >> uint64(30))) * uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> uint64(27))) * uint64(0x94D049BB133111EB)
    return z ^ (z >> uint64(31))


@compiled_on_disk(inline="always")
def stream(seed: Any, number: Any) -> Any:
    """Return the initial state of the stream with this number."""
    return mix(uint64(seed) + mix(uint64(number) + uint64(0x9E3779B97F4A7C15)))


@compiled_on_disk(inline="always")
def bits(state: Array) -> Any:
    """Draw 64 random bits and advance the one-element `state`."""
    state[0] += uint64(0x9E3779B97F4A7C15)
    return mix(state[0])


@compiled_on_disk(inline="always")
def uniform(state: Array) -> float:
    """Draw from the open interval (0, 1), with 52 random bits."""
    return ((bits(state) >> uint64(12)) + 0.5) * (1.0 / 4503599627370496.0)


def _ziggurat() -> Array:
    """Return the right ends of the layers (LAYERS + 1,), rectangles of equal area that cover exp(−x²/2), lowest first.

    The first is the width of a rectangle with the area of the lowest layer and its tail; the last is 0.
    """
    below = math.sqrt(math.pi / 2) * math.erfc(TAIL / math.sqrt(2))
    height = math.exp(-TAIL * TAIL / 2)
    area = TAIL * height + below
    ends = [area / height, TAIL]
    for _ in range(LAYERS - 2):
        height += area / ends[-1]
        ends.append(math.sqrt(-2 * math.log(height)))
    return np.array([*ends, 0.0])


_ENDS = _ziggurat()


@compiled_for_kernels(fastmath=FAST)
def _normal_at_an_edge(state: Array, layer: int, x: float) -> float:
    """Finish a draw that falls outside the part of its layer that lies under the curve; return NaN to reject it."""
    if layer == 0:
        while True:  # the tail beyond TAIL, by Marsaglia (1964)
            beyond = -math.log(uniform(state)) / TAIL
            if -2.0 * math.log(uniform(state)) >= beyond * beyond:
                return math.copysign(TAIL + beyond, x)
    low = math.exp(-0.5 * (_ENDS[layer] * _ENDS[layer] - x * x))
    high = math.exp(-0.5 * (_ENDS[layer + 1] * _ENDS[layer + 1] - x * x))
    return x if low + uniform(state) * (high - low) < 1.0 else math.nan


@compiled_for_kernels(inline="always")
def normal(state: Array) -> float:
    """Draw from the standard normal by the ziggurat of Marsaglia & Tsang (2000)."""
    while True:
        drawn = bits(state)
        layer = int64(drawn & uint64(LAYERS - 1))  # 7 bits; 53 others give the sign and the place within the layer
        x = (int64(drawn) >> 11) * (1.0 / 4503599627370496.0) * _ENDS[layer]
        if abs(x) >= _ENDS[layer + 1]:
            x = _normal_at_an_edge(state, layer, x)
            if math.isnan(x):
                continue
        return x


TINY = float(np.finfo(np.float64).tiny)
WORK = 50  # cost of a Gamma or Poisson draw, in multiply-adds
LEAST_DRAWS = 4_000  # draws in a block: fewer are done sooner than a thread wakes


@compiled_on_disk(inline="always")
def gamma_at_least_one(state: Array, shape: float) -> float:
    """Draw from Gamma(shape, 1), shape ≥ 1 (Marsaglia & Tsang 2000); return NaN and infinity unchanged.

    The log of the density ratio is x²/2 + d(1 − v + log v) with v = (1 + y)³. Its terms cancel, so it is computed
    from y by log1p: at d = 1e15 no correct digit would be left otherwise.
    """
    d = shape - 1.0 / 3.0
    c = 1.0 / math.sqrt(9.0 * d)
    while True:
        x = normal(state)
        y = c * x
        if y <= -1.0:
            continue
        v = (1.0 + y) * (1.0 + y) * (1.0 + y)
        u = uniform(state)
        if u >= 1.0 - 0.0331 * (x * x) * (x * x):
            ratio = 0.5 * x * x + d * (3.0 * math.log1p(y) - y * (3.0 + y * (3.0 + y)))
            if math.log(u) >= ratio:
                continue
        return d * v


@compiled_for_kernels(fastmath=FAST)
def _fill_gammas(shape: Array, seed: Any, first: int, step: int, logarithms: bool, out: Array) -> None:
    """Draw a row whose elements have the streams first, first + step, …"""
    state = np.empty(1, dtype=np.uint64)
    for k in range(len(shape)):
        state[0] = stream(seed, first + k * step)
        a = shape[k]
        if a >= 1.0:
            drawn = gamma_at_least_one(state, a)
            out[k] = math.log(drawn) if logarithms else drawn
            continue
        # G(a) = G(a + 1) U^(1/a) in distribution; its logarithm is finite even where G(a) underflows.
        drawn = gamma_at_least_one(state, a + 1.0)
        boost = math.log(uniform(state)) / a
        if logarithms:
            out[k] = math.log(drawn) + boost
        else:
            drawn = 0.0 if boost < -745.0 else drawn * math.exp(boost)
            out[k] = TINY if drawn < TINY else drawn


@compiled_on_disk(nogil=True, fastmath=FAST)
def _draw_gammas(
    shape: Array, seed: int, steps: tuple[int, int, int], start: int, stop: int, logarithms: bool, out: Array
) -> None:
    origin, row_step, step = steps
    for i in range(start, stop):
        _fill_gammas(shape[i], seed, origin + i * row_step, step, logarithms, out[i])


def gamma_draws(
    shape: Array, seed: int, threads: int | None = 1, *, logarithms: bool = False, first_row: int = 0
) -> Array:
    """Draw from Gamma(shape, 1), elementwise.

    Parameters
    ----------
    shape : ndarray
        Shapes above 0.
    seed : int
        Seed of these draws, below 2**64.
    threads : int, optional
        Number of blocks to work on at once; None means one for each of Numba's threads, or 1 for little work.
    logarithms : bool
        Whether to return the logarithms of the same draws, which are finite for any shape. Otherwise, draws below the
        smallest normal number are returned as that number.
    first_row : int
        Place of the first row in a larger matrix, of which these draws are a part.

    Returns
    -------
    ndarray
        Draws in float64, of the shape of `shape`, and in its memory order if that is C or Fortran order.
    """
    columns = shape.shape[-1] if shape.ndim else 1
    turned = shape.ndim == 2 and shape.flags.f_contiguous and not shape.flags.c_contiguous
    steps = (1, columns) if turned else (columns, 1)
    # Read-only arrays would need another compilation.
    rows = np.require(shape.T if turned else shape.reshape(-1, columns), np.float64, ["C", "W"])
    out = np.empty_like(rows)
    threads = threads_or_default(threads, WORK * rows.size)
    blocks = min(block_count(WORK * rows.size), len(rows), rows.size // LEAST_DRAWS) or 1
    bounds = np.arange(blocks + 1) * len(rows) // blocks
    given = rows, np.uint64(seed), (first_row * columns, *steps)
    in_blocks(bounds, lambda _, first, last: _draw_gammas(*given, first, last, logarithms, out), threads)
    return out.T if turned else out.reshape(shape.shape)


INVERTED = 10.0  # means below which walking up the distribution function is faster than rejection
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
def _draw_poissons(means: Array, seed: Any, first: int, start: int, stop: int, out: Array) -> None:
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
    over_rows(len(rows), WORK * rows.size, lambda first, last: _draw_poissons(*given, first, last, out), 1)
    return out
