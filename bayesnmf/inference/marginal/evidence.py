"""The evidence log p(X), loadings and components integrated out: by enumeration, and by sequential Monte Carlo.

With p(S) the marginal of an allocation, p(X) = Σ_S p(S) over all S that add up to X ([K] 7-9). Or one token after
another: p(X) = Σ_z p(z) / Π X!, a sum over the components z of all single counts, each of which has a probability
given those before it (mathematics.md section 4).
"""

from __future__ import annotations

import math
from itertools import combinations, product
from threading import Event
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammaln, logsumexp

from bayesnmf.data.counts import Counts
from bayesnmf.inference.marginal.allocation_model import log_p_beside_urn, log_p_totals, urn_of
from bayesnmf.kernels.cpu.particles import Particles, filter_row
from bayesnmf.priors import Dirichlet, Distribution

Array = NDArray[Any]
MOST_DIGITS = 30  # of a number of allocations that is counted


def digits_of_allocations(counts: Counts, rank: int) -> float:
    """Return a lower bound of the decimal logarithm of the number of allocations, which may have millions of digits."""
    others = max(rank - 1, 1)  # C(x + r, r) ≥ (1 + x/r)^r with r = K − 1
    return others * float(np.log10(1 + counts.matrix.data / others).sum()) if rank > 1 else 0.0


def count_allocations(counts: Counts, rank: int) -> float:
    """Return how many S of whole numbers there are with Σ_k S_ikj = X_ij; a lower bound if there are above 1e30."""
    digits = digits_of_allocations(counts, rank)
    if digits > MOST_DIGITS:
        return 10.0 ** min(digits, 300)
    return math.prod(math.comb(int(x) + rank - 1, rank - 1) for x in counts.matrix.data)


def enumerated_log_evidence(
    counts: Counts, rank: int, loadings_prior: Distribution, components_prior: Dirichlet
) -> float:
    """Exact log p(X), the sum of p(S) over all allocations: for tiny X."""
    n, m = counts.shape
    rows, columns = counts.matrix.nonzero()
    splits = [_splits(int(x), rank) for x in counts.matrix.data]
    log_terms = []
    for choice in product(*splits):
        split = np.reshape(choice, (-1, rank))  # of every nonzero; of none where there are no counts
        loadings_total, components_total = np.zeros((n, rank)), np.zeros((m, rank))
        np.add.at(loadings_total, rows, split)
        np.add.at(components_total, columns, split)
        log_p = log_p_totals(loadings_total, components_total.T, loadings_prior, components_prior)
        log_terms.append(log_p - gammaln(split + 1.0).sum())
    return float(logsumexp(log_terms))


def _splits(count: int, rank: int) -> Array:
    """All ways to write a count as an ordered sum of `rank` whole numbers, (ways, rank): stars and bars."""
    bars = np.array(list(combinations(range(count + rank - 1), rank - 1)), dtype=np.float64)
    return np.diff(bars, axis=1, prepend=-1, append=count + rank - 1) - 1


def estimated_log_evidence(
    counts: Counts, rank: int, priors: tuple[Distribution, Dirichlet], particles: int, seed: np.random.SeedSequence,
    stop: Event,
) -> float | None:  # fmt: skip
    """Log of an unbiased estimate of p(X), by one pass of sequential Monte Carlo; None where it was stopped.

    Parameters
    ----------
    priors : tuple
        Of loadings and components.
    particles : int
        Their number. The variance of p̂(X)/p(X) falls as one over it.
    stop : Event
        Looked at before every row, and within long ones.
    """
    n, m = counts.shape
    urn = urn_of(*priors, rank, m)
    state = Particles(np.zeros((m, particles, rank)), np.tile(urn.sums, (particles, 1)), np.ones(particles))
    log_p = log_p_beside_urn(priors[0], counts.row_totals, rank) - counts.log_factorial

    def heed() -> None:
        if stop.is_set():
            raise KeyboardInterrupt

    try:
        for row, row_seed in enumerate(seed.generate_state(n, np.uint64)):
            heed()
            log_p += filter_row(counts.matrix, row, urn, state, row_seed, heed)
    except KeyboardInterrupt:
        return None
    return log_p
