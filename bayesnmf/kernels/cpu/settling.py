"""Settle the loadings of each row, with components fixed: the local problem of variational inference.

Rows are independent given the components. The components of a row are gathered once into the first-level cache; then
allocation and update of its loadings alternate until they stop changing ([GP] alg. 3). Passes over all rows would
gather the components again each time.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.sparse import csr_array

from bayesnmf.kernels.cpu.allocation import Spread, least_mean, share_out_entry, spread_of_entry, spreads_of_row
from bayesnmf.kernels.cpu.compiling import FAST, compiled_on_disk
from bayesnmf.kernels.cpu.factors import padded, room_for_row, rows_in_memory, whole_vectors
from bayesnmf.kernels.cpu.regression import divide_entries, expected_counts, gather_entries, mix_entries
from bayesnmf.kernels.cpu.rising import cluster_entries
from bayesnmf.kernels.cpu.special import scaled_exp_digamma
from bayesnmf.kernels.cpu.threads import block_count, in_blocks, row_blocks, threads_or_default
from bayesnmf.kernels.cpu.vectors import VECTOR_BYTES
from bayesnmf.types import Array

UPDATES = 10  # assumed updates of a row, for estimating the work
PIECE = 2**19  # nonzeros × components in a block: 2,000 updates of all its rows take about a second
LEAST_EXP = 1e-200


@compiled_on_disk(nogil=True, fastmath=FAST, error_model="numpy")
def _settle(
    indptr: Array, indices: Array, values: Array, V: Array, begin: Array, means: Array, prior: Array, scale: Array,
    expects: bool, simplex: bool, tol: float, most: int, least: float, spread: Any, start: int, stop: int,
    gathered: Array, vectors: Array, spreads: Any, doubles: Array, aside: Any, totals: Array, updates: Array,
) -> int:  # fmt: skip
    """Settle rows `start` to `stop` (excluded), and fill the numbers of updates, negative if rows did not settle.

    Where the mean of a count underflows, the row is left, with 0 updates, unless there is room for its entries
    (`aside`, two vectors): only such rows are settled then. Return the number of rows left.
    """
    step, rank, left = VECTOR_BYTES // V.itemsize, begin.shape[1], 0
    ratio, counts, u, expected = vectors[0], vectors[1], vectors[2], vectors[3]
    s, mean, value = doubles[0], doubles[1], doubles[2]
    a, b = min(len(prior) - 1, 1), min(len(scale) - 1, 1)
    for i in range(start, stop):
        if aside is not None and updates[i] != 0:
            continue
        first, number = indptr[i], indptr[i + 1] - indptr[i]
        entries = (number + step - 1) & -step  # whole vectors
        for p in range(0, entries, step):
            gather_entries(first + p, min(step, number - p), p, entries, indices, values, V, counts, gathered)
        if spread is not None:
            for p in range(number):
                spreads[p] = spread_of_entry(spread[0][i], spreads_of_row(spread[1], i), indices[first + p])
        for k in range(rank):
            u[k], mean[k] = begin[i, k], means[i, k]
        own, scales, total = prior[i * a], scale[i * b], totals[i]
        updates[i] = -most
        for update in range(most):
            mix_entries(entries, rank, u, gathered, least, ratio)
            if spreads is None:
                lost = divide_entries(entries, counts, least, ratio)
            else:
                lost = cluster_entries(entries, counts, spreads, least, ratio)
            if lost and aside is None:
                left, updates[i] = left + 1, 0
                break
            expected_counts(entries, V.shape[1], gathered, ratio, expected)
            for k in range(rank):
                total[k] = u[k] * expected[k]
            if aside is not None:
                for p in range(entries):
                    if ratio[p] == 0 and counts[p] > 0:  # lost: shared out by logarithms; may be one cluster
                        for k in range(rank):  # one by one: a copy of a column takes longer to compile
                            expected[k] = gathered[k * entries + p]
                        count = counts[p] if spreads is None else 1.0
                        share_out_entry(count, u, expected, aside[0], total, aside[1])
            for k in range(rank):
                s[k] = own[k] + total[k]
            # u becomes exp E log of Gamma(s, 1 / scale), or s · scale; a scale of 0 keeps it.
            shift, top = 0.0, 0.0
            for _ in range(2):
                highest = 0.0
                if expects:
                    scaled_exp_digamma(len(s), s, scales, shift, value)
                for k in range(rank):
                    if not expects:
                        value[k] = s[k] * scales[k] if scales[k] > 0 else u[k]
                    if value[k] > top:
                        top = value[k]
                    if s[k] > highest:
                        highest = s[k]
                if spreads is not None or not expects or top >= LEAST_EXP:
                    break
                shift = 1 / highest  # every s is so small that exp ψ has lost its digits
            top = 1.0 if spreads is not None else top
            if top > 0:
                top = 1 / top  # divided by the largest, unless their unit matters
                for k in range(rank):
                    u[k] = value[k] * top
            whole, largest, change = 0.0, 0.0, 0.0
            for k in range(rank):
                whole += s[k]
            whole = 1 / whole if simplex and whole > 0 else 1.0
            for k in range(rank):
                new = s[k] * scales[k] * whole if scales[k] > 0 else mean[k]
                if abs(new - mean[k]) > change:
                    change = abs(new - mean[k])
                if new > largest:
                    largest = new
                mean[k] = new
            if not change > tol * largest:
                updates[i] = update + 1
                break
    return left


def _scales(rate: Array) -> Array:
    """Return 1 / rate, or 0 where the rate is 0, padded to whole vectors."""
    scale = padded(rate.shape, "float64")
    scale[:] = 0
    np.divide(1, rate, out=scale, where=rate > 0)
    return rows_in_memory(scale)


def settled_totals(
    matrix: csr_array, start: Array, means: Array, components: Array, prior: Array, rate: Array | None, tol: float,
    most: int, *, expects: bool, threads: int | None = None, spread: Spread | None = None,
) -> tuple[Array, Array]:  # fmt: skip
    """Alternate allocation and update of the loadings of every row until they stop changing; components are fixed.

    Parameters
    ----------
    matrix : csr_array of shape (n, m)
        Counts, of the dtype of the factors.
    start, means : ndarray of shape (n, K)
        Geometric means of the loadings to start from, and the means to compare the first update with.
    components : ndarray of shape (K, m)
        Geometric means of the components.
    prior : ndarray, (n or 1, K)
        Number added to the totals: the shape or concentration, minus 1 for modes.
    rate : ndarray, (n or 1, K), or None
        Rate of the Gamma conditional; None for rows on the simplex.
    tol : float
        Tolerance: a row has settled when no mean changes by more than `tol` times the largest.
    most : int
        Largest number of updates of a row.
    expects : bool
        Whether to allocate by exp E log of the conditional; otherwise by its mode, (prior + total) / rate.
    threads : int, optional
        Number of row blocks to work on at once; results do not depend on it.
    spread : tuple, optional
        Spreads of rows and features, where counts cluster; rows are then allocated by loadings as they are, as the
        spread has their unit.

    Returns
    -------
    totals : ndarray of shape (n, K)
        Totals of the last allocation.
    updates : ndarray of shape (n,)
        Number of updates after which a row settled; `-most` if it did not.
    """
    V = whole_vectors(components.T)
    totals, updates = np.empty(start.shape, V.dtype), np.empty(len(start), np.int64)
    simplex, rank = rate is None, start.shape[1]
    scale = _scales(np.ones((1, rank)) if rate is None else rate)
    work = matrix.nnz * rank
    threads = threads_or_default(threads, UPDATES * work)
    bounds = row_blocks(matrix.indptr, max(block_count(UPDATES * work), -(-work // PIECE)))
    given = (
        matrix.indptr, matrix.indices, matrix.data, V, np.ascontiguousarray(start), np.ascontiguousarray(means),
        np.ascontiguousarray(prior, dtype=np.float64), scale, expects, simplex, tol, most,
        V.dtype.type(least_mean.py_func(V.dtype)), spread,
    )  # fmt: skip
    room, shape = room_for_row(matrix.indptr, V, spread is not None), (3, scale.shape[1])

    def settle(_: int, first: int, last: int, aside: Array | None = None) -> int:
        left: int = _settle(*given, first, last, *room(), np.ones(shape), aside, totals, updates)
        return left

    if sum(in_blocks(bounds, settle, threads)):
        in_blocks(bounds, lambda block, first, last: settle(block, first, last, np.empty((2, rank))), threads)
    return totals, updates
