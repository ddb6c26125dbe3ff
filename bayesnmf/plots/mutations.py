"""Mutational signatures as they are usually drawn: a bar for each type, below coloured strips.

The order and the colours of the bars are those of SigProfilerPlotting 1.4.3, which draws the figures of COSMIC.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from itertools import groupby
from typing import Any, NamedTuple, Unpack

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import to_rgb
from matplotlib.patches import Rectangle
from matplotlib.transforms import ScaledTranslation, blended_transform_factory

from bayesnmf.assessment.assignment import Assignment
from bayesnmf.assessment.matching import Match
from bayesnmf.checks import check_count
from bayesnmf.data import mutations
from bayesnmf.fitting.fitted import Fit
from bayesnmf.plots import style, summaries
from bayesnmf.plots.checks import check_fits, check_has_moved, check_known, check_signatures
from bayesnmf.types import Array

INTERVAL = 0.9
LINE = 0.19  # height of a strip or of a line of text above a panel, in inches
WIDTH = 0.8  # of the bars of one type
CHANGED = 20  # features whose shares changed most, where they are no mutation types
KNOWN: dict[str, Any] = {"marker": "_", "color": "black", "markersize": 6, "linestyle": "none", "zorder": 3}


@style.figure("array of Axes", "Axes to draw on, one for each component that is drawn.")
def signatures(
    fits: Mapping[str, Fit] | Fit,
    known: Match | None = None,
    *,
    n: int | None = None,
    reference: str | None = None,
    **panels: Unpack[style.Panels],
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
    reference, orders = summaries.match_fits(fits := check_fits(fits), reference)
    target = fits[reference]
    layout = lay_out(check_signatures(target.feature_names))
    drawn = style.leading(target.expected_sizes, n, target.rank)
    titles = [_titles(target, known)[k] for k in drawn]
    height = 1.2 + LINE * (2 + any(bar.heading for bar in layout.bars))
    grid, figure = style.make_panels((len(drawn), 1), (9, height * len(drawn) + 0.9), **panels)
    chosen = grid.ravel()
    found = {label: {strand: summaries.summarise_sums(fit, orders[label][drawn], members, INTERVAL)
                     for strand, members in layout.members.items()} for label, fit in fits.items()}  # fmt: skip
    for k, ax in enumerate(chosen):
        for turn, strand in enumerate(layout.members):
            places = np.arange(len(layout.bars)) + (turn - (len(layout.members) - 1) / 2) * WIDTH / len(layout.members)
            _bars(ax, layout, strand, places, found[reference][strand].middle[k])
            for label, look, there in _side_by_side(fits, places, WIDTH / len(layout.members)):
                _intervals(ax, found[label][strand], k, there, (look, label if not turn else ""))
        _dress(ax, layout, titles[k], k == len(chosen) - 1)
    if figure is not None:
        about = f"{summaries.named_middles(fits)}{summaries.named_sources(fits, figure)}"
        figure.suptitle(f"Components, each summing to 1: {about}", fontsize=10)
    if len(fits) > 1 or len(layout.members) > 1:
        style.share_legend(chosen, figure)
    return chosen


@style.figure("array of Axes", "Axes to draw on, one for each component that is drawn.")
def moved(found: Assignment | Fit, n: int = 6, **panels: Unpack[style.Panels]) -> Array:
    """Draw where known components have moved to, and where they were: those that samples have and that moved most.

    Bars are a component as it is now, marks the known one, both with the sum 1; the title has the cosine between them.
    Mutation types stand in the order and colours of COSMIC, as in `signatures`; of other features those are drawn whose
    shares changed most.

    Parameters
    ----------
    found : Assignment or Fit
        Result of `bayesnmf.assign` or `bayesnmf.fit`, with `drift`.
    n : int
        Number of components to draw, those with the smallest cosines.

    Returns
    -------
    ndarray of Axes, (n,)

    See Also
    --------
    bayesnmf.Assignment : Its `moved` has all cosines, and so has that of `bayesnmf.Fit`.
    """
    known, now, names, used = check_has_moved(found)
    cosine = found.moved["cosine"].to_numpy()  # type: ignore[index]
    order = np.flatnonzero(used)[np.argsort(cosine[used], kind="stable")][: check_count(n, "n")]
    types = mutations.read_types(found.feature_names)
    layout = lay_out(types.names) if types is not None and types.is_complete else None
    height = 1.2 if layout is None else 1.2 + LINE * (2 + any(bar.heading for bar in layout.bars))
    grid, figure = style.make_panels((len(order), 1), (9, height * len(order) + 0.9), **panels)
    chosen = grid.ravel()
    for ax, k in zip(chosen, order, strict=True):
        title = f"{style.shorten(names[k])} ({cosine[k]:.3f})"
        if layout is None:
            _changes(ax, known[k], now[k], found.feature_names, title)
            continue
        for turn, (strand, members) in enumerate(layout.members.items()):
            places = np.arange(len(members)) + (turn - (len(layout.members) - 1) / 2) * WIDTH / len(layout.members)
            one, two = ([each[k][bar].sum() for bar in members] for each in (known, now))
            _bars(ax, layout, strand, places, np.array(two))
            ax.plot(places, one, **KNOWN)
        _dress(ax, layout, title, k == order[-1])
    if figure is not None:
        figure.suptitle("Components as they are now (bars) and as they were known (marks), with cosines", fontsize=10)
    if layout is not None and len(layout.members) > 1:
        style.share_legend(chosen, figure)
    return chosen


def _changes(ax: Axes, known: Array, now: Array, names: Array, title: str) -> None:
    """Draw the features whose shares changed most, in their order."""
    shown = np.sort(np.argsort(-np.abs(now - known), kind="stable")[:CHANGED])
    ax.bar(range(len(shown)), now[shown], width=WIDTH, color=style.OTHERS)
    ax.plot(range(len(shown)), known[shown], **KNOWN)
    ax.set_xticks(range(len(shown)), [style.called(names[j], "feature", 12) for j in shown],
                  **style.SLANTED, fontsize=style.SMALL)  # fmt: skip
    style.dress(ax, title, y="share")


def _titles(fit: Fit, known: Match | None) -> list[str]:
    """Return the title of each component, with its match in a catalogue."""
    table = check_known(known, fit)
    titles = [style.shorten(title) for title in fit.component_titles]
    if table is not None:
        for k, name, cosine in zip(table["component"], table["reference"], table["cosine"], strict=True):
            short = style.shorten(name)  # which the component may be named after already
            titles[k] = f"{short if short == titles[k] else f'{titles[k]}: {short}'} ({cosine:.2f})"
    return titles


def _bars(ax: Axes, layout: Layout, strand: str, places: Array, heights: Array) -> None:
    name, colour = STRANDS.get(strand, (None, None))
    edge: dict[str, Any] = {"edgecolor": "0.3", "linewidth": 0.5} if layout.kind.outlined else {}
    ax.bar(places, heights, width=WIDTH / len(layout.members), color=colour or [bar.colour for bar in layout.bars],
           zorder=1, label=name, **edge)  # fmt: skip


def _side_by_side(fits: Mapping[str, Fit], places: Array, width: float) -> list[tuple[str, style.Look | None, Array]]:
    """Return for each fit its label, its look if there are several, and its places among those of all."""
    looks = style.looks_of_fits(fits)
    return [
        (label, looks[label] if len(fits) > 1 else None, places + ((turn + 0.5) / len(fits) - 0.5) * 0.75 * width)
        for turn, label in enumerate(fits)
    ]


def _intervals(
    ax: Axes, found: summaries.Interval, k: int, places: Array, named: tuple[style.Look | None, str]
) -> None:
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
        ink = "white" if np.dot(to_rgb(colour), style.LUMINANCE) < 0.55 else "black"
        ax.text((start + end - 1) / 2, 0.03 + LINE / 2, label, transform=where, ha="center", va="center_baseline",
                fontsize=style.SMALL, color=ink)  # fmt: skip
    headings = [each for each in runs(bar.heading for bar in bars) if each[2]]
    for start, end, heading in headings:
        ax.text((start + end - 1) / 2, 0.06 + LINE, heading, transform=where, ha="center", va="bottom",
                fontsize=style.SMALL)  # fmt: skip
    ax.set_title(title, loc="left", fontsize=10, pad=72 * (0.08 + LINE * (1 + bool(headings))))
    ax.set_xticks([])
    if is_last:
        _name_bars(ax, layout)
        ax.set_xlabel(kind.label + layout.note, fontsize=style.SMALL)
    ax.tick_params(axis="x", which="both", length=0)
    ax.set_xlim(-0.7, len(bars) - 0.3)
    ax.set_ylim(bottom=0)
    style.dress(ax, y="share")


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
        ax.set_xticks([place for place, _ in labels], [name for _, name in labels], minor=minor, fontsize=style.SMALL,
                      rotation=90 if kind.turned else 0, **family)  # fmt: skip
    ax.tick_params(axis="x", which="major", pad=3)
    ax.tick_params(axis="x", which="minor", pad=4 + style.SMALL * 1.2)


# --- what a panel of mutation types looks like --------------------------------------------------------


class Bar(NamedTuple):
    """What is written around one bar; neighbours with the same heading, strip or name share it."""

    heading: str
    strip: str
    name: str
    colour: str
    below: str = ""


class Kind(NamedTuple):
    """How bars of a kind of types are drawn. `every`: 2 if every second bar is named, from the last below a heading."""

    bar: Callable[[str], Bar]
    label: str
    every: int = 1
    turned: bool = False
    staggered: bool = False
    outlined: bool = False


class Layout(NamedTuple):
    """Bars of the features of a fit: what they show, and the positions of their features, by strand."""

    kind: Kind
    bars: list[Bar]
    members: dict[str, list[list[int]]]
    note: str


STRANDS = {
    "T": ("transcribed", "#014666"),
    "U": ("untranscribed", "#E42926"),
    "N": ("not transcribed", "#008000"),
    "B": ("both", "#999999"),
}
SUBSTITUTIONS = {"C>A": "#03BCEE", "C>G": "#010101", "C>T": "#E32926", "T>A": "#CAC9C9", "T>C": "#A1CE63",
                 "T>G": "#EBC6C4"}  # fmt: skip
DOUBLETS = {"AC": "#03BDEF", "AT": "#0366CC", "CC": "#A2CF63", "CG": "#016601", "CT": "#FF9999", "GC": "#E42926",
            "TA": "#FFB266", "TC": "#FF8001", "TG": "#CC99FF", "TT": "#4C0199"}  # fmt: skip
INDELS = {
    "DelC": "#FDBE6F", "DelT": "#FF8002", "InsC": "#B0DD8B", "InsT": "#36A12E",
    "DelR2": "#FDCAB5", "DelR3": "#FC8A6A", "DelR4": "#F14432", "DelR5": "#BC191A",
    "InsR2": "#D0E1F2", "InsR3": "#94C4DF", "InsR4": "#4A98C9", "InsR5": "#1764AB",
    "DelM2": "#E2E2EF", "DelM3": "#B6B6D8", "DelM4": "#8683BD", "DelM5": "#62409B",
}  # fmt: skip
SEGMENTS = {
    "0": ("#F0F8FF", "#787CE6", "#0000CD"),
    "1": ("#EBEBEB", "#C5C5C5", "#9F9F9F", "#797979", "#545454"),
    "2": ("#F5FFFA", "#C0E2C3", "#8BC48E", "#56A858", "#228B22"),
    "3-4": ("#FFF0F5", "#DEBDEB", "#BE8BE1", "#9D58D7", "#7D26CD"),
    "5-8": ("#FFFAF0", "#F2DCB3", "#E6BF78", "#D9A23C", "#CD8500"),
    "9+": ("#FFE4E1", "#E2ADBC", "#C47798", "#A84074", "#8B0A50"),
}
VARIANTS = {
    "del": ("#FFF0F5", "#FFB6C1", "#DB7093", "#FF69B4", "#FF1493"),
    "tds": ("#FAF0E6", "#F4A460", "#CD853F", "#A0522D", "#8B4513"),
    "inv": ("#D8BFD8", "#DDA0DD", "#BA55D3", "#8A2BE2", "#663399"),
    "trans": ("#696969",),
}
STATES = {"homdel": "deleted", "LOH": "LOH", "het": "heterozygous"}
LENGTHS = ("0-100kb", "100kb-1Mb", "1Mb-10Mb", "10Mb-40Mb", ">40Mb")
SPANS = ("1-10Kb", "10-100Kb", "100Kb-1Mb", "1Mb-10Mb", ">10Mb")


def _substitution(name: str) -> Bar:
    change = name[2:5]
    return Bar("", change, name[0], SUBSTITUTIONS[change])


def _doublet(name: str) -> Bar:
    return Bar("", f"{name[:2]}>NN", name[3:], DOUBLETS[name[:2]])


def _indel(name: str) -> Bar:
    size, change, where, number = name.split(":")
    word = {"Del": "deletion", "Ins": "insertion"}[change]
    longer = size if size != "5" else "5+"
    shown = mutations.number_with_the_deleted(change, where, int(number))
    if where == "M":
        return Bar("microhomology", longer, shown, INDELS[f"DelM{size}"], "its length")
    if where == "R":
        return Bar(f">1 bp {word} at repeats", longer, shown, INDELS[f"{change}R{size}"], "repeat units")
    return Bar(f"1 bp {word}", where, shown, INDELS[change + where], "homopolymer")


def _segment(name: str) -> Bar:
    number, state, length = name.split(":")
    place = 2 if length == ">1Mb" else LENGTHS.index(length)
    return Bar(STATES[state], number, length, SEGMENTS[number][place])


def _variant(name: str) -> Bar:
    clustered, kind, *length = name.split("_")
    place = SPANS.index(length[0]) if length else 0
    return Bar(clustered, kind if length else "", length[0] if length else "translocation", VARIANTS[kind][place])


KINDS = {
    mutations.sbs96_types: Kind(_substitution, "base before the mutated one; of its four bars, the base after it is "
                                "A, C, G, T"),
    mutations.dbs78_types: Kind(_doublet, "doublet that replaces it", staggered=True),
    mutations.id83_types: Kind(_indel, "length of the homopolymer, number of repeat units, or length of microhomology; "
                               "every second bar is named", every=2),
    mutations.cn48_types: Kind(_segment, "length of the segment", turned=True, outlined=True),
    mutations.sv32_types: Kind(_variant, "length of the variant", turned=True, outlined=True),
}  # fmt: skip


def lay_out(names: Iterable[str]) -> Layout:
    """Return the bars of all mutation types of one kind, named as in COSMIC."""
    parts = [mutations.strand_of(name) for name in names]
    is_wider = {name for _, name in parts} == {*mutations.sbs1536_types()}
    own = [name[1:-1] if is_wider else name for _, name in parts]
    types, kind = next((types(), kind) for types, kind in KINDS.items() if {*types()} == {*own})
    found: dict[tuple[str, str], list[int]] = {}
    for position, ((strand, _), name) in enumerate(zip(parts, own, strict=True)):
        found.setdefault((strand, name), []).append(position)
    strands = [strand for strand in ("", *STRANDS) if (strand, types[0]) in found]
    members = {strand: [found[strand, name] for name in types] for strand in strands}
    note = "; summed over the outer bases" if is_wider else ""
    return Layout(kind, [*map(kind.bar, types)], members, note)


def runs(values: Iterable[Any]) -> list[tuple[int, int, Any]]:
    """Return where each run of equal values begins and ends, and its value."""
    found, start = [], 0
    for value, group in groupby(values):
        end = start + len([*group])
        found.append((start, end, value))
        start = end
    return found
