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
from bayesnmf.kernels.cpu.compiling import FAST, compiled_for_kernels, compiled_on_disk
from bayesnmf.kernels.cpu.factors import padded, room_for_spreads, rows_in_memory, whole_vectors
from bayesnmf.kernels.cpu.regression import divide_entries, expected_counts, gather_entries, mix_entries
from bayesnmf.kernels.cpu.rising import cluster_entries
from bayesnmf.kernels.cpu.special import scaled_exp_digamma
from bayesnmf.kernels.cpu.threads import block_count, in_blocks, row_blocks, threads_or_default
from bayesnmf.kernels.cpu.vectors import VECTOR_BYTES
from bayesnmf.types import Array

UPDATES = 10  # assumed updates of a row, for estimating the work
PIECE = 2**19  # nonzeros × components in a block: 2,000 updates of all its rows take about a second
DOUBLES = VECTOR_BYTES // 8
LEAST_EXP = 1e-200
FINITE = FAST | {"nnan"}


@compiled_for_kernels()
def _add_lost_entries(
    counts: Array, gathered: Array, ratio: Array, u: Array, clusters: bool, total: Array, column: Array, aside: Array
) -> None:
    """Add the entries whose mean underflowed (their ratio is 0), by logarithms; counts may be one cluster.

    The last two vectors are overwritten.
    """
    for p in range(len(counts)):
        if ratio[p] == 0 and counts[p] > 0:
            for k in range(len(total)):  # one by one: a copy of a column takes longer to compile
                column[k] = gathered[k, p]
            share_out_entry(1.0 if clusters else counts[p], u, column, total, aside)


@compiled_for_kernels(fastmath=FINITE)
def _largest(x: Array, rank: int) -> float:
    top = 0.0
    for k in range(rank):
        top = max(top, x[k])
    return top


@compiled_for_kernels(fastmath=FINITE)
def _update_row(s: Array, scale: Array, expects: bool, whole: bool, value: Array, u: Array, rank: int) -> None:
    """Set u to exp E log of Gamma(s, 1 / scale), or to s · scale; a scale of 0 keeps u.

    Unless their unit matters (`whole`), they are divided by the largest.
    """
    if expects:
        scaled_exp_digamma(len(s), s, scale, 0.0, value)
        if not whole and _largest(value, rank) < LEAST_EXP:  # every s is so small that exp ψ has lost its digits
            scaled_exp_digamma(len(s), s, scale, 1 / _largest(s, rank), value)
    else:
        for k in range(rank):
            value[k] = s[k] * scale[k] if scale[k] > 0 else u[k]
    top = 1.0 if whole else _largest(value, rank)
    if top > 0:
        top = 1 / top
        for k in range(rank):
            u[k] = value[k] * top


@compiled_for_kernels(fastmath=FINITE)
def _set_mean(s: Array, scale: Array, simplex: bool, tol: float, mean: Array) -> bool:
    """Set `mean` to the mean at s; return whether an entry changed by more than `tol` times the largest."""
    whole, largest, change = 0.0, 0.0, 0.0
    for k in range(len(mean)):
        whole += s[k]
    whole = 1 / whole if simplex and whole > 0 else 1.0
    for k in range(len(mean)):
        new = s[k] * scale[k] * whole if scale[k] > 0 else mean[k]
        change, largest = max(change, abs(new - mean[k])), max(largest, new)
        mean[k] = new
    return change > tol * largest


@compiled_for_kernels()
def _settle_row(
    counts: Array, spreads: Array | None, gathered: Array, ratio: Array, prior: Array, scale: Array,
    expects: bool, simplex: bool, tol: float, most: int, least: float, u: Array, expected: Array, s: Array,
    mean: Array, value: Array, total: Array,
) -> int:  # fmt: skip
    """Fill the total of a row; return the number of updates until it settled, or `-most` if it did not."""
    entries, rank = len(counts), len(total)
    for update in range(most):
        mix_entries(entries, rank, u, gathered, least, ratio)
        if spreads is None:
            lost = divide_entries(entries, counts, least, ratio)
        else:
            lost = cluster_entries(entries, counts, spreads, least, ratio)
        expected_counts(entries, gathered, ratio, expected)
        for k in range(rank):
            total[k] = u[k] * expected[k]
        if lost:
            _add_lost_entries(counts, gathered, ratio, u, spreads is not None, total, expected, value)
        for k in range(rank):
            s[k] = prior[k] + total[k]
        _update_row(s, scale, expects, spreads is not None, value, u, rank)
        if not _set_mean(s, scale, simplex, tol, mean):
            return update + 1
    return -most


@compiled_on_disk(nogil=True, fastmath=FAST)
def _settle(
    indptr: Array, indices: Array, values: Array, V: Array, begin: Array, means: Array, prior: Array, scale: Array,
    expects: bool, simplex: bool, tol: float, most: int, spread: Any, start: int, stop: int, spreads: Any,
    totals: Array, updates: Array,
) -> None:  # fmt: skip
    step, rank, width = VECTOR_BYTES // V.itemsize, begin.shape[1], V.shape[1]
    least = V.dtype.type(least_mean(V.dtype))
    longest = 0
    for i in range(start, stop):
        longest = max(longest, indptr[i + 1] - indptr[i])
    longest = (longest + step - 1) // step * step
    space = np.empty(width * longest, dtype=V.dtype)
    ratio, counts = np.empty(longest, dtype=V.dtype), np.empty(longest, dtype=V.dtype)
    u, expected = np.zeros(width, dtype=V.dtype), np.empty(width, dtype=V.dtype)
    doubles = (rank + DOUBLES - 1) // DOUBLES * DOUBLES
    s, mean, value = np.ones(doubles), np.empty(rank), np.zeros(doubles)
    for i in range(start, stop):
        first, last = indptr[i], indptr[i + 1]
        entries = (last - first + step - 1) // step * step
        gathered = space[: width * entries].reshape((width, entries))
        for p in range(0, entries, step):
            gather_entries(first + p, min(step, last - first - p), p, indices, values, V, counts, gathered)
        if spread is not None:
            for p in range(last - first):
                spreads[p] = spread_of_entry(spread[0][i], spreads_of_row(spread[1], i), indices[first + p])
        for k in range(rank):
            u[k], mean[k] = begin[i, k], means[i, k]
        updates[i] = _settle_row(
            counts[:entries], spreads, gathered, ratio, prior[i % len(prior)], scale[i % len(scale)], expects,
            simplex, tol, most, least, u, expected, s, mean, value, totals[i],
        )  # fmt: skip


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
    simplex = rate is None
    scale = _scales(np.ones((1, start.shape[1])) if rate is None else rate)
    work = matrix.nnz * start.shape[1]
    threads = threads_or_default(threads, UPDATES * work)
    bounds = row_blocks(matrix.indptr, max(block_count(UPDATES * work), -(-work // PIECE)))
    given = (
        matrix.indptr, matrix.indices, matrix.data, V, np.ascontiguousarray(start), np.ascontiguousarray(means),
        np.ascontiguousarray(prior, dtype=np.float64), scale, expects, simplex, tol, most,
        spread,
    )  # fmt: skip
    room = room_for_spreads(matrix.indptr, spread is not None)
    in_blocks(bounds, lambda _, first, last: _settle(*given, first, last, room(), totals, updates), threads)
    return totals, updates
