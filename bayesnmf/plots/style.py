"""What all figures share: the decorator `figure`, panels, colours and markers, legends, heat maps."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import wraps
from inspect import Parameter, signature
from pathlib import Path
from typing import Any, NamedTuple, TypedDict, Unpack

import matplotlib as mpl
import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.image import AxesImage

from bayesnmf.checks import check_count
from bayesnmf.fitting.fitted import Fit
from bayesnmf.options.methods import method_of
from bayesnmf.plots.checks import check_arguments, check_axes
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
SMALL = 9  # size of the smallest text: 7 points where a figure of the largest width is printed 7 inches wide
LETTER = 0.065  # width of a letter of this size, in inches
WIDEST = 9.0  # largest width of a new figure, in inches
LEGIBLE = 5.0  # width in inches from which on a figure has room for a heading and a legend
QUIET = "0.55"
SHOWN = 12  # largest number of components with a colour of their own in one figure, unless more are asked for
OTHERS = "0.8"
ROOM = 0.08  # part of the axis of ranks that the number of a rank takes
LUMINANCE = (0.3, 0.59, 0.11)  # of red, green and blue
UPRIGHT = 0.2  # inches for each number, below which they stand upright; below half of it they are small, too
SMALLEST = 6
SLANTED: dict[str, Any] = {"rotation": 45, "ha": "right", "rotation_mode": "anchor"}
FIGURES: list[str] = []  # names of the functions that `figure` has made


class Panels(TypedDict, total=False):
    """What every figure takes besides its own arguments: axes to draw on, and the size of a new figure."""

    axes: Any
    figsize: tuple[float, float] | None


class Panel(TypedDict, total=False):
    """The same for a figure of one panel."""

    axes: Axes | None
    figsize: tuple[float, float] | None


def figure[Drawer: Callable[..., Any]](
    axes: str = "Axes", about: str = "Axes to draw on instead of new ones."
) -> Callable[[Drawer], Drawer]:
    """Return a decorator that makes a function a figure: its signature and docstring then have `axes` and `figsize`.

    The function ends its parameters with ``**panels: Unpack[Panels]``, or ``Unpack[Panel]`` if it has one panel, hands
    them on to `make_panels`, `make_row` or `make_panel`, and returns its axes. Its docstring says nothing of them.

    Parameters
    ----------
    axes : str
        What `axes` are.
    about : str
        How many, or of what shape.
    """
    told = [f"axes : {axes}, optional", f"    {about}",
            "figsize : tuple of float, optional", "    Width and height in inches."]  # fmt: skip
    added = "".join(rf"\n\1{line}" for line in told)

    def decorated(draw: Drawer) -> Drawer:
        own = signature(draw)
        *named, panels = own.parameters.values()
        kinds = (Panels if panels.annotation.endswith("Panels]") else Panel).__annotations__
        named += [Parameter(name, Parameter.KEYWORD_ONLY, default=None, annotation=kind.__forward_arg__)
                  for name, kind in kinds.items()]  # fmt: skip
        taken = own.replace(parameters=named)

        @wraps(draw)
        def drawn(*arguments: Any, **settings: Any) -> Any:
            check_arguments(draw.__name__, taken, arguments, settings)
            return draw(*arguments, **settings)

        drawn.__doc__ = re.sub(r"\n\n( *)Returns\n", rf"{added}\n\n\1Returns\n", draw.__doc__ or "", count=1)
        drawn.__signature__ = taken  # type: ignore[attr-defined]
        FIGURES.append(draw.__name__)
        return drawn  # type: ignore[return-value]

    return decorated


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
        marker = "D" if method_of(fit.method).posterior == "point" and turn == 0 else MARKERS[turn % len(MARKERS)]
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
    shape: tuple[int, int], size: tuple[float, float], axes: Any = None, figsize: tuple[float, float] | None = None
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
    figsize : tuple of float, optional
        Width and height in inches.
    """
    if axes is not None:
        given = np.atleast_1d(np.asarray(axes, dtype=object))
        check_axes(given.size, shape[0] * shape[1])
        return given.reshape(shape), None
    size = figsize or (min(size[0], WIDEST), size[1])
    made, axes = plt.subplots(*shape, figsize=size, squeeze=False, layout="constrained")
    return axes, made


def make_panel(size: tuple[float, float], **panel: Unpack[Panel]) -> Axes:
    """Return the axes of the only panel."""
    made: Axes = make_panels((1, 1), size, **panel)[0][0, 0]
    return made


