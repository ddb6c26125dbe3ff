"""How far fits are from the best objective known, and from a stationary point."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bayesnmf.fitting.fit import Fit
from bayesnmf.options import METHODS
from bayesnmf.plots.checks import check_best, check_fits, check_one_problem
from bayesnmf.plots.style import QUIET, SMALL, Look, bare, looks, panels, shorten
from bayesnmf.plots.traces import by_kind, climbers, nats, resolution

Array = NDArray[Any]


def convergence(
    fits: Mapping[str, Fit] | Fit,
    *,
    best: float | None = None,
    axes: Any = None,
    figsize: tuple[float, float] | None = None,
) -> Array:
    """Draw what every fit is behind the best objective, and below it the KKT residual, on log axes.

    One column for each kind of objective, as in `objectives`; fits of one kind must be of the same counts, rank and
    priors. The gap is to the best that any of them reaches, so that the fit that reaches it ends at 0: give `best`, of
    a longer run, to see how it goes on. Gaps below 1e-12 of the best, which are rounding, are drawn at that. The KKT
    residual (`Fit.residuals`, under map) is 0 at a stationary point. Iterations begin with 1. Fits by svi, whose
    objective is a noisy estimate, and by gibbs and nuts are left out.

    Parameters
    ----------
    fits : mapping of str to Fit, or Fit
    best : float, optional
        The greatest objective known, in nats; of one kind of objective.
    axes : array of Axes, optional
        One row of the kinds, and another where any fit has KKT residuals.
    figsize : tuple of float, optional
        Inches.

    Returns
    -------
    ndarray of Axes, (rows, kinds)
    """
    fits = check_fits(fits)
    kinds = by_kind(fits, tuple(name for name in climbers() if not METHODS[name].estimated))
    highest = {kind: max(float(np.max(fits[label].trace)) for label in labels) for kind, labels in kinds.items()}
    for labels in kinds.values():
        check_one_problem({label: fits[label] for label in labels})
    if best is not None:
        check_best(best, highest, resolution(max(highest.values())))
        highest = dict.fromkeys(highest, float(best))
    rows = 1 + any(fit.residuals is not None for fit in fits.values())
    grid, figure = panels((rows, len(kinds)), (5.0 * len(kinds) + 1.0, 2.6 * rows + 0.9), figsize, axes)
    styles = looks(fits)
    for column, (kind, labels) in zip(grid.T, kinds.items(), strict=True):
        for label in labels:
            _draw(column, fits[label], highest[kind], (label, styles[label]))
        _dress(column, kind)
        if figure is None:
            column[0].legend(fontsize=SMALL)
    if figure is not None:  # below, where no line is hidden
        lines = [line for ax in grid[0] for line in ax.lines]
        figure.legend(handles=lines, loc="outside lower center", ncols=2 * len(kinds), fontsize=SMALL, frameon=False)
    return grid


def gap_to(best: float, trace: Array) -> Array:
    """Best minus the trace, at least the `resolution` of the best."""
    return np.maximum(best - trace, resolution(best))


def _draw(column: Array, fit: Fit, best: float, named: tuple[str, Look]) -> None:
    label, look = named
    gap = gap_to(best, fit.trace)
    size = nats(gap[-1]) if gap[-1] >= 10 else f"{gap[-1]:.2g}"
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
        if any(np.any(np.isfinite(line.get_ydata())) for line in ax.lines):  # else nothing to scale: no iteration
            ax.set(xscale="log", yscale="log")
        ax.set_xlabel("iteration", fontsize=9)
        ax.set_ylabel(name, fontsize=9)
        ax.tick_params(labelsize=SMALL)
        bare(ax)
