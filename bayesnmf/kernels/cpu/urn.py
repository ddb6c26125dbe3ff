"""The Pólya urn of single counts (tokens), with loadings and components integrated out.

Given the assignments of all other tokens, a token of entry (i, j) belongs to component k with weight::

    r_ik (α_ik + A_ik) (η_kj + B_kj) / (η_k+ + B_k+)

where A and B are the totals of the other tokens ([K] 7-9; mathematics.md section 4). Drawing every token again from
these weights is one sweep of collapsed Gibbs. It is serial: every token depends on the one before. Compiled loops
process a fixed number of tokens at a time, in whichever entries they are, so that signals are handled in between.

Sequential Monte Carlo goes through the same urn: particles draw all tokens in order, each given the tokens before it,
with the totals of the tokens visited so far.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from scipy.sparse import csr_array

from bayesnmf.kernels.cpu.compiling import compiled_for_kernels, compiled_on_disk
from bayesnmf.kernels.cpu.draws import mix, uniform
from bayesnmf.kernels.cpu.sampling import chosen_component, logarithmic_weights
from bayesnmf.types import Array

# Work of about a tenth of a second: tokens × (weights + the fixed cost of a token).
PIECE, BESIDES = 2**26, 16


def tokens_at_once(weights: int) -> int:
    """Return how many tokens, with this number of weights each, a compiled loop processes at a time."""
    return max(PIECE // (weights + BESIDES), 1)


class Urn(NamedTuple):
    """Parameters of the urn, in float64; a first dimension of 1 applies to all rows (features).

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
    """Assignments and their totals, all whole numbers.

    Attributes
    ----------
    assignments : ndarray of shape (N,)
        Component of every token, entry by entry in CSR order, in the smallest unsigned type.
    loadings, components : ndarray of shape (n, K) and (m, K)
        A and Bᵀ, float64.
    """

    assignments: Array
    loadings: Array
    components: Array


@compiled_on_disk(nogil=True)
def _assign(
    indptr: Array, indices: Array, values: Array, U: Array, Vt: Array, seed: Any, z: Array, A: Array, Bt: Array,
    state: Array, at: Array, left: int,
) -> None:  # fmt: skip
    cumulative = np.empty(U.shape[1])
    row, entry, done, t = max(at[0], 0), at[1], at[2], at[3]
    if at[0] < 0:
        state[0] = mix(seed)
    for i in range(row, len(indptr) - 1):
        for p in range(entry, indptr[i + 1]):
            j = indices[p]
            mean = 0.0
            for k in range(U.shape[1]):
                mean += U[i, k] * Vt[j, k]
                cumulative[k] = mean
            if mean < 1e-290:
                logarithmic_weights(U[i], Vt[j], cumulative)
            count = int(values[p])
            last = min(count, done + left)
            for _ in range(done, last):
                k = chosen_component(cumulative, uniform(state) * cumulative[-1])
                z[t] = k
                A[i, k] += 1
                Bt[j, k] += 1
                t += 1
            left -= last - done
            if last < count:
                at[0], at[1], at[2], at[3] = i, p, last, t
                return
            done = 0
        entry = indptr[i + 1]
    at[0] = len(indptr) - 1


def assign_tokens(
    matrix: csr_array, loadings: Array, components: Array, seed: int, heed: Callable[[], None] | None = None
) -> Tokens:
    """Draw the component of every token in proportion to loadings_ik · components_kj.

    Parameters
    ----------
    matrix : csr_array of shape (n, m)
        Whole-number counts.
    loadings, components : ndarray of shape (n, K) and (K, m)
        Positive factors, float64.
    seed : int
        Seed of this draw, below 2**64.
    heed : callable, optional
        Function called between pieces of the work; an exception that it raises ends the draw.
    """
    U, Vt = np.ascontiguousarray(loadings), np.ascontiguousarray(components.T)
    z = np.empty(int(matrix.data.sum(dtype=np.float64)), np.min_scalar_type(U.shape[1] - 1))
    tokens = Tokens(z, np.zeros_like(U), np.zeros_like(Vt))
    state, at = np.empty(1, dtype=np.uint64), np.array([-1, 0, 0, 0, -1])
    while at[0] < len(U):
        _assign(
            matrix.indptr,
            matrix.indices,
            matrix.data,
            U,
            Vt,
            np.uint64(seed),
            *tokens,
            state,
            at,
            tokens_at_once(U.shape[1]),
        )
        if heed is not None and at[0] < len(U):
            heed()
    return tokens


