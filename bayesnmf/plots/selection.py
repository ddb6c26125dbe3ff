"""Draw held-out scores, evidence or stability of models and ranks, of one criterion or of several side by side."""

from __future__ import annotations

from collections.abc import Iterable
from textwrap import fill
from typing import Any, NamedTuple, Unpack

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from bayesnmf.plots import style
from bayesnmf.plots.checks import check_result, check_selections
from bayesnmf.studies.selection.criterion import Candidate
from bayesnmf.studies.selection.selecting import Selection
from bayesnmf.types import Array

LETTERS = 14  # of a title, in an inch
BEHIND = "nats for each held-out count,\nminus the best"
OTHER_ROWS = "held-out counts,\nother samples"  # the second panel of held-out scores
FAR = 3.0  # times the median distance from the best, beyond which a rank may lie below a panel


class Shown(NamedTuple):
    """Which numbers of a selection a panel shows, and which candidates it marks."""

    selection: Selection
    columns: tuple[str, str]
    best: Candidate | None
    frugal: Candidate | None


@style.figure()
def selection(selection: Selection, **panels: Unpack[style.Panel]) -> Axes:
    """Draw scores, evidence or stability against the rank, one line for each model and noise, with one standard error.

    A ring marks the best candidate; with held-out scores, a square marks the smallest rank that falls short of it by
    at most one standard error of the paired differences. A triangle is a lower limit of an unknown evidence. The title
    has the first caution, if any.

    Parameters
    ----------
    selection : Selection
        Result of `bayesnmf.select`.

    Returns
    -------
    Axes

    See Also
    --------
    ranks : several criteria side by side.
    bayesnmf.select : what it draws.
    """
    check_result(selection, Selection, "selection", "bayesnmf.select")
    ax = style.make_panel((6.5, 4.0), **panels)
    by = selection.by
    _draw(ax, Shown(selection, (by.column, by.error), selection.best, selection.one_standard_error))
    ax.set_ylabel(by.label.format(selection.resampled))
    units = by.units or selection.resampled
    lines = [f"by {selection.method}, {len(selection.scores)} {units}"]
    lines += [caution.split(":")[0] for caution in selection.cautions[:1]]
    figure: Any = ax.figure
    width = int(LETTERS * ax.get_position().width * figure.get_figwidth())  # so that panels side by side have room
    ax.set_title("\n".join(fill(line, max(width, 20)) for line in lines), fontsize=10)
    below: dict[str, Any] = {}
    if panels.get("axes") is None:  # where it hides no line
        columns = style.legend_columns(ax.get_legend_handles_labels()[1], figure)
        below = {"loc": "upper center", "bbox_to_anchor": (0.5, -0.14), "ncols": columns}
    ax.legend(fontsize=style.SMALL, frameon=False, **below)
    return ax


@style.figure(
    "array of Axes", "Axes to draw on, one for each panel: two for held-out counts, one for each of the others."
)
def ranks(selections: Selection | Iterable[Selection], **panels: Unpack[style.Panels]) -> Array:
    """Draw what several criteria say of each rank, one panel for each criterion.

    Held-out scores are differences from the best, paired by row, with one standard error; those of withheld rows have a
    panel of their own. Marks are those of `selection`, which draws one criterion with its scores themselves. An arrow
    at the bottom stands for a rank so far behind the best that it would hide how the others differ; a dashed line marks
    the stability that is asked for.

    Parameters
    ----------
    selections : Selection or iterable of Selection
        Results of `bayesnmf.select`, usually of the same counts by several criteria.

    Returns
    -------
    ndarray of Axes

    Raises
    ------
    TypeError, ValueError
        What is no result of `bayesnmf.select`, or none at all.

    See Also
    --------
    selection : one criterion.
    bayesnmf.select : what it draws.
    """
    chosen = [panel for one in check_selections(selections, Selection) for panel in _panels(one)]
    drawn, figure = style.make_row(len(chosen), (3.0, 3.0), 0.4, **panels)
    for ax, (title, label, shown) in zip(drawn, chosen, strict=True):
        _draw(ax, shown)
        threshold = shown.selection.by.threshold
        if threshold is not None:
            ax.axhline(threshold, color=style.QUIET, linewidth=1, linestyle="--", zorder=0)
            ax.set_ylim(0, 1.05)
        else:
            _leave_far_ranks_below(ax)
        ax.set_title(title, fontsize=10)
        ax.set_ylabel(label, fontsize=style.SMALL)
        if figure is None:
            ax.legend(fontsize=style.SMALL, frameon=False)
    if figure is not None:
        _share_legends(drawn, figure)
    return drawn


