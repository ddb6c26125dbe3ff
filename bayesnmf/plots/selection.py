"""Draw held-out scores of models and ranks."""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.axes import Axes

from bayesnmf.assessment.selection import Selection
from bayesnmf.plots.checks import check_selection
from bayesnmf.plots.style import MARKERS, QUIET, SMALL, colours_of, hide_frame, make_panels


def selection(selection: Selection, *, axes: Any = None, figsize: tuple[float, float] | None = None) -> Axes:
    """Draw the held-out score against the rank, one line for each model, with error bars of one standard error.

    A ring marks the best score; a square marks the smallest rank within one standard error of it, the dashed line. The
    title warns if the best rank is the largest or the smallest of those tried.

    Parameters
    ----------
    selection : Selection
        Result of `bayesnmf.select`.
    axes : Axes, optional
        Axes to draw on instead of new ones.
    figsize : tuple of float, optional
        Width and height in inches.

    Returns
    -------
    Axes
    """
    check_selection(selection, Selection)
    grid, _ = make_panels((1, 1), (6.5, 4.0), figsize, axes)
    ax: Axes = grid[0, 0]
    table: Any = selection.table
    names = list(dict.fromkeys(table.index.get_level_values("model")))
    ranks = np.unique(table.index.get_level_values("rank"))
    step = 0.1 * np.min(np.diff(ranks), initial=1.0)  # beside each other, points of equal models stay visible
    beside = {name: step * (place - (len(names) - 1) / 2) for place, name in enumerate(names)}
    for place, (name, colour) in enumerate(zip(names, colours_of(len(names)), strict=True)):
        part = table.loc[name]
        ax.errorbar(
            part.index.to_numpy() + beside[name], part["mean"].to_numpy(), yerr=np.nan_to_num(part["se"]), color=colour,
            marker=MARKERS[place % len(MARKERS)], markersize=4, capsize=3, label=name,
        )  # fmt: skip
    best, frugal = selection.best, selection.one_standard_error
    ring: dict[str, Any] = {"linestyle": "none", "fillstyle": "none", "color": "black", "markersize": 12}
    ax.plot(best.rank + beside[best.model], table.loc[best, "mean"], "o", label="best", **ring)
    ax.plot(frugal.rank + beside[frugal.model], table.loc[frugal, "mean"], "s", label="smallest within one se", **ring)
    ax.axhline(table.loc[best, "mean"] - np.nan_to_num(table.loc[best, "se"]), color=QUIET, linestyle="--", linewidth=1)
    ax.set_xticks(ranks)
    ax.set_xlabel("rank")
    ax.set_ylabel("held-out log-likelihood\nfor each count (nats)")
    title = f"by {selection.method}, {len(selection.scores)} random splits of the counts"
    ax.set_title("\n".join([title, *(caution.split(":")[0] for caution in selection.cautions)]), fontsize=10)
    ax.tick_params(labelsize=SMALL)
    ax.legend(fontsize=SMALL, frameon=False)
    hide_frame(ax)
    return ax
