"""The structure plot: the composition of every sample, as one stacked bar."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from matplotlib.axes import Axes
from matplotlib.patches import StepPatch

from bayesnmf.checks import check_choice, check_count
from bayesnmf.fitting.fitted import Fit
from bayesnmf.plots.style import LETTER, OTHERS, SMALL, colours_of_leading, leading, make_panels, shorten
from bayesnmf.results.checks import check_fit, check_groups
from bayesnmf.results.leading import leading_of
from bayesnmf.results.topic_model import to_topic_model
from bayesnmf.types import Array

if TYPE_CHECKING:
    import pandas as pd


GAP = 0.006
BETWEEN = 3  # letters that fit between the labels of two groups
IN_COLUMN, COLUMNS = 15, 3  # names in a column of the legend, and its columns, beyond which the figure grows
VALUES = {"shares": "share of a sample's counts", "counts": "expected counts of a sample"}


def structure(
    fit: Fit,
    groups: Mapping[Any, Any] | pd.Series | Sequence[Any] | Array | None = None,
    max_per_group: int | None = None,
    *,
    n: int | None = None,
    values: Literal["shares", "counts"] = "shares",
    axes: Axes | None = None,
    figsize: tuple[float, float] | None = None,
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
    axes : Axes, optional
        Axes to draw on instead of new ones.
    figsize : tuple of float, optional
        Width and height in inches.

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
    bands, named = _bands(fit, leading(fit.expected_sizes, n), values)
    ranked = _ranked(fit, bands, values)
    blocks = [_thinned(ranked(np.flatnonzero(labels == name)), max_per_group) for name in names]
    grid, _ = make_panels((1, 1), (9, max(3.0, 0.21 * -(-len(named) // COLUMNS))), figsize, axes)
    canvas: Axes = grid[0, 0]
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
    canvas.set_xlabel(f"{number:,} samples{note}", fontsize=SMALL)
    return canvas


def _bands(fit: Fit, shown: Array, values: str) -> tuple[Array, list[tuple[str, Any]]]:
    """Return what each band has of each sample, (n, bands), and titles and colours of the bands."""
    model, rank = to_topic_model(fit), fit.rank
    colours, titles = colours_of_leading(rank, shown), fit.component_titles
    bands, named = model.proportions[:, shown], [(shorten(titles[k]), colours[k]) for k in shown]
    if len(shown) < rank:
        others = np.delete(model.proportions, shown, axis=1).sum(axis=1)
        bands, named = np.column_stack([bands, others]), [*named, (f"others ({rank - len(shown)})", OTHERS)]
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
    ax.set_ylabel(VALUES[values], fontsize=SMALL)
    ax.tick_params(axis="y", labelsize=SMALL)
    ax.spines[:].set_visible(False)
    columns = min(-(-len(ax.get_legend_handles_labels()[1]) // IN_COLUMN), COLUMNS)
    ax.legend(loc="center left", bbox_to_anchor=(1.0, 0.5), frameon=False, fontsize=SMALL, ncols=columns,
              handlelength=1, handleheight=1)  # fmt: skip


def _name_groups(ax: Axes, names: list[Any], edges: list[tuple[float, float]], sizes: list[int]) -> None:
    """Write each group's name and size below its bars, slanted if they would overlap."""
    words = [f"{shorten(name)}\n({size:,})" for name, size in zip(names, sizes, strict=True)]
    middles = np.mean(edges, axis=1)
    inches = ax.get_position().width * ax.figure.get_figwidth() / edges[-1][1]  # type: ignore[union-attr]
    widths = np.array([LETTER * max(map(len, word.split("\n"))) for word in words])
    if np.any((widths[1:] + widths[:-1]) / 2 + BETWEEN * LETTER > np.diff(middles) * inches):
        words = [word.replace("\n", " ") for word in words]
        ax.set_xticks(middles, words, rotation=35, ha="right", rotation_mode="anchor", fontsize=SMALL)
    else:
        ax.set_xticks(middles, words, fontsize=SMALL)
    ax.tick_params(axis="x", length=0, pad=2)
