"""Draw which known components are present in each row, and how much of each, by the moves of `presence_moves.py`.

Draws depend on a seed and the number of the row alone.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from bayesnmf.kernels.cpu.compiling import compiled_for_kernels, compiled_on_disk
from bayesnmf.kernels.cpu.presence_moves import draw_again, move_all, move_one
from bayesnmf.kernels.cpu.streams import stream
from bayesnmf.kernels.cpu.supports import QUADRATIC, Row, Space, Support, find_mode, new_space, new_support
from bayesnmf.kernels.cpu.threads import block_count, even_bounds, in_blocks, threads_or_default
from bayesnmf.kernels.cpu.vectors import VECTOR_BYTES
from bayesnmf.types import Array

MOST = 40  # components that may be present in a row at once
SINGLE = 2  # moves of one loading for each move of all


@compiled_for_kernels()
def _count(at: Support, share: float, present: Array) -> None:
    for a in range(at.size[0]):
        present[at.members[a]] += share


@compiled_for_kernels()
def _draw_row(state: Array, row: Row, moves: int, loadings: Array, present: Array, here: Space) -> None:
    """Draw the loadings of a row, 0 for what is absent, and add the shares of moves in which each is present."""
    cap = min(len(loadings), MOST)
    at, to, z = new_support(cap), new_support(cap), np.empty(cap)
    for k in range(len(loadings)):
        if loadings[k] > 0.0 and at.size[0] < cap:
            a = at.size[0]
            at.members[a], at.logs[a], at.mode[a] = k, math.log(loadings[k]), math.log(loadings[k])
            at.size[0] += 1
    find_mode(row, at, here)
    share = 1.0 / (moves * (1 + SINGLE))
    for _ in range(moves):
        if move_all(state, row, at, to, z, here):
            at, to = to, at
        if draw_again(state, row, at, to, z, here):
            at, to = to, at
        _count(at, share, present)
        for _ in range(SINGLE):
            if move_one(state, row, at, to, here):
                changed = at.size[0] != to.size[0] or at.members[at.size[0] - 1] != to.members[at.size[0] - 1]
                at, to = to, at
                if changed:
                    find_mode(row, at, here)
            _count(at, share, present)
    loadings[:] = 0.0
    for a in range(at.size[0]):
        loadings[at.members[a]] = math.exp(at.logs[a])


@compiled_on_disk(nogil=True)
def _draw_rows(
    indptr: Array, indices: Array, values: Array, components: Array, missing: Array, exposure: Array, prior: Any,
    noise: Any, seed: Any, moves: int, start: int, stop: int, loadings: Array, present: Array,
) -> None:  # fmt: skip
    rank, m = components.shape
    step, state = VECTOR_BYTES // 8, np.empty(1, np.uint64)
    shape, odds = prior
    variance, dispersion, linear = noise
    row_counts = np.zeros(m)
    for i in range(start, stop):
        row_counts[:] = 0.0
        total = 0.0
        for p in range(indptr[i], indptr[i + 1]):
            row_counts[indices[p]] = values[p]
            total += values[p]
        chosen = np.flatnonzero(row_counts > 0.0)
        if variance == QUADRATIC:
            chosen = np.flatnonzero(~missing[i]) if len(missing) else np.arange(m)
        entries = max((len(chosen) + step - 1) // step, 1) * step
        counts, parts = np.zeros(entries), np.zeros((rank, entries))
        for p in range(len(chosen)):
            counts[p] = row_counts[chosen[p]]
            for k in range(rank):
                parts[k, p] = components[k, chosen[p]]
        state[0] = stream(seed, i)
        own = exposure[i if len(exposure) > 1 else 0] * linear
        row = Row(counts, parts, own, shape, odds, 1.0 / max(total, 1.0), variance, dispersion)
        _draw_row(state, row, moves, loadings[i], present[i], new_space(entries, min(rank, MOST), rank))


def draw_presence(
    matrix: Any, components: Array, entries: tuple[Array, Array], prior: tuple[Array, Array],
    noise: tuple[int, float, float], seed: int, moves: int, loadings: Array, present: Array,
    threads: int | None = None,
) -> None:  # fmt: skip
    """Draw loadings of known components, in place, and add the share of the moves in which each is present.

    Parameters
    ----------
    matrix : csr_array (n, m)
        Counts.
    components : ndarray (K, m)
        Components whose rows sum to 1.
    entries : tuple of ndarray (n or 0, m) of bool, and (n or 1, K)
        Missing entries, if any, and the sums of the components over the observed entries.
    prior : tuple of ndarray (K,)
        Shapes of the loadings, and the logits of the chances of presence.
    noise : tuple of int, float and float
        Variance, dispersion, and what multiplies the mean in the log-likelihood: 1, e(s) or 0.
    seed : int
        Seed of this round.
    moves : int
        Moves of all loadings.
    loadings, present : ndarray (n, K)
        Loadings, which are replaced, and sums of shares.
    threads : int, optional
        Blocks of rows to work on at once; draws do not depend on it.
    """
    n, rank = loadings.shape
    work = 200 * moves * n * rank * components.shape[1]
    given = matrix.indptr, matrix.indices, matrix.data, components, *entries, prior, noise, np.uint64(seed), moves

    def draw(_: int, first: int, last: int) -> None:
        _draw_rows(*given, first, last, loadings, present)

    in_blocks(even_bounds(n, min(n, block_count(work))), draw, threads_or_default(threads, work))
