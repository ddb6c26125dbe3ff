"""The dispersion of counts around the means of a fit: how much more they vary than Poisson counts.

It is Pearson's χ² over its degrees of freedom: the number of entries less that of free numbers in a matrix of means of
rank K, n K + (m − K) K. Components that are given have none, and their loadings as many as replicates show: of a large
catalogue, a row needs a few components, and the others take up less than one each. So it is where entries are missing:
a row of few observed counts cannot take up K of them. Small means are pooled
(`bayesnmf.kernels.cpu.pearson`), so that an entry is a single count or a pool of several.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from bayesnmf.data.several import check_unweighted, without_weights
from bayesnmf.kernels.cpu.pearson import pearson_sums
from bayesnmf.priors.pair import free_components
from bayesnmf.priors.specification import stated_components
from bayesnmf.results.checks import check_has_dispersion
from bayesnmf.results.given_components import taken_up_by_loadings
from bayesnmf.results.record import OF_MATRIX, FitRecord, kept_with_fit
from bayesnmf.types import Array

if TYPE_CHECKING:
    import pandas as pd

LOW = 0.1  # expected counts below which entries are pooled
SAMPLED = 2e7  # entries that are looked at for a sentence


@dataclass(frozen=True, eq=False)
class Dispersion:
    """Dispersion of counts around the means of a fit: 1 for Poisson counts.

    Attributes
    ----------
    ratio : float
        Variance of the counts over that of Poisson counts of the same means, for all entries together.
    standard_error : float
        Its standard error, from how much rows differ.
    rows, features : DataFrame
        The same for each row and each feature: ``ratio``, shrunk towards that of all by as much as it is uncertain (on
        the log scale), ``standard_error`` and ``unshrunk``.
    """

    ratio: float
    standard_error: float
    rows: pd.DataFrame
    features: pd.DataFrame

    @property
    def excess(self) -> float:
        """What the ratio has beyond 1, at least 0: the `dispersion` of `bayesnmf.Quasi`."""
        return max(self.ratio - 1.0, 0.0)

    def __repr__(self) -> str:
        return f"<bayesnmf.Dispersion: {in_words(self.ratio, self.standard_error)}>"


def dispersion(fit: FitRecord) -> Dispersion:
    """Return the dispersion of the counts around the means of a fit; see `bayesnmf.Fit.dispersion`."""
    check_unweighted(fit.counts, "dispersions of all matrices")
    sums = _sums(fit, slice(None), by_column=True)
    own, other = _free_loadings(fit), _free_components(fit)
    ratio, error = _overall(sums[0], own, other, fit.counts.shape[1])
    check_has_dispersion(fit, ratio)
    n, m = fit.counts.shape
    rows, features = _by_line(sums[0], own, other, m, ratio), _by_line(sums[1], other, own, n, ratio)
    return Dispersion(ratio, error, rows.set_index(fit.row_names), features.set_index(fit.feature_names))


def overall_dispersion(fit: FitRecord, entries: float = np.inf) -> tuple[float, float]:
    """Return the dispersion over all entries, or about `entries` of them in evenly spaced rows, and its standard error.

    Both are NaN where no degrees of freedom are left.
    """
    n, m = fit.counts.shape
    step = max(int(n * m / entries), 1)
    of_rows, _ = _sums(fit, slice(step // 2, None, step), by_column=False)
    return _overall(of_rows, _free_loadings(fit), _free_components(fit), m, n)


@kept_with_fit
def told_dispersion(fit: FitRecord) -> tuple[float, float]:
    """Return the dispersion that is told of a fit, of at most `SAMPLED` entries, and its standard error."""
    return overall_dispersion(fit, SAMPLED)


def _sums(fit: FitRecord, rows: slice, by_column: bool) -> tuple[Array, Array]:
    counts = fit.counts if rows in (slice(None), slice(0, None, 1)) else fit.counts.rows(rows)
    hidden = None if counts.mask is None else counts.mask.hidden
    loadings, components = fit.mean_factors
    matrix, components = without_weights(counts, components)
    factors = fit.noise.of_rows(rows).factors_of_expected(loadings[rows], components)
    return pearson_sums(matrix, *factors, LOW, hidden, by_column=by_column)


@kept_with_fit
def _free_loadings(fit: FitRecord) -> float:
    """Return how many loadings of a row were fitted to the counts: of one of several matrices, its part of them."""
    prior: Any = fit.priors.loadings
    fewer = _free_components(fit) < fit.rank or fit.counts.mask is not None
    number = taken_up_by_loadings(fit, LOW) if fewer and fit.batch is None and not prior.has_effects else fit.rank
    return number * fit.diagnostics.get(OF_MATRIX, 1.0)


def _free_components(fit: FitRecord) -> int:
    """Return the number of components that were fitted to the counts."""
    return 0 if fit.is_projected else len(free_components(stated_components(fit.priors.components), fit.rank))


def _free_entries(sums: Array, own: float, other: float, length: int, lines: int) -> Array:
    """Return the degrees of freedom of lines, rows or features, of `length` entries each.

    A line has `own` numbers of its own, and a part of the `other` numbers that each entry of it shares with the same
    entries of other lines; `own` · `other` numbers are counted twice.
    """
    entries = sums[:, 2]
    shared = (length - own) * other / lines
    return entries - np.minimum(own, entries) - shared * entries / max(entries.mean(), 1)


def _overall(sums: Array, own: float, other: float, length: int, lines: int | None = None) -> tuple[float, float]:
    free = _free_entries(sums, own, other, length, lines or len(sums))
    left = free.sum()
    if left <= 0:
        return np.nan, np.nan
    ratio = sums[:, 0].sum() / left
    spread = np.sum((sums[:, 0] - ratio * free) ** 2) * len(sums) / max(len(sums) - 1, 1)
    return float(ratio), float(np.sqrt(spread) / left)


def _by_line(sums: Array, own: float, other: float, length: int, ratio: float) -> pd.DataFrame:
    """Return the dispersion of each line, shrunk towards that of all on the log scale."""
    import pandas as pd

    free = _free_entries(sums, own, other, length, len(sums))
    squares, fourths, entries = sums.T
    known = (free >= 1) & (squares > 0)
    found, error = np.full(len(sums), np.nan), np.full(len(sums), np.nan)
    found[known] = squares[known] / free[known]
    spread = fourths[known] - squares[known] ** 2 / entries[known]
    error[known] = np.sqrt(spread * entries[known] / np.maximum(entries[known] - 1, 1)) / free[known]
    deviation, noise = np.log(found[known] / ratio), (error[known] / found[known]) ** 2
    between = max(float(np.mean(deviation**2 - noise)), 0.0) if known.any() else 0.0
    shrunk = np.full(len(sums), ratio)
    with np.errstate(invalid="ignore"):
        shrunk[known] *= np.exp(deviation * np.where(between > 0, between / (between + noise), 0.0))
    return pd.DataFrame({"ratio": shrunk, "standard_error": error, "unshrunk": found})


def in_words(ratio: float, error: float) -> str:
    """Return a dispersion as words."""
    return f"counts vary {ratio:.2f} ± {error:.2f} times as much as Poisson counts"
