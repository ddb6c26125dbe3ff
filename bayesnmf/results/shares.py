"""The share of each component in the expected counts of rows, with intervals, and the rows that show a component best.

The share of component k in row i is θ_ik u_k / Σ_l θ_il u_l with u_k = Σ_j β_kj, the proportions of a topic model
([C] lemma 1). Under a mean field, shares that are the loadings themselves have Beta distributions. Else loadings are
drawn, and sums u independently of them: 1 for components on the simplex, and draws from the Gamma distribution with
their mean and variance, which is their own wherever all features of a component have one rate. So no component is
drawn, and the limits of a row depend on the seed and on the row alone.

The leading component of a row is the usual assignment of cells, texts or samples. A component that all rows have, as
the ribosomal genes of blood cells, has the largest share in many rows and says little of any. So the component leads
that says most of how the row differs from the others: with the share l_ik of component k in row i and its mean share
m_k, that of the greatest l_ik log(l_ik / m_k), its term of the Kullback-Leibler divergence of the row from the mean
row. The ratio l_ik / m_k, the lift, is large by chance for components that carry almost nothing, and so does not decide
alone. Features of a component are ordered by the same score (`bayesnmf.results.markers.leading_features`).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from scipy.special import xlogy

from bayesnmf.checks import check_choice, check_count, check_fraction, check_names
from bayesnmf.data.suspicions import warn_of_data
from bayesnmf.priors.specification import on_simplex
from bayesnmf.priors.values import component_sums, rows_to_shares, separate_scale
from bayesnmf.results.intervals import cautions_of_intervals, for_intervals, source_of_intervals
from bayesnmf.results.record import FitRecord
from bayesnmf.results.topic_model import to_topic_model
from bayesnmf.types import Array

if TYPE_CHECKING:
    import pandas as pd

DRAWS = 400
BLOCK = 2**20  # shares that are drawn at once
SHRINKAGE = 10.0  # counts with the mean share that are added to a row of a point estimate


def shares(fit: FitRecord, rows: Iterable[Any] | None = None, interval: float = 0.9) -> pd.DataFrame:
    """Return the share of each component in the expected counts of rows, with intervals.

    Parameters
    ----------
    fit : Fit
    rows : iterable of names, optional
        Names of the rows, in the order wanted; all rows by default.
    interval : float
        Probability of the central interval.

    Returns
    -------
    DataFrame
        By row and component: ``share``, the mean, ``low`` and ``high``, of up to 400 draws or of q, as
        `Fit.with_intervals` describes for a fit by vi. A point estimate has the shares of `to_topic_model`, and NaN
        for both limits. Rows whose loadings are all 0 have equal shares, and limits of 0 and 1. ``attrs`` has what the
        intervals are, and cautions.

    Raises
    ------
    TypeError, ValueError
        Names that the fit does not have, or an interval that is not between 0 and 1.

    See Also
    --------
    top_rows : The rows that show each component best.
    bayesnmf.Fit.predicted_shares : Shares that are expected at given covariates.

    Examples
    --------
    >>> import bayesnmf
    >>> fit = bayesnmf.fit([[3, 0, 1], [0, 2, 4], [5, 1, 0], [0, 3, 6]], rank=2, seed=0)
    >>> table = fit.shares(rows=[2])
    >>> table.index.tolist(), round(float(table["share"].sum()), 6)
    ([(2, 0), (2, 1)], 1.0)
    """
    import pandas as pd

    chosen = check_names(rows, fit.row_names, "rows")
    places = np.arange(len(fit.row_names)) if chosen is None else chosen
    read, values = for_intervals(fit), shares_of(fit, places, interval)
    labels = pd.MultiIndex.from_product([fit.row_names[places], fit.component_labels], names=["row", "component"])
    table = pd.DataFrame({name: each.ravel() for name, each in values.items()}, labels)
    table.attrs |= {"intervals": source_of_intervals(read), "cautions": cautions_of_intervals(read)}
    return table


def top_rows(fit: FitRecord, n: int = 10, interval: float = 0.9) -> pd.DataFrame:
    """Return the rows that show each component best, with the share of the component in them.

    The order is by the lower limit of the interval of the share, so that rows with few counts, whose shares are little
    known, do not lead. For a point estimate, which has no limits, it is by (N s + c m) / (N + c): the share s of a row
    with N counts is shrunken to the mean share m of the component over rows, as if c = 10 counts with that share had
    been added. On newsgroups (18,774 documents, K = 20), 9 of 10 rows are then those that the limits of a fit by vi
    give. Rows without counts come last.

    Parameters
    ----------
    fit : Fit
    n : int
        Number of rows of each component; all if there are fewer.
    interval : float
        Probability of the central interval.

    Returns
    -------
    DataFrame
        A row for each component and row, in order: ``component``, ``row``, ``share``, ``low``, ``high`` (`shares`) and
        ``counts``, the sum of the counts of the row. ``attrs`` has what the intervals are, and cautions.

    Raises
    ------
    TypeError, ValueError
        A number below 1, or an interval that is not between 0 and 1.

    See Also
    --------
    shares : The share of each component in chosen rows.
    bayesnmf.Fit.top_features : The leading features of each component.

    Examples
    --------
    >>> import bayesnmf
    >>> fit = bayesnmf.fit([[40, 35, 0, 1], [0, 1, 50, 30], [2, 0, 0, 0], [1, 0, 30, 60]], rank=2, seed=0)
    >>> sorted(fit.top_rows(1)["row"])  # not row 2, which has two counts
    [0, 3]
    """
    import pandas as pd

    number = check_count(n, "n")
    read, values = for_intervals(fit), shares_of(fit, np.arange(len(fit.row_names)), interval)
    counts = fit.counts.row_totals
    places = leading_rows(values, counts, number).T.ravel()
    components = np.repeat(np.arange(fit.rank), len(places) // fit.rank)
    columns = {name: each[places, components] for name, each in values.items()}
    table = pd.DataFrame({"row": fit.row_names[places], **columns, "counts": counts[places]})
    table.insert(0, "component", fit.component_labels[components])
    table.attrs |= {"intervals": source_of_intervals(read), "cautions": cautions_of_intervals(read)}
    return table


def leading_rows(values: dict[str, Array], counts: Array, n: int) -> Array:
    """Return the positions of the rows that show each component best, (n, K), given shares of all rows."""
    share, score = values["share"], values["low"]
    if np.isnan(score).all():
        score = (counts[:, None] * share + SHRINKAGE * share.mean(axis=0)) / (counts[:, None] + SHRINKAGE)
    score = np.where(counts[:, None] > 0, score, -1.0)
    return np.lexsort((np.broadcast_to(-counts[:, None], score.shape), -score), axis=0)[:n]


def shares_of(fit: FitRecord, rows: Array, interval: float) -> dict[str, Array]:
    """Return ``share``, ``low`` and ``high`` of all components in the rows at some positions, (rows, K) each."""
    tail, fit = (1 - check_fraction(interval, "interval")) / 2, for_intervals(fit)
    levels, loadings_prior = np.array([tail, 1 - tail]), cast("Any", fit.priors.loadings)
    if fit.estimate.kind == "point":
        share = _proportions(fit.loadings[rows].astype(np.float64), _sums_of(fit, fit.components))
        unknown = np.full(share.shape, np.nan)
        return {"share": share, "low": unknown, "high": unknown}
    if fit.estimate.kind == "mean field" and loadings_prior.support != "positive":
        low, high = cast("Any", fit.estimate.quantiles("loadings", (rows[:, None], np.arange(fit.rank)), levels))
        return {"share": fit.loadings[rows].astype(np.float64), "low": low, "high": high}
    number = fit.estimate.length(DRAWS)
    sums, found = _drawn_sums(fit, number), np.empty((3, len(rows), fit.rank))
    step = max(BLOCK // (number * fit.rank), 1)
    for first in range(0, len(rows), step):
        part = slice(first, first + step)
        loadings = _drawn_loadings(fit, rows[part], number)
        drawn = _proportions(loadings, sums)
        found[0, part] = drawn.mean(axis=1)
        found[1:, part] = np.quantile(drawn, levels, axis=1)
        found[1:, part][:, ~loadings.any(axis=(1, 2))] = [[[float(fit.rank == 1)]], [[1.0]]]  # always without a count
    return dict(zip(("share", "low", "high"), found, strict=True))


def _proportions(loadings: Array, sums: Array) -> Array:
    expected = loadings * sums
    return rows_to_shares(expected, expected.sum(axis=-1))


def _sums_of(fit: FitRecord, components: Array) -> Array:
    return component_sums(fit.counts.exposed_components(components.astype(np.float64)))


def _drawn_loadings(fit: FitRecord, rows: Array, number: int) -> Array:
    """Return draws of the loadings of some rows, (rows, draws, K); of proportions if there is a scale."""
    estimate: Any = fit.estimate
    if estimate.kind == "draws":
        chains, draws = np.transpose(estimate.places(number))
        return np.asarray(estimate.loadings[chains[None], draws[None], rows[:, None]], np.float64)
    q = estimate.loadings.broadcast(fit.loadings.shape)
    found = np.empty((len(rows), number, fit.rank))
    for place, row in enumerate(rows):  # as if each had `number` rows, so that its streams are its own
        repeated = q.mapped(lambda value, row=row: np.broadcast_to(value[row], (number, value.shape[1])))
        found[place] = separate_scale(repeated.draw_rows(np.random.default_rng(fit.seed), int(row) * number))[0]
    return found


def _drawn_sums(fit: FitRecord, number: int) -> Array:
    """Return draws of the sums of the components over features, (draws, K), or one row if they are constant."""
    estimate: Any = fit.estimate
    if on_simplex(fit.priors.components):
        return np.ones((1, fit.rank))
    if estimate.kind == "draws":
        return np.stack([_sums_of(fit, estimate.components[at]) for at in estimate.places(number)])
    if estimate.components is None:
        return _sums_of(fit, fit.components)[None]
    q, rng = estimate.components.broadcast(fit.components.shape), np.random.default_rng([fit.seed, 1])
    mean = _sums_of(fit, np.asarray(q.mean()))
    variance = (np.asarray(q.variance(), np.float64) * fit.counts.feature_factor**2).sum(axis=-1)
    ratio = np.where(variance > 0, variance, 1.0) / np.where(mean > 0, mean, 1.0)
    drawn = rng.gamma(mean / ratio, ratio, (number, fit.rank))
    return np.where(variance > 0, drawn, mean)


ORDERS = ("lift", "specific", "share")
EVEN = 0.8  # share of the rows: what is spread as evenly as over so many rows is in all of them
TIE = 1e-9  # difference of scores or shares that may be rounding


def leading_components(fit: FitRecord, order: str = "lift") -> pd.DataFrame:
    """Return the leading component of each row, with its share of the row and its lift.

    By "lift", the component leads that says most of how the row differs from the mean row; by "share", that of the
    largest share; by "specific", that of the largest share among components that not all rows have (`of_all_rows`).
    Of equal ones the larger share leads, then the first. ``component`` is categorical, and missing in rows without
    counts. ``lift`` is the share over the mean share of the component in all rows, of a projection in
    those of the fit that it was projected onto; a projection from a file, or one matrix of it, does not have these,
    which a DataWarning tells.
    """
    import pandas as pd

    check_choice(order, "order", ORDERS)
    shares, counted = to_topic_model(fit).proportions, fit.counts.row_totals > 0
    own = rows_to_compare_with(fit, "lifts")
    base = to_topic_model(own).proportions[own.counts.row_totals > 0]
    first, lifts = _leading(shares, base, order), shares / mean_shares(base)
    labels: Any = fit.component_labels
    codes, rows = np.where(counted, first, -1).astype(np.intp), np.arange(len(shares))
    columns = {
        "component": pd.Categorical.from_codes(codes, labels),
        "share": np.where(counted, shares[rows, first], np.nan),
        "lift": np.where(counted, lifts[rows, first], np.nan),
    }
    return pd.DataFrame(columns, index=pd.Index(fit.row_names, name="row"))


def rows_to_compare_with(fit: FitRecord, what: str) -> FitRecord:
    """Return the fit whose rows those of a fit are compared with: itself, or the reference of a projection."""
    if fit.reference is not None:
        return fit.reference.fit
    if fit.is_projected:
        warn_of_data(
            f"{what} are against the rows of this projection, since a file or one matrix of it does not have those of "
            "the reference: reference.project(...) compares with these"
        )
    return fit


def leading_of(shares: Array, counted: Array) -> Array:
    """Return the position of the leading component of each row, given shares (n, K) and which rows have counts."""
    return _leading(shares, shares[counted], "lift")


def _leading(shares: Array, base: Array, order: str) -> Array:
    """Return the position of the leading component of each row, (n,), against rows with counts, (rows, K)."""
    lifts = shares / mean_shares(base)
    score = shares if order == "share" else xlogy(shares, np.where(lifts > 0, lifts, 1.0))
    if order == "specific":
        score = np.where(of_all_rows(base), -1.0, shares)
    first: Array = _is_largest(np.where(_is_largest(score), shares, -1.0)).argmax(axis=1)
    return first


def mean_shares(base: Array) -> Array:
    """Return the mean share of each component in rows with counts (rows, K), (K,); infinite if none of these has it."""
    mean = base.mean(axis=0) if len(base) else np.ones(base.shape[1])
    return np.where(mean > 0, mean, np.inf)


def of_all_rows(base: Array) -> Array:
    """Return which components all rows have, (K,), given shares of rows with counts (rows, K); none if it were all.

    With p_i the share of a component's counts that row i has, if all rows had as many counts, exp(−Σ p log p) is over
    how many rows it is spread: at 0.8 of them and more, it is said to be in all.
    """
    p = base / np.maximum(base.sum(axis=0), np.finfo(np.float64).tiny)
    found = np.exp(-xlogy(p, p).sum(axis=0)) > EVEN * len(base)
    return np.asarray(found & ~found.all())


def _is_largest(values: Array) -> Array:
    return values >= values.max(axis=1, keepdims=True) - TIE