@compiled_for_kernels(inline="always")
def _cumulate(share: Array, eta: Array, b: Array, cumulative: Array) -> float:
    """Fill the cumulative sums of share (η + b) and return the last; work by fours, as a sum is a serial chain."""
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


@compiled_on_disk(nogil=True)
def _reassign(
    indptr: Array, indices: Array, values: Array, shape: Array, weight: Array, concentration: Array, sums: Array,
    seed: Any, z: Array, A: Array, Bt: Array, state: Array, totals: Array, share: Array, at: Array, left: int,
) -> None:  # fmt: skip
    rank = A.shape[1]
    cumulative = np.empty(rank)
    row, entry, done, t, held = max(at[0], 0), at[1], at[2], at[3], at[4]
    if at[0] < 0:
        state[0] = mix(seed)
        for i in range(len(A)):
            totals += A[i]
    for i in range(row, len(A)):
        a = A[i]
        r = weight[i if len(weight) > 1 else 0]
        alpha = shape[i if len(shape) > 1 else 0]
        if entry == indptr[i] and done == 0:
            # r (α + A) / (η + B): the part of the weight that does not depend on the feature.
            for k in range(rank):
                share[k] = r[k] * (alpha[k] + a[k]) / (sums[k] + totals[k])
            # `held` is the last token's component. That token enters `a` and the totals once a token of another
            # component is removed. Neighbours often share a component; then nothing changes, and nothing waits for the
            # draw.
            held = -1
        for p in range(entry, indptr[i + 1]):
            b = Bt[indices[p]]
            eta = concentration[indices[p] if len(concentration) > 1 else 0]
            count = int(values[p])
            last = min(count, done + left)
            for _ in range(done, last):
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
                held = chosen_component(cumulative, uniform(state) * running)
                b[held] += 1
                z[t] = held
                t += 1
            left -= last - done
            if last < count:
                at[0], at[1], at[2], at[3], at[4] = i, p, last, t, held
                return
            done = 0
        entry = indptr[i + 1]
        if held >= 0:
            a[held] += 1
            totals[held] += 1
    at[0] = len(A)


def reassign_tokens(
    matrix: csr_array, tokens: Tokens, urn: Urn, seed: int, heed: Callable[[], None] | None = None
) -> None:
    """Draw every token again given all the others, in order: one sweep of collapsed Gibbs, in place.

    Parameters
    ----------
    matrix : csr_array of shape (n, m)
        Whole-number counts.
    tokens : Tokens
        Assignments of these counts, changed in place.
    urn : Urn
    seed : int
        Seed of this sweep, below 2**64.
    heed : callable, optional
        Function called between pieces of the work; an exception that it raises leaves an unfinished sweep.
    """
    n, rank = tokens.loadings.shape
    state, totals, share, at = np.empty(1, dtype=np.uint64), np.zeros(rank), np.empty(rank), np.array([-1, 0, 0, 0, -1])
    while at[0] < n:
        _reassign(
            matrix.indptr, matrix.indices, matrix.data, *urn, np.uint64(seed), *tokens, state, totals, share, at,
            tokens_at_once(rank),
        )  # fmt: skip
        if heed is not None and at[0] < n:
            heed()


@compiled_on_disk(nogil=True)
def systematic_offspring(weights: Array, u: float, offspring: Array) -> None:
    """Fill `offspring` with the number of copies of each particle, with expectation particles · weight / Σ weights.

    Systematic resampling with one uniform u in (0, 1), which places one mark in every interval of the mean weight.
    """
    particles = len(weights)
    scale = particles / weights.sum()
    passed = 0.0
    marks = 0
    for q in range(particles):
        passed += weights[q] * scale
        before = marks
        while marks < particles and (marks + u < passed or q == particles - 1):
            marks += 1
        offspring[q] = marks - before


