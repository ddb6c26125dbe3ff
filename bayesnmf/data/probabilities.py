"""How counts with a noise are distributed around given means: probabilities, variances, zeros and squares.

An entry with mean λ and dispersion s or α has, with L(x, λ, s) = Σ_{t<x} log(λ + ts), the log probability

    Poisson                x log λ − λ − log x!
    linear variance        L(x, λ, s) − x log(1 + s) − (λ / s) log(1 + s) − log x!
    quadratic variance     x log λ + L(x, 1, α) − (x + 1 / α) log(1 + αλ) − log x!

Given the totals N of rows, Poisson counts are multinomial, and those of linear variance Dirichlet-multinomial with
concentrations λ / s.
"""

from __future__ import annotations

from copy import copy
from typing import Any

import numpy as np
from scipy.special import gammaln, xlogy

from bayesnmf.data.clustered import exposure_of
from bayesnmf.data.counts import Counts
from bayesnmf.data.dispersed import LEAST
from bayesnmf.kernels.cpu.clusters import cluster_sums, sums_of_entries
from bayesnmf.kernels.cpu.likelihood import entry_rates, poisson_loglik
from bayesnmf.priors.noise import NegativeBinomial, Noise
from bayesnmf.types import Array

ENTRIES = 2**18  # entries at a time


def dispersions_of_entries(noise: NegativeBinomial) -> Array:
    """Return dispersions above 0 for the entries of a matrix, (n, 1), (1, m) or (1, 1)."""
    s = np.maximum(np.asarray(noise.of_lines(noise.dispersion), np.float64), LEAST)
    return s.reshape((-1, 1) if noise.by == "row" else (1, -1))


class LogProbabilities:
    """Log probabilities log p(count | mean) of entries, in nats; under Poisson noise, counts need not be whole numbers.

    Parameters
    ----------
    noise : Poisson or NegativeBinomial
    counts : ndarray of shape (n, m) or (entries,)
        Counts of a matrix, or of the entries at some positions of it.
    at : tuple of ndarray, optional
        Rows and features of these entries.
    """

    def __init__(self, noise: Noise, counts: Array, at: tuple[Array, Array] | None = None) -> None:
        self.counts, self.places, self.constant, self.some = counts, at, gammaln(counts + 1), counts > 0
        self._take(noise)

    def under(self, noise: Noise) -> LogProbabilities:
        """Return the same under a noise with another dispersion, as of a draw."""
        found = copy(self)
        found._take(noise)
        return found

    def _take(self, noise: Noise) -> None:
        self.noise = noise
        if isinstance(noise, NegativeBinomial):
            s = dispersions_of_entries(noise)
            if self.places is not None:
                s = s[tuple(place if size > 1 else 0 for place, size in zip(self.places, s.shape, strict=True))]
            self.dispersions = np.broadcast_to(s, self.counts.shape)

    def at(self, means: Array) -> Array:
        """Return them for means (…, n, m) or (…, entries)."""
        if not isinstance(self.noise, NegativeBinomial):
            return np.asarray(xlogy(self.counts, means) - means - self.constant)
        s, found = self.dispersions, np.zeros(means.shape)
        x, rates, own = self.counts[self.some], means[..., self.some], s[self.some]
        if self.noise.variance == "linear":
            rising = sums_of_entries(np.broadcast_to(x, rates.shape), rates, own)[:, 0].reshape(rates.shape)
            found[..., self.some] = np.where(rates > 0, rising, -np.inf) - x * np.log1p(own)
            return np.asarray(found - means * exposure_of(s) - self.constant)
        found[..., self.some] = xlogy(x, rates) + sums_of_entries(x, np.ones_like(own), own)[:, 0]
        return np.asarray(found - (self.counts + 1 / s) * np.log1p(s * means) - self.constant)


def log_probabilities(
    noise: Noise, counts: Array, means: Array, rows: Any = slice(None), features: Any = slice(None)
) -> Array:
    """Return log p of each count (n, m) given its mean, in nats.

    Rows and features say which ones these are among those of the noise, where each has its own dispersion.
    """
    return LogProbabilities(noise.of_rows(rows).of_features(features), counts).at(means)


def variances(noise: Noise, means: Array, rows: Any = slice(None), features: Any = slice(None)) -> Array:
    """Return the variances of counts of these means."""
    if not isinstance(noise, NegativeBinomial):
        return means
    s = dispersions_of_entries(noise.of_rows(rows).of_features(features))
    return np.asarray(means * (1 + s) if noise.variance == "linear" else means * (1 + s * means))


def log_likelihood(noise: Noise, counts: Counts, loadings: Array, components: Array, given_totals: bool) -> float:
    """Return log p(X | loadings @ components) of the observed entries, in nats.

    Given the totals of rows, it is log p(X | totals) + log Poisson(totals | sums of the means), for means on any scale
    of the rows: so it is that of Poisson counts if the noise is.
    """
    return sum(
        _log_likelihood(noise.of_rows(rows), part, loadings[rows], components, given_totals)
        for rows, part in counts.parts()
    )


