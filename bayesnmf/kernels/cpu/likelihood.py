"""The Poisson log-likelihood, and the means of single cells, in O(nnz K)."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from bayesnmf.kernels.cpu.allocation import row_blocks
from bayesnmf.kernels.cpu.compiling import FAST, compiled_on_disk
from bayesnmf.kernels.cpu.threads import block_count, in_blocks, threads_or_default

Array = NDArray[Any]


@compiled_on_disk(nogil=True, fastmath=FAST)
def _cell_rates(indptr: Array, indices: Array, U: Array, Vt: Array, first: int, last: int, out: Array) -> None:
    for i in range(first, last):
        u = U[i]
        for p in range(indptr[i], indptr[i + 1]):
            v = Vt[indices[p]]
            mean = U.dtype.type(0)
            for k in range(U.shape[1]):
                mean += u[k] * v[k]
            out[p] = mean


def cell_rates(pattern: csr_array, loadings: Array, components: Array, threads: int | None = None) -> Array:
    """Return the entries of loadings @ components at the nonzeros of `pattern`, in its order, (nnz,)."""
    U, Vt = np.ascontiguousarray(loadings), np.ascontiguousarray(components.T)
    out = np.empty(len(pattern.indices), dtype=U.dtype)
    threads = threads_or_default(threads, len(out) * U.shape[1])
    bounds, given = row_blocks(pattern.indptr, block_count(threads)), (pattern.indptr, pattern.indices, U, Vt)
    in_blocks(bounds, lambda _, first, last: _cell_rates(*given, first, last, out), threads)
    return out


def poisson_loglik(
    matrix: csr_array, loadings: Array, components: Array, log_factorial: float, threads: int | None = None
) -> float:
    """Return log Poisson(X | loadings @ components), in nats; `log_factorial` is Σ log X!.

    A positive count at a rate of zero makes it minus infinity.
    """
    rates = cell_rates(matrix, loadings, components, threads).astype(np.float64)
    if np.any(rates <= 0):
        return -np.inf
    exposure = loadings.sum(axis=0, dtype=np.float64) @ components.sum(axis=1, dtype=np.float64)
    return float(matrix.data.astype(np.float64) @ np.log(rates) - exposure - log_factorial)