@compiled_for_kernels()
def _resample(weights: Array, u: float, offspring: Array, A: Array, B: Array, sums: Array, cumulative: Array) -> None:
    """Copy particles that have several offspring over those that have none; set all weights to 1."""
    systematic_offspring(weights, u, offspring)
    source = 0
    for dead in range(len(weights)):
        if offspring[dead] > 0:
            continue
        while offspring[source] < 2:
            source += 1
        offspring[source] -= 1
        A[dead] = A[source]
        sums[dead] = sums[source]
        cumulative[dead] = cumulative[source]
        for j in range(len(B)):
            B[j, dead] = B[j, source]
    weights[:] = 1.0


@compiled_on_disk(nogil=True)
def _filter_row(
    features: Array, values: Array, alpha: Array, r: Array, concentration: Array, B: Array, sums: Array,
    weights: Array, seed: Any, A: Array, state: Array, at: Array, left: int,
) -> float:  # fmt: skip
    particles, rank = sums.shape
    cumulative = np.empty((particles, rank))
    offspring = np.empty(particles, dtype=np.int64)
    recorded = 0.0
    first, done = max(at[0], 0), at[1]
    if at[0] < 0:
        state[0] = mix(seed)
    for p in range(first, len(features)):
        j = features[p]
        eta = concentration[j if len(concentration) > 1 else 0]
        count = int(values[p])
        last = min(count, done + left)
        for _ in range(done, last):
            mean = 0.0
            for q in range(particles):
                running = 0.0
                for k in range(rank):
                    running += r[k] * (alpha[k] + A[q, k]) * (eta[k] + B[j, q, k]) / sums[q, k]
                    cumulative[q, k] = running
                weights[q] *= running
                mean += weights[q]
            mean /= particles
            recorded += math.log(mean)
            squares = 0.0
            for q in range(particles):
                weights[q] /= mean
                squares += weights[q] * weights[q]
            # The effective sample size is particles² / squares. Weights do not depend on the next draw, so resampling
            # comes before it, and copies of a particle differ at once.
            if squares > 2 * particles:
                _resample(weights, uniform(state), offspring, A, B, sums, cumulative)
            for q in range(particles):
                k = chosen_component(cumulative[q], uniform(state) * cumulative[q, rank - 1])
                A[q, k] += 1
                B[j, q, k] += 1
                sums[q, k] += 1
        left -= last - done
        if last < count:
            at[0], at[1] = p, last
            return recorded
        done = 0
    at[0] = len(features)
    return recorded


class Particles(NamedTuple):
    """State of the particles between two rows.

    Attributes
    ----------
    components : ndarray of shape (m, particles, K)
        Totals B of the tokens drawn so far.
    sums : ndarray of shape (particles, K)
        η_k+ + B_k+.
    weights : ndarray of shape (particles,)
        Weights of the particles, with mean 1 between tokens.
    """

    components: Array
    sums: Array
    weights: Array


def filter_row(
    matrix: csr_array, row: int, urn: Urn, particles: Particles, seed: int, heed: Callable[[], None] | None = None
) -> float:
    """Draw the tokens of one row for all particles, in place; return the log of the product of mean weights.

    Every token multiplies a particle's weight by the sum of its urn weights, and is then drawn. If the effective sample
    size falls below half the number of particles, they are resampled. The exponential of the sum of the results over
    all rows is an unbiased estimate of the sum, over all assignments, of the product of urn weights.

    Parameters
    ----------
    matrix : csr_array of shape (n, m)
        Whole-number counts.
    row : int
        Number of the row; rows are taken in order, each once.
    urn : Urn
    particles : Particles
        State of the particles, changed in place.
    seed : int
        Seed of this row, below 2**64.
    heed : callable, optional
        Function called between pieces of the work; an exception that it raises leaves an unfinished row.
    """
    entries = slice(matrix.indptr[row], matrix.indptr[row + 1])
    features = matrix.indices[entries]
    alpha, r = (parameter[row if len(parameter) > 1 else 0] for parameter in (urn.shape, urn.weight))
    A, state, at = np.zeros_like(particles.sums), np.empty(1, dtype=np.uint64), np.array([-1, 0])
    log_p = 0.0
    while at[0] < len(features):
        log_p += _filter_row(
            features, matrix.data[entries], alpha, r, urn.concentration, *particles, np.uint64(seed), A, state, at,
            tokens_at_once(particles.sums.size),
        )  # fmt: skip
        if heed is not None and at[0] < len(features):
            heed()
    return log_p
