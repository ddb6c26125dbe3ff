"""Draw the misfit of fits of several ranks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from matplotlib.axes import Axes

from bayesnmf.assessment.predictive_checks import PredictiveChecks
from bayesnmf.plots.checks import check_checks_by_rank
from bayesnmf.plots.selection import name_ranks
from bayesnmf.plots.style import MARKERS, PALETTE, QUIET, SMALL, hide_frame, make_panels, shorten


def misfit(
    checks: Mapping[int, PredictiveChecks] | Mapping[str, Mapping[int, PredictiveChecks]],
    *,
    axes: Axes | None = None,
    figsize: tuple[float, float] | None = None,
) -> Axes:
    """Draw how much worse fits of several ranks describe the counts than a right model would.

    A point is the misfit of the counts, divided by the mean misfit of refitted replicates, which is 1 for a right
    model; the band has the intervals of the replicates. Points above the band say that the counts vary more than the
    model allows: the rank is too small, or the noise is not that of the model, which no rank mends.

    Parameters
    ----------
    checks : mapping of int to PredictiveChecks, or mapping of str to such mappings
        Results of `bayesnmf.predictive_checks` by rank, of one series of fits, or of several by label.
    axes : Axes, optional
        Axes to draw on instead of new ones.
    figsize : tuple of float, optional
        Width and height in inches.

    Returns
    -------
    Axes

    Raises
    ------
    TypeError, ValueError
        What is no result of `bayesnmf.predictive_checks`, or none at all.

    See Also
    --------
    predictive_checks : the checks of one fit, all of them.

    Examples
    --------
    >>> import bayesnmf
    >>> counts = bayesnmf.simulate(size=(20, 10), rank=3, seed=0).counts
    >>> fits = {rank: bayesnmf.fit(counts, rank=rank, seed=0) for rank in (1, 3)}
    >>> checks = {rank: bayesnmf.predictive_checks(fit, draws=20, refits=10) for rank, fit in fits.items()}
    >>> bayesnmf.plots.misfit(checks)  # doctest: +SKIP
    """
    series = check_checks_by_rank(checks, PredictiveChecks)
    grid, _ = make_panels((1, 1), (6.5, 4.0), figsize, axes)
    ax: Axes = grid[0, 0]
    for place, (label, by_rank) in enumerate(series.items()):
        _draw(ax, by_rank, shorten(label, 40), place)
    ax.axhline(1, color=QUIET, linewidth=1, zorder=0)
    name_ranks(ax, np.unique([rank for by_rank in series.values() for rank in by_rank]))
    ax.set_yscale("log")
    ax.yaxis.set_major_formatter("{x:g}")
    ax.yaxis.set_minor_formatter("{x:.2g}")
    ax.tick_params(which="both", labelsize=SMALL)
    ax.set_ylabel("misfit, as a multiple of that of a right model")
    ax.legend(fontsize=SMALL, frameon=False)
    hide_frame(ax)
    return ax


def _draw(ax: Axes, by_rank: Mapping[int, PredictiveChecks], label: str, place: int) -> None:
    """Draw one series of ranks with the interval of its replicates."""
    ranks = sorted(by_rank)
    rows: list[Any] = [by_rank[rank].table.loc["misfit"] for rank in ranks]
    observed, low, high = (
        np.array([row[name] / row["mean"] for row in rows], float) for name in ("observed", "low", "high")
    )
    look: dict[str, Any] = {"color": PALETTE[place % len(PALETTE)], "marker": MARKERS[place % len(MARKERS)]}
    inside = f"{by_rank[ranks[0]].interval:.0%} of the replicates"
    ax.fill_between(ranks, low, high, color=look["color"], alpha=0.2, linewidth=0,
                    label=f"{label}: {inside}" if label else inside)  # fmt: skip
    ax.plot(ranks, observed, label=label or "observed", markersize=5, **look)
