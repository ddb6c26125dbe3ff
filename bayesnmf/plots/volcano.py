"""The volcano plot: how far, and how surely, features set a component apart."""

from __future__ import annotations

from textwrap import fill
from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.axes import Axes
from scipy.optimize import linear_sum_assignment
from scipy.spatial.distance import cdist

from bayesnmf.checks import check_choice, check_count
from bayesnmf.plots.checks import check_markers
from bayesnmf.plots.style import QUIET, SMALL, colours_of, grid_shape, hide_frame, hide_spare, make_panels, shorten
from bayesnmf.results.markers import CONTRASTS
from bayesnmf.types import Array

if TYPE_CHECKING:
    import pandas as pd

IN_SDS = 2 * 1.6448536269514722  # width of a central 90 % interval of a normal distribution, in standard deviations
BESIDE = 1.02  # where names begin, as a fraction of the panel's width
LONGEST = 15  # letters of a name, as many as an identifier of Ensembl has
FEWEST = 11  # places for names beside a panel
LINE, TALLEST = 0.14, 12.0  # inches that a name of this size needs, and of a panel
AROUND, BELOW = 0.6, 0.3  # inches for the title and the ticks of a panel, and for what is below all panels
LETTERS = 12  # of 10 points in an inch
SURE = 0.01  # local false sign rate below which a feature is drawn in colour


def volcano(
    table: pd.DataFrame,
    n: int = 8,
    contrast: str = "next",
    *,
    axes: Any = None,
    figsize: tuple[float, float] | None = None,
) -> Array:
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
    axes : array of Axes, optional
        Axes to draw on instead of new ones, one for each component.
    figsize : tuple of float, optional
        Width and height in inches.

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
    shape = grid_shape(len(components), 3.8)
    shape = shape if axes is None else (1, len(components))
    height = float(np.clip(LINE * min(named, len(table) // len(components)) + AROUND, 3.2, TALLEST))
    grid, figure = make_panels(shape, (3.8 * shape[1], height * shape[0] + BELOW), figsize, axes)
    chosen = hide_spare(grid, len(components))
    if figure is None:
        tall = chosen[0].bbox.height / chosen[0].figure.dpi
    else:
        tall = (figure.get_figheight() - BELOW) / shape[0] - AROUND
    named = min(named, max(round(tall / LINE), 1))
    for ax, component, colour in zip(chosen, components, colours_of(len(components)), strict=True):
        _panel(ax, table[table["component"] == component], contrast, named, colour)
        ax.set_title(shorten(component) if isinstance(component, str) else f"component {component}", fontsize=10)
    against = "the next best component" if contrast == "next" else "the other components"
    if figure is not None:
        width = int(LETTERS * figure.get_figwidth())
        below = [f"log2 fold change against {against}", *table.attrs.get("cautions", [])]
        figure.supxlabel("\n".join(fill(each, width) for each in below), fontsize=10)
        figure.supylabel("standard deviations from 0", fontsize=10)
    return chosen


def _panel(ax: Axes, part: pd.DataFrame, contrast: str, named: int, colour: Any) -> None:
    x = part[f"lfc_{contrast}"].to_numpy()
    low, high = (part[f"lfc_{contrast}_{end}"].to_numpy() for end in ("low", "high"))
    y = np.abs(x) * IN_SDS / np.maximum(high - low, 1e-12)
    sure = part[f"lfsr_{contrast}"].to_numpy() < SURE
    ax.scatter(x[~sure], y[~sure], s=4, color=QUIET, linewidths=0, rasterized=True)
    ax.scatter(x[sure], y[sure], s=8, color=colour, edgecolors="0.4", linewidths=0.2, rasterized=True)
    ax.set_yscale("symlog", linthresh=1)
    ax.set_ylim(bottom=0)
    ax.set_xlim(ax.get_xlim())  # where points are in the panel, lines to them depend on
    order = np.argsort(-low, kind="stable")
    finite = np.isfinite([x, y, low]).all(axis=0)  # others have no place that a line could lead to
    _name(ax, order[finite[order]][:named], part["feature"].to_numpy(), (x, y))
    ax.tick_params(labelsize=SMALL)
    hide_frame(ax)


def _name(ax: Axes, places: Array, names: Array, at: tuple[Array, Array]) -> None:
    """Write names beside the panel, with lines to their points that do not cross: they are the shortest in all.

    Lines end where names begin, so that they cross no other name.
    """
    count = max(len(places), FEWEST)
    labels = np.column_stack([np.full(count, BESIDE), 0.98 * (1 - np.arange(count) / count)])
    points = ax.transAxes.inverted().transform(ax.transData.transform(np.column_stack(at)[places]))
    for point, label in zip(*linear_sum_assignment(cdist(points, labels)), strict=True):
        ax.annotate(
            shorten(names[places[point]], LONGEST), points[point], labels[label], xycoords="axes fraction",
            fontsize=SMALL, va="center",
            arrowprops={"arrowstyle": "-", "color": QUIET, "linewidth": 0.5, "relpos": (0, 0.5)},
        )  # fmt: skip
