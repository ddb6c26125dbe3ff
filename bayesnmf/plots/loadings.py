"""Draw loadings: of chosen rows with their uncertainty, and of all rows by two fits against each other."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Literal, Unpack

import numpy as np
from matplotlib.axes import Axes

from bayesnmf.assessment.agreement import draw_sides
from bayesnmf.assessment.linear_response import LinearResponse
from bayesnmf.checks import check_choice, check_flag, check_fraction, check_names
from bayesnmf.fitting.fitted import Fit
from bayesnmf.inference import alignment
from bayesnmf.plots import style, summaries
from bayesnmf.plots.checks import check_fits_and_responses, check_matchable, check_pair, check_same_unit
from bayesnmf.priors.values import component_sums
from bayesnmf.results.intervals import for_intervals, kind_of_intervals
from bayesnmf.results.topic_model import to_topic_model
from bayesnmf.types import Array

MOST = 20  # components whose names have room in a panel, unless more are asked for
WORDS = {"loadings": "Loadings", "shares": "Shares", "counts": "Expected counts"}
ROWS_AT_ONCE = 500


@style.figure("array of Axes", "Axes to draw on, one for each row.")
def loadings_intervals(
    fits: Mapping[str, Fit | LinearResponse] | Fit | LinearResponse,
    rows: Iterable[Any],
    interval: float = 0.9,
    *,
    n: int | None = None,
    values: Literal["loadings", "shares", "counts"] = "loadings",
    reference: str | None = None,
    **panels: Unpack[style.Panels],
) -> Array:
    """Draw posterior medians and central intervals of the loadings of chosen rows, one panel for each row.

    A point estimate has no interval, unless a bootstrap has made one. Loadings are counts under Gamma priors (on the
    scale on which components sum to 1; per unit of exposure if there are exposures), and proportions under Dirichlet
    priors; the two cannot be drawn together, but their shares and expected counts can. Quantiles are those of the draws
    for gibbs and nuts, those of `bayesnmf.linear_response` if one is given, and else those of the draws beside the
    estimate, or for vi of q (`Fit.with_intervals`); the legend says which.

    Parameters
    ----------
    fits : mapping of str to Fit or LinearResponse, or a single one
        Fits of the same rank and features. Their components are matched to those of the reference.
    rows : iterable of names
        Names in ``fit.row_names``, compared as text, or a single name.
    interval : float
        Probability inside the interval; the rest is split equally between both ends.
    n : int, optional
        Number of components in each panel, by default at most 20: those with the largest mean share of the rows that
        are shown, by the reference. The axis says how many there are.
    values : {"loadings", "shares", "counts"}
        Loadings; the share of each component in the expected counts of a row, as in ``fit.shares()``, with means in
        place of medians; or these expected counts, which are loadings times exposures, or proportions times the
        expected total of the row, whose own uncertainty is left out.
    reference : str, optional
        Label of the fit that determines the order; by default the first.

    Returns
    -------
    ndarray of Axes
        One for each row.

    See Also
    --------
    loadings_scatter : all samples, by two fits.
    bayesnmf.Fit.summary : the same as a table.
    """
    fits, responses = check_fits_and_responses(fits)
    reference, orders = summaries.match_fits(fits, reference)
    check_fraction(interval, "interval")
    if check_choice(values, "values", WORDS) == "loadings":
        check_same_unit({label: summaries.has_proportions(fit) for label, fit in fits.items()})
    places = {label: _places(fit, rows) for label, fit in fits.items()}
    target, of_rows = fits[reference], places[reference]
    shown = style.leading(to_topic_model(target).proportions[of_rows].mean(axis=0), n, MOST)
    width = float(np.clip(len(shown) * max(0.11 * len(fits), 0.17) + 1.0, 3.0, 9.0))
    grid, figure = style.make_row(len(of_rows), (width, 2.7), 0.8, **panels)
    looks = style.looks_of_fits(fits)
    if len({fit.method for fit in fits.values()}) > 1:  # else, each has a colour of its own
        looks |= {label: looks[label]._replace(colour=style.METHOD_COLOURS["svi"]) for label in responses}
    for turn, (label, look) in enumerate(looks.items()):
        found = summaries.summarise_rows(
            fits[label], places[label], orders[label][shown], interval, values, responses.get(label)
        )
        offset = (turn - (len(fits) - 1) / 2) * 0.7 / len(fits)
        for i, ax in enumerate(grid):
            found.draw(ax, i, np.arange(len(shown)) + offset, look, label)
    _name_panels(grid, of_rows, target, shown, _unit(target, values))
    if figure is not None:
        named = summaries.named_sources({label: fit for label, fit in fits.items() if label not in responses}, figure)
        drawn = summaries.named_middles(fits, f"central {100 * interval:g} % interval")
        drawn = drawn.replace("median", "mean") if values == "shares" else drawn
        figure.suptitle(f"{WORDS[values]}: {drawn}{named}", fontsize=10)
    style.share_legend(grid, figure)
    return grid


def _unit(fit: Fit, values: str) -> str:
    """Return what the numbers on the axis are."""
    if values != "loadings":
        return {"shares": "share of the row's counts", "counts": "expected counts"}[values]
    unit = "proportion" if summaries.has_proportions(fit) else "counts"
    return f"loading ({unit}{' per unit of exposure' if unit == 'counts' and fit.counts.exposed else ''})"


def _places(fit: Fit, rows: Iterable[Any]) -> Array:
    chosen = check_names([rows] if isinstance(rows, str) else rows, fit.row_names, "rows")
    return np.arange(len(fit.row_names)) if chosen is None else chosen


def _name_panels(axes: Array, rows: Array, fit: Fit, shown: Array, label: str) -> None:
    for name, ax in zip(fit.row_names[rows], axes, strict=True):
        style.dress(ax, style.called(name, "row"), y=label)
        style.name_components(ax, fit, shown, 16)
        ax.set_xticks(np.arange(1, len(shown)) - 0.5, minor=True)
        ax.grid(axis="x", which="minor", color="0.9", linewidth=0.8)
        ax.tick_params(axis="x", which="both", length=0)
        ax.set_xlim(-0.5, len(shown) - 0.5)
        ax.set_ylim(bottom=-0.03 * ax.get_ylim()[1])  # room for markers at 0


@style.figure("Axes or array of Axes", "Axes to draw on: one, or K.")
def loadings_scatter(
    fits: Mapping[str, Fit],
    x: str | None = None,
    y: str | None = None,
    *,
    interval: float | None = None,
    together: bool = False,
    **panels: Unpack[style.Panels],
) -> Array:
    """Draw the loadings of one fit against those of another, one point for each sample.

    Loadings are on the scale of the counts: the expected counts of a sample that come from a component. So fits of
    different models can be compared. Components of y are matched to those of x. On the dashed line both fits agree; a
    panel's title gives the correlation.

    Parameters
    ----------
    fits : mapping of str to Fit
        Fits of the same counts and rank; their models may differ.
    x, y : str, optional
        Labels of the two fits; by default the first two.
    interval : float, optional
        Probability of central posterior intervals, drawn as bars in both directions for fits with a posterior. They
        come from the draws of a sampler, and for vi from what `Fit.with_intervals` describes: draws beside q, or 4,000
        of q.
    together : bool
        Whether to draw all components in one panel, in different colours, instead of one panel each.

    Returns
    -------
    ndarray of Axes
        (K,), or (1,) with `together`.

    See Also
    --------
    posterior_agreement : loadings, components and expected counts of several fits.
    """
    check_flag(together, "together")
    check_matchable(fits)
    x, y = check_pair(x, y, fits)
    if interval is not None:
        check_fraction(interval, "interval")
    fits = {label: for_intervals(fits[label]) for label in (x, y)} if interval is not None else fits
    target, titles = fits[x], [style.shorten(title, 20) for title in fits[x].component_titles]
    orders = {x: np.arange(target.rank), y: alignment.match_fits(fits[y], target)}
    values = [(fits[label].expected_loadings * component_sums(fits[label].exposed_components))[:, orders[label]]
              for label in (x, y)]  # fmt: skip
    ends = [None if interval is None else _intervals(fits[label], target, interval) for label in (x, y)]
    rank, number = target.rank, 1 if together else target.rank
    chosen, figure = style.make_row(number, (5.4, 3.7) if together else (2.7, 2.7), 0.5, least=0, **panels)
    for k, colour in enumerate(style.colours_of(rank)):
        within = [None if end is None else end[..., k] for end in ends]
        _scatter(chosen[0 if together else k], values[0][:, k], values[1][:, k], within, titles[k], colour)
    kinds = ["" if end is None else summaries.KINDS[kind_of_intervals(fits[label])]
             for label, end in zip((x, y), ends, strict=True)]  # fmt: skip
    names = f"{style.shorten(x, 20)}{kinds[0]}", f"{style.shorten(y, 20)}{kinds[1]}"
    for k, ax in enumerate(chosen):
        pair = [value if together else value[:, k] for value in values]
        _compare(ax, pair, "all components" if together else titles[k], names)
    if together:
        chosen[0].legend(fontsize=style.SMALL, frameon=False, loc="center left", bbox_to_anchor=(1.0, 0.5))
    if figure is not None:
        figure.suptitle("Loadings: expected counts of a sample from a component", fontsize=10)
    return chosen


def _intervals(fit: Fit, target: Fit, interval: float) -> Array | None:
    """Return ends of central intervals of the loadings, (2, n, K), by blocks of rows; None for a point estimate."""
    if fit.estimate.kind == "point":  # of `for_intervals`: without draws beside it
        return None
    n, tail = fit.counts.shape[0], (1 - interval) / 2
    ends = np.empty((2, n, fit.rank))
    for first in range(0, n, ROWS_AT_ONCE):
        rows = np.arange(first, min(first + ROWS_AT_ONCE, n))
        drawn, _ = draw_sides(fit, target, rows, np.arange(1), seed=0)
        ends[:, rows] = np.quantile(drawn, [tail, 1 - tail], axis=(0, 1))
    return ends


def _scatter(ax: Axes, across: Array, up: Array, ends: list[Array | None], title: str, colour: Any) -> None:
    for lines, at, end in ((ax.hlines, up, ends[0]), (ax.vlines, across, ends[1])):
        if end is not None:
            lines(at, *end, color=colour, linewidth=0.6, alpha=0.35)
    ax.plot(across, up, "o", color=colour, markersize=3, alpha=0.7, markeredgewidth=0, linestyle="none",
            label=title)  # fmt: skip


def _compare(ax: Axes, pair: list[Array], title: str, names: tuple[str, str]) -> None:
    with np.errstate(invalid="ignore", divide="ignore"):  # constant loadings have no correlation
        correlation = np.corrcoef(pair[0].ravel(), pair[1].ravel())[0, 1] if pair[0].size > 1 else np.nan
    most = max(ax.get_xlim()[1], ax.get_ylim()[1])
    ax.plot([0, most], [0, most], color=style.QUIET, linestyle="--", linewidth=1, zorder=0)
    ax.set(xlim=(-0.03 * most, most), ylim=(-0.03 * most, most), aspect="equal")
    ax.locator_params(nbins=5)
    style.dress(ax, f"{title}, r = {correlation:.3f}", f"{names[0]}, counts", f"{names[1]}, counts", heading=9)
