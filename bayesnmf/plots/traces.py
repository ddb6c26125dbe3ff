"""Draw the objectives of map, bld, vi and svi against iterations."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from numpy.typing import NDArray

from bayesnmf.fitting.fit import Fit
from bayesnmf.options import METHODS, methods_with
from bayesnmf.options.defaults import basis_of_mode
from bayesnmf.plots.checks import check_any_objective, check_fits
from bayesnmf.plots.style import SMALL, Look, hide_frame, looks_of_fits, make_panels

Array = NDArray[Any]


def methods_with_objective() -> tuple[str, ...]:
    """Return the methods that maximise an objective."""
    return methods_with("point", "mean field")


def objectives(fits: Mapping[str, Fit] | Fit, *, axes: Any = None, figsize: tuple[float, float] | None = None) -> Array:
    """Draw objectives against iterations, with one panel for each kind of objective, as kinds are not comparable.

    Kinds are the log joint of map (in the natural or the log basis), log p(S) of bld, `elbo_augmented` of vi and the
    bound that svi estimates, each for one model. For map, bld and vi the axes are logarithmic and show the distance of
    each iteration to the fit's own best, plus the last step's change, so that the end is finite. Bounds of svi are
    noisy and on linear axes: a thin line with its running mean over a twentieth of the run; the first steps may be
    below the axis. Fits by gibbs and nuts have no objective and are left out: see `chains`. To compare fits with the
    best of all, use `convergence`.

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
    """
    fits = check_fits(fits)
    kinds = by_kind(fits, methods_with_objective())
    grid, _ = make_panels((1, len(kinds)), (4.2 * len(kinds), 3.6), figsize, axes)
    styles = looks_of_fits(fits)
    for ax, (kind, labels) in zip(grid[0], kinds.items(), strict=True):
        for label in labels:
            draw = _draw_bound if METHODS[fits[label].method].estimated else _draw_gap
            draw(ax, fits[label].trace, label, styles[label])
        ax.set_title(kind, fontsize=10)
        ax.set_xlabel("iteration")
        ax.tick_params(labelsize=SMALL)
        ax.legend(fontsize=SMALL)
        hide_frame(ax)
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
    """Return a name for the objective of a fit, and its model."""
    basis = f", {basis_of_mode(fit.options)} basis" if hasattr(fit.options, "basis") else ""
    return f"{fit.objective.rstrip(',')}{basis}\n{fit.model}"


def gap_to_best(trace: Array) -> Array:
    """Return the best of the trace minus the trace, plus the last step's change (at least its `resolution`)."""
    best = float(np.max(trace))
    last = abs(trace[-1] - trace[-2]) if len(trace) > 1 else 0.0
    return best - trace + max(last, resolution(best))


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


def _draw_gap(ax: Axes, trace: Array, label: str, look: Look) -> None:
    gap = gap_to_best(trace)
    name = f"{label}: best {as_text_number(trace.max())}"
    marker = "." if len(gap) < 5 else None
    ax.loglog(np.arange(1, len(gap)), gap[1:], color=look.colour, linestyle=look.line, marker=marker, label=name)
    ax.set_ylabel("best − objective (nats)")


def _draw_bound(ax: Axes, trace: Array, label: str, look: Look) -> None:
    steps, means = running_mean(trace, max(len(trace) // 20, 1))
    ax.plot(np.arange(1, len(trace) + 1), trace, color=look.colour, linewidth=0.5, alpha=0.5)
    name = f"{label}: running mean, last {as_text_number(means[-1])}"
    ax.plot(steps, means, color=look.colour, linestyle=look.line, linewidth=2, label=name)
    ax.set_ylabel("bound (nats)")
    seen = [np.asarray(line.get_ydata(), dtype=np.float64) for line in ax.lines]
    low = min(np.quantile(values, 0.02) for values in seen)
    high = max(values.max() for values in seen)
    pad = 0.05 * (high - low) or 1.0
    ax.set_ylim(low - pad, high + pad)
