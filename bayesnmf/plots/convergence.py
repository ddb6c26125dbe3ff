"""Draw how far fits are from the best known objective, and from a stationary point."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from bayesnmf.fitting.fitted import Fit
from bayesnmf.options import METHODS
from bayesnmf.plots.checks import check_best, check_fits, check_one_problem
from bayesnmf.plots.style import QUIET, SMALL, Look, hide_frame, looks_of_fits, make_panels, shorten
from bayesnmf.plots.traces import as_text_number, by_kind, methods_with_objective, resolution
from bayesnmf.types import Array


def convergence(
    fits: Mapping[str, Fit] | Fit,
    *,
    best: float | None = None,
    axes: Any = None,
    figsize: tuple[float, float] | None = None,
) -> Array:
    """Draw the gap of every fit to the best objective, and below it the KKT residual, on log axes.

    There is one column for each kind of objective, as in `objectives`; fits of one kind must have the same counts, rank
    and priors. The gap is to the best value that any of them reaches, so the best fit ends at 0, and its curve leaves
    the panel at the bottom: give `best` from a longer run to see its whole course. Gaps below 1e-12 of the best are
    rounding errors and drawn at that value. The KKT residual (`Fit.residuals`, for map) is 0 at a stationary point.
    Iterations are counted from 1. Fits by svi, whose objective is a noisy estimate, and by gibbs and nuts are left out.

    Parameters
    ----------
    fits : mapping of str to Fit, or Fit
        Fits to draw.
    best : float, optional
        Largest known objective, in nats, if there is one kind of objective.
    axes : array of Axes, optional
        Axes to draw on: a row with one for each kind, and a second row if any fit has KKT residuals.
    figsize : tuple of float, optional
        Width and height in inches.

    Returns
    -------
    ndarray of Axes, (rows, kinds)

    See Also
    --------
    objectives : the objectives themselves.
    """
    fits = check_fits(fits)
    kinds = by_kind(fits, tuple(name for name in methods_with_objective() if not METHODS[name].estimated))
    highest = {kind: max(float(np.max(fits[label].trace)) for label in labels) for kind, labels in kinds.items()}
    for labels in kinds.values():
        check_one_problem({label: fits[label] for label in labels})
    if best is not None:
        check_best(best, highest, resolution(max(highest.values())))
        highest = dict.fromkeys(highest, float(best))
    rows = 1 + any(fit.residuals is not None for fit in fits.values())
    grid, figure = make_panels((rows, len(kinds)), (5.0 * len(kinds) + 1.0, 2.6 * rows + 0.9), figsize, axes)
    styles = looks_of_fits(fits)
    for column, (kind, labels) in zip(grid.T, kinds.items(), strict=True):
        for label in labels:
            _draw(column, fits[label], highest[kind], (label, styles[label]))
        _dress(column, kind)
        if best is None:
            _end_below_the_others(column[0], highest[kind])
        if figure is None:
            column[0].legend(fontsize=SMALL)
    if figure is not None:  # below the panels, where it hides no line
        lines = [line for ax in grid[0] for line in ax.lines]
        figure.legend(handles=lines, loc="outside lower center", ncols=2 * len(kinds), fontsize=SMALL, frameon=False)
    return grid


def gap_to(best: float, trace: Array) -> Array:
    """Return the best minus the trace, at least the `resolution` of the best."""
    return np.maximum(best - trace, resolution(best))


def _end_below_the_others(ax: Any, best: float) -> None:
    """Let the axis end below the last gaps of the fits that are behind, so that a plunge to 0 does not fill it."""
    ends = [float(values[-1]) for line in ax.lines if len(values := np.asarray(line.get_ydata()))]
    behind = [end for end in ends if end > 10 * resolution(best)]
    if behind and len(behind) < len(ends):
        ax.set_ylim(bottom=min(behind) / 10)


def _draw(column: Array, fit: Fit, best: float, named: tuple[str, Look]) -> None:
    label, look = named
    gap = gap_to(best, fit.trace)
    size = as_text_number(gap[-1]) if gap[-1] >= 10 else f"{gap[-1]:.2g}"
    end = "at the best" if gap[-1] <= resolution(best) else f"{size} behind"
    curves = [(gap, f"{shorten(label)}: {end}")]
    if fit.residuals is not None:
        curves.append((np.where(fit.residuals > 0, fit.residuals, np.nan), label))
    for ax, (values, name) in zip(column, curves, strict=False):
        steps, marker = np.arange(1, len(values)), "." if len(values) < 5 else None
        ax.plot(steps, values[1:], color=look.colour, linestyle=look.line, marker=marker, label=name)


def _dress(column: Array, kind: str) -> None:
    column[0].set_title(kind, fontsize=10)
    for ax, name in zip(column, ("best − objective (nats)", "KKT residual (counts)"), strict=False):
        if not ax.lines:
            ax.set_axis_off()
            ax.text(0.5, 0.5, "no KKT residual", transform=ax.transAxes, ha="center", color=QUIET)
            continue
        if any(np.any(np.isfinite(line.get_ydata())) for line in ax.lines):  # otherwise no iterations to scale by
            ax.set(xscale="log", yscale="log")
        ax.set_xlabel("iteration", fontsize=9)
        ax.set_ylabel(name, fontsize=9)
        ax.tick_params(labelsize=SMALL)
        hide_frame(ax)
