"""The log-likelihood of counts, in memory or on disk, under a noise with given means."""

from __future__ import annotations

from scipy.special import xlogy

from bayesnmf.data.counts import Counts
from bayesnmf.noise.abilities import Distributed
from bayesnmf.types import Array


def log_likelihood(noise: Distributed, counts: Counts, loadings: Array, components: Array, given_totals: bool) -> float:
    """Return log p(X | loadings @ components) of the observed entries, in nats (`Distributed.log_likelihood`).

    loadings (n, K), components (K, m).
    """
    return sum(
        noise.of_rows(rows).log_likelihood(part, loadings[rows], components, given_totals)
        for rows, part in counts.parts()
    )


def log_likelihood_of_shares(noise: Distributed, counts: Counts, shares: Array, components: Array) -> float:
    """Return the same for loadings that are proportions (n, K) given the totals of rows, times Poisson(totals; 1)."""
    if counts.mask is None:
        return log_likelihood(noise, counts, shares, components, given_totals=True)
    seen = 1.0 - counts.mask.products_by_row(shares, components.T)
    whole = log_likelihood(noise, counts.with_mask(None), shares, components, given_totals=True)
    return whole - float(xlogy(counts.row_totals, seen).sum())
