"""Format tables of results as plain text, and print where the reader may have gone away."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import fields, is_dataclass
from io import StringIO
from textwrap import fill
from typing import Any, NamedTuple

import numpy as np

HALVES = range(0xD800, 0xE000)  # of surrogate pairs: no screen, file or table of pandas can have one by itself
WIDTH = 80  # of all that is printed or written to files: that of a terminal before it is widened, and of a page


def readable(name: Any) -> str:
    """Return a name as text that screens and files can have: half of a surrogate pair becomes its escape sequence."""
    text = str(name)
    return text if text.isascii() else text.encode("utf-8", errors="backslashreplace").decode()


def readable_names(names: Any) -> Any:
    """Return an array or a list of names with `readable` ones in place of texts that are not; itself if all are."""
    if isinstance(names, list | tuple):
        return [readable(name) if _has_halves(name) else name for name in names]
    if not isinstance(names, np.ndarray) or names.dtype.kind not in "OTU":
        return names
    listed = names.tolist()
    changed = {place: readable(name) for place, name in enumerate(listed) if _has_halves(name)}
    if not changed:
        return names
    found = names.astype(object)
    for place, name in changed.items():
        found[place] = name
    return found


def whole_names(names: Any) -> np.ndarray:
    """Return names as an array, of objects where a type of text of NumPy would cut null characters off their ends."""
    found = np.asarray(names)
    cut = found.dtype.kind == "U" and found is not names and any(str(name).endswith("\0") for name in names)
    return np.array(list(names), dtype=object) if cut else found


def distinct(names: Iterable[Any]) -> list[str]:
    """Return names as texts that differ, which files and axes can have: one that comes again gets its number, "a (2)".

    Null characters, at which files of NetCDF would cut a text off, become their escape sequences.
    """
    texts = [readable(name).replace("\0", "\\x00") for name in names]
    taken, found, numbers = {*texts}, dict[str, None](), dict[str, int]()
    for text in texts:
        new = text
        while new in found or (new != text and new in taken):
            numbers[text] = numbers.get(text, 1) + 1
            new = f"{text} ({numbers[text]})"
        found[new] = None
    return list(found)


def _has_halves(name: Any) -> bool:
    return isinstance(name, str) and not name.isascii() and any(ord(each) in HALVES for each in name)


class Unread:
    """A stream of text, such as standard error, on which nothing depends: once its pipe is closed, text is lost."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def write(self, text: str) -> int:
        """Write text, or lose it."""
        self._try(lambda: self._stream.write(text))
        return len(text)

    def flush(self) -> None:
        """Flush what was written, or lose it."""
        self._try(self._stream.flush)

    def _try(self, do: Callable[[], Any]) -> None:
        try:
            do()
        except BrokenPipeError:
            with suppress(OSError, ValueError):  # Python flushes again at exit, and would report an error
                os.dup2(os.open(os.devnull, os.O_WRONLY), self._stream.fileno())


def as_lines(first: Iterable[str], shown: Any, notes: Iterable[str] = ()) -> str:
    """Return lines, a rich table and its notes as plain text, folded at the width of a page; no number is cut."""
    from rich.console import Console
    from rich.measure import Measurement

    console = Console(width=WIDTH, record=True, file=StringIO(), force_jupyter=False)
    for line in first:
        console.print(line, highlight=False, markup=False)
    console.width = 10 * WIDTH
    console.width = max(WIDTH, Measurement.get(console, console.options, shown).maximum)
    console.print(shown)
    console.width = WIDTH
    for note in notes:
        console.print(note, highlight=False, markup=False)
    return "\n".join(line.rstrip() for line in console.export_text().rstrip().splitlines())


def folded(text: str, more: str = "  ") -> str:
    """Return text of several lines with each folded at the width of a page, its rest indented by `more`."""
    return "\n".join(line if len(line) <= WIDTH else _in_width(line, WIDTH, more) for line in text.splitlines())


def outline(value: Any) -> str:
    """Return a dataclass as text, with the sizes of its arrays in place of their numbers."""
    if isinstance(value, np.ndarray):
        return f"array {value.shape}"
    if not is_dataclass(value):
        return repr(value)
    shown = ((each.name, getattr(value, each.name)) for each in fields(value) if each.repr)
    return f"{type(value).__name__}({', '.join(f'{name}={outline(each)}' for name, each in shown)})"


def table_of(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> Any:
    """Return a table for rich, with text in the first column and numbers in the others.

    One that would be wider than a page has headings and names of several lines, and no lines between columns.
    """
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    lines = [list(headings), *map(list, rows)]
    columns = [[line[place] for line in lines] for place in range(len(headings))]
    look: dict[str, Any] = {}
    if sum(max(map(len, column)) + 3 for column in columns) >= WIDTH:
        look = {"box": SIMPLE_HEAD, "show_edge": False, "pad_edge": False, "padding": (0, 1, 0, 0)}
        columns[1:] = [[_in_width(head, max(map(len, rest), default=0)), *rest] for head, *rest in columns[1:]]
        room = WIDTH - sum(max(len(line) for each in column for line in each.split("\n")) + 2 for column in columns[1:])
        columns[0] = [_in_width(each, room) for each in columns[0]]
    table = Table(**look)
    for position, (heading, *_) in enumerate(columns):
        table.add_column(heading, justify="right" if position else "left")
    for row in zip(*(rest for _, *rest in columns), strict=True):
        table.add_row(*row)
    return table


def _in_width(text: str, width: int, more: str = "") -> str:
    """Return text in lines of at most so many letters, all but the first after `more`, without breaking a word."""
    return fill(text, max(width, 1), subsequent_indent=more, break_long_words=False, break_on_hyphens=False)


def with_last[T](table: T, names: Sequence[str]) -> T:
    """Return a frame with some columns last: a narrow screen shows the first and the last."""
    frame: Any = table
    found: T = frame[[*(name for name in frame if name not in names), *names]]
    return found


class Column(NamedTuple):
    """What a column of a table has; and, if it is printed, its heading and the format of its numbers."""

    meaning: str
    heading: str = ""
    form: str = ""


def or_dash(value: float, form: str = "{:.3f}") -> str:
    """Return a number as text; a dash stands for what is unknown."""
    return "–" if np.isnan(value) else form.format(value)


def plus_minus(value: float, se: float, digits: int = 4) -> str:
    """Return a value with its standard error; a dash stands for what is unknown."""
    form = f"{{:,.{digits}f}}"
    return "–" if np.isnan(value) else f"{form.format(value)} ± {or_dash(se, form)}"


def p_value(value: float) -> str:
    """Return a p-value as text: three digits, "< 0.001" in place of zeros, and "–" for none."""
    if value != value:
        return "–"
    return "< 0.001" if value < 0.001 else f"{value:.3f}"


def rate(value: float, draws: int) -> str:
    """Return a probability that was counted in draws as text: below what one of them is, or 0.001, "< " and that."""
    least = max(1 / draws, 0.001)
    return f"< {least:.3g}" if value < max(0.5 / draws, 0.001) else f"{value:.3f}"


def number(value: float) -> str:
    """Return a number as text, with about four digits."""
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"
