"""The formulas of the papers in NumPy and SciPy, independent of the kernels.

All sums run over the nonzeros of the counts; products of entries and components are formed in blocks.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from scipy.sparse import csr_array
from scipy.special import gammaln, xlogy

from bayesnmf.data.counts import Counts
from bayesnmf.types import Array

BLOCK = 4_000_000  # numbers in memory at once


def blocks(matrix: csr_array, rank: int) -> Iterator[tuple[slice, Array, Array, Array]]:
    """Yield the nonzeros in blocks: their positions in the matrix's data, rows, columns and values."""
    length = max(BLOCK // rank, 1)
    ends = matrix.indptr[1:]
    for first in range(0, matrix.nnz, length):
        span = slice(first, min(first + length, matrix.nnz))
        rows = np.searchsorted(ends, np.arange(span.start, span.stop), side="right")
        yield span, rows, matrix.indices[span], matrix.data[span]


def entry_terms(loadings: Array, components: Array, rows: Array, columns: Array) -> Array:
    """Return θ_ik β_kj at some entries, (entries, K)."""
    return loadings[rows] * components.T[columns]


def rates(matrix: csr_array, loadings: Array, components: Array) -> Array:
    """Return the entries of θβ at the nonzeros, (nnz,)."""
    out = np.empty(matrix.nnz)
    for span, rows, columns, _ in blocks(matrix, loadings.shape[1]):
        out[span] = entry_terms(loadings, components, rows, columns).sum(axis=1)
    return out


def quotients(top: Array, bottom: Array, otherwise: Array) -> Array:
    """Return quotients, or `otherwise` where the divisor is 0."""
    out = np.broadcast_to(otherwise, np.broadcast_shapes(top.shape, bottom.shape)).astype(np.float64)
    return np.divide(top, bottom, out=out, where=bottom > 0)


def ratios(matrix: csr_array, loadings: Array, components: Array) -> csr_array:
    """Return R = X / (θβ) on the nonzeros, as a sparse matrix."""
    values = matrix.data / rates(matrix, loadings, components)
    return csr_array((values, matrix.indices, matrix.indptr), shape=matrix.shape)


# --- updates ---------------------------------------------------------------------------------------


def lee_seung(matrix: csr_array, loadings: Array, components: Array) -> tuple[Array, Array]:
    """Set θ ← θ ∘ (R βᵀ) / Σ_j β_kj, then β ← β ∘ (θᵀR) / Σ_i θ_ik with a new R ([GP] alg. 1, [P] 3-4, [C] 27-28)."""
    R = ratios(matrix, loadings, components)
    sums = components.sum(axis=1)[None, :]
    loadings = quotients(loadings * (R @ components.T), sums, loadings)
    R = ratios(matrix, loadings, components)
    sums = loadings.sum(axis=0)[:, None]
    return loadings, quotients(components * (R.T @ loadings).T, sums, components)


def joint_step(matrix: csr_array, loadings: Array, components: Array) -> tuple[Array, Array]:
    """Return θ = A and β_k ∝ B_k from one allocation step ([GP] alg. 4), with components on the simplex."""
    R = ratios(matrix, loadings, components)
    received = components * (R.T @ loadings).T
    return loadings * (R @ components.T), quotients(received, received.sum(axis=1, keepdims=True), components)


def topic_step(matrix: csr_array, proportions: Array, components: Array) -> tuple[Array, Array]:
    """Return L_i ∝ A_i and F_k ∝ B_k, one EM step of the multinomial topic model ([C] 45-49, [GP] alg. 6)."""
    A, components = joint_step(matrix, proportions, components)
    return quotients(A, A.sum(axis=1, keepdims=True), proportions), components


# --- likelihoods -----------------------------------------------------------------------------------


def poisson_logpmf(counts: Array, means: Array) -> Array:
    """Return X log λ − λ − log X!, for counts that may be fractional."""
    return xlogy(counts, means) - means - gammaln(counts + 1)


def multinomial_loglik(counts: Counts, chances: Array) -> float:
    """Return Σ_i log Multinomial(X_i | N_i, p_i), given the probabilities p (nnz,) at the nonzeros."""
    x = counts.matrix.data
    orders = gammaln(counts.row_totals + 1).sum() - gammaln(x + 1).sum()
    return float(orders + xlogy(x, chances).sum())


def token_loglik(matrix: csr_array, loadings: Array, components: Array) -> float:
    """Return Σ log Σ_k θ_ik β_kj over single counts, each as a separate term ([GP] D.3)."""
    found = 0.0
    with np.errstate(divide="ignore"):
        log_loadings, log_components = np.log(loadings), np.log(components)
    for _, rows, columns, values in blocks(matrix, loadings.shape[1]):
        logs = np.logaddexp.reduce(log_loadings[rows] + log_components.T[columns], axis=1)
        ends = np.cumsum(values.astype(np.int64))
        starts = ends - values.astype(np.int64)
        for first in range(0, int(ends[-1]), BLOCK):
            last = min(first + BLOCK, int(ends[-1]))
            span = slice(np.searchsorted(ends, first, side="right"), np.searchsorted(ends, last) + 1)
            tokens = np.minimum(ends[span], last) - np.maximum(starts[span], first)
            found += float(np.repeat(logs[span], tokens).sum())
    return found


def drawn_allocation(
    matrix: csr_array, loadings: Array, components: Array, rng: np.random.Generator
) -> tuple[float, float]:
    """Return log p(S | θβ) and log p(S | X, θβ) of an allocation S drawn from the latter ([GP] D.1, [P] 16-17)."""
    log_p = -float(loadings.sum(axis=0) @ components.sum(axis=1))
    log_p_given = 0.0
    for _, rows, columns, values in blocks(matrix, loadings.shape[1]):
        rate = entry_terms(loadings, components, rows, columns)
        share = rate / rate.sum(axis=1, keepdims=True)
        S = rng.multinomial(values.astype(np.int64), share)
        log_p += float((xlogy(S, rate) - gammaln(S + 1)).sum())
        log_p_given += float(gammaln(values + 1).sum() + (xlogy(S, share) - gammaln(S + 1)).sum())
    return log_p, log_p_given


def log_negative_binomial(totals: Array, shape: float, rate: float) -> Array:
    """Return log NB(N; shape, rate), the marginal of a Poisson whose mean is Gamma(shape, rate)."""
    odds = shape * (np.log(rate) - np.log1p(rate)) - totals * np.log1p(rate)
    return gammaln(totals + shape) - gammaln(shape) - gammaln(totals + 1) + odds


def log_p_decomposition(
    counts: Counts, mu: Array, nu: Array, alpha: float, eta: float, shape: float, rate: float
) -> float:
    """Return log p(S) of the Dirichlet-Gamma model at S_ikj = X_ij μ_ik ν_kj / Σ_c μ_ic ν_cj ([K] 7-9).

    μ (n, K) and ν (K, m); `alpha` and `eta` are the concentrations of loadings and components, `shape` a and `rate` b
    those of the scale.
    """
    (n, m), rank = counts.shape, mu.shape[1]
    A, B, log_factorials = np.zeros((n, rank)), np.zeros((m, rank)), 0.0
    for _, rows, columns, values in blocks(counts.matrix, rank):
        share = entry_terms(mu, nu, rows, columns)
        S = values[:, None] * share / share.sum(axis=1, keepdims=True)
        np.add.at(A, rows, S)
        np.add.at(B, columns, S)
        log_factorials += float(gammaln(S + 1).sum())
    a, b = shape, rate
    totals = counts.row_totals
    found = gammaln(eta + B).sum() + gammaln(alpha + A).sum() - gammaln(m * eta + B.sum(axis=0)).sum() - log_factorials
    found += rank * (gammaln(m * eta) - m * gammaln(eta))
    found += n * (gammaln(rank * alpha) - rank * gammaln(alpha) + a * np.log(b) - gammaln(a))
    found += (gammaln(a + totals) - gammaln(rank * alpha + totals)).sum() - (a * n + totals.sum()) * np.log(b + 1)
    return float(found)
