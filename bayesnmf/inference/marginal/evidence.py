"""Compute the evidence log p(X), by enumeration or by sequential Monte Carlo.

Enumeration sums the marginal of an allocation, p(X) = Σ_S p(S), over all S that add up to X ([K] 7-9). Sequential Monte
Carlo uses p(X) = Σ_z p(z) / Π X!, a sum over the components z of all single counts (tokens); each token has a
probability given the tokens before it (mathematics.md section 4).
"""

from __future__ import annotations

import math
from itertools import combinations, product
from threading import Event

import numpy as np
from scipy.special import gammaln, logsumexp

from bayesnmf.data.counts import Counts
from bayesnmf.inference.marginal.allocation_model import log_p_beside_urn, log_p_totals, urn_of
from bayesnmf.kernels.cpu.particles import Particles, filter_row
from bayesnmf.priors import Dirichlet, Distribution
from bayesnmf.types import Array

MOST_DIGITS = 30  # numbers of allocations with more digits are not computed exactly


def digits_of_allocations(counts: Counts, rank: int) -> float:
    """Return a lower bound of log10 of the number of allocations, which may have millions of digits."""
    others = max(rank - 1, 1)  # C(x + r, r) ≥ (1 + x/r)^r with r = K − 1
    return others * float(np.log10(1 + counts.matrix.data / others).sum()) if rank > 1 else 0.0


def count_allocations(counts: Counts, rank: int) -> float:
    """Return the number of integer S with Σ_k S_ikj = X_ij, or a lower bound if there are more than 1e30."""
    digits = digits_of_allocations(counts, rank)
    if digits > MOST_DIGITS:
        return 10.0 ** min(digits, 300)
    return math.prod(math.comb(int(x) + rank - 1, rank - 1) for x in counts.matrix.data)


def enumerated_log_evidence(
    counts: Counts, rank: int, loadings_prior: Distribution, components_prior: Dirichlet
) -> float:
    """Return the exact log p(X), from the sum of p(S) over all allocations; feasible only for tiny X."""
    n, m = counts.shape
    rows, columns = counts.matrix.nonzero()
    splits = [_ways_to_split(int(x), rank) for x in counts.matrix.data]
    log_terms = []
    for choice in product(*splits):
        split = np.reshape(choice, (-1, rank))  # one row for every nonzero, and no row if there are no counts
        loadings_total, components_total = np.zeros((n, rank)), np.zeros((m, rank))
        np.add.at(loadings_total, rows, split)
        np.add.at(components_total, columns, split)
        log_p = log_p_totals(loadings_total, components_total.T, loadings_prior, components_prior)
        log_terms.append(log_p - gammaln(split + 1.0).sum())
    return float(logsumexp(log_terms))


def _ways_to_split(count: int, rank: int) -> Array:
    """Return all ways to write a count as an ordered sum of `rank` whole numbers, (ways, rank), by stars and bars."""
    bars = np.array(list(combinations(range(count + rank - 1), rank - 1)), dtype=np.float64)
    return np.diff(bars, axis=1, prepend=-1, append=count + rank - 1) - 1


def estimated_log_evidence(
    counts: Counts, rank: int, priors: tuple[Distribution, Dirichlet], particles: int, seed: np.random.SeedSequence,
    stop: Event,
) -> float | None:  # fmt: skip
    """Return the log of an unbiased estimate of p(X), by one pass of sequential Monte Carlo; None if stopped.

    Parameters
    ----------
    priors : tuple
        Priors of loadings and components.
    particles : int
        Number of particles. The variance of p̂(X)/p(X) is inversely proportional to it.
    seed : SeedSequence
        Seed of all rows.
    stop : Event
        Event that stops the pass; it is checked before every row, and within long rows.
    """
    n, m = counts.shape
    urn = urn_of(*priors, rank, m)
    state = Particles(np.zeros((m, particles, rank)), np.tile(urn.sums, (particles, 1)), np.ones(particles))
    log_p = log_p_beside_urn(priors[0], counts.row_totals, rank) - counts.log_factorial

    def check_stop() -> None:
        if stop.is_set():
            raise KeyboardInterrupt

    try:
        for row, row_seed in enumerate(seed.generate_state(n, np.uint64)):
            check_stop()
            log_p += filter_row(counts.matrix, row, urn, state, row_seed, check_stop)
    except KeyboardInterrupt:
        return None
    return log_p
