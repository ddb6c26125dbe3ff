"""Draw loadings of chosen rows with their uncertainty, for several fits."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
from matplotlib.axes import Axes

from bayesnmf.assessment.response_tables import LinearResponse
from bayesnmf.checks import check_fraction, check_names
from bayesnmf.fitting.fitted import Fit
from bayesnmf.plots.checks import check_fits_and_responses, check_same_unit
from bayesnmf.plots.style import (
    SMALL,
    Look,
    called,
    grid_shape,
    hide_frame,
    hide_spare,
    looks_of_fits,
    make_panels,
    share_legend,
    shorten,
)
from bayesnmf.plots.summaries import Interval, has_proportions, match_fits, named_medians, named_sources, summarise
from bayesnmf.types import Array


def loadings_intervals(
    fits: Mapping[str, Fit | LinearResponse] | Fit | LinearResponse,
    rows: Iterable[Any],
    interval: float = 0.9,
    *,
    reference: str | None = None,
    axes: Any = None,
    figsize: tuple[float, float] | None = None,
) -> Array:
    """Draw posterior medians and central intervals of the loadings of chosen rows, one panel for each row.

    A point estimate has no interval, unless a bootstrap has made one. Loadings are counts under Gamma priors (on the
    scale on which components sum to 1; per unit of exposure if there are exposures), and proportions under Dirichlet
    priors; the two cannot be drawn together. Quantiles are those of the draws for gibbs and nuts, those of
    `bayesnmf.linear_response` if one is given, and else those of the draws beside the estimate, or for vi of q
    (`Fit.with_intervals`); the legend says which.

    Parameters
    ----------
    fits : mapping of str to Fit or LinearResponse, or a single one
        Fits of the same rank and features. Their components are matched to those of the reference.
    rows : iterable of names
        Names in ``fit.row_names``, compared as text, or a single name.
    interval : float
        Probability inside the interval; the rest is split equally between both ends.
    reference : str, optional
        Label of the fit that determines the order; by default the first.
    axes : array of Axes, optional
        Axes to draw on, one for each row.
    figsize : tuple of float, optional
        Width and height in inches.

    Returns
    -------
    ndarray of Axes
        One for each row.
    """
    fits, responses = check_fits_and_responses(fits)
    reference, orders = match_fits(fits, reference)
    check_fraction(interval, "interval")
    check_same_unit({label: has_proportions(fit) for label, fit in fits.items()})
    places = {label: _places(fit, rows) for label, fit in fits.items()}
    names = fits[reference].row_names[places[reference]]
    rank = fits[reference].rank
    width = float(np.clip(0.13 * rank * len(fits) + 1.0, 3.0, 9.0))
    shape = grid_shape(len(names), width)
    grid, figure = make_panels(shape if axes is None else (1, len(names)), (width * shape[1], 2.7 * shape[0] + 0.8),
                          figsize, axes)  # fmt: skip
    chosen = hide_spare(grid, len(names))
    for turn, (label, look) in enumerate(looks_of_fits(fits).items()):
        found = summarise(fits[label], "loadings", (places[label][:, None], orders[label][None, :]), interval,
                          responses.get(label))  # fmt: skip
        offset = (turn - (len(fits) - 1) / 2) * 0.7 / len(fits)
        for i, ax in enumerate(chosen):
            _draw(ax, found, i, (f"{label}{found.kind}", look), offset)
    unit = "proportion" if has_proportions(fits[reference]) else "counts"
    unit += " per unit of exposure" if unit == "counts" and fits[reference].counts.exposed else ""
    _dress(chosen, names, fits[reference], unit)
    if figure is not None:
        named = named_sources({label: fit for label, fit in fits.items() if label not in responses}, figure)
        figure.suptitle(
            f"Loadings: {named_medians(fits)} and central {100 * interval:g} % interval{named}", fontsize=10
        )
    share_legend(chosen, figure)
    return chosen


def _places(fit: Fit, rows: Iterable[Any]) -> Array:
    chosen = check_names([rows] if isinstance(rows, str) else rows, fit.row_names, "rows")
    return np.arange(len(fit.row_names)) if chosen is None else chosen


def _draw(ax: Axes, found: Interval, row: int, named: tuple[str, Look], offset: float) -> None:
    label, look = named
    places = np.arange(found.middle.shape[1]) + offset
    if found.low is not None and found.high is not None:
        ax.vlines(places, found.low[row], found.high[row], color=look.colour, linewidth=1.6)
    ax.plot(places, found.middle[row], look.marker, color=look.colour, markersize=4, linestyle="none", label=label)


def _dress(axes: Array, names: Array, fit: Fit, unit: str) -> None:
    rank, named = fit.rank, fit.component_names is not None
    for name, ax in zip(names, axes, strict=True):
        ax.set_title(called(name, "row"), fontsize=10)
        slanted: dict[str, Any] = {"rotation": 45, "ha": "right", "rotation_mode": "anchor"} if named else {}
        ax.set_xticks(np.arange(rank), [shorten(label, 16) for label in fit.component_labels], **slanted)
        ax.set_xticks(np.arange(1, rank) - 0.5, minor=True)
        ax.grid(axis="x", which="minor", color="0.9", linewidth=0.8)
        ax.tick_params(axis="x", which="both", length=0)
        ax.tick_params(labelsize=SMALL)
        ax.set_xlim(-0.5, rank - 0.5)
        ax.set_ylim(bottom=-0.03 * ax.get_ylim()[1])  # room for markers at 0
        ax.set_xlabel("component", fontsize=9)
        ax.set_ylabel(f"loading ({unit})", fontsize=9)
        hide_frame(ax)
