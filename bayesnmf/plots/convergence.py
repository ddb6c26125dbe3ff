"""Draw objectives against iterations, and how far fits are from the best one and from a stationary point."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Unpack

import numpy as np
from matplotlib.axes import Axes

from bayesnmf.fitting.fitted import Fit
from bayesnmf.options import METHODS, methods_with
from bayesnmf.options.methods import basis_of_mode
from bayesnmf.plots import style
from bayesnmf.plots.checks import check_any_objective, check_best, check_fits, check_one_problem
from bayesnmf.priors.specification import PARAMETER
from bayesnmf.types import Array


def methods_with_objective() -> tuple[str, ...]:
    """Return the methods that maximise an objective."""
    return methods_with("point", "mean field")


@style.figure("array of Axes", "Axes to draw on, one for each kind.")
def objectives(fits: Mapping[str, Fit] | Fit, **panels: Unpack[style.Panels]) -> Array:
    """Draw objectives against iterations, with one panel for each kind of objective, as kinds are not comparable.

    Kinds are the log joint of map (in the natural or the log basis; the log-likelihood if the priors are flat), log
    p(S) of bld, `elbo_augmented` of vi and the bound that svi estimates, each for one model. The axis of the objective
    begins at the lowest value that a fit has after a tenth of its iterations: earlier steps may be below it. The legend
    has the last value and, in brackets, the rise in the last tenth of the iterations. Bounds of svi are noisy: a thin
    line with its running mean over a twentieth of the run. Fits by gibbs and nuts have no objective and are left out:
    see `chains`. A curve that looks flat may still be far from the best: `convergence` shows how far.

    Parameters
    ----------
    fits : mapping of str to Fit, or Fit
        Fits to draw.

    Returns
    -------
    ndarray of Axes
        One for each kind, in the order of the fits.

    See Also
    --------
    convergence : how far each is from its end.
    """
    fits = check_fits(fits)
    kinds = by_kind(fits, methods_with_objective())
    grid, figure = style.make_panels((1, len(kinds)), (4.2 * len(kinds), 3.8), **panels)
    styles = style.looks_of_fits(fits)
    for ax, (kind, labels) in zip(grid[0], kinds.items(), strict=True):
        for label in labels:
            draw = _draw_bound if fits[label].by.estimated else _draw_climb
            draw(ax, fits[label].trace, label, styles[label])
        _show_late_steps(ax, [fits[label].trace for label in labels])
        style.dress(ax, kind, "iteration", "objective (nats)", size=10)
        ax.yaxis.set_major_formatter(lambda value, _: f"{value:,.10g}".replace("-", "−"))
        if figure is None:
            ax.legend(fontsize=style.SMALL, loc="lower right")
    if figure is not None:  # below the panels, where it hides no line
        lines = [line for ax in grid[0] for line in ax.lines if not str(line.get_label()).startswith("_")]
        title = "last value (rise in the last tenth of the iterations), in nats"
        style.legend_below(figure, lines, min(len(kinds), 3), title=title, title_fontsize=style.SMALL)
    return grid[0]


def by_kind(fits: Mapping[str, Fit], methods: tuple[str, ...]) -> dict[str, list[str]]:
    """Return labels of the fits by some methods, for each kind of objective; refuse fits without any."""
    kinds: dict[str, list[str]] = {}
    for label, fit in fits.items():
        if fit.method in methods:
            kinds.setdefault(kind_of_objective(fit), []).append(label)
    check_any_objective(len(kinds), methods)
    return kinds


def kind_of_objective(fit: Fit) -> str:
    """Return a name for the objective of a fit, and its model.

    A log joint under flat priors is the log-likelihood. The basis of a mode is named where it is not the natural one.
    """
    mode = hasattr(fit.options, "basis")
    sides: Any = (fit.priors.loadings, fit.priors.components)
    flat = mode and all(prior == PARAMETER or prior.flat for prior in sides)
    name = "log-likelihood" if flat else fit.objective.rstrip(",")
    basis = ", log basis" if mode and basis_of_mode(fit.options) == "log" else ""
    if name.startswith("elbo"):
        return f"evidence lower bound\n{name} of {fit.model}"
    return f"{name}{basis}\nof {fit.model}"


def rise_at_end(trace: Array) -> float:
    """Return by how much the last tenth of the iterations, at least one, raised the objective; NaN from −∞."""
    before = trace[max(len(trace) - 1 - max(len(trace) // 10, 1), 0)]
    return float(trace[-1] - before) if np.isfinite(before) else np.nan


def resolution(objective: float) -> float:
    """Return 1e-12 of an objective's size: smaller differences are rounding errors."""
    return 1e-12 * max(abs(objective), 1.0)


