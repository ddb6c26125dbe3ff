"""Draw which known components are present in each row, and how much of each, by the moves of `presence_moves.py`.

Beside the draws stand what judges them: the log-likelihood and log density of loadings, and a refit to compare with.
Draws depend on a seed and the number of the row alone.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from bayesnmf.kernels.cpu.compiling import compiled_for_kernels, compiled_on_disk
from bayesnmf.kernels.cpu.presence_moves import draw_again, move_all, move_one
from bayesnmf.kernels.cpu.presence_refits import refit
from bayesnmf.kernels.cpu.streams import stream
from bayesnmf.kernels.cpu.supports import (
    NOTHING,
    QUADRATIC,
    Model,
    Row,
    Space,
    Support,
    find_mode,
    log_density,
    log_likelihood,
    new_space,
    new_support,
)
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
def _row(matrix: Any, model: Model, i: int) -> tuple[Row, Array]:
    """Return the row of this number and the features of its entries: those of counts, or all observed ones if needed.

    Entries are filled up to whole vectors.
    """
    indptr, indices, values = matrix
    rank, m = model.components.shape
    step, row_counts, total = VECTOR_BYTES // 8, np.zeros(m), 0.0
    for p in range(indptr[i], indptr[i + 1]):
        row_counts[indices[p]] = values[p]
        total += values[p]
    chosen = np.flatnonzero(row_counts > 0.0)
    if model.variance == QUADRATIC:
        chosen = np.flatnonzero(~model.missing[i]) if len(model.missing) else np.arange(m)
    entries = max((len(chosen) + step - 1) // step, 1) * step
    counts, spreads, parts = np.zeros(entries), np.ones(entries), np.zeros((rank, entries))
    for p in range(len(chosen)):
        counts[p], spreads[p] = row_counts[chosen[p]], model.dispersion[chosen[p]]
        for k in range(rank):
            parts[k, p] = model.components[k, chosen[p]]
    own = model.exposure[i if len(model.exposure) > 1 else 0].copy()
    rate = 1.0 / max(total, 1.0)
    return Row(counts, parts, own, model.shape, model.odds, rate, model.variance, spreads), chosen


@compiled_for_kernels()
def _fill_support(loadings: Array, at: Support) -> None:
    """Write the support of loadings: the largest, if there is no room for all."""
    at.size[0] = 0
    order = np.argsort(-loadings)
    for k in order[: len(at.members)]:
        if loadings[k] > 0.0 and math.log(loadings[k]) > NOTHING:
            a = at.size[0]
            at.members[a], at.logs[a], at.mode[a] = k, math.log(loadings[k]), math.log(loadings[k])
            at.size[0] += 1


@compiled_for_kernels()
def _fill_loadings(at: Support, loadings: Array) -> None:
    """Write the loadings of a support, 0 for what is absent."""
    loadings[:] = 0.0
    for a in range(at.size[0]):
        loadings[at.members[a]] = math.exp(at.logs[a])


@compiled_for_kernels()
def _draw_row(state: Array, row: Row, moves: int, afresh: bool, loadings: Array, present: Array, here: Space) -> None:
    """Draw the loadings of a row, 0 for what is absent, and add the shares of moves in which each is present."""
    cap = min(len(loadings), MOST)
    at, to, z = new_support(cap), new_support(cap), np.empty(cap)
    _fill_support(loadings, at)
    if not at.size[0]:  # none at all is no state
        best = 1.0 / (row.rate * len(loadings))
        at.members[0], at.logs[0], at.mode[0], at.size[0] = 0, math.log(best), math.log(best), 1
    find_mode(row, at, here)
    if afresh:
        at.logs[:] = at.mode
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
    _fill_loadings(at, loadings)


@compiled_on_disk(nogil=True)
def _draw_rows(
    matrix: Any,
    model: Model,
    seed: Any,
    moves: int,
    afresh: bool,
    start: int,
    stop: int,
    loadings: Array,
    present: Array,
) -> None:
    rank, state = len(model.components), np.empty(1, np.uint64)
    for i in range(start, stop):
        row, _ = _row(matrix, model, i)
        state[0] = stream(seed, i)
        here = new_space(len(row.counts), min(rank, MOST), rank)
        _draw_row(state, row, moves, afresh, loadings[i], present[i], here)


@compiled_on_disk(nogil=True)
def _refit_rows(matrix: Any, model: Model, start: int, stop: int, loadings: Array) -> None:
    rank = len(model.components)
    cap = min(rank, MOST)
    for i in range(start, stop):
        row, _ = _row(matrix, model, i)
        here, at, to = new_space(len(row.counts), cap, rank), new_support(cap), new_support(cap)
        refit(row, loadings[i], at, to, here)


@compiled_for_kernels()
def _put_extra(row: Row, model: Model, i: int, chosen: Array, extra: Array) -> None:
    """Put what extra components were in a draw, (E, m), in the place of the last ones."""
    known = len(row.parts) - len(extra)
    for k in range(len(extra)):
        row.exposure[known + k] = 0.0
        for j in range(extra.shape[1]):
            if not len(model.missing) or not model.missing[i, j]:
                row.exposure[known + k] += extra[k, j] * model.factors[j]
        for p in range(len(chosen)):
            row.parts[known + k, p] = extra[k, chosen[p]]


@compiled_on_disk(nogil=True)
def _judge_rows(
    matrix: Any,
    model: Model,
    drawn: Any,
    extra: Array,
    start: int,
    stop: int,
    likelihoods: Array,
    joints: Array,
    modes: Array,
) -> None:
    indptr, indices, values = drawn
    cap = rank = len(model.components)
    for i in range(start, stop):
        row, chosen = _row(matrix, model, i)
        here, at, loadings = new_space(len(row.counts), cap, rank), new_support(cap), np.zeros((len(extra), rank))
        for k in range(rank):
            for p in range(indptr[i * rank + k], indptr[i * rank + k + 1]):
                loadings[indices[p], k] = values[p]
        for d in range(len(extra)):
            _put_extra(row, model, i, chosen, extra[d])
            _fill_support(loadings[d], at)
            joints[d, i] = log_density(row, at, here)
            likelihoods[d, i] = log_likelihood(row, here)
            for a in range(at.size[0]):
                likelihoods[d, i] -= row.exposure[at.members[a]] * math.exp(at.logs[a])
        best = int(np.argmax(joints[:, i]))
        _put_extra(row, model, i, chosen, extra[best])
        _fill_support(loadings[best], at)
        find_mode(row, at, here)
        at.logs[:] = at.mode
        modes[i] = max(joints[best, i], log_density(row, at, here))


def draw_presence(
    matrix: Any,
    model: Model,
    seed: int,
    moves: int,
    afresh: bool,
    loadings: Array,
    present: Array,
    threads: int | None = None,
) -> None:
    """Draw loadings of known components, in place, and add the share of the moves in which each is present.

    Parameters
    ----------
    matrix : csr_array (n, m)
        Counts.
    model : Model
        Components, entries, prior and noise.
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
    work = 200 * moves * n * rank * model.components.shape[1]
    rows = matrix.indptr, matrix.indices, matrix.data

    def draw(_: int, first: int, last: int) -> None:
        _draw_rows(rows, model, np.uint64(seed), moves, afresh, first, last, loadings, present)

    in_blocks(even_bounds(n, min(n, block_count(work))), draw, threads_or_default(threads, work))


