"""Draw the components of several fits side by side."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Literal

import numpy as np
from matplotlib.axes import Axes

from bayesnmf.checks import check_count
from bayesnmf.fitting.fitted import Fit
from bayesnmf.inference import alignment
from bayesnmf.plots.checks import check_fits, check_image_shape
from bayesnmf.plots.style import (
    LEGIBLE,
    QUIET,
    SMALL,
    Look,
    grid_shape,
    hide_frame,
    hide_spare,
    looks_of_fits,
    make_panels,
    share_legend,
    shorten,
)
from bayesnmf.plots.summaries import (
    Interval,
    match_fits,
    named_middles,
    named_sources,
    normalised_components,
    summarise,
)
from bayesnmf.results.markers import leading_features
from bayesnmf.types import Array

INTERVAL = 0.9
MOST_NUMBERS = 30  # components whose cosines have room below their images; three digits up to half as many
ENSEMBL = re.compile(r"ENS[A-Z]*\d{11}(\.\d+)?")
SYMBOLS = "Ensembl identifiers: fit.rename(features=…), or bayesnmf.fit(adata, feature_labels=…), shows gene symbols"
CHOSEN_BY = {
    "share": "greatest share",
    "lift": "greatest share × log lift",
    "next": "surest log-fold change against the next best component",
    "rest": "surest log-fold change against the other components",
}


def components(
    fits: Mapping[str, Fit] | Fit,
    image_shape: tuple[int, int] | None = None,
    n_features: int = 8,
    *,
    reference: str | None = None,
    axes: Any = None,
    figsize: tuple[float, float] | None = None,
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
    axes : array of Axes, optional
        Axes to draw on: (fits, K) for images, K otherwise.
    figsize : tuple of float, optional
        Width and height in inches.

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
        return top_features(fits, n_features, reference=reference, axes=axes, figsize=figsize)
    fits = check_fits(fits)
    reference, orders = match_fits(fits, reference)
    return _images(fits, image_shape, reference, orders, (axes, figsize))


def top_features(
    fits: Mapping[str, Fit] | Fit,
    n: int = 8,
    order: Literal["share", "lift", "next", "rest"] = "lift",
    *,
    reference: str | None = None,
    axes: Any = None,
    figsize: tuple[float, float] | None = None,
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
    order : {"share", "lift", "next", "rest"}
        Order of the features, in the reference. "lift": by share × log(share / mean share over all components),
        which is large for features that are common here and rare elsewhere; a black tick marks the mean share.
        "share": of the largest shares. "next" and "rest": by the lower limit of the log-fold change against the next
        best component or against all others, as in `bayesnmf.markers`.
    reference : str, optional
        Label of the fit that determines the features and the order of the components; by default the first.
    axes : array of Axes, optional
        Axes to draw on, K of them.
    figsize : tuple of float, optional
        Width and height in inches.

    Returns
    -------
    ndarray of Axes, (K,)

    See Also
    --------
    bayesnmf.Fit.top_features, bayesnmf.markers : the same as tables.
    """
    fits = check_fits(fits)
    reference, orders = match_fits(fits, reference)
    shares, top = normalised_components(fits[reference]), leading_features(fits[reference], n, order)
    rank, shown = top.shape
    shape = grid_shape(rank, 3.0)
    height = max(0.24, 0.07 * len(fits) + 0.08) * shown + 0.95
    size = (max(3.0 * shape[1], LEGIBLE), height * shape[0] + 0.7)
    grid, figure = make_panels(shape if axes is None else (1, rank), size, figsize, axes)
    chosen = hide_spare(grid, rank)
    _top_features(chosen, fits, top, reference, orders)
    if order == "lift":
        for ax, features in zip(chosen, top, strict=True):
            ax.plot(shares.mean(axis=0)[features], np.arange(shown), "|", color="black", markersize=9,
                    linestyle="none", label="mean of all components")  # fmt: skip
    if figure is not None:
        lines = [f"Components, each summing to 1: features of {CHOSEN_BY[order]}"]
        lines += [SYMBOLS] * is_ensembl(fits[reference].feature_names[np.unique(top)])
        lines += [f"markers: {named_middles(fits)}; grey bar: {reference}{named_sources(fits, figure)}"]
        figure.suptitle("\n".join(lines), fontsize=10)
    share_legend(chosen, figure)
    return chosen


