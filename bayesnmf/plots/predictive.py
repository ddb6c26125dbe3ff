"""Draw observed counts beside replicated ones: could the fitted model, of one rank or another, have produced them?"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Unpack

import numpy as np
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from bayesnmf.assessment.predictive_checks import PredictiveChecks
from bayesnmf.assessment.predictive_checks import predictive_checks as replicate_and_compare
from bayesnmf.fitting.fitted import Fit
from bayesnmf.plots import style
from bayesnmf.plots.checks import check_checks_by_rank, check_result
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
    "structure": "times as large as by chance",
}


@style.figure("array of Axes", "Axes to draw on, one for each panel: statistics, and 3, or 2 under dirichlet_poisson.")
def predictive_checks(checks: PredictiveChecks | Fit, **panels: Unpack[style.Panels]) -> Array:
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

    Returns
    -------
    ndarray of Axes

    See Also
    --------
    bayesnmf.predictive_checks : what it draws.
    """
    found = replicate_and_compare(checks) if isinstance(checks, Fit) else checks
    check_result(found, PredictiveChecks, "checks", "bayesnmf.predictive_checks, or a Fit")
    statistics = [name for name in found.table.index if len(found.replicated[name])]
    sides = [side for side in ("rows", "features") if "observed" in getattr(found, side)]
    number = len(statistics) + len(sides) + 1
    chosen, figure = style.make_row(number, (3.0, 2.7), 0.4, **panels)
    colour = style.METHOD_COLOURS.get(found.method, style.OTHER_METHOD)
    for ax, name in zip(chosen, statistics, strict=False):
        _draw_statistic(ax, found, name, colour)
    for ax, side in zip(chosen[len(statistics) :], sides, strict=False):
        _draw_totals(ax, found, side, colour)
    _draw_rootogram(chosen[-1], found, colour)
    if figure is not None:
        style.legend_below(figure, _keys(colour, found.interval))
        made = f"{found.draws} replicated data sets, {found.refits} fitted again"
        figure.suptitle(f"{found.model} by {found.method}: observed and {made}", fontsize=11)
    return chosen


def _keys(colour: str, interval: float) -> list[Any]:
    """Return what the legend shows: replicated counts in the colour of the method, observed ones in black."""
    point: dict[str, Any] = {"marker": "o", "markersize": 4, "linestyle": "none"}
    return [
        Patch(color=colour, alpha=0.6, label="replicated data sets"),
        Line2D([], [], color=colour, label=f"their {interval:.0%} intervals"),
        Line2D([], [], color=OBSERVED, label="observed statistic"),
        Line2D([], [], color=OBSERVED, label="observed counts", **point),
        Line2D([], [], color=style.QUIET, label="observed total inside its interval", **point),
    ]


def _draw_statistic(ax: Axes, found: PredictiveChecks, name: str, colour: str) -> None:
    row: Any = found.table.loc[name]
    values = np.asarray(found.replicated[name])
    ax.hist(values, bins=_bins(values), color=colour, alpha=0.6)
    ax.axvline(row["observed"], color=OBSERVED, linewidth=1.6)
    style.dress(ax, f"{name}\np-value {p_value(row['p_value'])}", UNITS[name], "replicates", heading=9)
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
    ax.scatter(places[~outside], observed[~outside], s=size, color=style.QUIET, zorder=3)
    ax.scatter(places[outside], observed[outside], s=2 * size, color=OBSERVED, zorder=4)
    one = side.removesuffix("s")
    usual = f"right model: below {1 - found.interval:.0%}"  # of the totals of new counts just so many
    title = f"{one} totals outside {found.interval:.0%} intervals:\n{outside.mean():.1%} ({usual})"
    style.dress(ax, title, f"{side}, sorted by expected total", "total − expected (counts),\n÷ √expected", heading=9)
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
    style.dress(ax, "number of entries with each count\n(square-root scale)", "count", "entries", heading=9)


def _square_ticks(most: float) -> list[int]:
    """Return a few round numbers from 0 to `most`, evenly spaced by their square roots."""
    exact = np.linspace(0, np.sqrt(max(most, 1.0)), 5) ** 2
    return sorted({int(float(f"{value:.1g}")) for value in exact})


@style.figure()
def misfit(
    checks: Mapping[int, PredictiveChecks] | Mapping[str, Mapping[int, PredictiveChecks]], **panels: Unpack[style.Panel]
) -> Axes:
    """Draw how much worse fits of several ranks describe the counts than a right model would.

    A point is the misfit of the counts, divided by the mean misfit of refitted replicates, which is 1 for a right
    model; the band has the intervals of the replicates. Points above the band say that the counts vary more than the
    model allows: the rank is too small, or the noise is not that of the model, which no rank mends.

    Parameters
    ----------
    checks : mapping of int to PredictiveChecks, or mapping of str to such mappings
        Results of `bayesnmf.predictive_checks` by rank, of one series of fits, or of several by label.

    Returns
    -------
    Axes

    Raises
    ------
    TypeError, ValueError
        What is no result of `bayesnmf.predictive_checks`, or none at all.

    See Also
    --------
    predictive_checks : the checks of one fit, all of them.

    Examples
    --------
    >>> import bayesnmf
    >>> counts = bayesnmf.simulate(size=(20, 10), rank=3, seed=0).counts
    >>> fits = {rank: bayesnmf.fit(counts, rank=rank, seed=0) for rank in (1, 3)}
    >>> checks = {rank: bayesnmf.predictive_checks(fit, draws=20, refits=10) for rank, fit in fits.items()}
    >>> bayesnmf.plots.misfit(checks)  # doctest: +SKIP
    """
    series = check_checks_by_rank(checks, PredictiveChecks)
    ax = style.make_panel((6.5, 4.0), **panels)
    for place, (label, by_rank) in enumerate(series.items()):
        _draw_ranks(ax, by_rank, style.shorten(label, 40), place)
    ax.axhline(1, color=style.QUIET, linewidth=1, zorder=0)
    style.name_ranks(ax, np.unique([rank for by_rank in series.values() for rank in by_rank]))
    ax.set_yscale("log")
    ax.yaxis.set_major_formatter("{x:g}")
    ax.yaxis.set_minor_formatter("{x:.2g}")
    ax.tick_params(which="minor", labelsize=style.SMALL)
    style.dress(ax, y="misfit, as a multiple of that of a right model", size=10)
    ax.legend(fontsize=style.SMALL, frameon=False)
    return ax


def _draw_ranks(ax: Axes, by_rank: Mapping[int, PredictiveChecks], label: str, place: int) -> None:
    """Draw one series of ranks with the interval of its replicates."""
    ranks = sorted(by_rank)
    rows: list[Any] = [by_rank[rank].table.loc["misfit"] for rank in ranks]
    observed, low, high = (
        np.array([row[name] / row["mean"] for row in rows], float) for name in ("observed", "low", "high")
    )
    look: dict[str, Any] = {
        "color": style.PALETTE[place % len(style.PALETTE)],
        "marker": style.MARKERS[place % len(style.MARKERS)],
    }
    inside = f"{by_rank[ranks[0]].interval:.0%} of the replicates"
    ax.fill_between(ranks, low, high, color=look["color"], alpha=0.2, linewidth=0,
                    label=f"{label}: {inside}" if label else inside)  # fmt: skip
    ax.plot(ranks, observed, label=label or "observed", markersize=5, **look)
