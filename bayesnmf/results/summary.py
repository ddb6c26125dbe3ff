"""Summarise chosen parameters by medians, intervals and, for chains, effective sample sizes and R-hat."""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import numpy as np

from bayesnmf.checks import check_fraction, check_names, check_size
from bayesnmf.data.several import coordinates_of
from bayesnmf.inference.status import ConvergenceWarning
from bayesnmf.needs import needed_for
from bayesnmf.results.cautions import cautions_of, cautions_of_model, with_label
from bayesnmf.results.checks import check_components_have_posterior
from bayesnmf.results.draws import LIMIT, chains_and_draws, drawn_dispersions, draws_size, restrict_rows
from bayesnmf.results.effects import chains_of_effects, terms_of_effects
from bayesnmf.results.estimates import Draws, evenly_spaced
from bayesnmf.results.intervals import for_intervals, kind_of_intervals, source_of_intervals
from bayesnmf.results.record import DISPERSION, FitRecord
from bayesnmf.text import distinct
from bayesnmf.types import Array

if TYPE_CHECKING:
    import pandas as pd
    import xarray as xr


TOP, FIRST = 5, np.array([0])  # features of each component and rows that are summarised unasked
WIDTH_IN_SDS, MOST_PLACES = 3.29, 6  # of a 90 % interval; digits after the point, beyond which numbers are powers


def summary(
    fit: FitRecord, rows: Iterable[Any] | None = None, features: Iterable[Any] | None = None, interval: float = 0.9
) -> pd.DataFrame:
    """Summarise chosen loadings and components by `az.summary`: posterior medians and central intervals.

    Cautions, such as chains that have not mixed, are issued as warnings and stored in the table's `attrs["cautions"]`.

    Parameters
    ----------
    fit : Fit
        Fit with a posterior, or with draws beside its estimate (`Fit.with_intervals`), of which the table then is. Else
        that of vi and svi is of 4 × 1000 draws from q, whose intervals are too narrow; ``attrs["note"]`` says which.
    rows : iterable of names, optional
        Rows with the loadings, and scales if there are any, to summarise.
    features : iterable of names, optional
        Features with the weights, in all components, to summarise. If neither rows nor features are given, the five
        features with the largest weights in each component, and the first row.
    interval : float
        Probability of the central interval.

    Returns
    -------
    DataFrame
        One row per parameter, as ``loadings[row, component]``, ``components[component, feature]``, ``dispersion``,
        ``effects[term, component]``, with median, mad, interval; for chains ess_median, ess_tail, r_hat, mcse_median.
        It prints as many digits as the mad allows; its values have all.

    Raises
    ------
    AttributeError
        The fit has neither a posterior nor draws.
    TypeError, ValueError
        Names that the fit does not have; components that are parameters; more than 2 GiB of draws.

    Examples
    --------
    >>> import bayesnmf
    >>> fit = bayesnmf.fit([[3, 0, 1], [0, 2, 4], [5, 1, 0], [0, 3, 6]], rank=2, seed=0)
    >>> list(fit.summary(rows=[0]).columns)
    ['median', 'mad', 'eti90_lb', 'eti90_ub']
    """
    with needed_for("fit.summary"):
        import arviz as az
        import xarray as xr

    posterior = fit.posterior if fit.intervals is None else fit.intervals.draws  # raises for a point estimate
    own, interval = fit.by, check_fraction(interval, "interval")
    if rows is None or features is not None:
        check_components_have_posterior(posterior.components)
    read = for_intervals(fit)
    group = draws_of_parameters(read, rows, features)
    kind: Any = "all_median" if own.posterior == "draws" and not own.resampled else "stats_median"
    with np.errstate(invalid="ignore", divide="ignore"):  # constant parameters have neither ESS nor R-hat
        table = _with_digits(az.summary(xr.Dataset(group), kind=kind, ci_kind="eti", ci_prob=interval))
    if own.posterior != "draws":
        table.attrs |= {"uncertainty": kind_of_intervals(read), "note": source_of_intervals(read)}
    table.attrs["cautions"] = [*cautions_of(fit), *cautions_of_model(fit)]
    for caution in cautions_of(fit):
        warnings.warn(with_label(f"{fit.model} by {fit.method}", caution), ConvergenceWarning, stacklevel=3)
    return table


def _with_digits(table: Any) -> Any:
    """Return a table of ArviZ that prints medians and intervals with two digits of a deviation, to show their width.

    Its own digits, which are those of each number or of its Monte Carlo error, print 0.0238 to 0.0243 as 0.024 twice.
    The deviation is that of a normal distribution with the same interval. Tiny numbers have three significant digits.
    """
    bounds = [name for name in table.columns if name.startswith("eti")]
    widths = np.ptp(table[bounds].to_numpy(float), axis=1)
    known = np.isfinite(widths) & (widths > 0)
    places = 1 - np.floor(np.log10(np.where(known, widths / WIDTH_IN_SDS, 1.0))).astype(int)
    forms = [".3g" if digits > MOST_PLACES else f".{max(digits, 0)}f" for digits in places]
    shown = {name: dict(texts) for name, texts in table._fmt_map.items()}
    for name in ["median", "mad", *bounds]:
        values = zip(table.index, table[name], forms, known, strict=True)
        shown[name] |= {label: f"{value:{form}}" for label, value, form, told in values if told}
    return type(table)(table, fmt_map=shown)


