"""Format tables of results as plain text, and print where the reader may have gone away."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from io import StringIO
from typing import Any

import numpy as np

WIDTH = 120


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


def as_lines(shown: Any, notes: Iterable[str] = (), width: int = WIDTH) -> str:
    """Return a rich table as plain text, followed by its notes, wrapped at `width`."""
    from rich.console import Console

    console = Console(width=width, record=True, file=StringIO(), force_jupyter=False)
    console.print(shown)
    for note in notes:
        console.print(note, highlight=False, markup=False)
    return "\n".join(line.rstrip() for line in console.export_text().rstrip().splitlines())


def table_of(title: str, headings: Sequence[str], rows: Iterable[Sequence[str]]) -> Any:
    """Return a table for rich, with text in the first column and numbers in the others."""
    from rich.table import Table

    table = Table(title=title)
    for position, heading in enumerate(headings):
        table.add_column(heading, justify="right" if position else "left")
    for row in rows:
        table.add_row(*row)
    return table


def plus_minus(value: float, se: float, digits: int = 4) -> str:
    """Return a value with its standard error; a dash stands for what is unknown."""
    if np.isnan(value):
        return "–"
    return f"{value:,.{digits}f} ± {'–' if np.isnan(se) else f'{se:,.{digits}f}'}"


def p_value(value: float) -> str:
    """Return a p-value as text: three digits, and "< 0.001" in place of zeros."""
    return "< 0.001" if value < 0.001 else f"{value:.3f}"


def number(value: float) -> str:
    """Return a number as text, with about four digits."""
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"
