"""Draw loadings of chosen rows with their uncertainty, for several fits."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Literal

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from bayesnmf.assessment.response_tables import LinearResponse
from bayesnmf.checks import check_choice, check_fraction, check_names
from bayesnmf.fitting.fitted import Fit
from bayesnmf.plots.checks import check_fits_and_responses, check_same_unit
from bayesnmf.plots.heatmaps import turned
from bayesnmf.plots.style import (
    LEGIBLE,
    METHOD_COLOURS,
    SMALL,
    Look,
    called,
    grid_shape,
    hide_frame,
    hide_spare,
    leading,
    looks_of_fits,
    make_panels,
    share_legend,
    shorten,
)
from bayesnmf.plots.summaries import Interval, has_proportions, match_fits, named_middles, named_sources, summarise_rows
from bayesnmf.results.topic_model import to_topic_model
from bayesnmf.types import Array

MOST = 20  # components whose names have room in a panel, unless more are asked for
WORDS = {"loadings": "Loadings", "shares": "Shares", "counts": "Expected counts"}


def loadings_intervals(
    fits: Mapping[str, Fit | LinearResponse] | Fit | LinearResponse,
    rows: Iterable[Any],
    interval: float = 0.9,
    *,
    n: int | None = None,
    values: Literal["loadings", "shares", "counts"] = "loadings",
    reference: str | None = None,
    axes: Any = None,
    figsize: tuple[float, float] | None = None,
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
    axes : array of Axes, optional
        Axes to draw on, one for each row.
    figsize : tuple of float, optional
        Width and height in inches.

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
    reference, orders = match_fits(fits, reference)
    check_fraction(interval, "interval")
    if check_choice(values, "values", WORDS) == "loadings":
        check_same_unit({label: has_proportions(fit) for label, fit in fits.items()})
    places = {label: _places(fit, rows) for label, fit in fits.items()}
    target, of_rows = fits[reference], places[reference]
    shown = leading(to_topic_model(target).proportions[of_rows].mean(axis=0), n, MOST)
    grid, figure = _panels(len(of_rows), len(shown) * max(0.11 * len(fits), 0.17) + 1.0, figsize, axes)
    looks = looks_of_fits(fits)
    if len({fit.method for fit in fits.values()}) > 1:  # else, each has a colour of its own
        looks |= {label: looks[label]._replace(colour=METHOD_COLOURS["svi"]) for label in responses}
    for turn, (label, look) in enumerate(looks.items()):
        found = summarise_rows(fits[label], places[label], orders[label][shown], interval, values, responses.get(label))
        offset = (turn - (len(fits) - 1) / 2) * 0.7 / len(fits)
        for i, ax in enumerate(grid):
            _draw(ax, found, i, (found.named(label), look), offset)
    _dress(grid, of_rows, target, shown, _label(target, values))
    if figure is not None:
        named = named_sources({label: fit for label, fit in fits.items() if label not in responses}, figure)
        drawn = named_middles(fits, f"central {100 * interval:g} % interval")
        drawn = drawn.replace("median", "mean") if values == "shares" else drawn
        figure.suptitle(f"{WORDS[values]}: {drawn}{named}", fontsize=10)
    share_legend(grid, figure)
    return grid


def _panels(number: int, width: float, figsize: Any, axes: Any) -> tuple[Array, Figure | None]:
    width = float(np.clip(width, 3.0, 9.0))
    shape = grid_shape(number, width)
    size = (max(width * shape[1], LEGIBLE), 2.7 * shape[0] + 0.8)
    grid, figure = make_panels(shape if axes is None else (1, number), size, figsize, axes)
    return hide_spare(grid, number), figure


def _label(fit: Fit, values: str) -> str:
    """Return what the numbers on the axis are."""
    if values != "loadings":
        return {"shares": "share of the row's counts", "counts": "expected counts"}[values]
    unit = "proportion" if has_proportions(fit) else "counts"
    return f"loading ({unit}{' per unit of exposure' if unit == 'counts' and fit.counts.exposed else ''})"


def _places(fit: Fit, rows: Iterable[Any]) -> Array:
    chosen = check_names([rows] if isinstance(rows, str) else rows, fit.row_names, "rows")
    return np.arange(len(fit.row_names)) if chosen is None else chosen


def _draw(ax: Axes, found: Interval, row: int, named: tuple[str, Look], offset: float) -> None:
    label, look = named
    places = np.arange(found.middle.shape[1]) + offset
    if found.low is not None and found.high is not None:
        ax.vlines(places, found.low[row], found.high[row], color=look.colour, linewidth=1.6)
    ax.plot(places, found.middle[row], look.marker, color=look.colour, markersize=4, linestyle="none", label=label)


def _dress(axes: Array, rows: Array, fit: Fit, shown: Array, label: str) -> None:
    number, named = len(shown), fit.component_names is not None
    among = "" if number == fit.rank else f" (the leading {number} of {fit.rank})"
    for name, ax in zip(fit.row_names[rows], axes, strict=True):
        ax.set_title(called(name, "row"), fontsize=10)
        ax.set_xticks(
            np.arange(number), [shorten(fit.component_labels[k], 16) for k in shown], **turned(ax, named, number)
        )
        ax.set_xticks(np.arange(1, number) - 0.5, minor=True)
        ax.grid(axis="x", which="minor", color="0.9", linewidth=0.8)
        ax.tick_params(axis="x", which="both", length=0)
        ax.tick_params(axis="y", labelsize=SMALL)
        ax.set_xlim(-0.5, number - 0.5)
        ax.set_ylim(bottom=-0.03 * ax.get_ylim()[1])  # room for markers at 0
        ax.set_xlabel(f"component{among}", fontsize=9)
        ax.set_ylabel(label, fontsize=9)
        hide_frame(ax)
