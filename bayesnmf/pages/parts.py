"""The parts of a page, and figures as parts."""

from __future__ import annotations

import base64
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from io import BytesIO
from typing import Any, NamedTuple

import numpy as np

DPI = 120


class Number(str):
    """A text with the numbers that it shows, for a download: one, or one and both ends of its interval."""

    __slots__ = ("numbers",)
    numbers: tuple[float, ...]

    def __new__(cls, text: str, *numbers: float) -> Number:
        """Return the text with its numbers."""
        made = super().__new__(cls, text)
        made.numbers = tuple(map(float, numbers))
        return made


def share(value: float, digits: int = 1) -> Number:
    """Return a share in per cent, with the share itself as its number."""
    return Number(f"{value:.{digits}%}", value)


def as_number(text: str) -> str:
    """Return a text that is nothing but a number as one that knows it; others as they are."""
    try:
        return Number(text, float(text.strip().replace(",", "").replace("−", "-")))
    except ValueError:
        return text


@dataclass(frozen=True)
class Table:
    """A table; columns after the first are numbers if `numeric`, unless an entry begins with a letter.

    The first column has a swatch in each of `colours`, if they are given. A table that is not `printed` is on the
    screen alone, since it is long and what matters of it stands elsewhere. A download has each `Number` as what it is,
    and all other entries as text.
    """

    headings: list[str]
    rows: list[list[str]]
    numeric: bool = True
    colours: list[str] = field(default_factory=list)
    printed: bool = True

    @property
    def of_words(self) -> list[bool]:
        """Whether each column has words, or lists of numbers that are names."""
        columns = zip(*self.rows, strict=True)
        return [not self.numeric or any(_is_of_words(each) for each in column) for column in columns]


def _is_of_words(entry: str) -> bool:
    return entry[:1].isalpha() or (", " in entry and "[" not in entry)


class Tile(NamedTuple):
    """A fact at the top of a page: what it is of, its tone ("good", "doubt", "bad", "plain"), a word, and more."""

    heading: str
    tone: str
    word: str
    more: str


@dataclass(frozen=True)
class Figure:
    """A figure: its address, which holds the whole picture, a description for those who cannot see it, and size."""

    source: str
    description: str
    width: int
    height: int

    @property
    def is_tall(self) -> bool:
        """Whether it needs most of a page in print."""
        return self.height > 1.3 * self.width


class Dot(NamedTuple):
    """A sample in a picture of all: its place, the numbers of its colours in each legend, and what it is."""

    x: float
    y: float
    colours: list[int]
    text: str


class Legend(NamedTuple):
    """What the colours of dots mean: what they are of, and for each colour its words."""

    heading: str
    colours: list[tuple[str, str]]


@dataclass(frozen=True)
class Cloud:
    """A picture of samples as dots, in a box of `width` × `height`, coloured by one legend or another."""

    dots: list[Dot]
    legends: list[Legend]
    description: str
    width: int
    height: int


@dataclass(frozen=True)
class Section:
    """A section: text, cautions, figures, a cloud of samples, tables, code, references and terms, in this order."""

    heading: str
    text: list[str] = field(default_factory=list)
    cautions: list[str] = field(default_factory=list)
    tables: list[Table] = field(default_factory=list)
    figures: list[Figure] = field(default_factory=list)
    cloud: Cloud | None = None
    code: str = ""
    references: list[str] = field(default_factory=list)
    terms: dict[str, str] = field(default_factory=dict)

    @property
    def words(self) -> str:
        """Its own words, without those of samples, features and code."""
        tables = (each for table in self.tables for each in (*table.headings, *(row[0] for row in table.rows)))
        return "\n".join([self.heading, *self.text, *self.cautions, *(f.description for f in self.figures), *tables])


@dataclass(frozen=True)
class Page:
    """A page: its title, what it says first, and its sections."""

    title: str
    sections: list[Section]
    sentences: list[tuple[str, str]] = field(default_factory=list)
    tiles: list[Tile] = field(default_factory=list)
    cautions: list[str] = field(default_factory=list)


def drawn(draw: Callable[[], Any], description: str) -> Figure:
    """Return a figure, as a picture within the page; `draw` returns its axes."""
    return picture_of(png_of(draw), description)


def png_of(draw: Callable[[], Any]) -> bytes:
    """Return a figure as a PNG; `draw` returns its axes."""
    import matplotlib.pyplot as plt

    buffer = BytesIO()
    with warnings.catch_warnings():
        # Names in scripts that matplotlib's font does not have are boxes in figures; tables have them as text.
        warnings.filterwarnings("ignore", "Glyph .* missing from font", UserWarning)
        figure = next(ax for ax in np.ravel(draw()) if ax is not None).figure
        figure.savefig(buffer, dpi=DPI, bbox_inches="tight", format="png")
    plt.close(figure)
    return buffer.getvalue()


def picture_of(content: bytes, description: str) -> Figure:
    """Return a PNG as a picture within the page."""
    width, height = (int.from_bytes(content[at : at + 4], "big") for at in (16, 20))  # of the PNG header
    return Figure(f"data:image/png;base64,{base64.b64encode(content).decode()}", description, width, height)
