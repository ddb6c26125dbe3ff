"""Draw the objectives of map, bld, vi and svi against iterations."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from matplotlib.axes import Axes

from bayesnmf.fitting.fitted import Fit
from bayesnmf.options import METHODS, methods_with
from bayesnmf.options.methods import basis_of_mode
from bayesnmf.plots.checks import check_any_objective, check_fits
from bayesnmf.plots.style import SMALL, Look, hide_frame, looks_of_fits, make_panels, shorten
from bayesnmf.priors.specification import PARAMETER
from bayesnmf.types import Array


def methods_with_objective() -> tuple[str, ...]:
    """Return the methods that maximise an objective."""
    return methods_with("point", "mean field")


def objectives(fits: Mapping[str, Fit] | Fit, *, axes: Any = None, figsize: tuple[float, float] | None = None) -> Array:
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
    axes : array of Axes, optional
        Axes to draw on, one for each kind.
    figsize : tuple of float, optional
        Width and height in inches.

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
    grid, figure = make_panels((1, len(kinds)), (4.2 * len(kinds), 3.8), figsize, axes)
    styles = looks_of_fits(fits)
    for ax, (kind, labels) in zip(grid[0], kinds.items(), strict=True):
        for label in labels:
            draw = _draw_bound if METHODS[fits[label].method].estimated else _draw_climb
            draw(ax, fits[label].trace, label, styles[label])
        _show_late_steps(ax, [fits[label].trace for label in labels])
        ax.set_title(kind, fontsize=10)
        ax.set_xlabel("iteration")
        ax.set_ylabel("objective (nats)")
        ax.tick_params(labelsize=SMALL)
        ax.yaxis.set_major_formatter(lambda value, _: f"{value:,.10g}".replace("-", "−"))
        hide_frame(ax)
        if figure is None:
            ax.legend(fontsize=SMALL, loc="lower right")
    if figure is not None:  # below the panels, where it hides no line
        lines = [line for ax in grid[0] for line in ax.lines if not str(line.get_label()).startswith("_")]
        title = "last value (rise in the last tenth of the iterations), in nats"
        figure.legend(handles=lines, loc="outside lower center", ncols=min(len(kinds), 3), fontsize=SMALL,
                      frameon=False, title=title, title_fontsize=SMALL)  # fmt: skip
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
    flat = mode and all(_is_flat(prior) for prior in (fit.priors.loadings, fit.priors.components))
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


def _is_flat(prior: Any) -> bool:
    return prior == PARAMETER or prior.flat


def _draw_climb(ax: Axes, trace: Array, label: str, look: Look) -> None:
    name = f"{shorten(label)}: {as_text_number(trace[-1])} ({rise_at_end(trace):+.2g})"
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


def _draw_bound(ax: Axes, trace: Array, label: str, look: Look) -> None:
    steps, means = running_mean(trace, max(len(trace) // 20, 1))
    ax.plot(np.arange(1, len(trace) + 1), trace, color=look.colour, linewidth=0.5, alpha=0.5)
    name = f"{shorten(label)}: {as_text_number(means[-1])} (running mean)"
    ax.plot(steps, means, color=look.colour, linestyle=look.line, linewidth=2, label=name)
