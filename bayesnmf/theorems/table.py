"""One judged statement, and the table of all of them."""

from __future__ import annotations

from dataclasses import dataclass, field
from io import StringIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from bayesnmf.places import check_file_to_write
from bayesnmf.text import WIDTH, or_dash
from bayesnmf.types import Array
from bayesnmf.writing import replacing

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True)
class Row:
    """One statement with the values of its two sides.

    Attributes
    ----------
    number : int
        Number of the statement, 1 to 12.
    statement, source : str
    left, right : float
        Values of both sides; NaN if they were not computed.
    difference : float
        |left − right|, or left − right if the statement is an inequality.
    tolerance : float
        Largest permitted difference: rounding, and about 4 standard errors if there are draws. NaN if nothing is
        judged.
    holds : bool or None
        Whether the statement holds; None if it is not judged.
    note : str
    """

    number: int
    statement: str
    source: str
    left: float = np.nan
    right: float = np.nan
    difference: float = np.nan
    tolerance: float = np.nan
    holds: bool | None = None
    note: str = ""


@dataclass(frozen=True)
class Claim:
    """A statement to be judged; each method returns a row of the table."""

    number: int
    statement: str
    source: str

    def equal(self, left: float, right: float, tolerance: float, note: str = "") -> Row:
        """Judge whether both sides are equal up to a tolerance."""
        difference = abs(left - right)
        return self._row(left, right, difference, tolerance, bool(difference <= tolerance), note)

    def at_most(self, left: float, right: float, tolerance: float, note: str = "") -> Row:
        """Judge whether the left side is at most the right one, up to a tolerance."""
        difference = left - right
        return self._row(left, right, difference, tolerance, bool(difference <= tolerance), note)

    def not_judged(self, left: float, right: float, note: str) -> Row:
        """Return both sides without a judgement."""
        return self._row(left, right, abs(left - right), np.nan, None, note)

    def not_computed(self, note: str) -> Row:
        """Return a row that explains why nothing is judged."""
        return self._row(np.nan, np.nan, np.nan, np.nan, None, note)

    def _row(self, left: float, right: float, gap: float, tolerance: float, holds: bool | None, note: str) -> Row:
        numbers = (float(left), float(right), float(gap), float(tolerance))
        return Row(self.number, self.statement, self.source, *numbers, holds, note)


class Worst:
    """The pair of entries, among all seen so far, with the largest difference relative to the sum of its row."""

    def __init__(self) -> None:
        self.relative = -1.0
        self.left = self.right = self.scale = 0.0

    def compare(self, left: Array, right: Array) -> None:
        """Compare two arrays (rows, columns); differences are relative to the row sums of the right one."""
        scale = np.abs(right).sum(axis=1, keepdims=True)
        scale = np.where(scale > 0, scale, 1.0)
        relative = np.abs(left - right) / scale
        at = np.unravel_index(np.argmax(relative), relative.shape)  # at a NaN, if there is one
        if np.isnan(self.relative) or relative[at] <= self.relative:
            return
        self.relative = float(relative[at])
        self.left, self.right, self.scale = float(left[at]), float(right[at]), float(scale[at[0], 0])

    def judge(self, claim: Claim, relative: float, note: str = "") -> Row:
        """Judge the pair with a tolerance relative to the sum of its row."""
        return claim.equal(self.left, self.right, relative * self.scale, note)


@dataclass(frozen=True, eq=False, repr=False)
class Equivalences:
    """Result of `bayesnmf.equivalences`: one row for each statement. It prints as a table.

    Attributes
    ----------
    rows : tuple of Row
    title : str
        Size of the counts, and rank.
    interrupted : bool
        Whether statements are missing because of Ctrl-C.

    See Also
    --------
    equivalences : which makes it.

    Examples
    --------
    >>> import bayesnmf
    >>> fewest = bayesnmf.Effort(draws=20, svi_steps=20, svi_models=(), particles=20)
    >>> found = bayesnmf.equivalences([[3, 0, 1], [0, 2, 4], [5, 1, 0], [0, 3, 6]], rank=2, iterations=2, effort=fewest)
    >>> found.hold
    True
    """

    rows: tuple[Row, ...]
    title: str
    interrupted: bool = field(default=False)

    @property
    def hold(self) -> bool:
        """Whether every judged statement holds."""
        return all(row.holds for row in self.rows if row.holds is not None)

    @property
    def judged(self) -> int:
        """Number of judged rows."""
        return sum(row.holds is not None for row in self.rows)

    @property
    def failures(self) -> tuple[Row, ...]:
        """Rows that do not hold."""
        return tuple(row for row in self.rows if row.holds is False)

    @property
    def table(self) -> pd.DataFrame:
        """Table of all rows: number, statement, source, left, right, difference, tolerance, holds, note."""
        import pandas as pd

        return pd.DataFrame([vars(row) for row in self.rows], columns=list(Row.__dataclass_fields__))

    def save(self, path: str | Path) -> None:
        """Write the table as a CSV file into an existing folder.

        Raises
        ------
        ValueError
            The folder does not exist, or the path is a folder.
        """
        with replacing(check_file_to_write(path, "path")) as temporary:
            self.table.to_csv(temporary, index=False)

    def __rich__(self) -> Any:
        """Return the table for rich."""
        from rich.box import SIMPLE_HEAD
        from rich.markup import escape
        from rich.table import Table

        table = Table(title=self.title, caption=self.summary, box=SIMPLE_HEAD, show_edge=False, padding=(0, 1, 0, 0))
        for heading, keywords in _COLUMNS.items():
            table.add_column(heading, **keywords)
        for row in self.rows:
            style = "bold red" if row.holds is False else ""
            statement = f"{escape(row.statement)} [dim]{escape(row.source)}[/dim]"
            table.add_row(
                str(row.number),
                f"{statement}\n[dim]{escape(row.note)}[/dim]" if row.note else statement,
                f"{_number(row.left)}\n{_number(row.right)}",
                f"{or_dash(row.difference, '{:.2g}')}\n{or_dash(row.tolerance, '{:.2g}')}",
                {True: "yes", False: "NO", None: "–"}[row.holds],
                style=style,
            )
        return table

    @property
    def summary(self) -> str:
        """Return one line with the number of statements that hold."""
        kept = self.judged - len(self.failures)
        rest = len(self.rows) - self.judged
        text = f"{kept} of {self.judged} judged rows hold; {rest} are not judged, their notes say why"
        return text + ("; interrupted: the rest was not run" if self.interrupted else "")

    def __repr__(self) -> str:
        from rich.console import Console

        console = Console(width=WIDTH, record=True, file=StringIO(), force_jupyter=False)
        console.print(self.__rich__())
        return console.export_text().rstrip()


_COLUMNS: dict[str, dict[str, Any]] = {
    "": {"justify": "right"},
    "statement": {"ratio": 1},
    "left\nright": {"justify": "right", "no_wrap": True},
    "difference\ntolerance": {"justify": "right", "no_wrap": True},
    "holds": {"justify": "center", "no_wrap": True},
}


def _number(value: float) -> str:
    if np.isnan(value):
        return "–"
    return f"{value:,.3f}" if 0.01 <= abs(value) < 1e12 or value == 0 else f"{value:.4g}"
