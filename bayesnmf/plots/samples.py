"""Draw what samples consist of: a stacked bar for each, means of groups, and which known components each has."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, Unpack

import numpy as np
from matplotlib.axes import Axes
from matplotlib.image import AxesImage
from matplotlib.patches import StepPatch

from bayesnmf.assessment.assignment import Assignment
from bayesnmf.checks import check_choice, check_count, check_fraction
from bayesnmf.fitting.fitted import Fit
from bayesnmf.plots import style
from bayesnmf.plots.checks import check_any_present, check_result
from bayesnmf.results.checks import check_fit, check_groups
from bayesnmf.results.shares import leading_of
from bayesnmf.results.topic_model import to_topic_model
from bayesnmf.types import Array

if TYPE_CHECKING:
    import pandas as pd

GAP = 0.006
BETWEEN = 3  # letters that fit between the labels of two groups
IN_COLUMN, COLUMNS = 15, 3  # names in a column of the legend, and its columns, beyond which the figure grows
VALUES = {"shares": "share of a sample's counts", "counts": "expected counts of a sample"}
MOST = 20  # components that have room for numbers and names, unless more are asked for
NUMBERED = 5  # least percentage that is written
MOST_NAMES = 30  # samples whose names have room below


@style.figure()
def structure(
    fit: Fit,
    groups: Mapping[Any, Any] | pd.Series | Sequence[Any] | Array | None = None,
    max_per_group: int | None = None,
    *,
    n: int | None = None,
    values: Literal["shares", "counts"] = "shares",
    **panels: Unpack[style.Panel],
) -> Axes:
    """Draw what every sample consists of as one stacked bar, with samples grouped and sorted.

    Shares are those of ``bayesnmf.to_topic_model(fit)``, which have the same unit for any model: the share of each
    component in the expected counts of a sample. Within a group, samples stand by their leading component, that of the
    most samples first and the grey band last, and then by its share, alternately decreasing and increasing. In a sample
    that component leads that sets it apart most, as in ``fit.leading_components()``: the greatest share × log(share /
    mean share). So one that all samples have in common does not decide alone where they stand. With
    ``values="counts"``, samples of a group stand by their expected counts, the largest first.

    Parameters
    ----------
    fit : Fit
        Fit to draw.
    groups : array-like (n,), mapping or Series, optional
        Group of each sample, in the order of the rows or, with labels, by row name. Groups are drawn in order of first
        appearance, or, for a pandas categorical, in the order of its categories. Samples with None or NaN are left out;
        a DataWarning and the label say how many.
    max_per_group : int, optional
        Largest number of samples to draw in each group, evenly spaced among the sorted ones; the label mentions it.
    n : int, optional
        Number of components with a colour of their own, by default at most 12: those with the largest share of all
        expected counts of the fit. The others are one grey band.
    values : {"shares", "counts"}
        Whether bars are shares, or expected counts.

    Returns
    -------
    Axes

    Raises
    ------
    TypeError, ValueError
        Not a fit, groups of other samples, another word for `values`, or a number below 1.

    See Also
    --------
    group_shares : means of groups.
    bayesnmf.Fit.shares : the same as a table.
    """
    check_fit(fit)
    check_choice(values, "values", VALUES)
    found = check_groups(groups, fit.row_names)
    labels, names = found
    bands, named = _bands(fit, style.leading(fit.expected_sizes, n), values)
    ranked = _ranked(fit, bands, values)
    blocks = [_thinned(ranked(np.flatnonzero(labels == name)), max_per_group) for name in names]
    canvas = style.make_panel((9, max(3.0, 0.21 * -(-len(named) // COLUMNS))), **panels)
    edges = _draw(canvas, bands, blocks, named)
    _dress(canvas, values)
    if groups is not None:
        _name_groups(canvas, names, edges, [int(np.sum(labels == name)) for name in names])
    else:
        canvas.set_xticks([])
    number = len(labels) - found.ungrouped
    thinned = sum(map(len, blocks)) < number
    note = f", at most {max_per_group:,} of each group (evenly spaced)" if thinned and groups is not None else ""
    note = f", {len(blocks[0]):,} shown (evenly spaced)" if thinned and groups is None else note
    note += f"; {found.ungrouped:,} without a group are left out" if found.ungrouped else ""
    canvas.set_xlabel(f"{number:,} samples{note}", fontsize=style.SMALL)
    return canvas


def _bands(fit: Fit, shown: Array, values: str) -> tuple[Array, list[tuple[str, Any]]]:
    """Return what each band has of each sample, (n, bands), and titles and colours of the bands."""
    model, rank = to_topic_model(fit), fit.rank
    colours, titles = style.colours_of_leading(rank, shown), fit.component_titles
    bands, named = model.proportions[:, shown], [(style.shorten(titles[k]), colours[k]) for k in shown]
    if len(shown) < rank:
        others = np.delete(model.proportions, shown, axis=1).sum(axis=1)
        bands, named = np.column_stack([bands, others]), [*named, (f"others ({rank - len(shown)})", style.OTHERS)]
    return (bands * model.totals[:, None] if values == "counts" else bands), named


def _ranked(fit: Fit, bands: Array, values: str) -> Callable[[Array], Array]:
    """Return a function that puts the samples of a group in order."""
    if values == "counts":
        totals = bands.sum(axis=1)
        return lambda rows: rows[np.argsort(-totals[rows], kind="stable")]
    lead = leading_of(bands, fit.counts.row_totals > 0)
    alone = bands.shape[1] if bands.shape[1] == fit.rank else bands.shape[1] - 1  # without the band of the others
    return lambda rows: rows[in_order(bands[rows], lead[rows], alone)]


def in_order(shares: Array, lead: Array, alone: int) -> Array:
    """Return the order of samples: by leading component, that of the most samples first, then by its share.

    Samples that lead in a band after the first `alone`, which several components share, come last.
    """
    sizes = np.bincount(lead, minlength=shares.shape[1])
    sizes[alone:] = -1
    rank_of = np.argsort(np.argsort(-sizes, kind="stable"))[lead]
    share = shares[np.arange(len(shares)), lead]
    return np.lexsort((np.where(rank_of % 2 == 0, -share, share), rank_of))


def _thinned(rows: Array, most: int | None) -> Array:
    if most is None or len(rows) <= check_count(most, "max_per_group"):
        return rows
    return rows[np.linspace(0, len(rows) - 1, most).round().astype(int)]


def _draw(ax: Axes, bands: Array, blocks: list[Array], named: list[tuple[str, Any]]) -> list[tuple[float, float]]:
    """Fill one staircase for each group and band; return where each group begins and ends."""
    gap = GAP * sum(map(len, blocks))
    edges = []
    start = 0.0
    for position, rows in enumerate(blocks):
        places = start + np.arange(len(rows) + 1)
        tops = np.cumsum(bands[rows], axis=1)
        for k, (title, colour) in reversed([*enumerate(named)]):  # from 0 up, over the one before: no gaps between them
            label = title if position == 0 else None
            # `ax.stairs` would compute the limits from every step, which takes seconds for 20,000 samples.
            ax.add_artist(StepPatch(tops[:, k], places, fill=True, color=colour, linewidth=0, label=label))
        edges.append((start, places[-1]))
        start = places[-1] + gap
    ax.set_xlim(0, edges[-1][1])
    ax.set_ylim(0, max(1e-300, *(bands[rows].sum(axis=1).max() for rows in blocks)))
    return edges


def _dress(ax: Axes, values: str) -> None:
    """Name the axis and the colours."""
    if values == "shares":
        ax.set_ylim(0, 1)
    else:
        ax.yaxis.set_major_formatter("{x:,.0f}")
    ax.set_ylabel(VALUES[values], fontsize=style.SMALL)
    ax.tick_params(axis="y", labelsize=style.SMALL)
    ax.spines[:].set_visible(False)
    columns = min(-(-len(ax.get_legend_handles_labels()[1]) // IN_COLUMN), COLUMNS)
    ax.legend(loc="center left", bbox_to_anchor=(1.0, 0.5), frameon=False, fontsize=style.SMALL, ncols=columns,
              handlelength=1, handleheight=1)  # fmt: skip


def _name_groups(ax: Axes, names: list[Any], edges: list[tuple[float, float]], sizes: list[int]) -> None:
    """Write each group's name and size below its bars, slanted if they would overlap."""
    words = [f"{style.shorten(name)}\n({size:,})" for name, size in zip(names, sizes, strict=True)]
    middles = np.mean(edges, axis=1)
    inches = ax.get_position().width * ax.figure.get_figwidth() / edges[-1][1]  # type: ignore[union-attr]
    widths = np.array([style.LETTER * max(map(len, word.split("\n"))) for word in words])
    if np.any((widths[1:] + widths[:-1]) / 2 + BETWEEN * style.LETTER > np.diff(middles) * inches):
        words = [word.replace("\n", " ") for word in words]
        ax.set_xticks(middles, words, rotation=35, ha="right", rotation_mode="anchor", fontsize=style.SMALL)
    else:
        ax.set_xticks(middles, words, fontsize=style.SMALL)
    ax.tick_params(axis="x", length=0, pad=2)


