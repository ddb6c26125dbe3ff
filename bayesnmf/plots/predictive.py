"""Draw observed counts beside replicated ones: could the fitted model have produced the counts?"""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from bayesnmf.assessment.predictive_checks import PredictiveChecks
from bayesnmf.assessment.predictive_checks import predictive_checks as replicate_and_compare
from bayesnmf.fitting.fitted import Fit
from bayesnmf.plots.style import (
    METHOD_COLOURS,
    OTHER_METHOD,
    QUIET,
    SMALL,
    grid_shape,
    hide_frame,
    hide_spare,
    legend_columns,
    make_panels,
)
from bayesnmf.text import p_value
from bayesnmf.types import Array

OBSERVED = "#000000"
FAR = 10  # times the half of an interval, beyond which the axis of totals is logarithmic
UNITS = {
    "total": "counts",
    "share of zeros": "share of all entries",
    "largest count": "counts",
    "dispersion": "variance ÷ mean of all entries",
    "misfit": "Freeman–Tukey distance",
}


def predictive_checks(
    checks: PredictiveChecks | Fit, *, axes: Any = None, figsize: tuple[float, float] | None = None
) -> Array:
    """Draw predictive checks: statistics, row and feature totals, and how often each count occurs.

    Statistics: the histogram of what refitted replicates show, and a black line at the observed value; left out if too
    few were fitted. Totals: how far the observed totals are from the expected ones, in units of the square root of the
    expected total, as points, black outside of their predictive intervals; the axis is logarithmic beyond 5 where some
    are far outside. A right model would have 10 % of the totals of new counts outside their 90 % intervals, of the
    fitted counts fewer, as the fit has adapted to them. The last panel is a rootogram: for each count, the expected
    number of entries with this count as a bar with its interval, and the observed number as a black point, on a
    square-root scale. Under dirichlet_poisson, row totals are given, so the total and the row totals are left out.

    Parameters
    ----------
    checks : PredictiveChecks or Fit
        Result of `bayesnmf.predictive_checks`; for a Fit it is computed, with at most 200 replicates.
    axes : array of Axes, optional
        Axes to draw on, one for each panel: 8, or 6 under dirichlet_poisson.
    figsize : tuple of float, optional
        Width and height in inches.

    Returns
    -------
    ndarray of Axes

    See Also
    --------
    bayesnmf.predictive_checks : what it draws.
    """
    found = _checks_of(checks)
    statistics = [name for name in found.table.index if len(found.replicated[name])]
    sides = [side for side in ("rows", "features") if "observed" in getattr(found, side)]
    number = len(statistics) + len(sides) + 1
    shape = grid_shape(number, 3.0)
    grid, figure = make_panels(
        shape if axes is None else (1, number), (3.0 * shape[1], 2.7 * shape[0] + 0.4), figsize, axes
    )
    chosen = hide_spare(grid, number)
    colour = METHOD_COLOURS.get(found.method, OTHER_METHOD)
    for ax, name in zip(chosen, statistics, strict=False):
        _draw_statistic(ax, found, name, colour)
    for ax, side in zip(chosen[len(statistics) :], sides, strict=False):
        _draw_totals(ax, found, side, colour)
    _draw_rootogram(chosen[-1], found, colour)
    for ax in chosen:
        ax.tick_params(labelsize=SMALL)
        hide_frame(ax)
    if figure is not None:
        keys = _keys(colour, found.interval)
        columns = legend_columns([key.get_label() for key in keys], figure)
        figure.legend(handles=keys, loc="outside lower center", ncols=columns, frameon=False, fontsize=SMALL)
        made = f"{found.draws} replicated data sets, {found.refits} fitted again"
        figure.suptitle(f"{found.model} by {found.method}: observed and {made}", fontsize=11)
    return chosen


def _checks_of(given: Any) -> PredictiveChecks:
    from bayesnmf.plots.checks import check_predictive

    check_predictive(given, PredictiveChecks)
    if isinstance(given, PredictiveChecks):
        return given
    return replicate_and_compare(given)


