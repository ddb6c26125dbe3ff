"""Objectives in NumPy only, which a worker can compute in any interpreter, and which tests compare with ours."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

Array = NDArray[Any]

CHUNK = 200_000


def entry_means(counts: csr_array, loadings: Array, components: Array) -> Array:
    """Return entries of loadings @ components at the nonzeros of `counts`, (nnz,), in float64."""
    rows = np.repeat(np.arange(counts.shape[0]), np.diff(counts.indptr))
    columns = np.ascontiguousarray(components.T)
    out = np.empty(len(rows))
    for begin in range(0, len(rows), CHUNK):
        entries = slice(begin, begin + CHUNK)
        out[entries] = np.einsum("ck,ck->c", loadings[rows[entries]], columns[counts.indices[entries]])
    return out


def largest_share(counts: csr_array, loadings: Array) -> float:
    """Return Σ_i N_i θ_ik / Σ_i N_i for the component where it is largest; rows of θ = `loadings` are on the simplex.

    It does not depend on the order of the components.
    """
    row_totals = counts.sum(axis=1)
    return float((row_totals @ loadings).max() / row_totals.sum())


def sparse_loglik_per_count(counts: csr_array, loadings: Array, components: Array) -> float:
    """Return Σ X log(λ_ij / Σ_j λ_ij) / Σ X, in nats: the multinomial log-likelihood per count, less coefficients."""
    means = entry_means(counts, loadings, components)
    totals = loadings @ components.sum(axis=1)
    rows = np.repeat(np.arange(counts.shape[0]), np.diff(counts.indptr))
    return float(counts.data @ np.log(means / totals[rows]) / counts.data.sum())
