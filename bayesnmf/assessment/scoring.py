"""Score a fit's predictions of held-out counts.

There are two kinds. *Thinned*: every count is kept for training with probability p, and the rest is predicted at
λ(1 − p)/p. *Withheld*: whole samples are set aside; `transform` is given half of their counts, and predicts the others.

Scores are conditional on the held-out row totals: the prediction is then multinomial with probabilities
λ_ij / Σ_j λ_ij, with sums over observed entries. The factor (1 − p)/p and the scale of a row cancel, so all models are
comparable.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import NamedTuple

import numpy as np
from scipy.sparse import csr_array
from scipy.stats import binom

from bayesnmf.data.counts import Counts
from bayesnmf.data.mask import Mask
from bayesnmf.fitting.fitted import Fit
from bayesnmf.kernels.cpu.likelihood import entry_rates
from bayesnmf.results.batches import iterate_factors
from bayesnmf.results.record import factors_of_means, iterate_means
from bayesnmf.types import Array

MIXED = 1e-6
SCORE_DRAWS, MOST_SCORE_DRAWS = 200, 1600
PIT_ENTRIES = 5000
SMALLEST = 1e-100
BATCHES = 20  # number of batches of draws
TARGET = 5e-4  # Monte Carlo error, in nats for each count, at which a score needs no more draws


class Score(NamedTuple):
    """Held-out log-likelihood for each count, in nats, without the multinomial coefficient.

    exp(−per_count) is the perplexity. `entries` is the number of held-out nonzeros; `floored` of them had a predictive
    probability below the background that is mixed in. `error` is the Monte Carlo error of `per_count` when averaging
    over `draws` draws: the root of its variance plus its squared bias, as the log of a mean of draws is too low; 0 for
    a point. `rows` are the logs of each row, (n,), whose sum for each count is `per_count`.
    """

    per_count: float
    floored: int
    entries: int
    error: float
    draws: int
    rows: Array


class Ratio(NamedTuple):
    """A ratio of sums over rows, and its standard error."""

    value: float
    se: float


def ratio_of_sums(logs: Array, counted: Array) -> Ratio:
    """Return r = Σ l / Σ h over rows, and its standard error, se² = n/(n − 1) Σ (l_i − r h_i)² / (Σ h)².

    Parameters
    ----------
    logs, counted : ndarray (rows,)
        Log-probability l and number h of the counts of each row. The n rows with counts are used; without any, the
        ratio is NaN, and with a single one its standard error.
    """
    total, used = counted.sum(), int(np.count_nonzero(counted))
    if not total:
        return Ratio(np.nan, np.nan)
    value = float(logs.sum() / total)
    if used < 2:
        return Ratio(value, np.nan)
    return Ratio(value, float(np.sqrt(used / (used - 1) * np.sum((logs - value * counted) ** 2)) / total))


def background(train: Counts) -> Array:
    """Return the feature frequencies of the training counts, with ½ added to each count, (m,)."""
    frequencies = train.feature_totals + 0.5
    return frequencies / frequencies.sum()


def score(fit: Fit, held_out: Counts, frequencies: Array, draws: int, seed: int, most: int | None = None) -> Score:
    """Score the posterior-mean probability of each held-out row: its log, summed over rows, for each count.

    Parameters
    ----------
    fit : Fit
        Fit of the same rows as `held_out`; its posterior draws are averaged (a point estimate is plugged in).
    held_out : Counts
    frequencies : ndarray (m,)
        Background frequencies; 10⁻⁶ of them is mixed with the predictive probabilities, for all methods alike.
    draws : int
        Smallest number of posterior draws to average.
    seed : int
        Seed of the draws from a closed-form q.
    most : int, optional
        Largest number of draws; by default `draws`. Draws from q continue until the error is below 0.0005 nats for each
        count, or their number is `most`. From gibbs and nuts, `most` of the kept draws are used.
    """
    most = max(draws, most or draws)
    means = _LogMeans(held_out.shape[0], fit.estimate.length(most), fit.estimate.kind == "draws")
    sums, logs = _zeros(held_out), np.zeros(held_out.shape[0])
    drawn = zip(fit.estimate.iterate_by_rows(fit, most, seed), iterate_factors(fit, most, seed), strict=False)
    for (take, components), factors in drawn:
        for part in _entries(held_out, frequencies):
            left, right = factors_of_means(fit, take(part.rows)[0], components, factors, rows=part.rows)
            probability = entry_probabilities(part.matrix, part.places, left, right, part.mask)
            sums[part.entries] += probability
            weights = part.matrix.data * np.log((1 - MIXED) * probability + part.mixed_in)
            logs[part.rows] = np.bincount(part.places, weights=weights, minlength=part.matrix.shape[0])
        means.add(logs)
        if means.used % draws == 0 and not means.in_order and means.error() <= TARGET * held_out.total:
            break
    floored = sum(
        int(np.sum((1 - MIXED) * sums[part.entries] / means.used < part.mixed_in))
        for part in _entries(held_out, frequencies)
    )
    by_row, error = means.log_means(), 0.0 if fit.estimate.kind == "point" else means.error()
    if not held_out.total:
        return Score(np.nan, floored, held_out.nnz, np.nan, means.used, by_row)
    total = held_out.total
    return Score(float(by_row.sum()) / total, floored, held_out.nnz, error / total, means.used, by_row)


class _Entries(NamedTuple):
    """Nonzeros of some rows: rows and nonzeros among all, matrix, rows within it, what is mixed in, and the mask."""

    rows: slice
    entries: slice
    matrix: csr_array
    places: Array
    mixed_in: Array
    mask: Mask | None


def _entries(held_out: Counts, frequencies: Array) -> Iterator[_Entries]:
    first = 0
    for rows, part in held_out.parts():
        matrix = part.matrix
        places = np.repeat(np.arange(matrix.shape[0]), np.diff(matrix.indptr))
        mixed_in = MIXED * frequencies[matrix.indices]
        yield _Entries(rows, slice(first, first + matrix.nnz), matrix, places, mixed_in, part.mask)
        first += matrix.nnz


def _zeros(held_out: Counts) -> Array:
    """Return a zero for each nonzero; of counts on disk, in a file mapped into memory."""
    file = held_out.new_rows(1, np.float64)
    for _, part in held_out.parts():
        file.append(np.zeros((part.nnz, 1)))
    return np.asarray(file.array(changes=True)[:, 0])


class _LogMeans:
    """Logs of means over draws, for every row, summed in batches of draws, from which the error is estimated.

    `in_order` means that draws are autocorrelated, in the order of a chain, so that batches consist of neighbours.
    """

    def __init__(self, rows: int, draws: int, in_order: bool) -> None:
        self.draws, self.in_order, self.used = draws, in_order, 0
        self.batches = np.full((min(BATCHES, draws), rows), -np.inf)
        self.counts = np.zeros(len(self.batches))

    def add(self, logs: Array) -> None:
        """Add one draw: logs (rows,)."""
        number = len(self.batches)
        batch = self.used * number // self.draws if self.in_order else self.used % number
        self.batches[batch] = np.logaddexp(self.batches[batch], logs)
        self.counts[batch] += 1
        self.used += 1

    def error(self) -> float:
        """Return the root mean square error of the sum over rows, to first order; infinite for a single draw."""
        number = int(np.count_nonzero(self.counts))
        if number < 2:
            return np.inf
        batches = self.batches[:number] - np.log(self.counts[:number, None])
        with np.errstate(invalid="ignore"):  # rows that are impossible under all draws
            ratios = np.nan_to_num(np.exp(batches - self.log_means()), nan=1.0)
        bias = ratios.var(axis=0, ddof=1).sum() / number / 2
        variance = (ratios - 1).sum(axis=1).var(ddof=1) / number
        return float(np.sqrt(variance + bias**2))

    def log_means(self) -> Array:
        """Return the log of the mean over draws of every row, (rows,)."""
        return np.logaddexp.reduce(self.batches, axis=0) - np.log(self.used)


def entry_probabilities(
    matrix: csr_array, rows: Array, loadings: Array, components: Array, mask: Mask | None = None
) -> Array:
    """Return λ_ij / Σ_j λ_ij at the nonzeros of `matrix`, and 0 in rows whose means are all 0; j is not missing."""
    rates = entry_rates(matrix, loadings, np.asfortranarray(components))
    totals = _observed_sums(loadings, components, mask)[rows]
    return np.divide(rates, totals, out=np.zeros_like(rates), where=totals > 0)


def _observed_sums(loadings: Array, components: Array, mask: Mask | None) -> Array:
    """Return the sums of the means of each row over its observed entries, (n,)."""
    sums = loadings @ components.sum(axis=1)
    return np.asarray(sums if mask is None else np.maximum(sums - mask.products_by_row(loadings, components.T), 0.0))


def pit_coverage(fit: Fit, held_out: Counts, draws: int, seed: int, interval: float = 0.9) -> float:
    """Return the share of held-out entries inside the central predictive interval, by randomised PIT.

    u = F(y − 1) + v f(y) with a uniform v is uniform if predictions are calibrated, although counts are discrete
    (Czado, Gneiting & Held 2009). F and f are posterior means of binomials given the held-out row totals. At most
    5,000 entries are used, drawn at random, including zeros.
    """
    rng = np.random.default_rng(seed)
    n, m = held_out.shape
    mask = held_out.mask
    number = n * m - (0 if mask is None else mask.number)
    entries = rng.choice(number, size=min(number, PIT_ENTRIES), replace=False)
    entries = entries if mask is None else mask.places_of_observed(entries)
    i, j = np.divmod(entries, m)
    rows, place = np.unique(i, return_inverse=True)
    y = held_out.rows(rows).matrix[place, j]
    y = np.asarray(y.todense() if hasattr(y, "todense") else y).ravel()
    totals = held_out.row_totals[i]
    below, at, used = np.zeros(len(entries)), np.zeros(len(entries)), 0
    for loadings, components in iterate_means(fit, draws, seed):
        rate_totals = _observed_sums(loadings, components, mask)[i]
        rates = np.einsum("ck,kc->c", loadings[i], components[:, j])
        p = np.divide(rates, rate_totals, out=np.full_like(rates, 1 / m), where=rate_totals > 0)
        p = p.clip(SMALLEST, 1)  # SciPy's binomial overflows for smaller ones
        below += binom.cdf(y - 1, totals, p)
        at += binom.pmf(y, totals, p)
        used += 1
    u = (below + rng.random(len(entries)) * at) / used
    return float(np.mean(np.abs(u - 0.5) <= interval / 2)) if held_out.total else np.nan


def for_thinned[F: Fit](fitted: F, keep: float) -> F:
    """Return a fit with the noise of counts of which every single one is kept with this probability."""
    return replace(fitted, noise=fitted.noise.thinned(keep))
