"""Draw held-out scores, evidence or stability of models and ranks."""

from __future__ import annotations

from textwrap import fill
from typing import Any

import numpy as np
from matplotlib.axes import Axes

from bayesnmf.plots.checks import check_selection
from bayesnmf.plots.style import MARKERS, SMALL, colours_of, hide_frame, make_panels
from bayesnmf.studies.selection.record import SCORED
from bayesnmf.studies.selection.result import Selection

COLUMNS = {
    "heldout": ("mean", "se", "held-out log-likelihood\nfor each count (nats)"),
    "masked": ("mean", "se", "log-likelihood of held-out entries\nfor each count (nats)"),
    "evidence": ("log_evidence", "se", "log evidence (nats)"),
    "stability": ("least", "", "share of the {} in which\nthe least recurrent component comes back"),
}
LETTERS = 14  # of a title, in an inch
UNITS = {
    "masked": "masks of entries",
    "heldout": "random splits of the counts",
    "evidence": "runs",
}


def selection(selection: Selection, *, axes: Any = None, figsize: tuple[float, float] | None = None) -> Axes:
    """Draw scores, evidence or stability against the rank, one line for each model and noise, with one standard error.

    A ring marks the best candidate; with held-out scores, a square marks the smallest rank that falls short of it by
    at most one standard error of the paired differences. A triangle is a lower limit of an unknown evidence. The title
    has the first caution, if any.

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
    names = list(dict.fromkeys(table.index.droplevel("rank")))
    ranks = np.unique(table.index.get_level_values("rank"))
    step = 0.1 * np.min(np.diff(ranks), initial=1.0)  # beside each other, points of equal models stay visible
    beside = {name: step * (place - (len(names) - 1) / 2) for place, name in enumerate(names)}
    column, error, label = COLUMNS[selection.criterion]
    for place, (name, colour) in enumerate(zip(names, colours_of(len(names)), strict=True)):
        told = name if isinstance(name, str) else ", ".join(name)
        look = {"color": colour, "label": told, "marker": MARKERS[place % len(MARKERS)]}
        part = table[table.index.droplevel("rank") == name]
        _draw_model(ax, part.set_axis(part.index.get_level_values("rank")), (column, error), beside[name], look)
    _mark_best(ax, selection, beside, column)
    ax.set_xticks(ranks)
    ax.set_xlabel("rank")
    ax.set_ylabel(label.format(selection.resampled))
    units = UNITS.get(selection.criterion, selection.resampled)
    lines = [f"by {selection.method}, {len(selection.scores)} {units}"]
    lines += [caution.split(":")[0] for caution in selection.cautions[:1]]
    figure: Any = ax.figure
    width = int(LETTERS * ax.get_position().width * figure.get_figwidth())  # so that panels side by side have room
    ax.set_title("\n".join(fill(line, max(width, 20)) for line in lines), fontsize=10)
    ax.tick_params(labelsize=SMALL)
    ax.legend(fontsize=SMALL, frameon=False)
    hide_frame(ax)
    return ax


def _draw_model(ax: Axes, part: Any, columns: tuple[str, str], beside: float, look: dict[str, Any]) -> None:
    """Draw the values of one model, with triangles at lower limits of what is unknown."""
    column, error = columns
    values, errors = part[column], None
    if error:
        errors = part[error].where(np.isfinite(part[error]), 0.0).to_numpy()
    if "known" in part:
        values = values.where(part["known"].astype(bool), part["at_least"])
    ax.errorbar(part.index.to_numpy() + beside, values.to_numpy(), yerr=errors, markersize=4, capsize=3, **look)
    if "known" in part and not part["known"].all():
        unknown = values[~part["known"].to_numpy(bool)]
        label = "_" if "at least" in ax.get_legend_handles_labels()[1] else "at least"
        ax.plot(unknown.index + beside, unknown, "^", color=look["color"], markersize=9, label=label)


def _mark_best(ax: Axes, selection: Selection, beside: dict[Any, float], column: str) -> None:
    """Mark the best candidate with a ring, and the smallest rank within one standard error with a square."""
    table: Any = selection.table
    if selection.best is None or selection.one_standard_error is None:
        return
    best, frugal = (selection.place(each) for each in (selection.best, selection.one_standard_error))
    ring: dict[str, Any] = {"linestyle": "none", "fillstyle": "none", "color": "black", "markersize": 12}
    series = (lambda place: place[0]) if len(best) == 2 else (lambda place: place[:-1])
    ax.plot(best[-1] + beside[series(best)], table.loc[best, column], "o", label="best", **ring)
    if selection.criterion in SCORED:
        x = frugal[-1] + beside[series(frugal)]
        ax.plot(x, table.loc[frugal, column], "s", label="smallest within one se", **ring)
