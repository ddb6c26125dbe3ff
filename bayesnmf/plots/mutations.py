"""Mutational signatures as they are usually drawn: a bar for each type, below coloured strips."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import to_rgb
from matplotlib.patches import Rectangle
from matplotlib.transforms import ScaledTranslation, blended_transform_factory

from bayesnmf.assessment.matching import Match
from bayesnmf.fitting.fitted import Fit
from bayesnmf.plots.checks import check_fits, check_known, check_signatures
from bayesnmf.plots.strips import STRANDS, Layout, lay_out, runs
from bayesnmf.plots.style import SMALL, Look, hide_frame, leading, looks_of_fits, make_panels, share_legend, shorten
from bayesnmf.plots.summaries import Interval, match_fits, named_middles, named_sources, summarise_sums
from bayesnmf.types import Array

INTERVAL = 0.9
LINE = 0.19  # height of a strip or of a line of text above a panel, in inches
WIDTH = 0.8  # of the bars of one type


def signatures(
    fits: Mapping[str, Fit] | Fit,
    known: Match | None = None,
    *,
    n: int | None = None,
    reference: str | None = None,
    axes: Any = None,
    figsize: tuple[float, float] | None = None,
) -> Array:
    """Draw components of mutation types, one panel each, with 90 % intervals, in the order and the colours of COSMIC.

    The panels are those of the kind of the features, whatever their order and spelling: single base substitutions
    (SBS96), doublets (DBS78), insertions and deletions (ID83), copy numbers (CN48) and structural variants (SV32).
    Types that are told apart by strand (SBS192, SBS288, SBS384) have a bar for each strand; SBS1536 is summed over the
    outer bases. Every component is divided by its sum. Bars are posterior medians of the reference (modes for map and
    bld). Lines are intervals from the 5 to the 95 % quantile; other fits have a marker each.

    Parameters
    ----------
    fits : mapping of str to Fit, or Fit
        Fits of the same rank and features. Their components are matched to those of the reference.
    known : Match, optional
        ``bayesnmf.match(fit, catalogue)`` of the reference. A component's title then has the name of its match and
        their cosine, as "S1: SBS3 (0.97)"; one without a match has its own title alone.
    n : int, optional
        Number of components to draw, by default all: those with most expected counts in the reference.
    reference : str, optional
        Label of the fit that determines the bars and the order of the components; by default the first.
    axes : array of Axes, optional
        Axes to draw on, one for each component that is drawn.
    figsize : tuple of float, optional
        Width and height in inches.

    Returns
    -------
    ndarray of Axes, (K,) or (n,)

    Raises
    ------
    TypeError, ValueError
        Not fits, features that are not all types of one kind, or a match of other components.

    See Also
    --------
    bayesnmf.match : which known signatures the components are.
    bayesnmf.plots.components : the same for any features.
    """
    reference, orders = match_fits(fits := check_fits(fits), reference)
    target = fits[reference]
    layout, drawn = lay_out(check_signatures(target.feature_names)), leading(target.expected_sizes, n, target.rank)
    titles = [_titles(target, known)[k] for k in drawn]
    height = 1.2 + LINE * (2 + any(bar.heading for bar in layout.bars))
    grid, figure = make_panels((len(drawn), 1), (9, height * len(drawn) + 0.9), figsize, axes)
    chosen = grid.ravel()
    found = {label: {strand: summarise_sums(fit, orders[label][drawn], members, INTERVAL)
                     for strand, members in layout.members.items()} for label, fit in fits.items()}  # fmt: skip
    for k, ax in enumerate(chosen):
        for turn, strand in enumerate(layout.members):
            places = np.arange(len(layout.bars)) + (turn - (len(layout.members) - 1) / 2) * WIDTH / len(layout.members)
            _bars(ax, layout, strand, places, found[reference][strand].middle[k])
            for label, look, there in _side_by_side(fits, places, WIDTH / len(layout.members)):
                _intervals(ax, found[label][strand], k, there, (look, label if not turn else ""))
        _dress(ax, layout, titles[k], k == len(chosen) - 1)
    if figure is not None:
        about = f"{named_middles(fits)}{named_sources(fits, figure)}"
        figure.suptitle(f"Components, each summing to 1: {about}", fontsize=10)
    if len(fits) > 1 or len(layout.members) > 1:
        share_legend(chosen, figure)
    return chosen


def _titles(fit: Fit, known: Match | None) -> list[str]:
    """Return the title of each component, with its match in a catalogue."""
    table = check_known(known, fit)
    titles = [shorten(title) for title in fit.component_titles]
    if table is not None:
        for k, name, cosine in zip(table["component"], table["reference"], table["cosine"], strict=True):
            short = shorten(name)  # which the component may be named after already
            titles[k] = f"{short if short == titles[k] else f'{titles[k]}: {short}'} ({cosine:.2f})"
    return titles


def _bars(ax: Axes, layout: Layout, strand: str, places: Array, heights: Array) -> None:
    name, colour = STRANDS.get(strand, (None, None))
    edge: dict[str, Any] = {"edgecolor": "0.3", "linewidth": 0.5} if layout.kind.outlined else {}
    ax.bar(places, heights, width=WIDTH / len(layout.members), color=colour or [bar.colour for bar in layout.bars],
           zorder=1, label=name, **edge)  # fmt: skip


def _side_by_side(fits: Mapping[str, Fit], places: Array, width: float) -> list[tuple[str, Look | None, Array]]:
    """Return for each fit its label, its look if there are several, and its places among those of all."""
    looks = looks_of_fits(fits)
    return [
        (label, looks[label] if len(fits) > 1 else None, places + ((turn + 0.5) / len(fits) - 0.5) * 0.75 * width)
        for turn, label in enumerate(fits)
    ]


def _intervals(ax: Axes, found: Interval, k: int, places: Array, named: tuple[Look | None, str]) -> None:
    look, label = named
    colour = "0.35" if look is None else look.colour
    if found.low is not None and found.high is not None:
        ax.vlines(places, found.low[k], found.high[k], color=colour, linewidth=0.8, zorder=2)
    if look is not None:
        ax.plot(places, found.middle[k], look.marker, color=colour, markersize=2, linestyle="none", zorder=3,
                label=found.named(label) if label else None)  # fmt: skip


def _dress(ax: Axes, layout: Layout, title: str, is_last: bool) -> None:
    """Write the strips above the panel, the title above them, and the names of the bars below the last one."""
    bars, kind = layout.bars, layout.kind
    # Inches above the panel, whatever its height.
    above = ax.figure.dpi_scale_trans + ScaledTranslation(0, 1, ax.transAxes)  # type: ignore[arg-type]
    where = blended_transform_factory(ax.transData, above)
    strips = runs((bar.heading, bar.strip) for bar in bars)
    for start, end, (_, label) in strips:
        colour = bars[end - 1].colour
        ax.add_patch(Rectangle((start - 0.4, 0.03), end - start - 0.2, LINE, color=colour, transform=where,
                               clip_on=False, linewidth=0))  # fmt: skip
        ink = "white" if np.dot(to_rgb(colour), (0.3, 0.59, 0.11)) < 0.55 else "black"
        ax.text((start + end - 1) / 2, 0.03 + LINE / 2, label, transform=where, ha="center", va="center_baseline",
                fontsize=SMALL, color=ink)  # fmt: skip
    headings = [each for each in runs(bar.heading for bar in bars) if each[2]]
    for start, end, heading in headings:
        ax.text((start + end - 1) / 2, 0.06 + LINE, heading, transform=where, ha="center", va="bottom", fontsize=SMALL)
    ax.set_title(title, loc="left", fontsize=10, pad=72 * (0.08 + LINE * (1 + bool(headings))))
    ax.set_xticks([])
    if is_last:
        _name_bars(ax, layout)
        ax.set_xlabel(kind.label + layout.note, fontsize=SMALL)
    ax.tick_params(axis="x", which="both", length=0)
    ax.tick_params(axis="y", labelsize=SMALL)
    ax.set_xlim(-0.7, len(bars) - 0.3)
    ax.set_ylim(bottom=0)
    ax.set_ylabel("share", fontsize=SMALL)
    hide_frame(ax)


def _name_bars(ax: Axes, layout: Layout) -> None:
    """Write the name of each run of bars below it; every second one a line lower, if they are staggered."""
    bars, kind = layout.bars, layout.kind
    named = []
    for first, after, _ in runs(bar.heading for bar in bars):
        inside = runs((bar.strip, bar.name) for bar in bars[first:after])
        chosen = inside if kind.every == 1 else inside[: 0 : -kind.every][::-1]
        named += [(first + (start + end - 1) / 2, name) for start, end, (_, name) in chosen]
    lower = named[1::2] if kind.staggered else [
        ((start + end - 1) / 2, name) for start, end, (_, name) in runs((bar.heading, bar.below) for bar in bars)
    ]  # fmt: skip
    upper = named[::2] if kind.staggered else named
    ax.xaxis.remove_overlapping_locs = False  # the lines do not stand in each other's way
    family = {"family": "monospace"} if kind.staggered else {}  # narrower, so that names do not touch
    for minor, labels in ((False, upper), (True, lower)):
        ax.set_xticks([place for place, _ in labels], [name for _, name in labels], minor=minor, fontsize=SMALL,
                      rotation=90 if kind.turned else 0, **family)  # fmt: skip
    ax.tick_params(axis="x", which="major", pad=3)
    ax.tick_params(axis="x", which="minor", pad=4 + SMALL * 1.2)