def running_mean(trace: Array, window: int) -> tuple[Array, Array]:
    """Return iterations, counted from 1, and means over `window` steps around them."""
    means = np.convolve(trace, np.full(window, 1 / window), mode="valid")
    return np.arange(len(means)) + 1 + (window - 1) / 2, means


def as_text_number(value: float) -> str:
    """Return a number as on the axes, with a true minus sign."""
    return f"{value:,.1f}".replace("-", "−")


def _draw_climb(ax: Axes, trace: Array, label: str, look: style.Look) -> None:
    name = f"{style.shorten(label)}: {as_text_number(trace[-1])} ({rise_at_end(trace):+.2g})"
    marker = "." if len(trace) < 5 else None
    steps = np.arange(1, len(trace))
    ax.plot(steps, trace[1:], color=look.colour, linestyle=look.line, marker=marker, label=name)


def _show_late_steps(ax: Axes, traces: list[Array]) -> None:
    """Let the axis begin at the lowest value after a tenth of the iterations, below which only first steps are."""
    late = [trace[len(trace) // 10 :] for trace in traces]
    low = min(float(values.min()) for values in late)
    high = max(float(values.max()) for values in late)
    if np.isfinite(low) and high > low:
        ax.set_ylim(low - 0.05 * (high - low), high + 0.05 * (high - low))


def _draw_bound(ax: Axes, trace: Array, label: str, look: style.Look) -> None:
    steps, means = running_mean(trace, max(len(trace) // 20, 1))
    ax.plot(np.arange(1, len(trace) + 1), trace, color=look.colour, linewidth=0.5, alpha=0.5)
    name = f"{style.shorten(label)}: {as_text_number(means[-1])} (running mean)"
    ax.plot(steps, means, color=look.colour, linestyle=look.line, linewidth=2, label=name)


@style.figure(
    "array of Axes", "Axes to draw on: a row with one for each kind, and a second row if any fit has KKT residuals."
)
def convergence(fits: Mapping[str, Fit] | Fit, *, best: float | None = None, **panels: Unpack[style.Panels]) -> Array:
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
    grid, figure = style.make_panels((rows, len(kinds)), (5.0 * len(kinds) + 1.0, 2.6 * rows + 0.9), **panels)
    styles = style.looks_of_fits(fits)
    for column, (kind, labels) in zip(grid.T, kinds.items(), strict=True):
        for label in labels:
            _draw(column, fits[label], highest[kind], (label, styles[label]))
        _dress(column, kind)
        if best is None:
            _end_below_the_others(column[0], highest[kind])
        if figure is None:
            column[0].legend(fontsize=style.SMALL)
    if figure is not None:  # below the panels, where it hides no line
        style.legend_below(figure, [line for ax in grid[0] for line in ax.lines], 2 * len(kinds))
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


def _draw(column: Array, fit: Fit, best: float, named: tuple[str, style.Look]) -> None:
    label, look = named
    gap = gap_to(best, fit.trace)
    size = as_text_number(gap[-1]) if gap[-1] >= 10 else f"{gap[-1]:.2g}"
    end = "at the best" if gap[-1] <= resolution(best) else f"{size} behind"
    curves = [(gap, f"{style.shorten(label)}: {end}")]
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
            ax.text(0.5, 0.5, "no KKT residual", transform=ax.transAxes, ha="center", color=style.QUIET)
            continue
        if any(np.any(np.isfinite(line.get_ydata())) for line in ax.lines):  # otherwise no iterations to scale by
            ax.set(xscale="log", yscale="log")
        style.dress(ax, x="iteration", y=name)
