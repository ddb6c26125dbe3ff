"""Mutational signatures as they are usually drawn: a bar for each of the 96 single base substitutions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.patches import Rectangle

from bayesnmf.data.mutations import sbs96_types
from bayesnmf.fitting.fitted import Fit
from bayesnmf.plots.checks import check_fits, check_sbs96
from bayesnmf.plots.style import SMALL, hide_frame, looks_of_fits, make_panels, share_legend, shorten
from bayesnmf.plots.summaries import Interval, match_fits, named_sources, summarise
from bayesnmf.types import Array

INTERVAL = 0.9
COLOURS = {"C>A": "#03BCEE", "C>G": "#010101", "C>T": "#E32926", "T>A": "#CAC9C9", "T>C": "#A1CE63", "T>G": "#EBC6C4"}
"""Colours of the substitutions, as COSMIC has them."""
EACH = 16  # types of each substitution
BASES = 4
STRIP = 0.06  # height of the coloured strip above a panel, as a share of the panel


def sbs96(
    fits: Mapping[str, Fit] | Fit, *, reference: str | None = None, axes: Any = None, figsize: Any = None
) -> Array:
    """Draw components of the 96 types of single base substitutions, one panel each, with 90 % intervals.

    Every component is divided by its sum. Bars are posterior medians of the reference (modes for map and bld), in the
    order and the colours of COSMIC, whatever the order of the features. Lines are intervals from the 5 to the 95 %
    quantile; other fits have a marker each.

    Parameters
    ----------
    fits : mapping of str to Fit, or Fit
        Fits of the same rank and features. Their components are matched to those of the reference.
    reference : str, optional
        Label of the fit that determines the bars and the order of the components; by default the first.
    axes : array of Axes, optional
        Axes to draw on, K of them.
    figsize : tuple of float, optional
        Width and height in inches.

    Returns
    -------
    ndarray of Axes, (K,)

    Raises
    ------
    TypeError, ValueError
        Not fits, or features that are not the 96 types.
    """
    fits = check_fits(fits)
    reference, orders = match_fits(fits, reference)
    target = fits[reference]
    places = check_sbs96(target.feature_names)
    grid, figure = make_panels((target.rank, 1), (9, 1.5 * target.rank + 0.9), figsize, axes)
    chosen = grid.ravel()
    found = {label: summarise(fit, "components", (orders[label][:, None], places[None, :]), INTERVAL)
             for label, fit in fits.items()}  # fmt: skip
    for k, ax in enumerate(chosen):
        _bars(ax, found[reference], k)
        for turn, (label, look) in enumerate(looks_of_fits(fits).items()):
            offset = (turn - (len(fits) - 1) / 2) * 0.6 / len(fits)
            _intervals(ax, found[label], k, np.arange(len(places)) + offset, look if len(fits) > 1 else None, label)
        _dress(ax, shorten(target.component_titles[k]), k == len(chosen) - 1)
    if figure is not None:
        title = f"Components, each summing to 1: posterior median and 90 % interval{named_sources(fits, figure)}"
        figure.suptitle(title, fontsize=10)
    if len(fits) > 1:
        share_legend(chosen, figure)
    return chosen


def _bars(ax: Axes, found: Interval, k: int) -> None:
    colours = np.repeat([*COLOURS.values()], EACH)
    ax.bar(np.arange(len(colours)), found.middle[k], width=0.8, color=colours, zorder=1)


def _intervals(ax: Axes, found: Interval, k: int, places: Array, look: Any, label: str) -> None:
    colour = "0.35" if look is None else look.colour
    if found.low is not None and found.high is not None:
        ax.vlines(places, found.low[k], found.high[k], color=colour, linewidth=0.8, zorder=2)
    if look is not None:
        ax.plot(places, found.middle[k], look.marker, color=colour, markersize=2, linestyle="none", zorder=3,
                label=f"{label}{found.kind}")  # fmt: skip


def _dress(ax: Axes, title: str, is_last: bool) -> None:
    """Write the title beside the panel, the substitutions above it, and the contexts below the last one."""
    for turn, (name, colour) in enumerate(COLOURS.items()):
        corner = (turn * EACH - 0.4, 1.0)
        ax.add_patch(Rectangle(corner, EACH - 0.2, STRIP, color=colour, transform=ax.get_xaxis_transform(),
                               clip_on=False, linewidth=0))  # fmt: skip
        ax.text((turn + 0.5) * EACH - 0.5, 1.02 + STRIP, name, transform=ax.get_xaxis_transform(), ha="center",
                va="bottom", fontsize=SMALL)  # fmt: skip
    before = [name[0] for name in sbs96_types()[::BASES]]  # four bars each, for A, C, G and T after the mutated base
    middles = BASES * np.arange(len(before)) + (BASES - 1) / 2
    ax.set_xticks(middles, before if is_last else [], fontsize=SMALL)
    if is_last:
        ax.set_xlabel("base before the mutated one; of its four bars, the base after it is A, C, G, T", fontsize=SMALL)
    ax.tick_params(axis="x", length=0, pad=1)
    ax.tick_params(axis="y", labelsize=SMALL)
    ax.set_xlim(-0.7, BASES * len(before) - 0.3)
    ax.set_ylim(bottom=0)
    ax.set_ylabel("share", fontsize=SMALL)
    ax.text(1.01, 0.5, title, transform=ax.transAxes, rotation=270, va="center", fontsize=SMALL)
    hide_frame(ax)
