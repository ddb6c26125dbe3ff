"""The components of several fits beside one another."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from numpy.typing import NDArray

from bayesnmf import checks, gauge
from bayesnmf.plots.checks import check_image_shape
from bayesnmf.plots.style import QUIET, SMALL, Look, bare, hide_spare, looks, panels, share_legend, shorten, wrapped
from bayesnmf.plots.summaries import Interval, match_fits, normalised_components, summarise
from bayesnmf.results import Fit

Array = NDArray[Any]

INTERVAL = 0.9


def components(
    fits: Mapping[str, Fit],
    image_shape: tuple[int, int] | None = None,
    n_features: int = 8,
    *,
    reference: str | None = None,
    axes: Any = None,
    figsize: tuple[float, float] | None = None,
) -> Array:
    """Draw matched components: images, or the features of greatest weight with 90 % intervals.

    Every component is divided by its sum, so that its entries are shares of one.

    Parameters
    ----------
    fits : mapping of str to Fit
        Of the same rank and features. Their components are matched to those of the reference.
    image_shape : tuple of int, optional
        Height and width where features are pixels: one row of images a fit, one column a component. The colours of
        a column share one scale, from 0 to the column's largest entry. Posterior means are shown (modes under map),
        with the cosine to the reference below.
    n_features : int
        Without `image_shape`: the features shown for each component, those of greatest weight in the reference. The
        grey bar is the reference, markers are posterior medians, lines run from the 5 to the 95 % quantile; a point
        estimate has no line.
    reference : str, optional
        Label of the fit that fixes the order; the first by default.
    axes : array of Axes, optional
        (fits, K) for images, K otherwise.
    figsize : tuple of float, optional
        Inches.

    Returns
    -------
    ndarray of Axes
        (fits, K) for images, else (K,).
    """
    reference, orders = match_fits(fits, reference)
    if image_shape is not None:
        return _images(fits, image_shape, reference, orders, (axes, figsize))
    checks.check_count(n_features, "n_features")
    return _top_features(fits, n_features, reference, orders, (axes, figsize))


def _images(
    fits: Mapping[str, Fit], image_shape: tuple[int, int], reference: str, orders: dict[str, Array], canvas: Any
) -> Array:
    target = fits[reference].components
    rank, features = target.shape
    height, width = check_image_shape(image_shape, features)
    side = float(np.clip(14 / rank, 0.8, 1.4))
    size = (side * rank + 1.1, (side * height / width + 0.3) * len(fits) + 0.7)
    grid, figure = panels((len(fits), rank), size, canvas[1], canvas[0])
    images = np.stack([normalised_components(fit)[orders[label]] for label, fit in fits.items()])
    for row, (label, fit) in enumerate(fits.items()):
        cosines = np.diagonal(gauge.cosine(fit.components[orders[label]], target))
        for k, ax in enumerate(grid[row]):
            _image(ax, images[row, k].reshape(height, width), images[:, k].max())
            if label != reference:
                ax.set_xlabel(f"cos {cosines[k]:.3f}", fontsize=SMALL, labelpad=2)
        grid[row, 0].set_ylabel(shorten(label, 14), rotation=0, ha="right", va="center")
    for k, ax in enumerate(grid[0]):
        ax.set_title(f"component {k}" if rank <= 10 else str(k), fontsize=9)
    if figure is not None:
        title = "Components, each summing to 1; one colour scale a column (white: 0)"
        note = f"\ncos: cosine to the component of {reference}" if len(fits) > 1 else ""
        figure.suptitle(title + note, fontsize=10)
    return grid


def _image(ax: Axes, image: Array, largest: float) -> None:
    ax.imshow(image, cmap="Greys", vmin=0, vmax=largest or 1.0, interpolation="nearest")
    ax.set_xticks([])
    ax.set_yticks([])


def _top_features(
    fits: Mapping[str, Fit], n_features: int, reference: str, orders: dict[str, Array], canvas: Any
) -> Array:
    first = fits[reference]
    rank, features = first.components.shape
    shown = min(n_features, features)
    top = np.argsort(-first.components, axis=1, kind="stable")[:, :shown]
    shape = wrapped(rank, 3.6)
    height = max(0.24, 0.07 * len(fits) + 0.08) * shown + 0.95
    grid, figure = panels(shape if canvas[0] is None else (1, rank), (3.6 * shape[1], height * shape[0] + 0.7),
                          canvas[1], canvas[0])  # fmt: skip
    chosen = hide_spare(grid, rank)
    intervals = {
        label: summarise(fit, "components", (orders[label][:, None], top), INTERVAL) for label, fit in fits.items()
    }
    bars = intervals[reference].middle
    for k, ax in enumerate(chosen):
        names = [shorten(name, 22) for name in first.feature_names[top[k]]]
        _bars(ax, bars[k], names, f"component {k}")
        for place, (label, look) in enumerate(looks(fits).items()):
            offset = (place - (len(fits) - 1) / 2) * 0.7 / len(fits)
            _points(ax, intervals[label], k, (label, look), offset)
        ax.set_xlim(left=-0.02 * ax.get_xlim()[1])  # room for markers at 0
    if figure is not None:
        figure.suptitle(
            "Components, each summing to 1: features of greatest weight\n"
            f"markers: posterior median and 90 % interval; grey bar: {reference}",
            fontsize=10,
        )
    share_legend(chosen, figure)
    return chosen


def _bars(ax: Axes, values: Array, names: list[str], title: str) -> None:
    places = np.arange(len(values))
    ax.barh(places, values, height=0.85, color="0.88", zorder=0)
    ax.set_yticks(places, names, fontsize=SMALL)
    ax.tick_params(axis="y", length=0)
    ax.tick_params(axis="x", labelsize=SMALL)
    ax.locator_params(axis="x", nbins=5)
    ax.set_ylim(len(values) - 0.5, -0.5)
    ax.set_title(title, fontsize=10)
    ax.set_xlabel("share of the component", fontsize=SMALL)
    ax.axvline(0, color=QUIET, linewidth=0.8)
    bare(ax)
    ax.spines["left"].set_visible(False)  # the line at 0 stands for it


def _points(ax: Axes, interval: Interval, k: int, named: tuple[str, Look], offset: float) -> None:
    label, look = named
    places = np.arange(interval.middle.shape[1]) + offset
    if interval.low is None or interval.high is None:
        name = f"{label} (point)"
    else:
        name = label
        ax.hlines(places, interval.low[k], interval.high[k], color=look.colour, linewidth=1.3)
    ax.plot(interval.middle[k], places, look.marker, color=look.colour, markersize=3.5, linestyle="none", label=name)