def draws_of_parameters(
    fit: FitRecord, rows: Iterable[Any] | None, features: Iterable[Any] | None
) -> dict[str, xr.DataArray]:
    """Return draws of the loadings of rows and the weights of features, and of what else is drawn, by name.

    If neither are named, they are the features with the largest weights in each component, and the first row.
    """
    asked, entries = check_names(rows, fit.row_names, "rows"), None
    columns = check_names(features, fit.feature_names, "features")
    if asked is None or columns is not None:
        entries = _top_entries(fit) if columns is None else _all_entries(fit.rank, columns)
        asked = FIRST if asked is None and columns is None else asked
    return _draws_of_entries(fit, asked, entries)


def _draws_of_entries(fit: FitRecord, rows: Array | None, entries: tuple[Array, Array] | None) -> dict[str, Any]:
    """Return draws of the loadings of some rows and of some entries (components, features) of the components."""
    part = restrict_rows(fit, FIRST if rows is None else rows)
    chosen = FIRST if entries is None or not len(entries[0]) else np.unique(entries[1])
    number = chains_and_draws(fit, None, None)
    size = draws_size(fit, number, (part.counts.shape[0], len(chosen)))
    check_size(size, LIMIT, "the draws to be summarised", "choose fewer rows or features")
    drawn = part.estimate.take(part, number, 0, chosen)
    group = {} if rows is None else _loadings(part, drawn)
    if entries is not None and len(entries[0]):  # none where all components are known
        labels = fit.component_labels
        names = [f"{labels[k]}, {fit.feature_names[j]}" for k, j in zip(*entries, strict=True)]
        values = drawn.components[:, :, entries[0], np.searchsorted(chosen, entries[1])]
        group["components"] = _entries("weight", values, names)
    group |= _effects(part, number)
    return group | _dispersions(part, number, rows is not None, None if entries is None else chosen)


def _effects(part: FitRecord, number: tuple[int, int]) -> dict[str, Any]:
    """Return effects of covariates that were drawn, of all components; nothing if none were."""
    effects = chains_of_effects(part)
    if effects is None:
        return {}
    drawn = effects[: number[0], evenly_spaced(number[1], effects.shape[1])]
    names = [f"{term}, {label}" for term in terms_of_effects(part) for label in part.component_labels]
    return {"effects": _entries("effect", drawn.reshape(*drawn.shape[:2], -1), names)}


def _dispersions(part: FitRecord, number: tuple[int, int], rows: bool, features: Array | None) -> dict[str, Any]:
    """Return drawn dispersions: one, or those of the rows or features to summarise."""
    drawn, by = drawn_dispersions(part, number, features), part.noise.by
    if drawn is None or (by == "row" and not rows) or (by == "feature" and features is None):
        return {}
    if by is None:
        return {DISPERSION: (("chain", "draw"), drawn)}
    names: Any = coordinates_of(part.counts)
    if by != "matrix":
        names = (part.row_names if by == "row" else part.feature_names[features],)
    return {DISPERSION: _entries(f"dispersed_{by}", drawn, list(map(str, names[0])))}


def _top_entries(fit: FitRecord) -> tuple[Array, Array]:
    """Return the components and features of the largest weights, component by component, without known components."""
    known = getattr(fit.priors.components, "constants", {}).get("at", ())
    numbers = np.setdiff1d(np.arange(fit.rank), known)
    top = np.argsort(-fit.components[numbers], axis=1, kind="stable")[:, :TOP]
    return np.repeat(numbers, top.shape[1]), top.ravel()


def _all_entries(rank: int, columns: Array) -> tuple[Array, Array]:
    return np.repeat(np.arange(rank), len(columns)), np.tile(columns, rank)


def _loadings(part: FitRecord, drawn: Draws) -> dict[str, Any]:
    names = [f"{row}, {label}" for row in part.row_names for label in part.component_labels]
    group = {"loadings": _entries("loading", drawn.loadings.reshape(drawn.chains, drawn.draws, -1), names)}
    if drawn.scale is not None:
        group["scale"] = _entries("row", drawn.scale, list(map(str, part.row_names)))
    return group


def _entries(dim: str, values: Array, names: list[str]) -> Any:
    """Return draws (chains, draws, entries), labelled by names, which differ, as `az.summary` finds entries by them."""
    import xarray as xr

    return xr.DataArray(values, {dim: distinct(names)}, ("chain", "draw", dim))
