"""How much of new rows a reference explains, and which rows are not of its kind.

Raw distances between sparse counts x and their means λ are mostly sampling noise. So a row is judged by its excess
over the noise, Q = Σ_j w_j ((x_j − λ_j)² − λ_j), which is 0 on average for Poisson counts of these means, with w_j =
1 over 5 plus the mean count of the feature in the reference. Real counts vary more: rows of the reference have E Q =
s L + t B, with L = Σ w λ and B = Σ w λ² (a variance of (1 + s) λ + t λ²), so both kinds of negative binomial counts
are allowed for, at any depth. With s and t of the reference, and its spread κ of t, the score of a row is z = (Q − s
L − t B) / √(V + κ² B²), where V is the variance of Q for negative binomial counts of variance (1 + s) λ, and p the
share of the rows of the reference with larger ones.

Components were fitted to the rows of the reference, and lie nearer to them than to new rows of the same kind. So up to
2,000 of its rows are scored in ten folds by components without the counts of the fold: β_kj (1 − S_kj / T_kj) with the
allocations S of the fold and T = Θ_k β_kj, those expected of all rows; their loadings settle again. Known components
stay as they are.

All sums are products of sparse counts or of small matrices, so nothing of the size of all entries is made.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from bayesnmf.checks import check_fraction
from bayesnmf.data.counts import Counts
from bayesnmf.data.suspicions import warn_of_data
from bayesnmf.inference.sides import allocate_at_means
from bayesnmf.priors.pair import free_components
from bayesnmf.priors.specification import stated_components
from bayesnmf.results.checks import check_has_reference
from bayesnmf.results.record import FitRecord
from bayesnmf.types import Array

if TYPE_CHECKING:
    import pandas as pd

FEW = 5.0  # counts; with 1, 2 and 5 as many sorted blood cells of a type that the reference lacks are told
SCORED, FOLDS, SETTLING = 2000, 10, 30
NORMAL_MAD, LARGEST = 0.6744897501960817, 1e3
CLEAR = 2.0  # standard deviations of noise by which a row differs from the mean profile if a share of it is explained
FAR = 3.0  # and those by which more rows are of another kind than by chance


class Excess(NamedTuple):
    """Sums over the features of each row, (n,): the excess Q, L and B, and the same two with w² in place of w."""

    excess: Array
    linear: Array
    quadratic: Array
    linear_of_squares: Array
    quadratic_of_squares: Array

    def variance(self, ratio: float = 1.0) -> Array:
        """Return the variance of the excess for counts of linear variance, `ratio` times that of Poisson counts."""
        fourth = ratio * (6 * ratio**2 - 6 * ratio + 1)  # cumulant, over the mean
        return fourth * self.linear_of_squares + 2 * ratio**2 * self.quadratic_of_squares


class Scale(NamedTuple):
    """What rows of a reference have beyond Poisson noise: s, t and κ, and their scores, sorted."""

    linear: float
    quadratic: float
    spread: float
    scores: Array

    def beyond(self, found: Excess) -> Array:
        """Return the excess over the noise of the reference."""
        return found.excess - self.linear * found.linear - self.quadratic * found.quadratic

    def score(self, found: Excess) -> Array:
        """Return the excess in standard deviations."""
        variance = found.variance(1 + self.linear) + (self.spread * found.quadratic) ** 2
        return self.beyond(found) / np.sqrt(np.maximum(variance, 1e-300))


def explained(fit: FitRecord, level: float = 0.05) -> pd.DataFrame:
    """Return how much of each row of a projection the reference explains, and whether the row is of its kind.

    A DataWarning tells of more rows of another kind than by chance.

    Parameters
    ----------
    fit : Fit
        Projection onto a reference, a fit by ``reference.project(counts)``, not from a file.
    level : float
        Share of the rows of the reference that count as of another kind.

    Returns
    -------
    DataFrame
        A row for each, with columns ``counts``; ``in_reference``, the share of them in features of the reference;
        ``explained``, the share of the row's differences from the mean profile of the reference, beyond noise, that
        the components explain, missing if it has none; ``z``, what is left, in standard deviations; ``p``, the share
        of the reference's own rows with as much; and ``of_kind``, whether that is at least `level`.

    Raises
    ------
    ValueError
        The fit is no projection, or one from a file.

    Examples
    --------
    >>> import bayesnmf
    >>> fit = bayesnmf.fit([[3, 0, 1], [0, 2, 4], [5, 1, 0], [0, 3, 6]], rank=2, seed=0)
    >>> list(fit.project([[4, 0, 1]]).explained().columns)
    ['counts', 'in_reference', 'explained', 'z', 'p', 'of_kind']
    """
    import pandas as pd

    level = check_fraction(level, "level")
    check_has_reference(fit.reference)
    reference, given = fit.reference  # type: ignore[misc]
    profile = reference.expected_loadings.mean(axis=0) @ reference.exposed_components
    weights = 1 / (FEW + profile)
    scale = scale_of(reference, weights)
    loadings, components = (np.asarray(each, np.float64) for each in fit.mean_factors)
    loadings = _settled(fit.counts, loadings, components)  # as those of the reference, whatever the prior
    found = excess_of(fit.counts, loadings, components, weights)
    plain = excess_of(fit.counts, _in_profile(fit.counts, loadings, components, profile), profile[None], weights)
    score, totals = scale.score(found), fit.counts.row_totals
    above = len(scale.scores) - np.searchsorted(scale.scores, score)
    chance = (1 + above) / (1 + len(scale.scores))
    beyond = scale.beyond(plain)
    clear = (beyond > CLEAR * np.sqrt(plain.variance(1 + scale.linear))) & (totals > 0)
    share = np.clip(1 - scale.beyond(found) / np.where(clear, beyond, 1.0), 0, 1)
    columns = {
        "counts": given,
        "in_reference": np.divide(totals, given, out=np.full(len(given), np.nan), where=given > 0),
        "explained": np.where(clear, share, np.nan),
        "z": np.where(totals > 0, score, np.nan),
        "p": np.where(totals > 0, chance, np.nan),
        "of_kind": ~((chance < level) & (totals > 0)),
    }
    table = pd.DataFrame(columns, index=pd.Index(fit.row_names, name="row"))
    _warn_of_others(table, level)
    return table


def excess_of(counts: Counts, loadings: Array, components: Array, weights: Array) -> Excess:
    """Return the excess of rows over Poisson noise around loadings (n, K) times components (K, m)."""
    loadings, components = np.asarray(loadings, np.float64), np.asarray(components, np.float64)
    square, crossed = np.empty(len(loadings)), np.empty(loadings.shape)
    for rows, part in counts.parts():
        matrix: Any = part.matrix
        square[rows] = matrix.power(2) @ weights
        crossed[rows] = matrix @ (components * weights).T
    linear = _sums(counts, loadings, components, weights)
    quadratic = _squares(counts, loadings, components, weights)
    excess = square - 2 * np.einsum("ik,ik->i", crossed, loadings) + quadratic - linear
    of_squares = (each(counts, loadings, components, weights**2) for each in (_sums, _squares))
    return Excess(excess, linear, quadratic, *of_squares)


def _sums(counts: Counts, loadings: Array, components: Array, weights: Array) -> Array:
    """Return Σ_j w_j λ_ij over the entries that are not missing."""
    found = loadings @ (components @ weights)
    if counts.mask is not None:
        found -= counts.mask.products_by_row(loadings, (components * weights).T)
    return np.asarray(found)


def _squares(counts: Counts, loadings: Array, components: Array, weights: Array) -> Array:
    """Return Σ_j w_j λ_ij² over the entries that are not missing."""
    weighted = components * weights
    found = np.einsum("ik,ik->i", loadings @ (weighted @ components.T), loadings)
    if counts.mask is not None:
        for k, own in enumerate(weighted):  # a component at a time, so that no more than (m, K) is made
            found -= counts.mask.products_by_row(loadings[:, [k]] * loadings, (own * components).T)
    return np.asarray(np.maximum(found, 0.0))


def _in_profile(counts: Counts, loadings: Array, components: Array, profile: Array) -> Array:
    """Return the loadings (n, 1) of a mean profile (m,) by which it has the fitted totals of rows."""
    even, one = np.ones(counts.shape[1]), np.ones((len(loadings), 1))
    wanted, has = _sums(counts, loadings, components, even), _sums(counts, one, profile[None], even)
    return np.divide(wanted, has, out=np.zeros_like(wanted), where=has > 0)[:, None]


def scale_of(fit: FitRecord, weights: Array) -> Scale:
    """Return what rows of a fit have beyond Poisson noise around components without their counts."""
    from scipy.optimize import nnls  # slow to import, and most fits do not need it

    loadings, components = (np.asarray(each, np.float64) for each in fit.mean_factors)
    counted = np.flatnonzero(fit.counts.row_totals > 0)
    chosen = counted[np.unique(np.linspace(0, len(counted) - 1, min(len(counted), SCORED)).astype(int))]
    # Neighbours are in different folds, since rows often stand in groups.
    folds = [chosen[first::FOLDS] for first in range(min(FOLDS, len(chosen)))]
    whole = np.maximum(loadings.sum(axis=0), 1e-300)
    free = free_components(stated_components(fit.priors.components), fit.rank)
    known = ~np.isin(np.arange(len(components)) % fit.rank, free)  # their counts are no part of them; in each batch
    parts = []
    for rows in folds:
        counts, own = _in_doubles(fit.counts.rows(rows)), loadings[rows]
        taken = allocate_at_means(counts, own, components).components / whole[:, None]
        without = np.where(known[:, None], components, np.maximum(components - taken, 0.0))
        parts.append(excess_of(counts, _settled(counts, own, without), without, weights))
    found = Excess(*(np.concatenate(each) for each in zip(*parts, strict=True)))
    noise = np.sqrt(np.maximum(found.variance(), 1e-300))
    sides = np.stack([found.linear, found.quadratic], axis=1) / noise[:, None]
    (linear, quadratic), _ = nnls(sides, found.excess / noise)
    scale = Scale(float(linear), float(quadratic), 0.0, np.empty(0))
    scale = scale._replace(spread=_spread_of(scale, found))
    return scale._replace(scores=np.sort(scale.score(found)))


def _spread_of(scale: Scale, found: Excess) -> float:
    """Return κ with which the median absolute deviation of scores is that of a normal distribution, 0 if none has."""
    from scipy.optimize import brentq  # slow to import, and most fits do not need it

    def deviation(spread: float) -> float:
        scores = scale._replace(spread=spread).score(found)
        return float(np.median(np.abs(scores - np.median(scores)))) / NORMAL_MAD - 1

    return float(brentq(deviation, 0.0, LARGEST)) if deviation(0.0) > 0 > deviation(LARGEST) else 0.0


def _settled(counts: Counts, loadings: Array, components: Array) -> Array:
    """Return loadings of rows that allocation steps settle given components."""
    settled = np.empty(loadings.shape)
    for rows, read in counts.parts():
        part = _in_doubles(read)
        own, sums = loadings[rows], np.broadcast_to(components.sum(axis=1), loadings[rows].shape)
        if part.mask is not None:
            sums = sums - part.mask.sums_by_row(components.T)
        for _ in range(SETTLING):
            totals = allocate_at_means(part, own, components).loadings
            own = np.divide(totals, sums, out=np.zeros_like(own), where=sums > 0)
        settled[rows] = own
    return settled


def _in_doubles(counts: Counts) -> Counts:
    """Return counts in the type of the factors here, as compiled loops need them."""
    return counts.with_matrix(counts.matrix.astype(np.float64, copy=False))


def _warn_of_others(table: pd.DataFrame, level: float) -> None:
    """Warn if more rows are of another kind than by chance, with what speaks for other features or other samples."""
    n, others = len(table), int((~table["of_kind"]).sum())
    if others <= level * n + FAR * np.sqrt(n * level * (1 - level)):
        return
    inside = table["in_reference"].median()
    warn_of_data(
        f"{others:,} of {n:,} rows differ from what the reference explains more than {1 - level:.0%} of its own rows "
        f"do, {level * n:,.0f} would by chance: they are not of its kind, or their features are not what their names "
        f"say; the reference has the features of {inside:.0%} of their counts (median)"
    )
