"""Draw the similarity of the components of several fits."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from matplotlib.axes import Axes

from bayesnmf.fitting.fitted import Fit
from bayesnmf.inference import alignment
from bayesnmf.plots.checks import check_mapping, check_matchable
from bayesnmf.plots.heatmaps import add_colour_bar, turned, write_numbers
from bayesnmf.plots.style import make_panels, shorten
from bayesnmf.types import Array


def agreement(fits: Mapping[str, Fit], *, axes: Axes | None = None, figsize: tuple[float, float] | None = None) -> Axes:
    """Draw the mean cosine of matched components between all pairs of fits, as an annotated heat map.

    Each pair is matched separately. A cosine is 0 for components without a feature in common, and 1 for those that are
    equal up to scale; colours begin at the tenth below the smallest one.

    Parameters
    ----------
    fits : mapping of str to Fit
        Fits of the same rank and features.
    axes : Axes, optional
        Axes to draw on instead of new ones.
    figsize : tuple of float, optional
        Width and height in inches.

    Returns
    -------
    Axes

    See Also
    --------
    bayesnmf.match : cosines of the components of one fit and a catalogue.
    """
    check_mapping(fits)
    check_matchable(fits)
    values = mean_cosines(fits)
    labels = [shorten(label, 16) for label in fits]
    side = max(0.75 * len(labels), 1.5)  # for fewer fits, the colour bar's label would not fit
    grid, _ = make_panels((1, 1), (side + 2.4, side + 1.4), figsize, axes)
    ax: Axes = grid[0, 0]
    low = min(np.floor(10 * values.min()) / 10, 0.9)
    image = ax.imshow(values, cmap="cividis", vmin=low, vmax=1)
    write_numbers(ax, image, values, "{:.3f}")
    places = np.arange(len(labels))
    ax.set_yticks(places, labels)
    ax.set_title("Agreement of components\n(1: equal up to scale)", fontsize=10)
    add_colour_bar(ax, image, "mean cosine of matched components")
    ax.set_xticks(places, labels, **turned(ax, max(map(len, labels)) > 6, len(labels)))
    return ax


def mean_cosines(fits: Mapping[str, Fit]) -> Array:
    """Return the mean cosine of matched components, (fits, fits): symmetric, and 1 on the diagonal except for zeros."""
    found = np.eye(len(fits))
    listed = [fit.exposed_components.astype(np.float64) for fit in fits.values()]
    for i, first in enumerate(listed):
        for j, second in enumerate(listed[:i]):
            order = alignment.match_components(second, first)
            found[i, j] = found[j, i] = np.diagonal(alignment.cosine(second[order], first)).mean()
    return found
