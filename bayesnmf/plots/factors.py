"""Draw components: their images or leading features, by several fits, and what sets each apart."""

from __future__ import annotations

import re
from collections.abc import Mapping
from textwrap import fill
from typing import TYPE_CHECKING, Any, Literal, Unpack

import numpy as np
from matplotlib.axes import Axes
from scipy.optimize import linear_sum_assignment
from scipy.spatial.distance import cdist

from bayesnmf.checks import check_choice, check_count
from bayesnmf.fitting.fitted import Fit
from bayesnmf.inference import alignment
from bayesnmf.plots import style, summaries
from bayesnmf.plots.checks import check_fits, check_image_shape, check_markers
from bayesnmf.results.markers import CONTRASTS, leading_features, shares_in_rest
from bayesnmf.types import Array

if TYPE_CHECKING:
    import pandas as pd

INTERVAL = 0.9
MOST_NUMBERS = 30  # components whose cosines have room below their images; three digits up to half as many
ENSEMBL = re.compile(r"ENS[A-Z]*\d{11}(\.\d+)?")
SYMBOLS = "Ensembl identifiers: fit.rename(features=…), or bayesnmf.fit(adata, feature_labels=…), shows gene symbols"
CHOSEN_BY = {
    "distinct": "greatest √share − √(share in the rest of the counts)",
    "share": "greatest share",
    "lift": "greatest share × log lift",
    "next": "surest log-fold change against the next best component",
    "rest": "surest log-fold change against the other components",
}
TICKS = {"distinct": "the rest of the counts", "lift": "mean of all components"}
IN_SDS = 2 * 1.6448536269514722  # width of a central 90 % interval of a normal distribution, in standard deviations
BESIDE = 1.02  # where names begin, as a fraction of the panel's width
LONGEST = 15  # letters of a name, as many as an identifier of Ensembl has
FEWEST = 11  # places for names beside a panel
LINE, TALLEST = 0.14, 12.0  # inches that a name of this size needs, and of a panel
AROUND, BELOW = 0.6, 0.3  # inches for the title and the ticks of a panel, and for what is below all panels
LETTERS = 12  # of 10 points in an inch
SURE = 0.01  # local false sign rate below which a feature is drawn in colour


@style.figure("array of Axes", "Axes to draw on: (fits, K) for images, K otherwise.")
def components(
    fits: Mapping[str, Fit] | Fit,
    image_shape: tuple[int, int] | None = None,
    n_features: int = 8,
    *,
    reference: str | None = None,
    **panels: Unpack[style.Panels],
) -> Array:
    """Draw matched components: images, or their leading features with 90 % intervals.

    Every component is divided by its sum, so its entries are shares.

    Parameters
    ----------
    fits : mapping of str to Fit, or Fit
        Fits of the same rank and features. Their components are matched to those of the reference.
    image_shape : tuple of int, optional
        Height and width of images whose pixels are the features: there is one row for each fit, one column for each
        component. The images of a column share one colour scale, from 0 to the column's largest entry. They show
        posterior means (modes for map), and up to 30 components have their cosine with the reference below.
    n_features : int
        Number of features for each component without `image_shape`, as in `top_features`.
    reference : str, optional
        Label of the fit that determines the order; by default the first.

    Returns
    -------
    ndarray of Axes
        (fits, K) for images, else (K,).

    See Also
    --------
    top_features : their features with intervals.
    """
    if image_shape is None:
        check_count(n_features, "n_features")
        return top_features(fits, n_features, reference=reference, **panels)
    fits = check_fits(fits)
    reference, orders = summaries.match_fits(fits, reference)
    target = fits[reference]
    rank, features = target.components.shape
    height, width = check_image_shape(image_shape, features)
    side = float(np.clip(8 / rank, 0.4, 1.4))
    size = (side * rank + 1.1, (side * height / width + 0.3) * len(fits) + 0.7)
    grid, figure = style.make_panels((len(fits), rank), size, **panels)
    images = np.stack([summaries.normalised_components(fit)[orders[label]] for label, fit in fits.items()])
    for row, (label, fit) in enumerate(fits.items()):
        cosines = alignment.fit_cosines(fit, target, orders[label])
        for k, ax in enumerate(grid[row]):
            ax.imshow(images[row, k].reshape(height, width), cmap="Greys", vmin=0, vmax=images[:, k].max() or 1.0,
                      interpolation="nearest")  # fmt: skip
            ax.set(xticks=[], yticks=[])
            if label != reference and rank <= MOST_NUMBERS:
                digits = 3 if rank <= MOST_NUMBERS // 2 else 2
                ax.set_xlabel(f"{cosines[k]:.{digits}f}", fontsize=style.SMALL, labelpad=2)
        grid[row, 0].set_ylabel(style.shorten(label, 14), rotation=0, ha="right", va="center")
    named = rank <= 10 or target.component_names is not None
    for k, ax in enumerate(grid[0]):
        ax.set_title(style.shorten(target.component_titles[k], 14) if named else str(k), fontsize=9)
    if figure is not None:
        title = "Components, each summing to 1; one colour scale for each column (white: 0)"
        if len(fits) > 1 and rank <= MOST_NUMBERS:
            title += f"\nnumbers: cosine with the component of {reference}; 1 if equal"
        figure.suptitle(title, fontsize=10)
    return grid


