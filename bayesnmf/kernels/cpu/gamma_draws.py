"""Gamma draws, elementwise, for every shape above 0, and their logarithms, for draws that underflow.

Every element has its own random stream, a function of the seed and its position only. So the draws depend neither on
the number of threads nor on the memory layout, and the logarithms are those of the same draws.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from bayesnmf.kernels.cpu.compiling import FAST, compiled_for_kernels, compiled_on_disk
from bayesnmf.kernels.cpu.streams import normal, stream, uniform
from bayesnmf.kernels.cpu.threads import block_count, in_blocks, threads_or_default
from bayesnmf.types import Array

TINY = float(np.finfo(np.float64).tiny)
WORK = 50  # cost of a draw, in multiply-adds
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


@compiled_for_kernels()
def _draw_row(shape: Array, seed: Any, first: int, step: int, logarithms: bool, out: Array) -> None:
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
        _draw_row(shape[i], seed, origin + i * row_step, step, logarithms, out[i])


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
