"""The structure plot: the composition of every sample, as one stacked bar."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.patches import StepPatch

from bayesnmf.checks import check_count
from bayesnmf.fitting.fitted import Fit
from bayesnmf.plots.style import SMALL, colours_of, make_panels, shorten
from bayesnmf.results.checks import check_fit, check_groups
from bayesnmf.results.topic_model import to_topic_model
from bayesnmf.types import Array

if TYPE_CHECKING:
    import pandas as pd


GAP = 0.006
LETTER = 0.065  # width of a letter of a label, in inches
BETWEEN = 3  # letters that fit between the labels of two groups


def structure(
    fit: Fit,
    groups: Mapping[Any, Any] | pd.Series | Sequence[Any] | Array | None = None,
    max_per_group: int | None = None,
    *,
    axes: Axes | None = None,
    figsize: tuple[float, float] | None = None,
) -> Axes:
    """Draw the topic proportions of every sample as one stacked bar, with samples grouped and sorted.

    The proportions are those of ``bayesnmf.to_topic_model(fit)``, which have the same unit for any model: the share of
    each component in the expected counts of a sample. Within a group, samples are sorted by their largest component,
    with the most frequent one first, and then by its share, alternately decreasing and increasing.

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
    axes : Axes, optional
        Axes to draw on instead of new ones.
    figsize : tuple of float, optional
        Width and height in inches.

    Returns
    -------
    Axes
    """
    check_fit(fit)
    found = check_groups(groups, fit.row_names)
    labels, names = found
    proportions, titles = to_topic_model(fit).proportions, [shorten(title) for title in fit.component_titles]
    if max_per_group is not None:
        check_count(max_per_group, "max_per_group")
    blocks = []
    for name in names:
        rows = np.flatnonzero(labels == name)
        blocks.append(_thinned(rows[in_order(proportions[rows])], max_per_group))
    grid, _ = make_panels((1, 1), (9, 3.0), figsize, axes)
    canvas: Axes = grid[0, 0]
    edges = _draw(canvas, proportions, blocks, titles)
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


def in_order(proportions: Array) -> Array:
    """Return the order of samples: by largest component, the most frequent first, then by its share."""
    leading = proportions.argmax(axis=1)
    sizes = np.bincount(leading, minlength=proportions.shape[1])
    rank_of = np.argsort(np.argsort(-sizes, kind="stable"))[leading]
    share = proportions.max(axis=1)
    return np.lexsort((np.where(rank_of % 2 == 0, -share, share), rank_of))


def _thinned(rows: Array, most: int | None) -> Array:
    if most is None or len(rows) <= most:
        return rows
    return rows[np.linspace(0, len(rows) - 1, most).round().astype(int)]


def _draw(ax: Axes, proportions: Array, blocks: list[Array], titles: list[str]) -> list[tuple[float, float]]:
    """Fill one staircase for each group and component; return where each group begins and ends."""
    rank = proportions.shape[1]
    colours = colours_of(rank)
    gap = GAP * sum(map(len, blocks))
    edges = []
    start = 0.0
    for position, rows in enumerate(blocks):
        places = start + np.arange(len(rows) + 1)
        tops = np.cumsum(proportions[rows], axis=1)
        for k in reversed(range(rank)):  # each from 0 up, over the one before: no background shows between them
            label = titles[k] if position == 0 else None
            # `ax.stairs` would compute the limits from every step, which takes seconds for 20,000 samples.
            ax.add_artist(StepPatch(tops[:, k], places, fill=True, color=colours[k], linewidth=0, label=label))
        edges.append((start, places[-1]))
        start = places[-1] + gap
    ax.set_xlim(0, edges[-1][1])
    ax.set_ylim(0, 1)
    ax.set_ylabel("share of a sample's counts", fontsize=SMALL)
    ax.tick_params(axis="y", labelsize=SMALL)
    ax.spines[:].set_visible(False)
    ax.legend(loc="center left", bbox_to_anchor=(1.0, 0.5), frameon=False, fontsize=SMALL, ncols=-(-rank // 15),
              handlelength=1, handleheight=1)  # fmt: skip
    return edges


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
