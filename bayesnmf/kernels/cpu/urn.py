"""The Pólya urn of single counts: loadings and components integrated out, one token drawn after another.

Given the assignments of all other tokens, a token of cell (i, j) belongs to component k with weight::

    r_ik (α_ik + A_ik) (η_kj + B_kj) / (η_k+ + B_k+)

where A and B are the totals of the others ([K] 7-9; mathematics.md section 4). Drawing every token anew from these
weights is a sweep of collapsed Gibbs. It is serial: every token depends on the one before.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from bayesnmf.kernels.cpu.compiling import kept
from bayesnmf.kernels.cpu.sampling import logarithmic_weights, place
from bayesnmf.kernels.cpu.streams import mix, uniform

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


@kept(nogil=True)
def _assign(
    indptr: Array, indices: Array, values: Array, U: Array, Vt: Array, seed: Any, z: Array, A: Array, Bt: Array
) -> None:
    state = np.empty(1, dtype=np.uint64)
    state[0] = mix(seed)
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
                logarithmic_weights(U[i], Vt[j], cumulative)
            for _ in range(int(values[p])):
                k = place(cumulative, uniform(state) * cumulative[-1])
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


@kept(inline="always")
def _cumulate(share: Array, eta: Array, b: Array, cumulative: Array) -> float:
    """Fill the cumulative sums of share (η + b) and return the last; by fours, as a sum is a chain of additions."""
    rank = len(share)
    fours = rank - rank % 4
    running = 0.0
    for c in range(0, fours, 4):
        w = share[c] * (eta[c] + b[c])
        cumulative[c] = running + w
        w += share[c + 1] * (eta[c + 1] + b[c + 1])
        cumulative[c + 1] = running + w
        third = share[c + 2] * (eta[c + 2] + b[c + 2])
        cumulative[c + 2] = running + (w + third)
        running += w + (third + share[c + 3] * (eta[c + 3] + b[c + 3]))
        cumulative[c + 3] = running
    for c in range(fours, rank):
        running += share[c] * (eta[c] + b[c])
        cumulative[c] = running
    return running


@kept(nogil=True)
def _reassign(
    indptr: Array, indices: Array, values: Array, shape: Array, weight: Array, concentration: Array, sums: Array,
    seed: Any, z: Array, A: Array, Bt: Array,
) -> None:  # fmt: skip
    rank = A.shape[1]
    state = np.empty(1, dtype=np.uint64)
    state[0] = mix(seed)
    totals = np.zeros(rank)
    for i in range(len(A)):
        totals += A[i]
    share = np.empty(rank)  # r (α + A) / (η + B): all of the weight that the feature does not enter
    cumulative = np.empty(rank)
    t = 0
    for i in range(len(A)):
        a = A[i]
        r = weight[i if len(weight) > 1 else 0]
        alpha = shape[i if len(shape) > 1 else 0]
        for k in range(rank):
            share[k] = r[k] * (alpha[k] + a[k]) / (sums[k] + totals[k])
        # The last token's component: a and totals get it once a token of another is taken out. With a token of the
        # same, as is common, they stay as they are, and nothing waits for the draw.
        held = -1
        for p in range(indptr[i], indptr[i + 1]):
            b = Bt[indices[p]]
            eta = concentration[indices[p] if len(concentration) > 1 else 0]
            for _ in range(int(values[p])):
                k = int(z[t])
                b[k] -= 1
                if k != held:
                    if held >= 0:
                        a[held] += 1
                        totals[held] += 1
                        share[held] = r[held] * (alpha[held] + a[held]) / (sums[held] + totals[held])
                    a[k] -= 1
                    totals[k] -= 1
                    share[k] = r[k] * (alpha[k] + a[k]) / (sums[k] + totals[k])
                running = _cumulate(share, eta, b, cumulative)
                held = place(cumulative, uniform(state) * running)
                b[held] += 1
                z[t] = held
                t += 1
        if held >= 0:
            a[held] += 1
            totals[held] += 1


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