def _panels(one: Selection) -> list[tuple[str, str, Shown]]:
    """Return title, label and contents of the panels of one selection."""
    by, columns = one.by, ("difference", "difference_se") if one.by.scored else (one.by.column, one.by.error)
    label = BEHIND if by.scored else by.short or by.label
    found = [(by.title, Shown(one, columns, one.best, one.one_standard_error))]
    if by.scored and one.best_for_rows is not None:
        of_rows = one.best_for_rows, one.one_standard_error_for_rows
        found.append((OTHER_ROWS, Shown(one, ("rows_difference", "rows_difference_se"), *of_rows)))
    bests = (f"best {shown.best.rank}" if shown.best else "no best" for _, shown in found)
    return [(f"{title}: {best}", label, shown) for (title, shown), best in zip(found, bests, strict=True)]


def _leave_far_ranks_below(ax: Axes) -> None:
    """Let the axis end below the ranks near the best, with arrows for those that are far below."""
    drawn = [each[0] for each in ax.containers]
    points = np.concatenate([np.column_stack([line.get_xdata(), line.get_ydata()]) for line in drawn])
    points = points[np.isfinite(points[:, 1])]
    behind = points[:, 1].max() - points[:, 1] if len(points) else np.zeros(0)
    near = FAR * float(np.median(behind[behind > 0])) if (behind > 0).any() else np.inf
    far = behind > near
    if far.any():
        highest = points[:, 1].max()
        ax.set_ylim(highest - 1.15 * near, min(ax.get_ylim()[1], highest + near))
        ax.plot(points[far, 0], np.full(far.sum(), 0.02), "v", transform=ax.get_xaxis_transform(), color=style.QUIET,
                label="far below")  # fmt: skip


def _share_legends(panels: Array, figure: Figure) -> None:
    """Draw one legend for all panels, below the figure; lines of a single model need no name."""
    found: dict[str, Any] = {}
    for ax in panels:
        handles, labels = ax.get_legend_handles_labels()
        several = len(ax.containers) > 1
        found |= {label: handle for handle, label in zip(handles, labels, strict=True)
                  if several or handle not in ax.containers}  # fmt: skip
    if found:
        style.legend_below(figure, [*found.values()])


def _draw(ax: Axes, shown: Shown) -> None:
    """Draw one line for each model and noise against the rank, beside each other, and mark the best."""
    table: Any = shown.selection.table
    names = list(dict.fromkeys(table.index.droplevel("rank")))
    numbers = np.unique(table.index.get_level_values("rank"))
    step = 0.1 * np.min(np.diff(numbers), initial=1.0)  # beside each other, points of equal models stay visible
    beside = {name: step * (place - (len(names) - 1) / 2) for place, name in enumerate(names)}
    for place, (name, colour) in enumerate(zip(names, style.colours_of(len(names)), strict=True)):
        told = name if isinstance(name, str) else ", ".join(name)
        look = {"color": colour, "label": told, "marker": style.MARKERS[place % len(style.MARKERS)]}
        part = table[table.index.droplevel("rank") == name]
        _draw_model(ax, part.set_axis(part.index.get_level_values("rank")), shown.columns, beside[name], look)
    _mark_best(ax, shown, beside)
    style.name_ranks(ax, numbers)
    style.dress(ax)


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


def _mark_best(ax: Axes, shown: Shown, beside: dict[Any, float]) -> None:
    """Mark the best candidate with a ring, and the smallest rank within one standard error with a square."""
    table, column = shown.selection.table, shown.columns[0]
    if shown.best is None or shown.frugal is None:
        return
    best, frugal = (shown.selection.place(each) for each in (shown.best, shown.frugal))
    ring: dict[str, Any] = {"linestyle": "none", "fillstyle": "none", "color": "black", "markersize": 12}
    series = (lambda place: place[0]) if len(best) == 2 else (lambda place: place[:-1])
    ax.plot(best[-1] + beside[series(best)], table.loc[best, column], "o", label="best", **ring)
    if shown.selection.by.scored:
        x = frugal[-1] + beside[series(frugal)]
        ax.plot(x, table.loc[frugal, column], "s", label="smallest within one se", **ring)
