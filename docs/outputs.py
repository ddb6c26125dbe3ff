"""Write what the code of pages prints, and draws, into these pages: `python docs/outputs.py`.

A page is run from top to bottom in one process. The block of text after a block of Python is what that prints, and a
picture after it is the figure that it draws. `tests/test_outputs.py` runs the pages, too, and compares.
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Iterator
from contextlib import chdir, redirect_stdout
from io import StringIO
from pathlib import Path
from typing import Any, NamedTuple

import matplotlib

ROOT = Path(__file__).parents[1]
PAGES = ("README.md", "docs/get_started.md")
BLOCK = re.compile(r"^```python\n(?P<code>.*?)^```\n", re.DOTALL | re.MULTILINE)
SHOWN = re.compile(r"\n```text\n(?P<text>.*?)^```\n|\n!\[[^]]*\]\((?P<picture>[^)]+\.png)\)", re.DOTALL | re.MULTILINE)


class Output(NamedTuple):
    """What a block of a page prints: the code, the page's text, where that stands, what was printed, and the figure."""

    code: str
    stated: str
    place: slice
    printed: str
    picture: str
    figure: Any


def outputs_of(page: Path, kept: Path | None = None) -> Iterator[Output]:
    """Run a page in an empty folder, or in `kept`, and yield the output of each block that shows one."""
    import matplotlib.pyplot as plt

    matplotlib.use("agg")
    text, names = page.read_text(encoding="utf-8"), {"__name__": "__main__"}
    with tempfile.TemporaryDirectory() as empty, chdir(kept or empty):
        for block in BLOCK.finditer(text):
            plt.close("all")
            with redirect_stdout(StringIO()) as stream:
                exec(compile(block["code"], page.name, "exec"), names)
            shown = SHOWN.match(text, block.end())
            printed = "".join(f"{line.rstrip()}\n" for line in stream.getvalue().splitlines())
            if shown is None and printed:
                raise ValueError(f"{page.name} has a block whose output it does not show: {block['code']}")
            if shown is not None:
                at = slice(*shown.span("text")) if shown["picture"] is None else slice(0, 0)
                figure = plt.gcf() if shown["picture"] else None
                yield Output(block["code"], text[at], at, printed, shown["picture"] or "", figure)


def main() -> None:
    """Write the outputs of all pages."""
    for name in PAGES:
        page = ROOT / name
        text, moved = page.read_text(encoding="utf-8"), 0
        new = text
        for each in outputs_of(page):
            if each.figure is not None:
                each.figure.savefig(page.parent / each.picture, dpi=110)
                continue
            new = new[: each.place.start + moved] + each.printed + new[each.place.stop + moved :]
            moved += len(each.printed) - len(each.stated)
        page.write_text(new, encoding="utf-8")


if __name__ == "__main__":
    main()
