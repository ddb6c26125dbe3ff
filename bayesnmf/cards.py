"""What a result shows of itself: as text where it is printed, as a card in a notebook."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from html import escape
from typing import NamedTuple

from bayesnmf.text import as_lines, table_of

STYLE = (
    "border:1px solid #ccc;border-left:4px solid {colour};border-radius:4px;padding:.6em 1em;margin:.3em 0;"
    "max-width:62em;overflow-x:auto"
)
CAUTION = "CAUTION "
GOOD, DOUBTFUL, BAD = "#0072b2", "#d55e00", "#b2182b"


class Card(NamedTuple):
    """Content of a card: a title, what was found, a table, notes below it, and what may be called next.

    Notes that begin with "CAUTION" are cautions. Each call is code, with what it returns after two spaces and a hash.
    What `failed` is said first, and the card looks like it.
    """

    title: str
    headings: Sequence[str] = ()
    lines: Sequence[Sequence[str]] = ()
    notes: Sequence[str] = ()
    calls: Sequence[str] = ()
    findings: Sequence[str] = ()
    failed: str = ""

    def as_html(self) -> str:
        """Return the card as HTML; all text of users is escaped."""
        doubtful = any(note.startswith(CAUTION) for note in self.notes)
        parts = [f'<div style="{STYLE.format(colour=BAD if self.failed else DOUBTFUL if doubtful else GOOD)}">']
        parts.append(f"<b>{escape(self.title)}</b>")
        parts += [f'<div style="color:{BAD};font-weight:bold">{escape(self.failed)}</div>'] if self.failed else []
        parts += [_note(finding) for finding in self.findings]
        if self.lines:
            parts.append('<table style="margin:.5em 0">')
            parts.append(_row(self.headings, "th") if any(self.headings) else "")
            parts += [*(_row(line, "td") for line in self.lines), "</table>"]
        parts += [_note(note) for note in self.notes]
        if self.calls:
            code = escape("\n".join(self.calls))
            parts.append(f'<pre style="margin:.5em 0 0;background:none;color:#555">{code}</pre>')
        return "".join([*parts, "</div>"])

    def as_text(self) -> str:
        """Return the card as text, without the calls."""
        return as_lines(
            [self.title, *filter(None, [self.failed]), *self.findings], table_of(self.headings, self.lines), self.notes
        )


class Shown(ABC):
    """A result that prints as a table with notes, and shows the same as a card in a notebook."""

    @abstractmethod
    def card(self) -> Card:
        """Return what is shown."""

    def __repr__(self) -> str:
        return self.card().as_text()

    def _repr_html_(self) -> str:
        return self.card().as_html()


def _row(entries: Sequence[str], tag: str) -> str:
    sides = ["left", *["right"] * (len(entries) - 1)]
    opened = [f'<{tag} style="text-align:{side}">' for side in sides]
    shown = (f"{begin}{escape(each)}</{tag}>" for begin, each in zip(opened, entries, strict=True))
    return f"<tr>{''.join(shown)}</tr>"


def _note(note: str) -> str:
    if note.startswith(CAUTION):
        return f'<div style="color:{DOUBTFUL}">caution: {escape(note.removeprefix(CAUTION))}</div>'
    return f"<div>{escape(note)}</div>"
