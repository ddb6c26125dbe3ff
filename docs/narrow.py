"""Write the Python of pages so that no line scrolls sideways: `python docs/narrow.py [PAGE …]`, by default all pages.

A comment stands on a line of its own, before the code that it is about, and no line has more than 72 letters. Lines
are broken by ruff. `tests/test_guides.py` finds what is not so.
"""

from __future__ import annotations

import io
import re
import subprocess
import sys
import tokenize
from pathlib import Path
from textwrap import fill

ROOT = Path(__file__).parents[1]
FENCE = re.compile(r"(?<=^```python\n)(.*?)(?=^```$)", re.DOTALL | re.MULTILINE)
WIDTH = 72
SHORT = (f"--line-length={WIDTH}", "--config=format.skip-magic-trailing-comma=true")
FORMAT = (sys.executable, "-m", "ruff", "format", "--isolated", *SHORT, "-")


def pages() -> list[Path]:
    """Return the pages with code."""
    return sorted([ROOT / "README.md", *ROOT.glob("docs/**/*.md")])


def blocks(page: Path) -> list[str]:
    """Return the blocks of Python of a page."""
    return FENCE.findall(page.read_text(encoding="utf-8"))


def beside(code: str) -> list[tuple[int, int]]:
    """Return the line and the column of each comment that stands behind code."""
    found = tokenize.generate_tokens(io.StringIO(code).readline)
    return [each.start for each in found if each.type == tokenize.COMMENT and each.line[: each.start[1]].strip()]


def is_narrow(code: str) -> bool:
    """Return whether comments stand alone and no line is too long."""
    return not beside(code) and all(len(line) <= WIDTH for line in code.splitlines())


def narrowed(code: str) -> str:
    """Return the same code, narrow."""
    if is_narrow(code):
        return code
    lines = code.splitlines()
    for row, column in reversed(beside(code)):
        line = lines[row - 1]
        indent = line[: len(line) - len(line.lstrip())]
        lines[row - 1 : row] = [f"{indent}{line[column:]}", line[:column].rstrip()]
    formatted = subprocess.run(FORMAT, input="\n".join(lines), capture_output=True, text=True, check=True).stdout
    return "".join(f"{_folded(line)}\n" for line in formatted.splitlines())


def _folded(line: str) -> str:
    """Return a comment in lines that are not too long."""
    start = re.match(r" *# ", line)
    if start is None or len(line) <= WIDTH:
        return line
    return fill(line[start.end() :], WIDTH, initial_indent=start[0], subsequent_indent=start[0])


def main() -> None:
    """Write all pages, or those that are named."""
    for page in [Path(name) for name in sys.argv[1:]] or pages():
        text = page.read_text(encoding="utf-8")
        page.write_text(FENCE.sub(lambda block: narrowed(block[0]), text), encoding="utf-8")


if __name__ == "__main__":
    main()