@style.figure("array of Axes", "Axes to draw on, K of them.")
def top_features(
    fits: Mapping[str, Fit] | Fit,
    n: int = 8,
    order: Literal["distinct", "share", "lift", "next", "rest"] = "distinct",
    *,
    reference: str | None = None,
    **panels: Unpack[style.Panels],
) -> Array:
    """Draw the leading features of each component as bars, with posterior medians and 90 % intervals of every fit.

    Grey bars are the posterior medians of the reference (modes for map and bld), as shares of the component. Each fit
    has a marker, and a line from the 5 to the 95 % quantile; a point estimate without a bootstrap has no line.

    Parameters
    ----------
    fits : mapping of str to Fit, or Fit
        Fits of the same rank and features. Their components are matched to those of the reference.
    n : int
        Number of features for each component.
    order : {"distinct", "share", "lift", "next", "rest"}
        Order of the features, in the reference. "distinct": by √share − √(share in the rest of the counts), which is
        large for features that are common here and rare elsewhere; a black tick marks the share in the rest. "lift": by
        share × log(share / mean share over all components); a tick marks the mean share. "share": of the largest
        shares. "next" and "rest": by the lower limit of the log-fold change against the next best component or against
        all others, as in `bayesnmf.markers`.
    reference : str, optional
        Label of the fit that determines the features and the order of the components; by default the first.

    Returns
    -------
    ndarray of Axes, (K,)

    See Also
    --------
    bayesnmf.Fit.top_features, bayesnmf.markers : the same as tables.
    """
    fits = check_fits(fits)
    reference, orders = summaries.match_fits(fits, reference)
    shares, top = summaries.normalised_components(fits[reference]), leading_features(fits[reference], n, order)
    rank, shown = top.shape
    height = max(0.24, 0.07 * len(fits) + 0.08) * shown + 0.95
    chosen, figure = style.make_row(rank, (3.0, height), 0.7, **panels)
    _top_features(chosen, fits, top, reference, orders)
    if order in TICKS:
        beside = shares_in_rest(shares, fits[reference].expected_sizes)
        ticks = beside if order == "distinct" else np.broadcast_to(shares.mean(axis=0), shares.shape)
        for ax, features, values in zip(chosen, top, ticks, strict=True):
            ax.plot(values[features], np.arange(shown), "|", color="black", markersize=9, linestyle="none",
                    label=TICKS[order])  # fmt: skip
    if figure is not None:
        lines = [f"Components, each summing to 1: features of {CHOSEN_BY[order]}"]
        lines += [SYMBOLS] * is_ensembl(fits[reference].feature_names[np.unique(top)])
        lines.append(f"markers: {summaries.named_middles(fits)}; grey bar: {reference}")
        figure.suptitle("\n".join(lines) + summaries.named_sources(fits, figure), fontsize=10)
    style.share_legend(chosen, figure)
    return chosen


def is_ensembl(names: Array) -> bool:
    """Return whether most names are identifiers of Ensembl, as ENSG00000156738, which few can read."""
    return sum(ENSEMBL.fullmatch(str(name)) is not None for name in names) > len(names) / 2


def _top_features(axes: Array, fits: Mapping[str, Fit], top: Array, reference: str, orders: dict[str, Array]) -> None:
    intervals = {label: summaries.summarise(fit, "components", (orders[label][:, None], top), INTERVAL)
                 for label, fit in fits.items()}  # fmt: skip
    names, looks = fits[reference].feature_names, style.looks_of_fits(fits)
    for k, ax in enumerate(axes):
        places = np.arange(top.shape[1])
        ax.barh(places, intervals[reference].middle[k], height=0.85, color="0.88", zorder=0)
        ax.set_yticks(places, [style.shorten(name, 22) for name in names[top[k]]], fontsize=style.SMALL)
        ax.tick_params(axis="y", length=0)
        ax.locator_params(axis="x", nbins=3)
        ax.xaxis.set_major_formatter("{x:g}")
        ax.set_ylim(len(places) - 0.5, -0.5)
        title, y = style.shorten(fits[reference].component_titles[k]), "" if isinstance(names[0], str) else "feature"
        style.dress(ax, title, "share of the component", y)
        ax.axvline(0, color=style.QUIET, linewidth=0.8)
        ax.spines["left"].set_visible(False)  # the line at 0 replaces it
        for turn, (label, look) in enumerate(looks.items()):
            beside = places + (turn - (len(fits) - 1) / 2) * 0.7 / len(fits)
            intervals[label].draw(ax, k, beside, look, label, across=True)
        ax.set_xlim(left=-0.02 * ax.get_xlim()[1])  # room for markers at 0


