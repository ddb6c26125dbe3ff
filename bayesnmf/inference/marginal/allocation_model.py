"""The marginal probability of an allocation, with loadings, components and scales integrated out in closed form.

If the components' rows sum to 1, the probability of the allocations depends on loadings and components only through the
totals A_ik = S_ik+ and B_kj = S_+kj. Each side then integrates to the ratio of the normalising constants of its prior
and its conditional ([K] 7-9 for the Dirichlet-Gamma model; the other two models by the same argument).
"""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.special import gammaln

from bayesnmf.kernels.cpu.urn import Urn
from bayesnmf.priors import Dirichlet
from bayesnmf.types import Array


def log_p_totals(
    loadings_total: Array, components_total: Array, loadings_prior: Any, components_prior: Dirichlet
) -> float:
    """Return log p(S) + Σ log S!, the part of the marginal of an allocation that depends only on its totals.

    Parameters
    ----------
    loadings_total, components_total : ndarray of shape (n, K) and (K, m)
        Totals A and B, whole numbers or not, with the same sum for every component.
    loadings_prior : Gamma, Dirichlet or ScaledDirichlet
        Prior of the loadings; the flat Gamma(1, 0) has density 1.
    components_prior : Dirichlet
        Prior of the components.

    Returns
    -------
    float
        Logarithm, in nats, on the Poisson scale.
    """
    loadings_total = np.asarray(loadings_total, np.float64)
    components_total = np.asarray(components_total, np.float64)
    found = components_prior.log_marginal(components_total) + loadings_prior.log_marginal(loadings_total)
    # Loadings on the simplex have row sums 1, so the Poisson density of every sample contains the factor exp(−1).
    return found - (len(loadings_total) if loadings_prior.support == "simplex" else 0)


def log_p_allocation(S: Array, loadings_prior: Any, components_prior: Dirichlet) -> float:
    """Return log p(S) with loadings and components integrated out, on the Poisson scale, in nats ([K] 7-9).

    Parameters
    ----------
    S : ndarray of shape (n, K, m)
        Allocations, nonnegative, whole numbers or not.
    loadings_prior : Gamma, Dirichlet or ScaledDirichlet
        Prior of the loadings, with parameters broadcastable to (n, K).
    components_prior : Dirichlet
        Prior of the components, with parameters broadcastable to (K, m).
    """
    totals = log_p_totals(S.sum(axis=2), S.sum(axis=0), loadings_prior, components_prior)
    return totals - float(gammaln(S + 1.0).sum())


def urn_of(loadings_prior: Any, components_prior: Dirichlet, rank: int, m: int) -> Urn:
    """Return the Pólya urn of the model: ratios of the marginals of two allocations that differ in one token.

    For Dirichlet and scaled Dirichlet loadings, factors shared by all components of a row are left out
    (`log_p_beside_urn`). For Gamma loadings, a token has weight (shape + A) / (rate + 1).
    """
    eta = np.atleast_2d(np.asarray(components_prior.urn_terms()[0], np.float64))
    shape, weight = loadings_prior.urn_terms()
    sums = np.ascontiguousarray(np.broadcast_to(eta, (rank, m)).sum(axis=1))
    return Urn(_rows(shape, rank), _rows(weight, rank), _rows(eta.T, rank), sums)


def log_p_beside_urn(loadings_prior: Any, row_totals: Array, rank: int) -> float:
    """Return the log of the factor of the tokens' probability that the urn leaves out, a function of row totals."""
    found = loadings_prior.log_beside_urn(row_totals, rank)
    return found - (len(row_totals) if loadings_prior.support == "simplex" else 0)  # as in `log_p_totals`


def _rows(parameter: Any, rank: int) -> Array:
    """Return a parameter as an array (rows, K), with one row if all rows share it."""
    rows = np.atleast_2d(np.asarray(parameter, np.float64))
    return np.ascontiguousarray(np.broadcast_to(rows, (len(rows), rank)))
