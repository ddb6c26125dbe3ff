"""Elements shared by all figures: colours and markers, panels, legends."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import matplotlib as mpl
import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from bayesnmf.checks import check_count
from bayesnmf.fitting.fitted import Fit
from bayesnmf.options import METHODS
from bayesnmf.plots.checks import check_axes
from bayesnmf.types import Array
from bayesnmf.writing import replacing

METHOD_COLOURS = {
    "map": "#000000",
    "vi": "#0072B2",
    "svi": "#56B4E9",
    "gibbs": "#D55E00",
    "nuts": "#009E73",
    "smc": "#E69F00",
    "bld": "#CC79A7",
}
"""One colour for each method, from the palette of Okabe and Ito, safe for the colour-blind."""
OTHER_METHOD = "#999999"
PALETTE = (
    "#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#F0E442", "#000000", "#0F00A5", "#4B5A4B",
    "#FFC3B4", "#780000", "#7878FF", "#694B69", "#B4A5A5", "#785A2D", "#1E2D4B", "#FF4B69", "#4BE1E1", "#C30F96",
)  # fmt: skip
"""Colours of components: those of Okabe and Ito, safe for the colour-blind, then others. Each of these was found by a
search for the colour farthest from all before it (CIEDE2000, with and without red-green blindness); of the colours
from the ninth on, the order is the one in which neighbours, which touch in stacked bars, differ most."""
MARKERS = ("o", "s", "^", "v", "P", "X")
LINES = ("-", "--", ":", "-.")
SMALL = 9
"""Size of the smallest text, in points: 7 points where a figure of the largest width is printed 7 inches wide."""
LETTER = 0.065
"""Width of a letter of this size, in inches."""
WIDEST = 9.0
"""Largest width of a new figure, in inches."""
LEGIBLE = 5.0
"""Width in inches from which on a figure has room for a heading and a legend."""
QUIET = "0.55"
SHOWN = 12
"""Largest number of components with a colour of their own in one figure, unless more are asked for."""
OTHERS = "0.8"


class Look(NamedTuple):
    """Colour, marker and line of one fit: see `looks`."""

    colour: str
    marker: str
    line: str


def looks_of_fits(fits: Mapping[str, Fit]) -> dict[str, Look]:
    """Return for every fit the colour of its method; markers and lines distinguish fits by one method.

    Points without a posterior (map, bld) are diamonds. If all fits are by one method, each has a colour of its own
    instead.
    """
    seen: dict[str, int] = {}
    chosen = {}
    if len(fits) > 1 and len({fit.method for fit in fits.values()}) == 1:
        colours = colours_of(len(fits))
        return {label: Look(colours[i], MARKERS[i % len(MARKERS)], "-") for i, label in enumerate(fits)}
    for label, fit in fits.items():
        turn = seen.get(fit.method, 0)
        seen[fit.method] = turn + 1
        marker = "D" if METHODS[fit.method].posterior == "point" and turn == 0 else MARKERS[turn % len(MARKERS)]
        chosen[label] = Look(METHOD_COLOURS.get(fit.method, OTHER_METHOD), marker, LINES[turn % len(LINES)])
    return chosen


def colours_of(rank: int) -> list[Any]:
    """Return one colour for each component."""
    if rank <= len(PALETTE):
        return list(PALETTE[:rank])
    return list(mpl.colormaps["gist_ncar"](np.linspace(0.03, 0.97, rank)))


def leading(sizes: Array, n: int | None, most: int = SHOWN) -> Array:
    """Return the positions of the `n` largest components, in their own order; by default `most` of them."""
    number = most if n is None else check_count(n, "n")
    return np.sort(np.argsort(-sizes, kind="stable")[:number])


def colours_of_leading(rank: int, shown: Array) -> list[Any]:
    """Return one colour for each component, grey for all but those shown.

    Components have the colours of `PALETTE` in their order; if it is too short, those shown have its first ones.
    """
    fits = rank <= len(PALETTE)
    own = colours_of(rank if fits else len(shown))
    found: list[Any] = [OTHERS] * rank
    for place, k in enumerate(shown):
        found[k] = own[k if fits else place]
    return found


def make_panels(
    shape: tuple[int, int], size: tuple[float, float], figsize: Any = None, axes: Any = None
) -> tuple[Array, Figure | None]:
    """Return axes of the given shape, and their figure if it is a new one.

    Parameters
    ----------
    shape : tuple of int
        Numbers of rows and columns of panels.
    size : tuple of float
        Width and height in inches if there is no `figsize`; the width is at most `WIDEST`.
    axes : Axes or array of Axes, optional
        Axes to draw on instead of new ones, one for each panel.
    """
    if axes is not None:
        given = np.atleast_1d(np.asarray(axes, dtype=object))
        check_axes(given.size, shape[0] * shape[1])
        return given.reshape(shape), None
    size = (min(size[0], WIDEST), size[1])
    figure, made = plt.subplots(*shape, figsize=figsize or size, squeeze=False, layout="constrained")
    return made, figure


def grid_shape(count: int, width: float, most: float = WIDEST) -> tuple[int, int]:
    """Return rows and columns of an evenly filled grid of `count` panels, `width` inches each, `most` inches in all."""
    rows = -(-count // int(np.clip(most // width, 1, count)))
    return rows, -(-count // rows)


def hide_spare(axes: Array, used: int) -> Array:
    """Remove the panels of a grid after the first `used`; return the others in one row."""
    for spare in axes.flat[used:]:
        spare.remove()
    return axes.flat[:used]


def share_legend(axes: Array, figure: Figure | None) -> None:
    """Draw the first panel's legend once: below a new figure, or in the first of the given axes."""
    first: Axes = axes.flat[0]
    handles, labels = first.get_legend_handles_labels()
    if figure is None:
        first.legend(handles, labels, fontsize=SMALL)
    else:
        figure.legend(handles, labels, loc="outside lower center", ncols=legend_columns(labels, figure), frameon=False,
                      fontsize=SMALL)  # fmt: skip


def legend_columns(labels: Iterable[str], figure: Figure) -> int:
    """Return how many of these labels a legend below a figure has room for in one line."""
    lengths = [len(label) for label in labels]
    room = figure.get_figwidth() / LETTER  # letters; a line or marker and the space beside it take 5
    return int(np.clip(room // (max(lengths) + 5), 1, len(lengths)))


def hide_frame(axes: Axes) -> None:
    """Hide the top and right sides of the frame."""
    axes.spines[["top", "right"]].set_visible(False)


def called(name: Any, kind: str, most: int = 28) -> str:
    """Return the name of a row or a feature; one without a name of its own is called by its number, as in "row 3"."""
    return shorten(name, most) if isinstance(name, str) else f"{kind} {name}"


def shorten(name: Any, most: int = 28) -> str:
    """Return a name as text, shortened if it is too long for an axis."""
    text = str(name)
    text = text if len(text) <= most else text[: most - 1] + "…"
    return text.replace("$", r"\$")  # two of them would begin and end a formula


def save_figure(axes: Any, path: Path) -> None:
    """Write the figure that axes belong to, in the format of the file's suffix, and close it."""
    figure = next(ax for ax in np.ravel(axes) if ax is not None).figure
    with replacing(path) as temporary:
        figure.savefig(temporary, dpi=150)
    plt.close(figure)
