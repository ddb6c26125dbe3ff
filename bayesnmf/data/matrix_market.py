"""Read Matrix Market files, each line of which is checked: SciPy drops whatever follows the numbers that it needs."""

from __future__ import annotations

import gzip
import re
from pathlib import Path
from typing import Any

from bayesnmf.checks import shown
from bayesnmf.places import check_axes, check_entries

BLOCK = 2**20  # bytes that are checked together
_PLACE = rb"\d++"
_VALUES = {
    "pattern": (rb"", "no value"),
    "integer": (rb"-?+\d++", "a whole number"),
    "unsigned-integer": (rb"\d++", "a whole number"),
    "real": (rb"-?+(?:(?:\d++\.?+\d*+|\.\d++)(?:[eE][+-]?+\d++)?+|(?i:nan|inf(?:inity)?+))", "a number"),
}


def read_mtx(path: Path) -> Any:
    """Read a Matrix Market file of any kind that SciPy reads, dense or sparse."""
    from scipy.io import mminfo, mmread

    rows, columns, entries, form, field, symmetry = mminfo(path)
    check_axes((rows, columns), path)
    if form == "array" and symmetry != "general":
        entries //= 4  # a symmetric file contains about half of them
    check_entries(entries, 4 if form == "coordinate" else 2, path)  # "1 1\n" and "1\n" are the shortest lines
    if field in _VALUES:  # complex numbers are no counts
        _check_lines(path, 2 if form == "coordinate" else 0, field)
    try:
        return mmread(path, spmatrix=False)
    except OverflowError as error:
        raise ValueError(
            f"its whole numbers must be below 2**63 ({str(error).strip('.')}); declare its entries real instead of "
            f"{field}, or divide them"
        ) from error


def _check_lines(path: Path, places: int, field: str) -> None:
    """Refuse a line that holds anything but its positions and its value."""
    value, words = _VALUES[field]
    right = _lines(*[_PLACE] * places, *[value] * bool(value))
    with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
        number, line = 1, file.readline()
        while line.startswith(b"%") or (line and not line.strip()):
            number, line = number + 1, file.readline()
        while block := file.read(BLOCK) + file.readline():
            block += b"" if block.endswith(b"\n") else b"\n"
            if (end := right.match(block).end()) < len(block):  # type: ignore[union-attr]
                number += 1 + block.count(b"\n", 0, end)
                parts = " and ".join([*["a row, a column"] * bool(places), words])
                raise ValueError(
                    f"its line {number:,} must be {parts}, as its entries are declared {field}: found "
                    f"{_text(block[end : block.index(b'\n', end)])}"
                )
            number += block.count(b"\n")


def _lines(*parts: bytes) -> re.Pattern[bytes]:
    """Return a pattern of all lines from a place on that consist of these parts, or of nothing."""
    return re.compile(rb"(?:[ \t]*+(?:" + rb"[ \t]++".join(parts) + rb"[ \t]*+)?+\r?+\n)*+")


def _text(line: bytes) -> str:
    return shown(line[:60].decode(errors="replace").strip())