@style.figure()
def group_shares(
    fit: Fit,
    groups: Mapping[Any, Any] | pd.Series | Sequence[Any] | Array,
    *,
    n: int | None = None,
    **panels: Unpack[style.Panel],
) -> Axes:
    """Draw the mean share of each component in each group of samples, as a heat map.

    Shares are those of ``bayesnmf.to_topic_model(fit)``, as in `structure`, which draws every sample. Every sample of a
    group counts alike. Components stand in the order of the groups that have most of them, so that components of one
    group lie on the diagonal. Percentages of 5 and more are written.

    Parameters
    ----------
    fit : Fit
        Fit to draw.
    groups : array-like (n,), mapping or Series
        Group of each sample, in the order of the rows or, with labels, by row name. Groups are drawn in order of first
        appearance, or, for a pandas categorical, in the order of its categories. Samples with None or NaN are left out,
        with a DataWarning.
    n : int, optional
        Number of components, by default at most 20: those with the largest mean share in any group. The axis says how
        many there are.

    Returns
    -------
    Axes

    Raises
    ------
    TypeError, ValueError
        Not a fit, groups of other samples, or a number below 1.

    See Also
    --------
    structure : every sample as a stacked bar.
    bayesnmf.group_contrasts : differences between groups, with intervals.
    """
    check_fit(fit)
    labels, names = check_groups(groups, fit.row_names)
    members = [np.flatnonzero(labels == name) for name in names]
    shares = to_topic_model(fit).proportions
    means = 100 * np.array([shares[rows].mean(axis=0) for rows in members])
    shown = style.leading(means.max(axis=0), n, MOST)
    shown = shown[np.lexsort((-means[:, shown].max(axis=0), means[:, shown].argmax(axis=0)))]
    words = [f"{style.shorten(name)} ({len(rows):,})" for name, rows in zip(names, members, strict=True)]
    width = 1.6 + style.LETTER * max(map(len, words)) + 0.36 * max(len(shown), 6)
    height = 1.3 + 0.9 * (fit.component_names is not None) + 0.27 * len(names)
    ax = style.make_panel((width, height), **panels)
    image = ax.imshow(means[:, shown], cmap="Blues", vmin=0, aspect="auto", interpolation="nearest")
    if len(shown) <= MOST:
        style.write_numbers(ax, image, means[:, shown], "{:.0f}", NUMBERED)
    ax.set_yticks(range(len(names)), words)
    ax.set_ylabel("group (samples)", fontsize=style.SMALL)
    style.add_colour_bar(ax, image, "mean share of a\nsample's counts (%)")
    style.name_components(ax, fit, shown, 20)
    return ax


