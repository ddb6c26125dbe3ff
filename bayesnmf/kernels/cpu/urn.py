"""The Pólya urn of single counts: loadings and components integrated out, one token drawn after another.

Given the assignments of all other tokens, a token of cell (i, j) belongs to component k with weight::

    r_ik (α_ik + A_ik) (η_kj + B_kj) / (η_k+ + B_k+)

where A and B are the totals of the others ([K] 7-9; mathematics.md section 4). Drawing every token anew from these
weights is a sweep of collapsed Gibbs. It is serial: every token depends on the one before.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray
from scipy.sparse import csr_array

from bayesnmf.kernels.cpu.sampling import _logarithmic_weights, _mix, _uniform

Array = NDArray[Any]


class Urn(NamedTuple):
    """Parameters of the urn, float64; a first dimension of 1 stands for all rows (features).

    Attributes
    ----------
    shape, weight : ndarray of shape (n or 1, K)
        α and r.
    concentration : ndarray of shape (m or 1, K)
        ηᵀ.
    sums : ndarray of shape (K,)
        η_k+.
    """

    shape: Array
    weight: Array
    concentration: Array
    sums: Array


class Tokens(NamedTuple):
    """Assignments and their totals, whole numbers.

    Attributes
    ----------
    assignments : ndarray of shape (N,)
        Component of every single count, cell after cell in CSR order, the smallest unsigned type.
    loadings, components : ndarray of shape (n, K) and (m, K)
        A and Bᵀ, float64.
    """

    assignments: Array
    loadings: Array
    components: Array


@njit(cache=True, inline="always")
def _place(cumulative: Array, u: float) -> int:
    """Return the component whose share of the cumulative weights u falls into."""
    k = 0
    for below in range(len(cumulative) - 1):  # all of them: without a branch to mispredict it is faster
        k += 1 if u >= cumulative[below] else 0
    return k


@njit(cache=True, nogil=True)
def _assign(
    indptr: Array, indices: Array, values: Array, U: Array, Vt: Array, seed: Any, z: Array, A: Array, Bt: Array
) -> None:
    state = np.empty(1, dtype=np.uint64)
    state[0] = _mix(seed)
    cumulative = np.empty(U.shape[1])
    t = 0
    for i in range(len(indptr) - 1):
        for p in range(indptr[i], indptr[i + 1]):
            j = indices[p]
            mean = 0.0
            for k in range(U.shape[1]):
                mean += U[i, k] * Vt[j, k]
                cumulative[k] = mean
            if mean < 1e-290:
                _logarithmic_weights(U[i], Vt[j], cumulative)
            for _ in range(int(values[p])):
                k = _place(cumulative, _uniform(state) * cumulative[-1])
                z[t] = k
                A[i, k] += 1
                Bt[j, k] += 1
                t += 1


def assign_tokens(matrix: csr_array, loadings: Array, components: Array, seed: int) -> Tokens:
    """Draw the component of every single count in proportion to loadings_ik · components_kj.

    Parameters
    ----------
    matrix : csr_array of shape (n, m)
        Whole-number counts.
    loadings, components : ndarray of shape (n, K) and (K, m)
        Positive factors, float64.
    seed : int
        Of this draw, below 2**64.
    """
    U, Vt = np.ascontiguousarray(loadings), np.ascontiguousarray(components.T)
    z = np.empty(int(matrix.data.sum(dtype=np.float64)), np.min_scalar_type(U.shape[1] - 1))
    tokens = Tokens(z, np.zeros_like(U), np.zeros_like(Vt))
    _assign(matrix.indptr, matrix.indices, matrix.data, U, Vt, np.uint64(seed), *tokens)
    return tokens


@njit(cache=True, nogil=True)
def _reassign(
    indptr: Array, indices: Array, values: Array, shape: Array, weight: Array, concentration: Array, sums: Array,
    seed: Any, z: Array, A: Array, Bt: Array,
) -> None:  # fmt: skip
    rank = A.shape[1]
    state = np.empty(1, dtype=np.uint64)
    state[0] = _mix(seed)
    totals = np.zeros(rank)
    for i in range(len(A)):
        totals += A[i]
    inverse = 1.0 / (sums + totals)
    share = np.empty(rank)  # r (α + A) / (η + B): all of the weight that the feature does not enter
    cumulative = np.empty(rank)
    t = 0
    for i in range(len(A)):
        a = A[i]
        r = weight[i if len(weight) > 1 else 0]
        alpha = shape[i if len(shape) > 1 else 0]
        for k in range(rank):
            share[k] = r[k] * (alpha[k] + a[k]) * inverse[k]
        for p in range(indptr[i], indptr[i + 1]):
            b = Bt[indices[p]]
            eta = concentration[indices[p] if len(concentration) > 1 else 0]
            for _ in range(int(values[p])):
                k = z[t]
                a[k] -= 1
                b[k] -= 1
                totals[k] -= 1
                inverse[k] = 1.0 / (sums[k] + totals[k])
                share[k] = r[k] * (alpha[k] + a[k]) * inverse[k]
                running = 0.0
                for c in range(rank):
                    running += share[c] * (eta[c] + b[c])
                    cumulative[c] = running
                k = _place(cumulative, _uniform(state) * running)
                a[k] += 1
                b[k] += 1
                totals[k] += 1
                inverse[k] = 1.0 / (sums[k] + totals[k])
                share[k] = r[k] * (alpha[k] + a[k]) * inverse[k]
                z[t] = k
                t += 1


def reassign_tokens(matrix: csr_array, tokens: Tokens, urn: Urn, seed: int) -> None:
    """Draw every token anew given all the others, in order: one sweep of collapsed Gibbs, in place.

    Parameters
    ----------
    matrix : csr_array of shape (n, m)
        Whole-number counts.
    tokens : Tokens
        Of these counts; changed.
    urn : Urn
    seed : int
        Of this sweep, below 2**64.
    """
    _reassign(matrix.indptr, matrix.indices, matrix.data, *urn, np.uint64(seed), *tokens)
