"""Allocations in dense arrays: the step for counts that are nearly all positive, and the allocations of every entry.

With hardly any zeros to skip, it is fastest to form R = X / (UV) whole, for one block of rows at a time, by three BLAS
matrix products. Where each count's own allocations are asked for, these are an array (nnz, K).
"""

from __future__ import annotations

import numpy as np
from scipy.sparse import csr_array

from bayesnmf.kernels.cpu.allocation import MOST_SHARDS, Sides, Spread, Totals, least_mean
from bayesnmf.kernels.cpu.clusters import weigh_block
from bayesnmf.kernels.cpu.compiling import compiled_on_disk
from bayesnmf.kernels.cpu.threads import (
    SERIAL_WORK,
    even_bounds,
    in_blocks,
    one_blas_thread,
    threads_or_default,
)
from bayesnmf.types import Array

DENSITY = 0.75  # share of positive counts from which this is faster: measured on mcf7 (0.91) and digits (0.51)
ENTRIES = 2**17  # entries in a block, which stay in the second-level cache
PRODUCTS = 4  # cost of a component of an entry, in multiply-adds
ENTRY_COST = 10  # the same of `responsibilities`: about a pair of transcendental functions


def is_dense(matrix: csr_array) -> bool:
    """Return whether products of whole blocks are faster than work on the nonzeros only."""
    return bool(matrix.nnz > DENSITY * matrix.shape[0] * matrix.shape[1])


def dense_allocations(
    counts: Array, loadings: Array, components: Array, sides: Sides = "both", spread: Spread | None = None,
    threads: int | None = None,
) -> Totals | None:  # fmt: skip
    """Allocate counts as `expected_allocations` does; return None if a mean is too small for products.

    Parameters
    ----------
    counts : ndarray of shape (n, m)
        Counts, of the dtype of the factors.
    loadings, components : ndarray of shape (n, K) and (K, m)
        Positive geometric means of the loadings and components.
    sides : {"both", "loadings", "components"}
        Sides to return totals for; the other totals are empty. With "components" alone, ℓ is NaN.
    spread : tuple, optional
        Spreads of rows and features, where counts cluster.
    threads : int, optional
        Number of shards of rows to work on at once; it does not change the result.
    """
    (n, m), rank = counts.shape, loadings.shape[1]
    A = np.empty((n if sides != "components" else 0, rank), loadings.dtype)
    step = max(ENTRIES // max(m, 1), 8)
    work = PRODUCTS * counts.size * rank
    shards = 1 if work < SERIAL_WORK else min(MOST_SHARDS, -(-n // step))

    def share_out(_: int, start: int, stop: int) -> tuple[Array, float] | None:
        B, loglik = np.zeros((rank, m if sides != "loadings" else 0), loadings.dtype), 0.0
        for first in range(start, stop, step):
            rows = slice(first, min(first + step, stop))
            weighed = _weighed(counts[rows], loadings[rows] @ components, sides, spread, first)
            if weighed is None:
                return None
            ratio, part = weighed
            loglik += part
            if sides != "components":
                A[rows] = loadings[rows] * (ratio @ components.T)
            if sides != "loadings":
                B += loadings[rows].T @ ratio
        return B, loglik

    with one_blas_thread():
        if shards == 1:
            parts = [share_out(0, 0, n)]
        else:
            parts = in_blocks(even_bounds(n, shards), share_out, threads_or_default(threads, work))
    if any(part is None for part in parts):
        return None
    (B, loglik), *others = parts  # type: ignore[misc]
    for other, more in others:  # type: ignore[misc]
        B += other
        loglik += more
    loglik = np.nan if sides == "components" else loglik
    return Totals(A, components * B if B.size else B, loglik)


def _weighed(x: Array, mean: Array, sides: Sides, spread: Spread | None, first: int) -> tuple[Array, float] | None:
    """Replace means by what counts are shared out by; return it with ℓ, or None if a mean is too small."""
    least = least_mean.py_func(mean.dtype)
    if mean.size and mean.min() < least:
        low = mean < least
        if x[low].any():
            return None
        mean[low] = 1  # no count is divided by it
    if spread is not None:
        return mean, weigh_block(x, mean, spread, first)
    loglik = 0.0 if sides == "components" else float(np.sum(x * np.log(mean), dtype=np.float64))
    return np.divide(x, mean, out=mean), loglik


@compiled_on_disk(nogil=True)
def responsibilities(u: Array, v: Array, out: Array) -> None:
    """Fill `out` with φ_k ∝ u_k v_k, which sum to 1; treat products that underflow as the allocation step does."""
    mean = 0.0
    for k in range(len(u)):
        out[k] = u[k] * v[k]
        mean += out[k]
    if mean < least_mean(u.dtype):
        smallest = np.finfo(u.dtype).tiny
        top = -np.inf
        for k in range(len(u)):
            out[k] = np.log(u[k]) + np.log(v[k])
            top = max(top, out[k])
        if top == -np.inf:
            for k in range(len(u)):
                out[k] = np.log(max(u[k], smallest)) + np.log(max(v[k], smallest))
                top = max(top, out[k])
        mean = 0.0
        for k in range(len(u)):
            out[k] = np.exp(out[k] - top)
            mean += out[k]
    for k in range(len(u)):
        out[k] /= mean


def entry_allocations(matrix: csr_array, loadings: Array, components: Array) -> Array:
    """Return the expected allocations of the nonzero counts, (nnz, K) in the order of the matrix, in float64.

    The parameters are those of `expected_allocations`, which returns the sums of these numbers.
    """
    U = np.ascontiguousarray(loadings, np.float64)
    Vt = np.ascontiguousarray(components.T, np.float64)
    rows = np.repeat(np.arange(matrix.shape[0]), np.diff(matrix.indptr))
    out = np.empty((len(rows), U.shape[1]))
    step = max(ENTRIES // U.shape[1], 1)
    for first in range(0, len(rows), step):
        here = slice(first, first + step)
        u, v, part = U[rows[here]], Vt[matrix.indices[here]], out[here]
        with np.errstate(under="ignore"):
            np.multiply(u, v, out=part)
        mean = part.sum(axis=1)
        lost = mean < least_mean.py_func(mean.dtype)
        part /= np.where(lost, 1, mean)[:, None]
        for p in np.flatnonzero(lost):
            responsibilities(u[p], v[p], part[p])
        part *= matrix.data[here, None]
    return out
