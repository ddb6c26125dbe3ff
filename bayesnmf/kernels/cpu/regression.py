"""Poisson regression of every row on given components, by coordinate descent ([C] 29-31)."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.sparse import csr_array

from bayesnmf.kernels.cpu.allocation import row_blocks
from bayesnmf.kernels.cpu.compiling import FAST, compiled_for_kernels, compiled_on_disk
from bayesnmf.kernels.cpu.factors import is_padded, padded_copy, room_for_spreads, sum_rows, whole_vectors
from bayesnmf.kernels.cpu.regression_row import (
    derivatives,
    divide_entries,
    expected_counts,
    gather_entries,
    mix_entries,
)
from bayesnmf.kernels.cpu.rising import cluster_derivatives, cluster_entries
from bayesnmf.kernels.cpu.threads import block_count, in_blocks, threads_or_default
from bayesnmf.kernels.cpu.underflow import Spread, spread_of_entry
from bayesnmf.kernels.cpu.vectors import VECTOR_BYTES
from bayesnmf.types import Array

# Means are kept above this, the product of two parameters at their least value of 1e-15.
LEAST_RATE = 1e-30


@compiled_for_kernels(fastmath=FAST)
def _newton(first: float, second: float, linear: float, less: float, b: float, floor: float) -> float:
    """Return the coefficient of one coordinate after a full, feasible Newton step, given Σ x w and Σ x w²."""
    gradient = linear - first - less / b
    curvature = second + less / (b * b)
    if curvature > 0:
        return max(b - gradient / curvature, floor)
    return floor if gradient > 0 else b


@compiled_for_kernels(fastmath=FAST)
def _regress_row(
    counts: Array, spreads: Array | None, gathered: Array, mean: Array, expected: Array, b: Array,
    exposure: Array, less: Array, rate: Array, sweeps: int, newton_steps: int, floor: float, least: float,
) -> None:  # fmt: skip
    """Make one EM step ([C] 38), so that no coefficient is stuck at 0, then sweeps of coordinate descent."""
    entries, rank = len(counts), len(b)
    mix_entries(entries, rank, b, gathered, least, mean)
    if spreads is None:
        divide_entries(entries, counts, b.dtype.type(0), mean)
    else:
        cluster_entries(entries, counts, spreads, b.dtype.type(0), mean)
    expected_counts(entries, gathered, mean, expected)
    for k in range(rank):
        below = rate[k] + exposure[k]
        if below > 0:
            b[k] = (less[k] + b[k] * expected[k]) / below
        b[k] = max(b[k], floor)
    mix_entries(entries, rank, b, gathered, least, mean)
    before, change = 0, b.dtype.type(0)  # the step that the means do not yet include
    for _ in range(sweeps):
        for k in range(rank):
            for _ in range(newton_steps):
                old = b[k]
                if spreads is None:
                    first, second = derivatives(entries, before, change, k, counts, gathered, least, mean)
                else:
                    given = counts, spreads, gathered, least, mean
                    first, second = cluster_derivatives(entries, before, change, k, *given)
                b[k] = _newton(first, second, exposure[k] + rate[k], less[k], old, floor)
                before, change = k, b[k] - old
                if abs(change) < 0.5 * old:
                    break


@compiled_on_disk(nogil=True, fastmath=FAST)
def _regress(
    indptr: Array, indices: Array, values: Array, V: Array, exposure: Array, less: Array, rate: Array,
    sweeps: int, newton_steps: int, floor: float, spread: Any, start: int, stop: int, spreads: Any,
    out: Array,
) -> None:  # fmt: skip
    step = VECTOR_BYTES // V.itemsize
    longest = 0
    for i in range(start, stop):
        longest = max(longest, indptr[i + 1] - indptr[i])
    longest = (longest + step - 1) // step * step
    least = V.dtype.type(LEAST_RATE)
    space = np.empty(V.shape[1] * longest, dtype=V.dtype)
    mean, counts = np.empty(longest, dtype=V.dtype), np.empty(longest, dtype=V.dtype)
    expected = np.empty(V.shape[1], dtype=V.dtype)
    for i in range(start, stop):
        first, last = indptr[i], indptr[i + 1]
        entries = (last - first + step - 1) // step * step
        gathered = space[: V.shape[1] * entries].reshape((V.shape[1], entries))
        for p in range(0, entries, step):
            gather_entries(first + p, min(step, last - first - p), p, indices, values, V, counts, gathered)
        if spread is not None:
            for p in range(last - first):
                spreads[p] = spread_of_entry(spread[0][i], spread[1], indices[first + p])
        _regress_row(
            counts[:entries], spreads, gathered, mean, expected, out[i, : exposure.shape[1]],
            exposure[i % len(exposure)], less[i % len(less)], rate[i % len(rate)], sweeps, newton_steps, floor, least,
        )  # fmt: skip


def poisson_regression(
    matrix: csr_array, loadings: Array, components: Array, prior: tuple[Array, Array], sweeps: int = 4,
    newton_steps: int = 1, floor: float = 1e-15, threads: int | None = None, *, reuse: bool = False,
    spread: Spread | None = None, exposure: Array | None = None,
) -> Array:  # fmt: skip
    """Improve the loadings of every row, with components fixed: one EM step, then sweeps of coordinate descent.

    Each row is a separate convex problem, min_b Σ_j (λ_j − x_j log λ_j) − Σ_k ((c_k − 1) log b_k − d_k b_k) with
    λ = b · components. A coordinate moves to max(floor, b_k − g_k / q_k), where g and q are the first and second
    derivative, and the means are updated at once ([C] 29-31). A sweep is not monotone: the caller checks the objective.

    Parameters
    ----------
    matrix : csr_array of shape (n, m)
        Counts; to update the components instead, pass the transpose and exchange the two factors.
    loadings, components : ndarray of shape (n, K) and (K, m)
        Loadings to start from, and fixed components.
    prior : pair of ndarray, (n or 1, K)
        c − 1 ≥ 0 and d ≥ 0 of the Gamma(c, d) priors on the loadings; zeros for a flat prior.
    sweeps : int
        Number of sweeps over all K coordinates of a row.
    newton_steps : int
        Largest number of steps of one coordinate at a time; steps are repeated only while they change it by half or
        more.
    floor : float
        Smallest value of a loading.
    reuse : bool
        Whether the result may overwrite the loadings; it does if they are `padded`.
    spread : tuple, optional
        Spreads of rows and features, where counts cluster: L takes the place of x log λ.
    exposure : ndarray (n, K), optional
        Sums of the components over the observed features of each row, if some are missing.

    Returns
    -------
    ndarray of shape (n, K)
    """
    V = whole_vectors(components.T)
    out = loadings if reuse and is_padded(loadings) else padded_copy(loadings)
    whole, sums = whole_vectors(out), sum_rows(components.T)[None] if exposure is None else exposure
    less, rate, exposed = (np.ascontiguousarray(value, dtype=V.dtype) for value in (*prior, sums))
    work = matrix.nnz * out.shape[1] * (sweeps * newton_steps + 1)
    threads = threads_or_default(threads, work)
    bounds = row_blocks(matrix.indptr, block_count(work))
    given = matrix.indptr, matrix.indices, matrix.data, V, exposed, less, rate, sweeps, newton_steps, floor, spread
    room = room_for_spreads(matrix.indptr, spread is not None)
    in_blocks(bounds, lambda _, first, last: _regress(*given, first, last, room(), whole), threads)
    return out
