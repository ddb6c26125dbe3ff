"""Tables of results as plain text."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from io import StringIO

WIDTH = 120


def text_table(title: str, headings: Sequence[str], rows: Iterable[Sequence[str]], notes: Iterable[str]) -> str:
    """Return a table whose first column is text and whose others are numbers, and its notes below."""
    from rich.console import Console
    from rich.table import Table

    console = Console(width=WIDTH, record=True, file=StringIO(), force_jupyter=False)
    table = Table(title=title)
    for position, heading in enumerate(headings):
        table.add_column(heading, justify="right" if position else "left")
    for row in rows:
        table.add_row(*row)
    console.print(table)
    for note in notes:
        console.print(note, highlight=False, markup=False)
    return console.export_text().rstrip()


def number(value: float) -> str:
    """Return a number as text, at about four digits."""
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"