def is_ensembl(names: Array) -> bool:
    """Return whether most names are identifiers of Ensembl, as ENSG00000156738, which few can read."""
    return sum(ENSEMBL.fullmatch(str(name)) is not None for name in names) > len(names) / 2


def _images(
    fits: Mapping[str, Fit], image_shape: tuple[int, int], reference: str, orders: dict[str, Array], canvas: Any
) -> Array:
    target = fits[reference]
    rank, features = target.components.shape
    height, width = check_image_shape(image_shape, features)
    side = float(np.clip(8 / rank, 0.4, 1.4))
    size = (side * rank + 1.1, (side * height / width + 0.3) * len(fits) + 0.7)
    grid, figure = make_panels((len(fits), rank), size, canvas[1], canvas[0])
    images = np.stack([normalised_components(fit)[orders[label]] for label, fit in fits.items()])
    for row, (label, fit) in enumerate(fits.items()):
        cosines = alignment.fit_cosines(fit, target, orders[label])
        for k, ax in enumerate(grid[row]):
            _image(ax, images[row, k].reshape(height, width), images[:, k].max())
            if label != reference and rank <= MOST_NUMBERS:
                digits = 3 if rank <= MOST_NUMBERS // 2 else 2
                ax.set_xlabel(f"{cosines[k]:.{digits}f}", fontsize=SMALL, labelpad=2)
        grid[row, 0].set_ylabel(shorten(label, 14), rotation=0, ha="right", va="center")
    for k, ax in enumerate(grid[0]):
        named = rank <= 10 or fits[reference].component_names is not None
        ax.set_title(shorten(fits[reference].component_titles[k], 14) if named else str(k), fontsize=9)
    if figure is not None:
        title = "Components, each summing to 1; one colour scale for each column (white: 0)"
        note = (
            f"\nnumbers: cosine with the component of {reference}; 1 if equal"
            if len(fits) > 1 and rank <= MOST_NUMBERS
            else ""
        )
        figure.suptitle(title + note, fontsize=10)
    return grid


def _image(ax: Axes, image: Array, largest: float) -> None:
    ax.imshow(image, cmap="Greys", vmin=0, vmax=largest or 1.0, interpolation="nearest")
    ax.set_xticks([])
    ax.set_yticks([])


def _top_features(axes: Array, fits: Mapping[str, Fit], top: Array, reference: str, orders: dict[str, Array]) -> None:
    intervals = {
        label: summarise(fit, "components", (orders[label][:, None], top), INTERVAL) for label, fit in fits.items()
    }
    for k, ax in enumerate(axes):
        names = [shorten(name, 22) for name in fits[reference].feature_names[top[k]]]
        if not isinstance(fits[reference].feature_names[0], str):
            ax.set_ylabel("feature", fontsize=SMALL)
        _bars(ax, intervals[reference].middle[k], names, shorten(fits[reference].component_titles[k]))
        for place, (label, look) in enumerate(looks_of_fits(fits).items()):
            offset = (place - (len(fits) - 1) / 2) * 0.7 / len(fits)
            _points(ax, intervals[label], k, (label, look), offset)
        ax.set_xlim(left=-0.02 * ax.get_xlim()[1])  # room for markers at 0


def _bars(ax: Axes, values: Array, names: list[str], title: str) -> None:
    places = np.arange(len(values))
    ax.barh(places, values, height=0.85, color="0.88", zorder=0)
    ax.set_yticks(places, names, fontsize=SMALL)
    ax.tick_params(axis="y", length=0)
    ax.tick_params(axis="x", labelsize=SMALL)
    ax.locator_params(axis="x", nbins=3)
    ax.xaxis.set_major_formatter("{x:g}")
    ax.set_ylim(len(values) - 0.5, -0.5)
    ax.set_title(title, fontsize=10)
    ax.set_xlabel("share of the component", fontsize=SMALL)
    ax.axvline(0, color=QUIET, linewidth=0.8)
    hide_frame(ax)
    ax.spines["left"].set_visible(False)  # the line at 0 replaces it


def _points(ax: Axes, interval: Interval, k: int, named: tuple[str, Look], offset: float) -> None:
    label, look = named
    places = np.arange(interval.middle.shape[1]) + offset
    name = interval.named(label)
    if interval.low is not None and interval.high is not None:
        ax.hlines(places, interval.low[k], interval.high[k], color=look.colour, linewidth=1.3)
    ax.plot(interval.middle[k], places, look.marker, color=look.colour, markersize=3.5, linestyle="none", label=name)
