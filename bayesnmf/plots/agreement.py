"""Draw how far fits agree: their posteriors, entry by entry, and the cosines of their components."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Unpack

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import NullFormatter

from bayesnmf.assessment.agreement import QUANTITIES, Moments, choose_entries, draw_quantities, moments
from bayesnmf.checks import check_count
from bayesnmf.fitting.fitted import Fit
from bayesnmf.inference import alignment
from bayesnmf.plots import style
from bayesnmf.plots.checks import check_matchable, check_others
from bayesnmf.results.checks import check_comparable, check_reference
from bayesnmf.types import Array

SHORT = 100  # axes that span less have ticks within each power of ten
UNITS = dict(zip(QUANTITIES, ("counts", "share", "counts"), strict=True))
ROOM, LOWER = 1.5, 20  # factors on log axes: margin, and distance below the reference's smallest value


@style.figure("array of Axes", "Four axes to draw on: means, and below them standard deviations.")
def posterior_agreement(
    fits: Mapping[str, Fit],
    reference: str | None = None,
    *,
    entries: int = 2000,
    seed: int = 0,
    **panels: Unpack[style.Panels],
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
    found: dict[str, dict[str, Moments]] = {}
    for label, fit in fits.items():
        drawn = draw_quantities(fit, base, chosen, seed)
        found[label] = {quantity: moments(drawn[quantity], 0.5) for quantity in QUANTITIES[:2]}  # without the interval
    grid, figure = style.make_panels((2, 2), (8.2, 7.6), **panels)
    others = style.shorten(next(label for label in fits if label != reference)) if len(fits) == 2 else "the others"
    for column, quantity in enumerate(QUANTITIES[:2]):
        ours = {label: every[quantity] for label, every in found.items()}
        for row, statistic in enumerate(("mean", "sd")):
            _draw_against_reference(grid[row, column], ours, statistic, fits, reference)
            x, y = (f"under {each} ({UNITS[quantity]})" for each in (style.shorten(reference), others))
            style.dress(grid[row, column], f"{quantity}: posterior {statistic}s", x, y)
    if figure is not None:
        title = f"{base.model}, rank {base.rank}: posteriors compared with {style.shorten(reference)}"
        figure.suptitle(title, fontsize=11)
    if len(fits) > 2:
        style.share_legend(grid, figure)
    return grid


def _draw_against_reference(
    ax: Axes, ours: Mapping[str, Moments], statistic: str, fits: Mapping[str, Fit], reference: str
) -> None:
    """Draw a statistic of every fit against the reference, for entries that vary; point estimates have no sd."""
    kept = ours[reference].varies
    values = {label: getattr(found, statistic)[kept] for label, found in ours.items()
              if label != reference and (statistic == "mean" or found.varies.any())}  # fmt: skip
    across = getattr(ours[reference], statistic)[kept]
    low, high = _set_up_log_axes(ax, across, list(values.values()))
    for label, look in style.looks_of_fits(fits).items():
        if label in values:
            up = np.clip(values[label], low, high)
            ax.plot(across, up, look.marker, color=look.colour, markersize=3, alpha=0.6, markeredgewidth=0,
                    linestyle="none", label=label, clip_on=False)  # fmt: skip


def _set_up_log_axes(ax: Axes, theirs: Array, others: list[Array]) -> tuple[float, float]:
    """Set up log axes with the line of equality; return their ends.

    They span the reference's values, and the others down to a twentieth of its smallest.
    """
    positive = theirs[theirs > 0]
    least, most = (positive.min(), positive.max()) if len(positive) else (0.1, 1.0)
    smaller = min((values.min() for values in others), default=least)
    low, high = np.clip(smaller, least / LOWER, least) / ROOM, most * ROOM
    ax.set(xscale="log", yscale="log")
    exponents = 10.0 ** np.arange(np.floor(np.log10(low)), np.ceil(np.log10(high)))
    ticks = np.outer(exponents, (1, 3) if high / low < SHORT else (1,)).ravel()
    ticks = ticks[(ticks >= low) & (ticks <= high)]
    for axis in (ax.xaxis, ax.yaxis):
        axis.set_ticks(ticks, [f"{tick:g}" for tick in ticks])
        axis.set_minor_formatter(NullFormatter())
    ax.plot([low, high], [low, high], color=style.QUIET, linestyle="--", linewidth=1, zorder=0)
    ax.set(xlim=(low, high), ylim=(low, high), aspect="equal")
    return float(low), float(high)


@style.figure()
def agreement(fits: Mapping[str, Fit], **panels: Unpack[style.Panel]) -> Axes:
    """Draw the mean cosine of matched components between all pairs of fits, as an annotated heat map.

    Each pair is matched separately. A cosine is 0 for components without a feature in common, and 1 for those that are
    equal up to scale; colours begin at the tenth below the smallest one.

    Parameters
    ----------
    fits : mapping of str to Fit
        Fits of the same rank and features.

    Returns
    -------
    Axes

    See Also
    --------
    bayesnmf.match : cosines of the components of one fit and a catalogue.
    """
    check_matchable(fits)
    values = mean_cosines(fits)
    labels = [style.shorten(label, 16) for label in fits]
    side = max(0.75 * len(labels), 1.5)  # for fewer fits, the colour bar's label would not fit
    ax = style.make_panel((side + 2.4, side + 1.4), **panels)
    low = min(np.floor(10 * values.min()) / 10, 0.9)
    image = ax.imshow(values, cmap="cividis", vmin=low, vmax=1)
    style.write_numbers(ax, image, values, "{:.3f}")
    places = np.arange(len(labels))
    ax.set_yticks(places, labels)
    ax.set_title("Agreement of components\n(1: equal up to scale)", fontsize=10)
    style.add_colour_bar(ax, image, "mean cosine of matched components")
    ax.set_xticks(places, labels, **style.turned(ax, max(map(len, labels)) > 6, len(labels)))
    return ax


def mean_cosines(fits: Mapping[str, Fit]) -> Array:
    """Return the mean cosine of matched components, (fits, fits): symmetric, and 1 on the diagonal except for zeros."""
    found = np.eye(len(fits))
    listed = [fit.exposed_components.astype(np.float64) for fit in fits.values()]
    for i, first in enumerate(listed):
        for j, second in enumerate(listed[:i]):
            order = alignment.match_components(second, first)
            found[i, j] = found[j, i] = np.diagonal(alignment.cosine(second[order], first)).mean()
    return found
