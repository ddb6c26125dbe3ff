"""Draws of counts with a noise and given means: rates from a Gamma distribution first, then counts."""

from __future__ import annotations

import numpy as np

from bayesnmf.data.probabilities import dispersions_of_entries
from bayesnmf.kernels.cpu import dispersed_draws as kernel
from bayesnmf.priors.noise import NegativeBinomial, Noise
from bayesnmf.types import Array


def drawn_counts(noise: Noise, means: Array, rng: np.random.Generator) -> Array:
    """Draw a count for each of the means (n, m)."""
    if isinstance(noise, NegativeBinomial):
        s = dispersions_of_entries(noise)
        shapes, scales = (
            (means / s, s) if noise.variance == "linear" else (np.broadcast_to(1 / s, means.shape), means * s)
        )
        means = scales * rng.gamma(shapes)
    return rng.poisson(means)


def drawn_given_totals(noise: Noise, totals: Array, shares: Array, rng: np.random.Generator) -> Array:
    """Draw counts (n, m) given whole totals (n,) of rows, whose expected shares (n, m) sum to at most 1."""
    if isinstance(noise, NegativeBinomial):
        s = dispersions_of_entries(noise)
        shares = _drawn_shares(np.maximum(totals, 1)[:, None] * shares / s, rng)
    return rng.multinomial(totals, shares)


def _drawn_shares(concentrations: Array, rng: np.random.Generator) -> Array:
    """Draw from Dirichlet distributions, from the logarithms of Gamma draws, which do not underflow."""
    small = np.maximum(concentrations, np.finfo(np.float64).tiny)
    logs = np.log(rng.gamma(small + 1.0)) + np.log1p(-rng.random(small.shape)) / small
    drawn = np.exp(logs - logs.max(axis=1, keepdims=True))
    return np.asarray(drawn / drawn.sum(axis=1, keepdims=True))


def noise_of_draws(noise: Noise, size: tuple[int, int]) -> kernel.Noise:
    """Return a noise as compiled draws of a matrix of (n, m) counts take it."""
    if not isinstance(noise, NegativeBinomial):
        return kernel.PLAIN
    (n, m), s = size, dispersions_of_entries(noise).ravel()
    kind = kernel.LINEAR if noise.variance == "linear" else kernel.QUADRATIC
    rows, features = (np.ones(n), s) if noise.by_feature else (np.broadcast_to(s, (n,)).copy(), np.ones(m))
    return kernel.Noise(kind, rows, np.array(features), noise.by_feature)
