"""The Poisson log-likelihood, and the means of single entries, in O(nnz K)."""

from __future__ import annotations

import numpy as np
from scipy.sparse import csr_array

from bayesnmf.kernels.cpu.compiling import FAST, compiled_on_disk
from bayesnmf.kernels.cpu.special import logarithms
from bayesnmf.kernels.cpu.threads import over_rows
from bayesnmf.kernels.cpu.vectors import VECTOR_BYTES
from bayesnmf.types import Array

LEAST = 1e-300  # of means: their logarithms are finite


@compiled_on_disk(nogil=True, fastmath=FAST)
def _entry_rates(indptr: Array, indices: Array, U: Array, Vt: Array, first: int, last: int, out: Array) -> None:
    for i in range(first, last):
        u = U[i]
        for p in range(indptr[i], indptr[i + 1]):
            v = Vt[indices[p]]
            mean = U.dtype.type(0)
            for k in range(U.shape[1]):
                mean += u[k] * v[k]
            out[p] = mean


def entry_rates(pattern: csr_array, loadings: Array, components: Array, threads: int | None = None) -> Array:
    """Return the entries of loadings @ components at the nonzeros of `pattern`, in its order, (nnz,)."""
    U, Vt = np.ascontiguousarray(loadings), np.ascontiguousarray(components.T)
    out = np.empty(len(pattern.indices), dtype=U.dtype)
    given, work = (pattern.indptr, pattern.indices, U, Vt), len(out) * U.shape[1]
    over_rows(pattern.indptr, work, lambda first, last: _entry_rates(*given, first, last, out), threads)
    return out


@compiled_on_disk(nogil=True, fastmath=FAST)
def _log_likelihoods(
    indptr: Array, indices: Array, counts: Array, U: Array, Vt: Array, first: int, last: int, out: Array
) -> None:
    rows, step = U.shape[1], VECTOR_BYTES // 8
    longest = 0
    for i in range(rows):
        longest = max(longest, indptr[i + 1] - indptr[i])
    buffer = np.empty((longest + step - 1) // step * step)
    for s in range(first, last):
        total = 0.0
        for i in range(rows):
            u, start, entries = U[s, i], indptr[i], indptr[i + 1] - indptr[i]
            for p in range(entries):
                v, mean = Vt[s, indices[start + p]], 0.0
                for k in range(len(u)):
                    mean += u[k] * v[k]
                buffer[p] = max(mean, LEAST)
            whole = (entries + step - 1) // step * step
            for p in range(entries, whole):
                buffer[p] = 1.0
            logarithms(whole, buffer)
            for p in range(entries):
                total += counts[start + p] * buffer[p]
        out[s] = total


def log_likelihoods(matrix: csr_array, loadings: Array, components: Array, threads: int | None = None) -> Array:
    """Return Σ X log(loadings @ components.T) over the nonzeros of X, in nats, for each of S states, (S,).

    Parameters
    ----------
    loadings, components : ndarray (S, n, K) and (S, m, K)
        Factors in float64; means below 1e-300 count as that.
    """
    U, Vt = np.ascontiguousarray(loadings), np.ascontiguousarray(components)
    out = np.empty(len(U))
    work = matrix.nnz * U.shape[2] * len(U)
    given = matrix.indptr, matrix.indices, matrix.data, U, Vt
    over_rows(len(U), work, lambda first, last: _log_likelihoods(*given, first, last, out), threads)
    return out


def poisson_loglik(
    matrix: csr_array, loadings: Array, components: Array, log_factorial: float, threads: int | None = None
) -> float:
    """Return log Poisson(X | loadings @ components), in nats; `log_factorial` is Σ log X!.

    A positive count at a rate of zero makes it minus infinity.
    """
    rates = entry_rates(matrix, loadings, components, threads).astype(np.float64)
    if np.any(rates <= 0):
        return -np.inf
    exposure = loadings.sum(axis=0, dtype=np.float64) @ components.sum(axis=1, dtype=np.float64)
    return float((matrix.data * np.log(rates)).sum() - exposure - log_factorial)