def refit_presence(matrix: Any, model: Model, threads: int | None = None) -> Array:
    """Return loadings (n, K) of a refit of each row, pruned backwards as long as the log density rises."""
    n, rank = matrix.shape[0], len(model.components)
    work, loadings = 2000 * n * rank * model.components.shape[1], np.zeros((n, rank))
    rows = matrix.indptr, matrix.indices, matrix.data

    def fit(_: int, first: int, last: int) -> None:
        _refit_rows(rows, model, first, last, loadings)

    in_blocks(even_bounds(n, min(n, block_count(work))), fit, threads_or_default(threads, work))
    return loadings


def judge_presence(
    matrix: Any, model: Model, drawn: Any, extra: Array, threads: int | None = None
) -> tuple[Array, Array, Array]:
    """Return the log-likelihood and the log density of draws, (draws, n), and that at the best one's mode, (n,).

    The mode is that of the loadings in the support of the draw. All are up to constants of the row (`supports.py`).

    Parameters
    ----------
    matrix, model
        As for `draw_presence`.
    drawn : csc_array (draws, n K)
        Loadings.
    extra : ndarray (draws, E, m)
        What the last components were in each draw.
    """
    draws, n = len(extra), matrix.shape[0]
    work, rows = 20 * draws * n * model.components.shape[1], (matrix.indptr, matrix.indices, matrix.data)
    likelihoods, joints, modes = np.zeros((draws, n)), np.zeros((draws, n)), np.zeros(n)
    stored = drawn.indptr, drawn.indices, drawn.data

    def judge(_: int, first: int, last: int) -> None:
        _judge_rows(rows, model, stored, extra, first, last, likelihoods, joints, modes)

    in_blocks(even_bounds(n, min(n, block_count(work))), judge, threads_or_default(threads, work))
    return likelihoods, joints, modes
