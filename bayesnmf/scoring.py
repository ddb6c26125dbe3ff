"""Held-out counts: how they are set aside, and how a fit's predictions of them are scored.

Two kinds. *Thinned*: every count is kept for training with probability p, the rest is predicted at λ(1 − p)/p.
*Withheld*: whole samples are set aside; half of their counts are given to `transform`, the other half predicted.

Scores are conditional on the held-out row totals, where the prediction is multinomial with probabilities
λ_ij / Σ_j λ_ij (the factor (1 − p)/p cancels, and so does the scale of a row), so that all four models compare.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array
from scipy.stats import binom

from bayesnmf.counts import Counts
from bayesnmf.kernels.cpu import cell_rates
from bayesnmf.results import Fit, iterate_draws

Array = NDArray[Any]

MIXED = 1e-6
PIT_CELLS = 5000
SMALLEST = 1e-100


@dataclass(frozen=True)
class Split:
    """Counts set aside.

    Attributes
    ----------
    train, thinned : Counts
        What is fitted, and what thinning took from the same samples.
    seen, withheld : Counts or None
        The two halves of the counts of samples that are not in `train`.
    keep : float
        Probability with which a count stays in `train`.
    """

    train: Counts
    thinned: Counts
    seen: Counts | None
    withheld: Counts | None
    keep: float


def split_counts(counts: Counts, keep: float, withhold: float, rng: np.random.Generator) -> Split:
    """Set samples aside at random (the fraction `withhold`), and thin the others."""
    n = counts.shape[0]
    aside = min(round(withhold * n), n - 1)
    order = rng.permutation(n)
    train, thinned = thin(counts.rows(np.sort(order[aside:])), keep, rng)
    if aside == 0:
        return Split(train, thinned, None, None, keep)
    return Split(train, thinned, *thin(counts.rows(np.sort(order[:aside])), 0.5, rng), keep)


def thin(counts: Counts, keep: float, rng: np.random.Generator) -> tuple[Counts, Counts]:
    """Split every count binomially in two: kept with probability `keep`, and the rest."""
    kept = rng.binomial(counts.matrix.data.astype(np.int64), keep).astype(counts.dtype)
    return _with_data(counts, kept), _with_data(counts, counts.matrix.data - kept)


def _with_data(counts: Counts, data: Array) -> Counts:
    matrix = counts.matrix.copy()
    matrix.data[:] = data
    matrix.eliminate_zeros()
    return counts.with_matrix(matrix)


class Score(NamedTuple):
    """Held-out log-likelihood for each count, in nats, without the multinomial coefficient.

    exp(−per_count) is the perplexity. `floored` of the `cells` held-out nonzeros had a predictive probability
    below what is mixed in.
    """

    per_count: float
    floored: int
    cells: int


def background(train: Counts) -> Array:
    """Add-½ feature frequencies of the training counts, (m,)."""
    frequencies = train.feature_totals + 0.5
    return frequencies / frequencies.sum()


def score(fit: Fit, held_out: Counts, frequencies: Array, draws: int, seed: int) -> Score:
    """Log of the posterior-mean probability of each held-out row, summed, for each count.

    Parameters
    ----------
    fit : Fit
        Of the same rows as `held_out`; draws from its posterior are averaged (under map, its point is plugged in).
    held_out : Counts
    frequencies : ndarray (m,)
        Background; 10⁻⁶ of it is mixed with the predictive probabilities, for all methods alike.
    draws : int
        Posterior draws averaged over.
    seed : int
        Of draws from a closed-form q.
    """
    matrix = held_out.matrix
    rows = np.repeat(np.arange(matrix.shape[0]), np.diff(matrix.indptr))
    mixed_in = MIXED * frequencies[matrix.indices]
    log_mean = np.full(matrix.shape[0], -np.inf)
    mean_probability = np.zeros(matrix.nnz)
    used = 0
    for loadings, components in iterate_draws(fit, draws, seed, shares=True):
        probability = cell_probabilities(matrix, rows, loadings, components)
        mean_probability += probability
        logs = matrix.data * np.log((1 - MIXED) * probability + mixed_in)
        log_mean = np.logaddexp(log_mean, np.bincount(rows, weights=logs, minlength=matrix.shape[0]))
        used += 1
    floored = int(np.sum((1 - MIXED) * mean_probability / used < mixed_in))
    total = float((log_mean - np.log(used)).sum())
    return Score(total / held_out.total if held_out.total else np.nan, floored, matrix.nnz)


def cell_probabilities(matrix: csr_array, rows: Array, loadings: Array, components: Array) -> Array:
    """λ_ij / Σ_j λ_ij at the nonzeros of `matrix`; 0 in rows without any rate."""
    rates = cell_rates(matrix, loadings, np.asfortranarray(components))
    totals = (loadings @ components.sum(axis=1))[rows]
    return np.divide(rates, totals, out=np.zeros_like(rates), where=totals > 0)


def pit_coverage(fit: Fit, held_out: Counts, draws: int, seed: int, interval: float = 0.9) -> float:
    """Share of held-out cells inside the central predictive interval, by randomised PIT.

    u = F(y − 1) + v f(y) with v uniform is uniform if predictions are calibrated, although counts are discrete
    (Czado, Gneiting & Held 2009). F and f are posterior means of binomials, given the held-out row totals, at up to
    5,000 cells drawn at random, zeros included.
    """
    rng = np.random.default_rng(seed)
    n, m = held_out.shape
    cells = rng.choice(n * m, size=min(n * m, PIT_CELLS), replace=False)
    i, j = np.divmod(cells, m)
    y = held_out.matrix[i, j]
    y = np.asarray(y.todense() if hasattr(y, "todense") else y).ravel()
    totals = held_out.row_totals[i]
    below, at, used = np.zeros(len(cells)), np.zeros(len(cells)), 0
    for loadings, components in iterate_draws(fit, draws, seed, shares=True):
        rate_totals = (loadings @ components.sum(axis=1))[i]
        rates = np.einsum("ck,kc->c", loadings[i], components[:, j])
        p = np.divide(rates, rate_totals, out=np.full_like(rates, 1 / m), where=rate_totals > 0)
        p = p.clip(SMALLEST, 1)  # SciPy's binomial overflows on smaller ones
        below += binom.cdf(y - 1, totals, p)
        at += binom.pmf(y, totals, p)
        used += 1
    u = (below + rng.random(len(cells)) * at) / used
    return float(np.mean(np.abs(u - 0.5) <= interval / 2)) if held_out.total else np.nan
