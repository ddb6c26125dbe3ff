"""Draw ranks of simulation-based calibration: histograms, and the distance of their distribution from uniform."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any, Unpack

import numpy as np
from matplotlib.axes import Axes
from scipy.stats import binom

from bayesnmf.checks import check_choice, check_count, check_words
from bayesnmf.plots import style
from bayesnmf.plots.checks import check_calibrations
from bayesnmf.studies.calibration import Calibration
from bayesnmf.text import p_value
from bayesnmf.types import Array

BAND, SIMULATED_BANDS = 0.99, 2000
PANEL = 2.2  # width of a panel, in inches


@style.figure("array of Axes", "Axes to draw on, of shape (2, quantities).")
def calibration(
    results: Calibration | Mapping[str, Calibration],
    quantities: Iterable[str] | None = None,
    bins: int = 20,
    **panels: Unpack[style.Panels],
) -> Array:
    """Draw rank histograms, and below them the difference of the ranks' distribution from a uniform one.

    Histograms are relative to the mean number of uniform ranks in a bin, with a band that contains a bin's number with
    probability 99 %. Below is the empirical distribution function of the ranks minus that of uniform ranks, with
    ArviZ's band, which contains the whole curve with probability 99 % ([1]_). A ∪-shaped histogram means posteriors
    that are too narrow; a sloping one, bias. Several calibrations are drawn over each other. Titles give the p-value
    of `Calibration.p_values`, of several the smallest; bands are those of the calibration with the fewest simulations.

    Parameters
    ----------
    results : Calibration or mapping of str to Calibration
        Calibrations to draw.
    quantities : iterable of str, optional
        Names of the quantities; by default those in all of the calibrations.
    bins : int
        Number of bins of the histograms.

    Returns
    -------
    ndarray of Axes, (2, quantities)
        Histograms, and differences of distribution functions.

    See Also
    --------
    bayesnmf.calibrate : what it draws.

    References
    ----------
    .. [1] T. Säilynoja, P.-C. Bürkner and A. Vehtari (2022). Graphical test for discrete uniformity and its
       applications in goodness-of-fit evaluation and multiple sample comparison. Statistics and Computing 32, 32.
    """
    named = check_calibrations(results)
    check_count(bins, "bins", minimum=2)
    chosen = _chosen(named, quantities)
    grid, figure = _grid(len(chosen), **panels)
    fewest = min(result.simulations for result in named.values())
    p_values = {label: result.p_values() for label, result in named.items()}
    for quantity, (upper, lower) in zip(chosen, grid.T, strict=True):
        _draw_bands(upper, lower, fewest, bins)
        for label, look in style.looks_of_fits(named).items():  # type: ignore[arg-type]
            result = named[label]
            pit = result.pit[:, result.quantities.index(quantity)]
            _draw_histogram(upper, pit, bins, look, filled=len(named) == 1)
            _draw_difference(lower, pit, look, label)
        ranked = {label: p[quantity] for label, p in p_values.items()}
        upper.set_title(f"{quantity.replace('_', ' ')}\n{_p_words(ranked)}", fontsize=9)
    for row, label in zip(grid, ("simulations\n÷ expected", "ECDF − uniform"), strict=True):
        for ax in row:
            if ax is row[0] or ax.get_subplotspec().is_first_col():
                ax.set_ylabel(label, fontsize=style.SMALL)
    if figure is not None:
        figure.suptitle(_headline(named), fontsize=11)
    style.share_legend(grid[1], figure)
    return grid


def _chosen(named: Mapping[str, Calibration], quantities: Iterable[str] | None) -> list[str]:
    """Return the requested quantities, or those that all calibrations have."""
    first, *others = named.values()
    shared = [name for name in first.quantities if all(name in other.quantities for other in others)]
    if quantities is None:
        return shared
    return [check_choice(name, "quantities", shared) for name in check_words(quantities, "quantities")]


def _grid(count: int, **panels: Unpack[style.Panels]) -> tuple[Array, Any]:
    """Return axes (2, count); on a new figure, in blocks of two rows."""
    if panels.get("axes") is not None:
        return style.make_panels((2, count), (1, 1), **panels)
    width, _ = panels.get("figsize") or (style.WIDEST, None)
    blocks, columns = style.grid_shape(count, PANEL, width)
    size = (max(PANEL * columns, style.LEGIBLE), 3.4 * blocks + 0.8)
    made, figure = style.make_panels((2 * blocks, columns), size, **panels)
    for part in range(2):
        for spare in made[part::2].flat[count:]:
            spare.remove()
    return np.stack([made[part::2].ravel()[:count] for part in range(2)]), figure


def _draw_bands(upper: Axes, lower: Axes, simulations: int, bins: int) -> None:
    tail = (1 - BAND) / 2
    low, high = np.asarray(binom.ppf([tail, 1 - tail], simulations, 1 / bins)) * bins / simulations
    upper.axhspan(low, high, color="0.92", zorder=0)
    upper.axhline(1, color=style.QUIET, linewidth=0.8, zorder=1)
    at, below, above = ecdf_band(simulations)
    lower.fill_between(at, below - at, above - at, color="0.92", step="post", linewidth=0, zorder=0)
    lower.axhline(0, color=style.QUIET, linewidth=0.8, zorder=1)


@lru_cache(maxsize=32)
def ecdf_band(simulations: int) -> tuple[Array, Array, Array]:
    """Return points, and the ends of ArviZ's simultaneous band for the ECDF of this number of PIT values."""
    from arviz_stats.ecdf_utils import ecdf_pit

    at, _, low, high = ecdf_pit(np.linspace(0, 1, simulations), BAND, SIMULATED_BANDS)
    return at, low, high


def _draw_histogram(ax: Axes, pit: Array, bins: int, look: style.Look, filled: bool) -> None:
    counts, edges = np.histogram(pit, bins, (0, 1))
    heights = counts * bins / len(pit)
    if filled:
        ax.stairs(heights, edges, fill=True, color=look.colour, alpha=0.45)
    ax.stairs(heights, edges, color=look.colour, linestyle=look.line, linewidth=1.2, baseline=0 if filled else None)
    ax.set_ylim(0, max(ax.get_ylim()[1], 1.05 * heights.max(), 2.0))
    _dress(ax)


def _draw_difference(ax: Axes, pit: Array, look: style.Look, label: str) -> None:
    at = np.concatenate([[0.0], np.sort(pit), [1.0]])
    reached = np.concatenate([[0.0], np.arange(1, len(pit) + 1) / len(pit), [1.0]])
    ax.plot(at, reached - at, color=look.colour, linestyle=look.line, linewidth=1.3, label=label)
    _dress(ax, "rank ÷ (draws + 1)")


def _dress(ax: Axes, x: str = "") -> None:
    ax.set_xlim(0, 1)
    ax.set_xticks([0, 0.5, 1], ["0", "½", "1"])
    style.dress(ax, x=x)


def _p_words(p_values: Mapping[str, float]) -> str:
    """Return the p-value as text, or the smallest of several and whose it is."""
    label = min(p_values, key=lambda each: p_values[each])
    value = f"p-value {p_value(p_values[label])}"
    return value if len(p_values) == 1 else f"smallest {value}\n({style.shorten(label)})"


def _headline(named: Mapping[str, Calibration]) -> str:
    models = dict.fromkeys(result.model for result in named.values())
    counts = {result.simulations for result in named.values()}
    number = f"{min(counts)}" if len(counts) == 1 else f"{min(counts)} to {max(counts)}"
    return f"Ranks of the truth among posterior draws: {', '.join(models)}, {number} simulations"
