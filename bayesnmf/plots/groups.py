"""Draw what groups of samples consist of, as a heat map."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.axes import Axes

from bayesnmf.fitting.fitted import Fit
from bayesnmf.plots.heatmaps import add_colour_bar, turned, write_numbers
from bayesnmf.plots.style import LETTER, SMALL, leading, make_panels, shorten
from bayesnmf.results.checks import check_fit, check_groups
from bayesnmf.results.topic_model import to_topic_model
from bayesnmf.types import Array

if TYPE_CHECKING:
    import pandas as pd

MOST = 20  # components that have room for numbers and names, unless more are asked for
NUMBERED = 5  # least percentage that is written


def group_shares(
    fit: Fit,
    groups: Mapping[Any, Any] | pd.Series | Sequence[Any] | Array,
    *,
    n: int | None = None,
    axes: Axes | None = None,
    figsize: tuple[float, float] | None = None,
) -> Axes:
    """Draw the mean share of each component in each group of samples, as a heat map.

    Shares are those of ``bayesnmf.to_topic_model(fit)``, as in `structure`, which draws every sample. Every sample of a
    group counts alike. Components stand in the order of the groups that have most of them, so that components of one
    group lie on the diagonal. Percentages of 5 and more are written.

    Parameters
    ----------
    fit : Fit
        Fit to draw.
    groups : array-like (n,), mapping or Series
        Group of each sample, in the order of the rows or, with labels, by row name. Groups are drawn in order of first
        appearance, or, for a pandas categorical, in the order of its categories. Samples with None or NaN are left out,
        with a DataWarning.
    n : int, optional
        Number of components, by default at most 20: those with the largest mean share in any group. The axis says how
        many there are.
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
        Not a fit, groups of other samples, or a number below 1.

    See Also
    --------
    structure : every sample as a stacked bar.
    bayesnmf.group_contrasts : differences between groups, with intervals.
    """
    check_fit(fit)
    labels, names = check_groups(groups, fit.row_names)
    members = [np.flatnonzero(labels == name) for name in names]
    shares = to_topic_model(fit).proportions
    means = 100 * np.array([shares[rows].mean(axis=0) for rows in members])
    shown = leading(means.max(axis=0), n, MOST)
    shown = shown[np.lexsort((-means[:, shown].max(axis=0), means[:, shown].argmax(axis=0)))]
    written = fit.component_names is not None
    words = [f"{shorten(name)} ({len(rows):,})" for name, rows in zip(names, members, strict=True)]
    width = 1.6 + LETTER * max(map(len, words)) + 0.36 * max(len(shown), 6)
    grid, _ = make_panels((1, 1), (width, 1.3 + 0.9 * written + 0.27 * len(names)), figsize, axes)
    ax: Axes = grid[0, 0]
    image = ax.imshow(means[:, shown], cmap="Blues", vmin=0, aspect="auto", interpolation="nearest")
    if len(shown) <= MOST:
        write_numbers(ax, image, means[:, shown], "{:.0f}", NUMBERED)
    ax.set_yticks(range(len(names)), words)
    among = "" if len(shown) == fit.rank else f" (the leading {len(shown)} of {fit.rank})"
    ax.set_xlabel(f"component{among}", fontsize=SMALL)
    ax.set_ylabel("group (samples)", fontsize=SMALL)
    add_colour_bar(ax, image, "mean share of a\nsample's counts (%)")
    ax.set_xticks(range(len(shown)), [shorten(fit.component_labels[k], 20) for k in shown],
                  **turned(ax, written, len(shown)))  # fmt: skip
    return ax
