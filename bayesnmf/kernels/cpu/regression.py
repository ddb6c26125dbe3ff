"""Poisson regression of every row on given components, by coordinate descent ([C] 29-31)."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit, prange
from numpy.typing import NDArray
from scipy.sparse import csr_array

from bayesnmf.kernels.cpu.allocation import FAST, row_blocks, serial_and_parallel, threads_or_default

Array = NDArray[Any]

# Rates are kept above this: parameters are never below 1e-15, so that two of them multiply to no less.
LEAST_RATE = 1e-30


@njit(cache=True, nogil=True, fastmath=FAST)
def _refine(counts: Array, gathered: Array, b: Array, exposure: Array, less: Array, rate: Array, mean: Array) -> None:
    """Take one EM step ([C] 38) and set the means to those of the new coefficients."""
    rank, cells = gathered.shape
    for p in range(cells):
        mean[p] = 0
    for k in range(rank):
        for p in range(cells):
            mean[p] += b[k] * gathered[k, p]
    for p in range(cells):
        mean[p] = counts[p] / max(mean[p], LEAST_RATE)
    for k in range(rank):
        total = b.dtype.type(0)
        for p in range(cells):
            total += gathered[k, p] * mean[p]
        below = rate[k] + exposure[k]
        if below > 0:
            b[k] = (less[k] + b[k] * total) / below


@njit(cache=True, nogil=True, fastmath=FAST)
def _newton(counts: Array, a: Array, mean: Array, linear: float, less: float, b: float, floor: float) -> float:
    """Return the coefficient of one coordinate after a full, feasible Newton step."""
    first = mean.dtype.type(0)
    second = mean.dtype.type(0)
    for p in range(len(counts)):
        weight = a[p] / mean[p]
        ratio = counts[p] * weight
        first += ratio
        second += ratio * weight
    gradient = linear - first - less / b
    curvature = second + less / (b * b)
    if curvature > 0:
        return max(b - gradient / curvature, floor)
    return floor if gradient > 0 else b


def _regress(
    indptr: Array, indices: Array, values: Array, Vt: Array, exposure: Array, less: Array, rate: Array,
    sweeps: int, newton_steps: int, floor: float, bounds: Array, out: Array,
) -> None:  # fmt: skip
    rank = Vt.shape[1]
    longest = 0
    for i in range(len(indptr) - 1):
        longest = max(longest, indptr[i + 1] - indptr[i])
    for block in prange(bounds.shape[0] - 1):
        space = np.empty((rank, longest), dtype=Vt.dtype)
        mean = np.empty(longest, dtype=Vt.dtype)
        for i in range(bounds[block], bounds[block + 1]):
            first, last = indptr[i], indptr[i + 1]
            cells = last - first
            b, below, extra = out[i], less[i % len(less)], rate[i % len(rate)]
            counts, gathered, means = values[first:last], space[:, :cells], mean[:cells]
            for p in range(cells):
                for k in range(rank):
                    gathered[k, p] = Vt[indices[first + p], k]
            _refine(counts, gathered, b, exposure, below, extra, means)
            for k in range(rank):
                b[k] = max(b[k], floor)
            for p in range(cells):
                total = Vt.dtype.type(0)
                for k in range(rank):
                    total += b[k] * gathered[k, p]
                means[p] = max(total, LEAST_RATE)
            for _ in range(sweeps):
                for k in range(rank):
                    for _ in range(newton_steps):
                        old = b[k]
                        b[k] = _newton(counts, gathered[k], means, exposure[k] + extra[k], below[k], old, floor)
                        change = b[k] - old
                        for p in range(cells):
                            means[p] = max(means[p] + change * gathered[k, p], LEAST_RATE)
                        if abs(change) < 0.5 * old:
                            break


_REGRESS = serial_and_parallel(_regress)


def poisson_regression(
    matrix: csr_array, loadings: Array, components: Array, prior: tuple[Array, Array], sweeps: int = 4,
    newton_steps: int = 1, floor: float = 1e-15, threads: int | None = None,
) -> Array:  # fmt: skip
    """Improve the loadings of every row, components given: one EM step, then sweeps of coordinate descent.

    Each row is a convex problem of its own, min_b Σ_j (λ_j − x_j log λ_j) − Σ_k ((c_k − 1) log b_k − d_k b_k) with
    λ = b · components. A coordinate moves to max(floor, b_k − g_k / q_k), g and q the first and second derivative, and
    the rates follow at once ([C] 29-31). A sweep is not monotone: the caller checks.

    Parameters
    ----------
    matrix : csr_array of shape (n, m)
        Counts; for the components pass the transpose, with the two factors exchanged.
    loadings, components : ndarray of shape (n, K) and (K, m)
        The start, and what is given.
    prior : pair of ndarray, (n or 1, K)
        c − 1 ≥ 0 and d ≥ 0 of Gamma(c, d) priors on the loadings; zeros for none.
    sweeps : int
        Over all K coordinates of a row.
    newton_steps : int
        Most for one coordinate at a time: another one only while they change it by half or more.
    floor : float
        Least value of a loading.

    Returns
    -------
    ndarray of shape (n, K)
    """
    Vt = np.ascontiguousarray(components.T)
    out = np.array(loadings, order="C")
    exposure = components.sum(axis=1, dtype=np.float64).astype(Vt.dtype)
    less, rate = (np.ascontiguousarray(value, dtype=Vt.dtype) for value in prior)
    work = matrix.nnz * Vt.shape[1] * (sweeps * newton_steps + 1)
    bounds = row_blocks(matrix.indptr, threads_or_default(threads, work))
    _REGRESS[len(bounds) > 2](
        matrix.indptr, matrix.indices, matrix.data, Vt, exposure, less, rate, sweeps, newton_steps, floor, bounds, out
    )
    return out
