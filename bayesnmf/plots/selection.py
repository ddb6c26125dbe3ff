"""Draw held-out scores, evidence or stability of models and ranks."""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.axes import Axes

from bayesnmf.plots.checks import check_selection
from bayesnmf.plots.style import MARKERS, QUIET, SMALL, colours_of, hide_frame, make_panels
from bayesnmf.selection.result import Selection

COLUMNS = {
    "heldout": ("mean", "se", "held-out log-likelihood\nfor each count (nats)"),
    "evidence": ("log_evidence", "se", "log evidence (nats)"),
    "stability": ("least", "", "share of the halves of the rows in which\nthe least recurrent component comes back"),
}
UNITS = {"heldout": "random splits of the counts", "evidence": "runs", "stability": "halves of the rows"}


def selection(selection: Selection, *, axes: Any = None, figsize: tuple[float, float] | None = None) -> Axes:
    """Draw held-out score, evidence or stability against the rank, one line for each model, with one standard error.

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
    column, error, label = COLUMNS[selection.criterion]
    for place, (name, colour) in enumerate(zip(names, colours_of(len(names)), strict=True)):
        part = table.loc[name]
        errors = np.nan_to_num(part[error]) if error else None
        values = part[column].where(part["known"].astype(bool), part["at_least"]) if "known" in part else part[column]
        ax.errorbar(
            part.index.to_numpy() + beside[name], values.to_numpy(), yerr=errors, color=colour,
            marker=MARKERS[place % len(MARKERS)], markersize=4, capsize=3, label=name,
        )  # fmt: skip
        if "known" in part and not part["known"].all():
            unknown = values[~part["known"].to_numpy(bool)]
            ax.plot(unknown.index + beside[name], unknown, "^", color=colour, markersize=9, label="at least")
    _mark_best(ax, selection, beside, column, error)
    ax.set_xticks(ranks)
    ax.set_xlabel("rank")
    ax.set_ylabel(label)
    title = f"by {selection.method}, {len(selection.scores)} {UNITS[selection.criterion]}"
    ax.set_title("\n".join([title, *(caution.split(":")[0] for caution in selection.cautions[:1])]), fontsize=10)
    ax.tick_params(labelsize=SMALL)
    ax.legend(fontsize=SMALL, frameon=False)
    hide_frame(ax)
    return ax


def _mark_best(ax: Axes, selection: Selection, beside: dict[str, float], column: str, error: str) -> None:
    """Mark the best candidate with a ring, and the smallest rank within one standard error with a square."""
    table: Any = selection.table
    best, frugal = selection.best, selection.one_standard_error
    if best is None or frugal is None:
        return
    ring: dict[str, Any] = {"linestyle": "none", "fillstyle": "none", "color": "black", "markersize": 12}
    ax.plot(best.rank + beside[best.model], table.loc[best, column], "o", label="best", **ring)
    if not error:
        return
    ax.plot(frugal.rank + beside[frugal.model], table.loc[frugal, column], "s", label="smallest within one se", **ring)
    lower = table.loc[best, column] - np.nan_to_num(table.loc[best, error])
    ax.axhline(lower, color=QUIET, linestyle="--", linewidth=1)