@style.figure("array of two Axes")
def presence(found: Assignment, least: float = 0.5, **panels: Unpack[style.Panels]) -> Array:
    """Draw the chance that each component is present in each sample, and its exposures where it is.

    Left: a column for each sample, darker the surer it has the component; samples with the same largest component are
    together, and those without counts are grey. Right: the exposure in each sample that has the component with a chance
    of at least `least`. Components that no sample has so are left out; the most frequent one is on top.

    Parameters
    ----------
    found : Assignment
        Result of `bayesnmf.assign`.
    least : float
        Chance from which on a component is taken as present.

    Returns
    -------
    ndarray of Axes

    See Also
    --------
    bayesnmf.assign : what it draws.
    """
    check_result(found, Assignment, "found", "bayesnmf.assign")
    there = found.presence >= check_fraction(least, "least")
    check_any_present(there, least)
    order = np.argsort(-there.sum(axis=0), kind="stable")[: there.any(axis=0).sum()]
    grid, figure = style.make_panels((1, 2), (9.0, 1.8 + 0.17 * len(order)), **panels)
    left, right = grid.flat
    if figure is not None:
        left.get_gridspec().set_width_ratios([3, 1])
    image = _draw_chances(left, found, order)
    _draw_exposures(right, found.exposures[:, order], there[:, order])
    names = [style.called(found.component_names[k], "component") for k in order]
    left.set_yticks(range(len(order)), [f"{name} ({there[:, k].sum()})" for name, k in zip(names, order, strict=True)])
    right.set_yticks(range(len(order)), [])
    right.tick_params(axis="y", length=0)
    style.add_colour_bar(right, image, "chance that it is present", 0.1)
    for ax in grid.flat:
        ax.set_ylim(len(order) - 0.5, -0.5)
    return grid[0]


def _draw_chances(ax: Axes, found: Assignment, order: Array) -> AxesImage:
    """Return the image of the chances of presence, samples in columns by their largest component."""
    exposures = found.exposures[:, order]
    share = exposures.max(axis=1) / np.maximum(found.exposures.sum(axis=1), 1e-300)
    samples = np.lexsort((-share, exposures.argmax(axis=1), np.isnan(found.presence[:, 0])))
    chances = found.presence[np.ix_(samples, order)].T
    ax.set_facecolor("0.85")
    image = ax.imshow(chances, cmap="Blues", vmin=0, vmax=1, aspect="auto", interpolation="nearest")
    if len(samples) <= MOST_NAMES:
        names = [style.called(found.row_names[i], "sample", 16) for i in samples]
        ax.set_xticks(range(len(samples)), names, rotation=90)
    else:
        ax.set_xticks([])
    title = f"{len(order)} of {found.presence.shape[1]} components: those that some sample has"
    x = f"{len(samples)} samples, by largest component"
    style.dress(ax, title, x, "component (samples that have it)", size=10, framed=True)
    return image


def _draw_exposures(ax: Axes, exposures: Array, there: Array) -> None:
    """Draw a dot for the exposure of each sample that has a component."""
    rows, columns = np.nonzero(there)
    ax.plot(exposures[rows, columns], columns, "o", color="#0072B2", alpha=0.4, markersize=4, markeredgewidth=0)
    ax.set_xscale("log")
    ax.grid(axis="y", color="0.9", linewidth=0.5)
    ax.set_axisbelow(True)
    style.dress(ax, x="exposure where\npresent (counts)", size=10)
