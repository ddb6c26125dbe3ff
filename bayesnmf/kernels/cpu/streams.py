"""Random numbers for compiled loops: one stream for each row or element, so that draws do not depend on threads.

A stream is a function of a seed and a number only: SplitMix64 (Steele, Lea & Flood 2014) started at a hash of both.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numba import int64, uint64

from bayesnmf.kernels.cpu.compiling import compiled_for_kernels, compiled_on_disk
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


@compiled_for_kernels()
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
