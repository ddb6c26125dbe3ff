"""The parts of a page, and figures as parts."""

from __future__ import annotations

import base64
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from io import BytesIO
from typing import Any

import numpy as np

DPI = 120


@dataclass(frozen=True)
class Table:
    """A table; all columns but the first are numbers if `numeric`."""

    headings: list[str]
    rows: list[list[str]]
    numeric: bool = True


@dataclass(frozen=True)
class Card:
    """A small block about one component: heading, colour, one line of text, and a table."""

    heading: str
    colour: str
    text: str
    table: Table | None = None


@dataclass(frozen=True)
class Figure:
    """A figure: its address, which holds the whole picture, a description for those who cannot see it, and size."""

    source: str
    description: str
    width: int
    height: int


@dataclass(frozen=True)
class Section:
    """A section: text, cautions, tables, cards, figures, code and references, shown in this order."""

    heading: str
    text: list[str] = field(default_factory=list)
    cautions: list[str] = field(default_factory=list)
    tables: list[Table] = field(default_factory=list)
    cards: list[Card] = field(default_factory=list)
    figures: list[Figure] = field(default_factory=list)
    code: str = ""
    references: list[str] = field(default_factory=list)


def drawn(draw: Callable[[], Any], description: str) -> Figure:
    """Return a figure, as a picture within the page; `draw` returns its axes."""
    import matplotlib.pyplot as plt

    buffer = BytesIO()
    with warnings.catch_warnings():
        # Names in scripts that matplotlib's font does not have are boxes in figures; tables have them as text.
        warnings.filterwarnings("ignore", "Glyph .* missing from font", UserWarning)
        figure = next(ax for ax in np.ravel(draw()) if ax is not None).figure
        figure.savefig(buffer, dpi=DPI, bbox_inches="tight", format="png")
    plt.close(figure)
    content = buffer.getvalue()
    width, height = (int.from_bytes(content[at : at + 4], "big") for at in (16, 20))  # of the PNG header
    return Figure(f"data:image/png;base64,{base64.b64encode(content).decode()}", description, width, height)
