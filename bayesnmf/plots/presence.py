"""Draw which known components each sample has, and how much of each."""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.image import AxesImage

from bayesnmf.assessment.assignment_result import Assignment
from bayesnmf.checks import check_fraction
from bayesnmf.plots.checks import check_any_present, check_result
from bayesnmf.plots.heatmaps import add_colour_bar
from bayesnmf.plots.style import SMALL, called, hide_frame, make_panels
from bayesnmf.types import Array

MOST_NAMES = 30  # samples whose names have room below


def presence(
    found: Assignment, least: float = 0.5, *, axes: Any = None, figsize: tuple[float, float] | None = None
) -> Array:
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
    axes : array of two Axes, optional
        Axes to draw on instead of new ones.
    figsize : tuple of float, optional
        Width and height in inches.

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
    grid, figure = make_panels((1, 2), (9.0, 1.8 + 0.17 * len(order)), figsize, axes)
    left, right = grid.flat
    if figure is not None:
        left.get_gridspec().set_width_ratios([3, 1])
    image = _draw_chances(left, found, order)
    _draw_exposures(right, found.exposures[:, order], there[:, order])
    names = [called(found.component_names[k], "component") for k in order]
    left.set_yticks(range(len(order)), [f"{name} ({there[:, k].sum()})" for name, k in zip(names, order, strict=True)])
    right.set_yticks(range(len(order)), [])
    right.tick_params(axis="y", length=0)
    add_colour_bar(right, image, "chance that it is present", 0.1)
    for ax in grid.flat:
        ax.set_ylim(len(order) - 0.5, -0.5)
        ax.tick_params(labelsize=SMALL)
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
        names = [called(found.row_names[i], "sample", 16) for i in samples]
        ax.set_xticks(range(len(samples)), names, rotation=90)
    else:
        ax.set_xticks([])
    ax.set_xlabel(f"{len(samples)} samples, by largest component")
    ax.set_ylabel("component (samples that have it)")
    number = f"{len(order)} of {found.presence.shape[1]} components"
    ax.set_title(f"{number}: those that some sample has", fontsize=10)
    return image


def _draw_exposures(ax: Axes, exposures: Array, there: Array) -> None:
    """Draw a dot for the exposure of each sample that has a component."""
    rows, columns = np.nonzero(there)
    ax.plot(exposures[rows, columns], columns, "o", color="#0072B2", alpha=0.4, markersize=4, markeredgewidth=0)
    ax.set_xscale("log")
    ax.set_xlabel("exposure where\npresent (counts)")
    ax.grid(axis="y", color="0.9", linewidth=0.5)
    ax.set_axisbelow(True)
    hide_frame(ax)
