"""Sequential Monte Carlo through the Pólya urn: particles draw all tokens in order, each given the tokens before it.

A token's urn weights are those of `bayesnmf.kernels.cpu.urn`, with the totals of the tokens visited so far.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from scipy.sparse import csr_array

from bayesnmf.kernels.cpu.compiling import compiled_for_kernels, compiled_on_disk
from bayesnmf.kernels.cpu.sampling import chosen_component
from bayesnmf.kernels.cpu.streams import mix, uniform
from bayesnmf.kernels.cpu.urn import Urn, tokens_at_once
from bayesnmf.types import Array


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
