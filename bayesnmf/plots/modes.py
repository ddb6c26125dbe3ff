"""Draw the modes of many runs, and the consensus of their components."""

from __future__ import annotations

from typing import Any, Unpack

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator

from bayesnmf.plots import style
from bayesnmf.plots.checks import check_result
from bayesnmf.studies.stability.consensus import Consensus
from bayesnmf.studies.stability.modes import Modes
from bayesnmf.types import Array

FARTHEST = np.sqrt(2)  # distance of components of length 1 that share no feature
MOST_IN_LEGEND = 10
BINS = 40
MANY = 40  # runs above which dots are smaller


@style.figure("array of two Axes")
def modes(found: Modes, **panels: Unpack[style.Panels]) -> Array:
    """Draw how far each run is behind the best, and in which runs the components of the best mode come back.

    Left: one point for each run, by falling objective, with a colour for each mode; crosses have not converged. The
    scale is linear below one nat and logarithmic above. Right: the cosine of each component of the best mode with its
    match in each run, by mode and objective, with a dot where it comes back; beside it, in how many runs that is. White
    lines separate the runs of different modes.

    Parameters
    ----------
    found : Modes
        Result of `bayesnmf.modes`.

    Returns
    -------
    ndarray of Axes

    See Also
    --------
    bayesnmf.modes : what it draws.
    consensus
    """
    check_result(found, Modes, "found", "bayesnmf.modes")
    rank = found.best.rank
    grid, _ = style.make_panels((1, 2), (9.0, max(3.6, 1.6 + 0.22 * rank)), **panels)
    left, right = grid.flat
    runs = found.runs.sort_values(["behind", "mode"], kind="stable")
    _draw_distances(left, found, runs)
    _draw_returns(right, found, runs.sort_values(["mode", "behind"], kind="stable"))
    return grid[0]


def _draw_distances(ax: Axes, found: Modes, runs: Any) -> None:
    """Draw the distance of each run from the best objective."""
    colours = style.colours_of(max(len(found.table), len(style.PALETTE)))
    for mode in found.table.index:
        places = np.flatnonzero(runs["mode"] == mode)
        part = runs.iloc[places]
        for converged, marker in ((True, style.MARKERS[mode % len(style.MARKERS)]), (False, "x")):
            chosen = part["converged"].to_numpy() == converged
            if chosen.any():
                label = f"mode {mode}: {len(part)} run{'s' if len(part) > 1 else ''}"
                ax.plot(
                    places[chosen] + 1, part["behind"].to_numpy()[chosen], marker, color=colours[mode], markersize=5,
                    label=label if (converged or not part["converged"].any()) and mode < MOST_IN_LEGEND else None,
                )  # fmt: skip
    ax.set_yscale("symlog", linthresh=1.0)
    ax.set_ylim(bottom=-0.3, top=max(2.0, 2 * float(runs["behind"].max())))
    ax.axhline(0, color=style.QUIET, linewidth=1, zorder=0)
    ax.xaxis.set_major_locator(MaxNLocator(integer=True))
    more = f", {MOST_IN_LEGEND} of them named" if len(found.table) > MOST_IN_LEGEND else ""
    number = len(found.table)
    title = f"{len(runs)} runs end in {number} mode{'s' if number > 1 else ''}{more}"
    style.dress(ax, title, "run, by objective", f"{found.best.objective},\nnats behind the best run", size=10)
    ax.legend(fontsize=style.SMALL, frameon=False)


