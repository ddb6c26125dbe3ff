"""Gradients for the best latent decomposition, in one pass over the nonzeros that never stores S.

S_ikj = X_ij φ_ikj with φ_ikj ∝ U_ik V_kj. Let G_ikj = ∂ log p(S) / ∂ S_ikj and Ḡ_ij = Σ_k φ_ikj G_ikj. Then::

    ∂ log p(S) / ∂ log U_ik = Σ_j S_ikj (G_ikj − Ḡ_ij)        ∂ / ∂ log V_kj = Σ_i S_ikj (G_ikj − Ḡ_ij)

([K] 10-16, mathematics.md section 4). G is a sum of digammas, which change sign. Each digamma is split into its
positive and its negative part, so that every gradient is a difference of two nonnegative matrices.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from scipy.sparse import csr_array

from bayesnmf.kernels.cpu.allocation import shard_count
from bayesnmf.kernels.cpu.compiling import FAST, compiled_on_disk
from bayesnmf.kernels.cpu.dense import ENTRY_COST, responsibilities
from bayesnmf.kernels.cpu.threads import in_blocks, piece_count, row_blocks, threads_or_default
from bayesnmf.types import Array

# From this argument on, eight terms of the asymptotic series leave an error below 1e-16.
ASYMPTOTIC = 10.0


class Gradients(NamedTuple):
    """Gradients in the logarithms of both factors, each as a pair of nonnegative parts (up − down), and Σ logΓ(S + 1).

    Attributes
    ----------
    loadings_up, loadings_down : ndarray of shape (n, K)
    components_up, components_down : ndarray of shape (K, m)
    log_factorials : float
        Σ_ikj logΓ(S_ikj + 1), in nats.
    """

    loadings_up: Array
    loadings_down: Array
    components_up: Array
    components_down: Array
    log_factorials: float


@compiled_on_disk(nogil=True, fastmath=FAST)
def log_gamma_and_digamma(x: float) -> tuple[float, float]:
    """Return logΓ(x) and ψ(x) for x > 0, from the asymptotic series at x ≥ 10, reached by recurrence."""
    product = 1.0
    reciprocals = 0.0
    while x < ASYMPTOTIC:
        product *= x
        reciprocals += 1.0 / x
        x += 1.0
    log_x = math.log(x)
    r = 1.0 / x
    s = r * r
    # Coefficients from Bernoulli numbers: B_2k / 2k for ψ, B_2k / (2k (2k − 1)) for logΓ.
    psi = s * (1 / 12 - s * (1 / 120 - s * (1 / 252 - s * (1 / 240 - s * (1 / 132 - s * (
        691 / 32760 - s * (1 / 12 - s * 3617 / 8160)))))))  # fmt: skip
    tail = r * (1 / 12 - s * (1 / 360 - s * (1 / 1260 - s * (1 / 1680 - s * (1 / 1188 - s * (
        691 / 360360 - s * (1 / 156 - s * 3617 / 122400)))))))  # fmt: skip
    log_gamma = (x - 0.5) * log_x - x + 0.9189385332046727 + tail - math.log(product)
    return log_gamma, log_x - 0.5 * r - psi - reciprocals


@compiled_on_disk(nogil=True, fastmath=FAST)
def _gradients(
    indptr: Array, indices: Array, values: Array, U: Array, Vt: Array, of_rows: Array, of_columns: Array,
    first: int, last: int, up: Array, down: Array, both: Array,
) -> float:  # fmt: skip
    """Fill rows of up and down (n, K), add to both arrays of `both` (2, m, K); return Σ logΓ(S + 1) of the rows."""
    rank = U.shape[1]
    share = np.empty(rank)
    rising = np.empty(rank)
    falling = np.empty(rank)
    log_factorials = 0.0
    for i in range(first, last):
        for p in range(indptr[i], indptr[i + 1]):
            j = indices[p]
            responsibilities(U[i], Vt[j], share)
            mean_rising = 0.0
            mean_falling = 0.0
            for k in range(rank):
                log_gamma, psi = log_gamma_and_digamma(values[p] * share[k] + 1.0)
                log_factorials += log_gamma
                rising[k] = of_rows[0, i, k] + of_columns[0, j, k] + max(-psi, 0.0)
                falling[k] = of_rows[1, i, k] + of_columns[1, j, k] + max(psi, 0.0)
                mean_rising += share[k] * rising[k]
                mean_falling += share[k] * falling[k]
            for k in range(rank):
                gain = values[p] * share[k] * (rising[k] + mean_falling)
                loss = values[p] * share[k] * (falling[k] + mean_rising)
                up[i, k] += gain
                down[i, k] += loss
                both[0, j, k] += gain
                both[1, j, k] += loss
    return log_factorials


def decomposition_gradients(
    matrix: csr_array,
    loadings: Array,
    components: Array,
    of_rows: Array,
    of_columns: Array,
    threads: int | None = None,
) -> Gradients:
    """Return the gradients of log p(S), split by sign, and Σ logΓ(S + 1), for S_ikj ∝ loadings_ik · components_kj.

    Parameters
    ----------
    matrix : csr_array of shape (n, m)
        Counts, in float64.
    loadings, components : ndarray of shape (n, K) and (K, m)
        Nonnegative multipliers.
    of_rows : ndarray of shape (2, n, K)
        Positive and negative parts of ψ(α + Σ_j S_ikj).
    of_columns : ndarray of shape (2, m, K)
        Positive and negative parts of ψ(η + Σ_i S_ikj) − ψ(Ση + Σ_ij S_ikj), with each digamma split on its own.
    threads : int, optional
        Number of row blocks to work on at once; by default one for each of Numba's threads. It does not change the
        result.
    """
    U, Vt = np.ascontiguousarray(loadings), np.ascontiguousarray(components.T)
    work = ENTRY_COST * matrix.nnz * U.shape[1]
    bounds = row_blocks(matrix.indptr, shard_count(matrix, ENTRY_COST * U.shape[1]))
    up, down = np.zeros_like(U), np.zeros_like(U)
    partial = np.zeros((len(bounds) - 1, 2, *Vt.shape))
    given = matrix.indptr, matrix.indices, matrix.data, U, Vt, of_rows, of_columns
    log_factorials = in_blocks(
        bounds,
        lambda block, first, last: _gradients(*given, first, last, up, down, partial[block]),
        threads_or_default(threads, work),
        row_blocks(matrix.indptr, piece_count(work)),
    )
    gain, loss = partial.sum(axis=0)
    return Gradients(up, down, gain.T, loss.T, float(np.sum(log_factorials)))