def _log_likelihood(noise: Noise, counts: Counts, loadings: Array, components: Array, given_totals: bool) -> float:
    """Return the same for counts in memory."""
    if not isinstance(noise, NegativeBinomial):
        gain = 0.0 if counts.mask is None else float(counts.mask.products_by_row(loadings, components.T).sum())
        return poisson_loglik(counts.matrix, loadings, components, counts.log_factorial) + gain
    if np.any(entry_rates(counts.matrix, loadings, components) <= 0):
        return -np.inf
    if noise.variance == "quadratic":
        return _quadratic(noise, counts, loadings, components)
    logs = (_given if given_totals else _clustered)(noise, counts, loadings, components)
    return logs - counts.log_factorial


def log_likelihood_of_shares(noise: Noise, counts: Counts, shares: Array, components: Array) -> float:
    """Return the same for loadings that are proportions given the totals of rows, times Poisson(totals; 1)."""
    if counts.mask is None:
        return log_likelihood(noise, counts, shares, components, given_totals=True)
    seen = 1.0 - counts.mask.products_by_row(shares, components.T)
    whole = log_likelihood(noise, counts.with_mask(None), shares, components, given_totals=True)
    return whole - float(xlogy(counts.row_totals, seen).sum())


def _clustered(noise: NegativeBinomial, counts: Counts, loadings: Array, components: Array) -> float:
    """Return ΣL − Σx log(1 + s) − Σλ e(s)."""
    s, mask = dispersions_of_entries(noise), counts.mask
    rows, features = np.ones(counts.shape[0]), None
    left, right, totals = loadings, components, counts.row_totals
    if noise.by_feature:
        features, right, totals = s.ravel(), components * exposure_of(s), counts.feature_totals
    else:
        rows, left = np.broadcast_to(s.ravel(), rows.shape).copy(), loadings * exposure_of(s)
    logs = cluster_sums(counts.matrix, loadings, components, (rows, features))[:, 0].sum()
    exposure = left.sum(axis=0) @ right.sum(axis=1)
    if mask is not None:
        exposure -= mask.products_by_row(left, right.T).sum()
    return float(logs - (totals * np.log1p(s.ravel())).sum() - exposure)


def _given(noise: NegativeBinomial, counts: Counts, loadings: Array, components: Array) -> float:
    """Return Σ(L − L(N, Λ, s)) + Σ(N log Λ − Λ) with sums Λ of means, and dispersions for means whose sums are N."""
    totals, sums = counts.row_totals, loadings @ components.sum(axis=1)
    s = dispersions_of_entries(noise).ravel() * sums / np.maximum(totals, 1.0)
    logs = cluster_sums(counts.matrix, loadings, components, (s, None))[:, 0]
    return float((logs - sums_of_entries(totals, sums, s)[:, 0] + xlogy(totals, sums) - sums).sum())


def _quadratic(noise: NegativeBinomial, counts: Counts, loadings: Array, components: Array) -> float:
    """Return the log-likelihood of counts of quadratic variance, some rows at a time."""
    (n, m), found = counts.shape, 0.0
    for first in range(0, n, step := max(ENTRIES // m, 1)):
        rows = slice(first, first + step)
        part = counts.matrix[rows].toarray().astype(np.float64)
        logs = LogProbabilities(noise.of_rows(rows), part).at(loadings[rows] @ components)
        found += float(logs.sum() if counts.mask is None else logs[~counts.mask.rows(rows).hidden(slice(None))].sum())
    return found


def share_of_zeros(noise: Noise, means: Array) -> Array:
    """Return the probability of a count of 0 in each entry (n, m)."""
    if not isinstance(noise, NegativeBinomial):
        return np.exp(-means)
    s = dispersions_of_entries(noise)
    return np.exp(-means * exposure_of(s) if noise.variance == "linear" else -np.log1p(s * means) / s)


def sum_of_squares(noise: Noise, loadings: Array, components: Array) -> float:
    """Return the sum of the expected squares of counts with means loadings @ components, in O((n + m) K²)."""
    plain, weighted = (loadings, components), (loadings, components)
    if isinstance(noise, NegativeBinomial):
        more = 1.0 + dispersions_of_entries(noise)
        weighted = (loadings, components * more) if noise.by_feature else (loadings * more, components)
    linear = isinstance(noise, NegativeBinomial) and noise.variance == "linear"
    first, second = (weighted, plain) if linear else (plain, weighted)
    squares = float(np.sum((second[0].T @ loadings) * (second[1] @ components.T)))
    return squares + float(first[0].sum(axis=0) @ first[1].sum(axis=1))
