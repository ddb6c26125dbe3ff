"""Draw the posteriors of several fits against one of them, entry by entry."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import NullFormatter

from bayesnmf.assessment.moments import (
    QUANTITIES,
    Moments,
    choose_entries,
    draw_quantities,
    draw_sides,
    moments,
)
from bayesnmf.checks import check_count, check_flag, check_fraction
from bayesnmf.fitting.fitted import Fit
from bayesnmf.inference import alignment
from bayesnmf.plots.checks import check_matchable, check_others, check_pair
from bayesnmf.plots.style import (
    QUIET,
    SMALL,
    colours_of,
    grid_shape,
    hide_frame,
    hide_spare,
    looks_of_fits,
    make_panels,
    share_legend,
    shorten,
)
from bayesnmf.plots.summaries import KINDS
from bayesnmf.priors.values import component_sums
from bayesnmf.results.checks import check_comparable, check_reference
from bayesnmf.results.intervals import for_intervals, kind_of_intervals
from bayesnmf.types import Array

SHORT = 100  # axes that span less have ticks within each power of ten
UNITS = dict(zip(QUANTITIES, ("counts", "share", "counts"), strict=True))
ROWS_AT_ONCE = 500
ROOM, LOWER = 1.5, 20  # factors on log axes: margin, and distance below the reference's smallest value


def posterior_agreement(
    fits: Mapping[str, Fit],
    reference: str | None = None,
    *,
    entries: int = 2000,
    seed: int = 0,
    axes: Any = None,
    figsize: tuple[float, float] | None = None,
) -> Array:
    """Draw posterior means and standard deviations of every fit against those of a reference fit.

    One column shows the loadings, on the scale of the counts, and one the components, on the simplex, as in
    `bayesnmf.posterior_agreement`, which returns the same comparison as numbers. Both axes are logarithmic. On the
    dashed line a fit and the reference agree; below it, in the lower panels, the fit has a smaller standard deviation.
    Points below a twentieth of the reference's smallest value are drawn at the edge. Point estimates have no standard
    deviations and appear in the upper panels only.

    Parameters
    ----------
    fits : mapping of str to Fit
        Fits of the same model, rank and counts.
    reference : str, optional
        Label of a fit with a posterior; by default the first by nuts, else by gibbs, smc, vi, svi.
    entries : int
        Largest number of entries of each side to draw; entries are chosen at random.
    seed : int
        Seed of the choice of entries and of the draws from q.
    axes : array of Axes, optional
        Four axes to draw on: means, and below them standard deviations.
    figsize : tuple of float, optional
        Width and height in inches.

    Returns
    -------
    ndarray of Axes (2, 2)

    See Also
    --------
    bayesnmf.posterior_agreement : the same as a table.
    """
    check_comparable(fits)
    reference = check_reference(reference, fits)
    check_others(fits, reference)
    base = fits[reference]
    chosen = choose_entries(base, check_count(entries, "entries"), check_count(seed, "seed", minimum=0))
    found = {label: _moments(fit, base, chosen, seed) for label, fit in fits.items()}
    grid, figure = make_panels((2, 2), (8.2, 7.6), figsize, axes)
    others = shorten(next(label for label in fits if label != reference)) if len(fits) == 2 else "the others"
    for column, quantity in enumerate(QUANTITIES[:2]):
        ours = {label: every[quantity] for label, every in found.items()}
        for row, statistic in enumerate(("mean", "sd")):
            _draw_against_reference(grid[row, column], ours, statistic, fits, reference)
            grid[row, column].set_title(f"{quantity}: posterior {statistic}s", fontsize=10)
            grid[row, column].set_xlabel(f"under {shorten(reference)} ({UNITS[quantity]})", fontsize=9)
            grid[row, column].set_ylabel(f"under {others} ({UNITS[quantity]})", fontsize=9)
    if figure is not None:
        figure.suptitle(f"{base.model}, rank {base.rank}: posteriors compared with {shorten(reference)}", fontsize=11)
    if len(fits) > 2:
        share_legend(grid, figure)
    return grid


def _moments(fit: Fit, base: Fit, chosen: Any, seed: int) -> dict[str, Moments]:
    """Return the moments of loadings and components of one fit; their interval is not drawn."""
    drawn = draw_quantities(fit, base, chosen, seed)
    return {quantity: moments(drawn[quantity], 0.5) for quantity in QUANTITIES[:2]}


def _draw_against_reference(
    ax: Axes, ours: Mapping[str, Moments], statistic: str, fits: Mapping[str, Fit], reference: str
) -> None:
    """Draw a statistic of every fit against the reference, for entries that vary; point estimates have no sd."""
    kept = ours[reference].varies
    values = {label: getattr(found, statistic)[kept] for label, found in ours.items()
              if label != reference and (statistic == "mean" or found.varies.any())}  # fmt: skip
    across = getattr(ours[reference], statistic)[kept]
    low, high = _set_up_log_axes(ax, across, list(values.values()))
    for label, look in looks_of_fits(fits).items():
        if label in values:
            style: dict[str, Any] = {"color": look.colour, "markersize": 3, "alpha": 0.6, "markeredgewidth": 0}
            up = np.clip(values[label], low, high)
            ax.plot(across, up, look.marker, linestyle="none", label=label, clip_on=False, **style)


def _set_up_log_axes(ax: Axes, theirs: Array, others: list[Array]) -> tuple[float, float]:
    """Set up log axes with the line of equality; return their ends.

    They span the reference's values, and the others down to a twentieth of its smallest.
    """
    positive = theirs[theirs > 0]
    least, most = (positive.min(), positive.max()) if len(positive) else (0.1, 1.0)
    smaller = min((values.min() for values in others), default=least)
    low, high = np.clip(smaller, least / LOWER, least) / ROOM, most * ROOM
    ax.set_xscale("log")
    ax.set_yscale("log")
    exponents = 10.0 ** np.arange(np.floor(np.log10(low)), np.ceil(np.log10(high)))
    ticks = np.outer(exponents, (1, 3) if high / low < SHORT else (1,)).ravel()
    ticks = ticks[(ticks >= low) & (ticks <= high)]
    for axis in (ax.xaxis, ax.yaxis):
        axis.set_ticks(ticks, [f"{tick:g}" for tick in ticks])
        axis.set_minor_formatter(NullFormatter())
    ax.plot([low, high], [low, high], color=QUIET, linestyle="--", linewidth=1, zorder=0)
    ax.set_xlim(low, high)
    ax.set_ylim(low, high)
    ax.set_aspect("equal")
    ax.tick_params(labelsize=SMALL)
    hide_frame(ax)
    return float(low), float(high)


def loadings_scatter(
    fits: Mapping[str, Fit],
    x: str | None = None,
    y: str | None = None,
    *,
    interval: float | None = None,
    together: bool = False,
    axes: Any = None,
) -> Array:
    """Draw the loadings of one fit against those of another, one point for each sample.

    Loadings are on the scale of the counts: the expected counts of a sample that come from a component. So fits of
    different models can be compared. Components of y are matched to those of x. On the dashed line both fits agree; a
    panel's title gives the correlation.

    Parameters
    ----------
    fits : mapping of str to Fit
        Fits of the same counts and rank; their models may differ.
    x, y : str, optional
        Labels of the two fits; by default the first two.
    interval : float, optional
        Probability of central posterior intervals, drawn as bars in both directions for fits with a posterior. They
        come from the draws of a sampler, and for vi from what `Fit.with_intervals` describes: draws beside q, or 4,000
        of q.
    together : bool
        Whether to draw all components in one panel, in different colours, instead of one panel each.
    axes : Axes or array of Axes, optional
        Axes to draw on: one, or K.

    Returns
    -------
    ndarray of Axes
        (K,), or (1,) with `together`.

    See Also
    --------
    posterior_agreement : loadings, components and expected counts of several fits.
    """
    check_flag(together, "together")
    check_matchable(fits)
    x, y = check_pair(x, y, fits)
    if interval is not None:
        check_fraction(interval, "interval")
    fits = {label: for_intervals(fits[label]) for label in (x, y)} if interval is not None else fits
    target, titles = fits[x], [shorten(title, 20) for title in fits[x].component_titles]
    orders = {x: np.arange(target.rank), y: alignment.match_fits(fits[y], target)}
    values = [(fits[label].expected_loadings * component_sums(fits[label].exposed_components))[:, orders[label]]
              for label in (x, y)]  # fmt: skip
    ends = [None if interval is None else _intervals(fits[label], target, interval) for label in (x, y)]
    rank = target.rank
    number = 1 if together else rank
    shape = grid_shape(number, 4.4 if together else 2.7)
    size = (5.4, 4.2) if together else (2.7 * shape[1], 2.7 * shape[0] + 0.5)
    grid, figure = make_panels(shape if axes is None else (1, number), size, None, axes)
    chosen = hide_spare(grid, number)
    colours = colours_of(rank)
    for k in range(rank):
        ax: Axes = chosen[0 if together else k]
        within = [None if end is None else end[..., k] for end in ends]
        _scatter(ax, (values[0][:, k], values[1][:, k]), within, titles[k], colours[k])
    kinds = [
        "" if end is None else KINDS[kind_of_intervals(fits[label])] for label, end in zip((x, y), ends, strict=True)
    ]
    names = f"{shorten(x, 20)}{kinds[0]}", f"{shorten(y, 20)}{kinds[1]}"
    for k, ax in enumerate(chosen):
        pair = [value if together else value[:, k] for value in values]
        _dress(ax, pair, "all components" if together else titles[k], names)
    if together:
        chosen[0].legend(fontsize=SMALL, frameon=False, loc="center left", bbox_to_anchor=(1.0, 0.5))
    if figure is not None:
        figure.suptitle("Loadings: expected counts of a sample from a component", fontsize=10)
    return chosen


def _intervals(fit: Fit, target: Fit, interval: float) -> Array | None:
    """Return ends of central intervals of the loadings, (2, n, K), by blocks of rows; None for a point estimate."""
    if fit.estimate.kind == "point":  # of `for_intervals`: without draws beside it
        return None
    n, tail = fit.counts.shape[0], (1 - interval) / 2
    ends = np.empty((2, n, fit.rank))
    for first in range(0, n, ROWS_AT_ONCE):
        rows = np.arange(first, min(first + ROWS_AT_ONCE, n))
        drawn, _ = draw_sides(fit, target, (rows, np.arange(1)), seed=0)
        ends[:, rows] = np.quantile(drawn, [tail, 1 - tail], axis=(0, 1))
    return ends


def _scatter(ax: Axes, points: tuple[Array, Array], ends: list[Array | None], title: str, colour: Any) -> None:
    across, up = points
    if ends[0] is not None:
        ax.hlines(up, *ends[0], color=colour, linewidth=0.6, alpha=0.35)
    if ends[1] is not None:
        ax.vlines(across, *ends[1], color=colour, linewidth=0.6, alpha=0.35)
    ax.plot(across, up, "o", color=colour, markersize=3, alpha=0.7, markeredgewidth=0, linestyle="none",
            label=title)  # fmt: skip


def _dress(ax: Axes, pair: list[Array], title: str, names: tuple[str, str]) -> None:
    with np.errstate(invalid="ignore", divide="ignore"):  # constant loadings have no correlation
        correlation = np.corrcoef(pair[0].ravel(), pair[1].ravel())[0, 1] if pair[0].size > 1 else np.nan
    most = max(ax.get_xlim()[1], ax.get_ylim()[1])
    ax.plot([0, most], [0, most], color=QUIET, linestyle="--", linewidth=1, zorder=0)
    ax.set_xlim(-0.03 * most, most)
    ax.set_ylim(-0.03 * most, most)
    ax.set_aspect("equal")
    ax.locator_params(nbins=5)
    ax.set_title(f"{title}, r = {correlation:.3f}", fontsize=9)
    ax.set_xlabel(f"{names[0]}, counts", fontsize=9)
    ax.set_ylabel(f"{names[1]}, counts", fontsize=9)
    ax.tick_params(labelsize=SMALL)
    hide_frame(ax)
