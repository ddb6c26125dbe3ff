"""The best Dirichlet under exposures that differ along the simplex, as those of observed entries do.

Given a total A, exposures E and the prior Dirichlet(η), a row x on the simplex has a density ∝ x^(η + A − 1) exp(−Ex),
which is a Dirichlet only if all exposures are equal. With α = η + A and ν₀ = Σν, the elbo of q = Dirichlet(ν) is

    G(ν) = Σ (α_j − ν_j) E log x_j + Σ logΓ(ν_j) − logΓ(ν₀) − Ē        Ē = Σ E_j ν_j / ν₀

With F the Fisher information of q, its gradient is F (α − ν) − h, h_j = (E_j − Ē) / ν₀: the natural gradient, from ν
to α − F⁻¹h, is α − ν where exposures are equal. A step along it is cut until G does not fall.
"""

from __future__ import annotations

import numpy as np
from scipy.special import digamma, gammaln, polygamma

from bayesnmf.types import Array

LEAST_LEFT = 0.1  # of a concentration after a step
CUTS = 40  # of a step, to half of it
ROUNDING = 1e-13  # of the largest term of G


def natural_target(nu: Array, alpha: Array, exposure: Array) -> Array:
    """Return α − F⁻¹h of rows, (rows, entries), which need not be positive; α where a row has one entry."""
    if nu.shape[1] == 1:
        return alpha + 0 * nu
    total = nu.sum(axis=1, keepdims=True)
    tilt = (exposure - (exposure * nu).sum(axis=1, keepdims=True) / total) / total
    return np.asarray(alpha - solved(nu, tilt))


def solved(nu: Array, change: Array) -> Array:
    """Return F⁻¹ times a change of E log x of rows with at least two entries."""
    own, of_total = 1 / polygamma(1, nu), polygamma(1, nu.sum(axis=1, keepdims=True))
    shared = of_total / (1 - of_total * own.sum(axis=1, keepdims=True))
    return np.asarray(own * (change + shared * (own * change).sum(axis=1, keepdims=True)))


def stepped(nu: Array, alpha: Array, exposure: Array) -> Array:
    """Return concentrations of rows after a step along the natural gradient that does not lower their G."""
    if nu.shape[1] == 1:
        return np.array(alpha + 0 * nu)
    alpha, exposure = np.broadcast_to(alpha, nu.shape), np.broadcast_to(exposure, nu.shape)
    target = natural_target(nu, alpha, exposure)
    way = target - nu
    falls = np.where(way < 0, way, -1.0)
    longest = np.where(way < 0, (LEAST_LEFT - 1) * nu / falls, 1.0).min(axis=1, keepdims=True)
    part = np.minimum(longest, 1.0)
    found = np.where(part == 1, target, nu + part * way)
    before, size = _bound(nu, alpha, exposure)
    low = np.arange(len(nu))
    for _ in range(CUTS):
        after, _ = _bound(found[low], alpha[low], exposure[low])
        low = low[~(after >= (before - ROUNDING * size)[low])]
        if not len(low):
            return found
        part[low] /= 2
        found[low] = (nu + part * way)[low]
    found[low] = nu[low]
    return found


def _bound(nu: Array, alpha: Array, exposure: Array) -> tuple[Array, Array]:
    """Return G of rows, and the size of its terms."""
    total = nu.sum(axis=1, keepdims=True)
    of_total, exposed = gammaln(total[:, 0]), (exposure * nu).sum(axis=1) / total[:, 0]
    tilt = ((alpha - nu) * (digamma(nu) - digamma(total))).sum(axis=1)
    found = tilt + gammaln(nu).sum(axis=1) - of_total - exposed
    return found, np.abs(of_total) + np.abs(exposed) + np.abs(tilt)