def make_row(
    number: int, size: tuple[float, float], around: float, least: float = LEGIBLE, **panels: Unpack[Panels]
) -> tuple[Array, Figure | None]:
    """Return panels, (number,), and their figure if it is a new one, in which they fill a grid evenly.

    Each panel has this size in inches; `around` is the height of what stands above and below them, and `least` the
    smallest width of the figure.
    """
    rows, columns = grid_shape(number, size[0]) if panels.get("axes") is None else (1, number)
    grid, made = make_panels((rows, columns), (max(size[0] * columns, least), size[1] * rows + around), **panels)
    for spare in grid.flat[number:]:
        spare.remove()
    return grid.flat[:number], made


def grid_shape(count: int, width: float, most: float = WIDEST) -> tuple[int, int]:
    """Return rows and columns of an evenly filled grid of `count` panels, `width` inches each, `most` inches in all."""
    rows = -(-count // int(np.clip(most // width, 1, count)))
    return rows, -(-count // rows)


def share_legend(axes: Array, figure: Figure | None) -> None:
    """Draw the first panel's legend once: below a new figure, or in the first of the given axes."""
    first: Axes = axes.flat[0]
    if figure is None:
        first.legend(fontsize=SMALL)
    else:
        legend_below(figure, first.get_legend_handles_labels()[0])


def legend_below(figure: Figure, handles: Sequence[Any], columns: int | None = None, **more: Any) -> None:
    """Draw one legend below all panels, with as many columns as there is room for."""
    columns = columns or legend_columns([str(each.get_label()) for each in handles], figure)
    figure.legend(handles=handles, loc="outside lower center", ncols=columns, frameon=False, fontsize=SMALL, **more)


def legend_columns(labels: Iterable[str], figure: Figure) -> int:
    """Return how many of these labels a legend below a figure has room for in one line."""
    lengths = [len(label) for label in labels]
    room = figure.get_figwidth() / LETTER  # letters; a line or marker and the space beside it take 5
    return int(np.clip(room // (max(lengths) + 5), 1, len(lengths)))


def dress(
    ax: Axes, title: str = "", x: str = "", y: str = "", size: float = SMALL, heading: float = 10, framed: bool = False
) -> None:
    """Name a panel and its axes, with small text at its ticks, without a frame above and to the right."""
    if title:
        ax.set_title(title, fontsize=heading)
    if x:
        ax.set_xlabel(x, fontsize=size)
    if y:
        ax.set_ylabel(y, fontsize=size)
    ax.tick_params(labelsize=SMALL)
    if not framed:
        ax.spines[["top", "right"]].set_visible(False)


def name_components(ax: Axes, fit: Fit, shown: Array, most: int) -> None:
    """Name components below a panel, by at most so many letters; if they are not all of them, say so."""
    among = "" if len(shown) == fit.rank else f" (the leading {len(shown)} of {fit.rank})"
    ax.set_xlabel(f"component{among}", fontsize=SMALL)
    ax.set_xticks(range(len(shown)), [shorten(fit.component_labels[k], most) for k in shown],
                  **turned(ax, fit.component_names is not None, len(shown)))  # fmt: skip


def name_ranks(ax: Axes, numbers: Array) -> None:
    """Mark every rank on the axis, and name those that have room."""
    named, room = [numbers[0]], ROOM * (numbers[-1] - numbers[0])
    for number in numbers[1:]:
        if number - named[-1] >= room:
            named.append(number)
    ax.set_xticks(named)
    ax.set_xticks(np.setdiff1d(numbers, named), minor=True)
    ax.tick_params(axis="x", which="minor", length=3.5)
    ax.set_xlabel("rank")


def write_numbers(ax: Axes, image: AxesImage, values: Array, pattern: str, least: float = -np.inf) -> None:
    """Write values of at least `least` into the fields of an image, white on dark colours."""
    for (i, j), value in np.ndenumerate(values):
        if value >= least:
            dark = np.dot(image.to_rgba(np.array([[value]]))[0, 0, :3], LUMINANCE) < 0.5
            ax.text(j, i, pattern.format(value), ha="center", va="center", fontsize=SMALL,
                    color="white" if dark else "black")  # fmt: skip


def add_colour_bar(ax: Axes, image: AxesImage, label: str, fraction: float = 0.05) -> None:
    """Draw a colour bar beside a panel; the ticks of the heat map lose their marks."""
    image.axes.tick_params(labelsize=SMALL, length=0)
    bar: Any = ax.figure.colorbar(image, ax=ax, fraction=fraction)
    bar.set_label(label, fontsize=SMALL)
    bar.ax.tick_params(labelsize=SMALL)


def turned(ax: Axes, named: bool, number: int) -> dict[str, Any]:
    """Return how names or numbers below a panel are written: names slanted, numbers without room upright or small."""
    if named:
        return {**SLANTED, "fontsize": SMALL}
    room = ax.get_position().width * ax.figure.get_figwidth() / number  # type: ignore[union-attr]
    small = {"fontsize": SMALL if room > UPRIGHT / 2 else SMALLEST}
    return {"rotation": 90, **small} if room < UPRIGHT else small


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