def _keys(colour: str, interval: float) -> list[Any]:
    """Return what the legend shows: replicated counts in the colour of the method, observed ones in black."""
    point: dict[str, Any] = {"marker": "o", "markersize": 4, "linestyle": "none"}
    return [
        Patch(color=colour, alpha=0.6, label="replicated data sets"),
        Line2D([], [], color=colour, label=f"their {interval:.0%} intervals"),
        Line2D([], [], color=OBSERVED, label="observed statistic"),
        Line2D([], [], color=OBSERVED, label="observed counts", **point),
        Line2D([], [], color=QUIET, label="observed total inside its interval", **point),
    ]


def _draw_statistic(ax: Axes, found: PredictiveChecks, name: str, colour: str) -> None:
    row: Any = found.table.loc[name]
    values = np.asarray(found.replicated[name])
    ax.hist(values, bins=_bins(values), color=colour, alpha=0.6)
    ax.axvline(row["observed"], color=OBSERVED, linewidth=1.6)
    ax.set_title(f"{name}\np-value {p_value(row['p_value'])}", fontsize=9)
    ax.set_xlabel(UNITS[name], fontsize=SMALL)
    ax.set_ylabel("replicates", fontsize=SMALL)
    ax.set_yticks([])
    ax.ticklabel_format(axis="x", style="plain", useOffset=False)
    ax.locator_params(axis="x", nbins=3)


def _bins(values: Array) -> Any:
    """Return edges of a histogram of about 20 bins; each has equally many whole numbers, if the values are such."""
    low, high = values.min(), values.max()
    if np.all(values == np.rint(values)):
        step = max(np.ceil((high - low) / 20), 1)
        return np.arange(low - 0.5, high + step, step)
    return 20


def _draw_totals(ax: Axes, found: PredictiveChecks, side: str, colour: str) -> None:
    table = getattr(found, side).sort_values("mean")
    expected = table["mean"].to_numpy()
    unit = np.sqrt(np.where(expected > 0, expected, 1.0))
    observed, low, high = ((table[name].to_numpy() - expected) / unit for name in ("observed", "low", "high"))
    places = np.arange(len(table))
    ax.vlines(places, low, high, color=colour, alpha=0.5, linewidth=float(np.clip(150 / len(table), 0.5, 4)))
    outside = (observed < low) | (observed > high)
    size = float(np.clip(400 / len(table), 1, 12))
    ax.scatter(places[~outside], observed[~outside], s=size, color=QUIET, zorder=3)
    ax.scatter(places[outside], observed[outside], s=2 * size, color=OBSERVED, zorder=4)
    one = side.removesuffix("s")
    usual = f"right model: below {1 - found.interval:.0%}"  # of the totals of new counts just so many
    ax.set_title(f"{one} totals outside {found.interval:.0%} intervals:\n{outside.mean():.1%} ({usual})", fontsize=9)
    ax.set_xlabel(f"{side}, sorted by expected total", fontsize=SMALL)
    ax.set_ylabel("total − expected (counts),\n÷ √expected", fontsize=SMALL)
    if np.abs(observed).max() > FAR * max(np.abs(low).max(), np.abs(high).max()):
        ax.set_yscale("symlog", linthresh=5)


def _draw_rootogram(ax: Axes, found: PredictiveChecks, colour: str) -> None:
    table = found.histogram
    places = table.index.to_numpy()
    ax.bar(places, np.sqrt(table["mean"]), width=0.9, color=colour, alpha=0.4)
    ax.vlines(places, np.sqrt(table["low"]), np.sqrt(table["high"]), color=colour, linewidth=1.5)
    ax.plot(places, np.sqrt(table["observed"]), "o", color=OBSERVED, markersize=3)
    ticks = _square_ticks(float(table[["observed", "high"]].to_numpy().max()))
    ax.set_yticks(np.sqrt(ticks), [f"{tick:,}" for tick in ticks])
    ax.set_title("number of entries with each count\n(square-root scale)", fontsize=9)
    ax.set_xlabel("count", fontsize=SMALL)
    ax.set_ylabel("entries", fontsize=SMALL)


def _square_ticks(most: float) -> list[int]:
    """Return a few round numbers from 0 to `most`, evenly spaced by their square roots."""
    exact = np.linspace(0, np.sqrt(max(most, 1.0)), 5) ** 2
    return sorted({int(float(f"{value:.1g}")) for value in exact})