@style.figure("array of Axes", "Axes to draw on instead of new ones, one for each component.")
def volcano(table: pd.DataFrame, n: int = 8, contrast: str = "next", **panels: Unpack[style.Panels]) -> Array:
    """Draw for each component the log-fold change of every feature, and how many standard deviations it is from 0.

    The standard deviation is that of a normal distribution with the width of the 90 % interval. Features with a local
    false sign rate below 0.01 have a colour; those with the largest lower limits are named. A caution of the table, as
    of a mean field, which is too sure, is below the figure.

    Parameters
    ----------
    table : DataFrame
        Table of `bayesnmf.markers`, usually of all features (``n=None``), from a fit with a posterior.
    n : int
        Number of features to name in each panel, or as many as fit: about 80 in a figure of its own.
    contrast : {"next", "rest"}
        Comparison with the next best component, or with all others.

    Returns
    -------
    ndarray of Axes, (K,)

    See Also
    --------
    bayesnmf.markers, bayesnmf.group_contrasts : tables that it draws.
    """
    check_choice(contrast, "contrast", CONTRASTS)
    check_markers(table, f"lfc_{contrast}_low")
    named = check_count(n, "n", minimum=0)
    components = list(dict.fromkeys(table["component"]))
    height = float(np.clip(LINE * min(named, len(table) // len(components)) + AROUND, 3.2, TALLEST))
    chosen, figure = style.make_row(len(components), (3.8, height), BELOW, least=0, **panels)
    if figure is None:
        tall = chosen[0].bbox.height / chosen[0].figure.dpi
    else:
        tall = (figure.get_figheight() - BELOW) / chosen[0].get_gridspec().nrows - AROUND
    named = min(named, max(round(tall / LINE), 1))
    for ax, component, colour in zip(chosen, components, style.colours_of(len(components)), strict=True):
        _draw_changes(ax, table[table["component"] == component], contrast, named, colour)
        style.dress(ax, style.called(component, "component"))
    against = "the next best component" if contrast == "next" else "the other components"
    if figure is not None:
        width = int(LETTERS * figure.get_figwidth())
        below = [f"log2 fold change against {against}", *table.attrs.get("cautions", [])]
        figure.supxlabel("\n".join(fill(each, width) for each in below), fontsize=10)
        figure.supylabel("standard deviations from 0", fontsize=10)
    return chosen


def _draw_changes(ax: Axes, part: pd.DataFrame, contrast: str, named: int, colour: Any) -> None:
    x = part[f"lfc_{contrast}"].to_numpy()
    low, high = (part[f"lfc_{contrast}_{end}"].to_numpy() for end in ("low", "high"))
    y = np.abs(x) * IN_SDS / np.maximum(high - low, 1e-12)
    sure = part[f"lfsr_{contrast}"].to_numpy() < SURE
    ax.scatter(x[~sure], y[~sure], s=4, color=style.QUIET, linewidths=0, rasterized=True)
    ax.scatter(x[sure], y[sure], s=8, color=colour, edgecolors="0.4", linewidths=0.2, rasterized=True)
    ax.set_yscale("symlog", linthresh=1)
    ax.set_ylim(bottom=0)
    ax.set_xlim(ax.get_xlim())  # where points are in the panel, lines to them depend on
    order = np.argsort(-low, kind="stable")
    finite = np.isfinite([x, y, low]).all(axis=0)  # others have no place that a line could lead to
    _name(ax, order[finite[order]][:named], part["feature"].to_numpy(), (x, y))


def _name(ax: Axes, places: Array, names: Array, at: tuple[Array, Array]) -> None:
    """Write names beside the panel, with lines to their points that do not cross: they are the shortest in all.

    Lines end where names begin, so that they cross no other name.
    """
    count = max(len(places), FEWEST)
    labels = np.column_stack([np.full(count, BESIDE), 0.98 * (1 - np.arange(count) / count)])
    points = ax.transAxes.inverted().transform(ax.transData.transform(np.column_stack(at)[places]))
    for point, label in zip(*linear_sum_assignment(cdist(points, labels)), strict=True):
        ax.annotate(
            style.shorten(names[places[point]], LONGEST), points[point], labels[label], xycoords="axes fraction",
            fontsize=style.SMALL, va="center",
            arrowprops={"arrowstyle": "-", "color": style.QUIET, "linewidth": 0.5, "relpos": (0, 0.5)},
        )  # fmt: skip