def _draw_returns(ax: Axes, found: Modes, runs: Any) -> None:
    """Draw the cosines of the components of the best mode with their matches in each run."""
    cosines = found.cosines().loc[runs.index].to_numpy().T
    image = ax.imshow(cosines, cmap="cividis", vmin=0, vmax=1, aspect="auto", interpolation="nearest")
    back = np.argwhere(cosines > found.threshold)
    ax.plot(back[:, 1], back[:, 0], "o", color="black", markersize=2.5 if len(runs) <= MANY else 1.0)
    for edge in np.flatnonzero(np.diff(runs["mode"])):
        ax.axvline(edge + 0.5, color="white", linewidth=1.5)
    counts = found.components.loc[0]["runs"]
    ax.set_yticks(np.arange(len(counts)), [f"{k}: {count} of {len(runs)}" for k, count in enumerate(counts)])
    ax.xaxis.set_major_locator(MaxNLocator(integer=True))
    ax.set_xticks([])
    title = f"runs in which it comes back (dots): cosine above {found.threshold:g}"
    style.dress(ax, title, "run, by mode and objective", "component of mode 0", size=10, framed=True)
    style.add_colour_bar(ax, image, "cosine with the match in the run")


@style.figure("array of two Axes")
def consensus(consensus: Consensus, **panels: Unpack[style.Panels]) -> Array:
    """Draw the distances between the components of all runs, by cluster, and their local densities.

    Left, as the clustergram of cNMF: dark squares on the diagonal are components that come back alike. Components are
    sorted by cluster and, within one, by local density; outliers come last. White lines separate clusters. Right: the
    local densities, and the threshold from which on components are outliers.

    Parameters
    ----------
    consensus : Consensus
        Result of `bayesnmf.Modes.consensus`.

    Returns
    -------
    ndarray of Axes

    See Also
    --------
    bayesnmf.Modes.consensus : what it draws.
    """
    check_result(consensus, Consensus, "consensus", "bayesnmf.modes(...).consensus()")
    grid, _ = style.make_panels((1, 2), (9.0, 4.0), **panels)
    left, right = grid.flat
    _draw_clusters(left, consensus)
    _draw_densities(right, consensus)
    return grid[0]


def _draw_clusters(ax: Axes, consensus: Consensus) -> None:
    """Draw the distances of all components, sorted by cluster."""
    members = consensus.members
    cluster = np.where(members["kept"], members["cluster"], len(consensus.components))
    order = np.lexsort((members["local_density"].to_numpy(), cluster))
    distances = consensus.distances[np.ix_(order, order)]
    image = ax.imshow(distances, cmap="cividis", vmin=0, vmax=FARTHEST, interpolation="nearest")
    sorted_cluster = cluster[order]
    edges = np.flatnonzero(np.diff(sorted_cluster)) + 0.5
    for edge in edges:
        ax.axhline(edge, color="white", linewidth=0.8)
        ax.axvline(edge, color="white", linewidth=0.8)
    numbers = np.unique(sorted_cluster)
    middles = [float(np.flatnonzero(sorted_cluster == number).mean()) for number in numbers]
    labels = ["outliers" if number == len(consensus.components) else f"{number}" for number in numbers]
    ax.set_yticks(middles, labels)
    ax.set_xticks([])
    title = f"mean silhouette {'–' if np.isnan(consensus.silhouette) else f'{consensus.silhouette:.3f}'}"
    style.dress(ax, title, f"{len(members)} components of all runs", "consensus component", size=10, framed=True)
    style.add_colour_bar(ax, image, "Euclidean distance of components of length 1")


def _draw_densities(ax: Axes, consensus: Consensus) -> None:
    """Draw a histogram of the local densities, with the threshold."""
    values, kept = consensus.members["local_density"].to_numpy(), consensus.members["kept"].to_numpy()
    edges = np.linspace(0, 1.05 * max(float(values.max()), min(consensus.density, FARTHEST)), BINS + 1)
    parts = {f"kept: {kept.sum()}": values[kept], f"outliers: {(~kept).sum()}": values[~kept]}
    ax.hist([*parts.values()], edges.tolist(), stacked=True, color=list(style.PALETTE[:2]), label=[*parts])
    if consensus.density <= edges[-1]:
        label = f"density={consensus.density:g}"
        ax.axvline(consensus.density, color="black", linestyle="--", linewidth=1, label=label)
    ax.yaxis.set_major_locator(MaxNLocator(integer=True))
    title = f"{consensus.kept:.0%} of the components are kept"
    style.dress(ax, title, "mean distance to the nearest components", "number of components")
    ax.legend(fontsize=style.SMALL, frameon=False)
