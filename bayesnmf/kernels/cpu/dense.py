"""The allocation step for counts that are nearly all positive: three BLAS matrix products, in blocks of rows.

With hardly any zeros to skip, it is fastest to form R = X / (UV) whole, for one block of rows at a time.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from bayesnmf.kernels.cpu.allocation import Sides, Totals
from bayesnmf.kernels.cpu.clusters import weigh_block
from bayesnmf.kernels.cpu.underflow import Spread, least_mean

Array = NDArray[Any]

DENSITY = 0.75  # share of positive counts from which this is faster: measured on mcf7 (0.91) and digits (0.51)
CELLS = 2**17  # cells in a block, which stay in the second-level cache


def is_dense(matrix: csr_array) -> bool:
    """Return whether products of whole blocks are faster than work on the nonzeros only."""
    return bool(matrix.nnz > DENSITY * matrix.shape[0] * matrix.shape[1])


def dense_allocations(
    counts: Array, loadings: Array, components: Array, sides: Sides = "both", spread: Spread | None = None
) -> Totals | None:
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
    """
    n, m = counts.shape
    rank = loadings.shape[1]
    least = least_mean.py_func(loadings.dtype)
    A = np.empty((n if sides != "components" else 0, rank), loadings.dtype)
    B = np.zeros((rank, m if sides != "loadings" else 0), loadings.dtype)
    loglik = np.nan if sides == "components" else 0.0
    step = max(CELLS // max(m, 1), 8)
    for first in range(0, n, step):
        block = slice(first, first + step)
        x, u = counts[block], loadings[block]
        mean = u @ components
        if mean.size and mean.min() < least:
            low = mean < least
            if x[low].any():
                return None
            mean[low] = 1  # no count is divided by it
        if spread is not None:
            loglik += weigh_block(x, mean, spread, first)
            ratio = mean
        else:
            if sides != "components":
                loglik += float(np.sum(x * np.log(mean), dtype=np.float64))
            ratio = np.divide(x, mean, out=mean)
        if sides != "components":
            A[block] = u * (ratio @ components.T)
        if sides != "loadings":
            B += u.T @ ratio
    return Totals(A, components * B if B.size else B, loglik)
