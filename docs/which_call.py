"""Write docs/which_call.md from `bayesnmf/questions.toml`: `python docs/which_call.py`."""

from __future__ import annotations

from itertools import groupby
from pathlib import Path

from bayesnmf.questions import questions

PAGE = Path(__file__).with_suffix(".md")
ABOUT = (
    "# Which call for which question\n\nIn each row: a question, which leads to the page that says more, the call that "
    "answers it, and other words for it. `counts` is a matrix, a frame, an AnnData object or a file; `fit` is what "
    '`bayesnmf.fit` returned. `bayesnmf.which("how many topics")` searches this table.\n'
)


def page() -> str:
    """Return the page."""
    parts = [ABOUT]
    for section, entries in groupby(questions(), key=lambda each: each.section):
        rows = [
            f"| {f'[{each.question}]({each.page})' if each.page else each.question} | {each.answer} | {each.also} |"
            for each in entries
        ]
        parts.append("\n".join([f"## {section}\n", "| question | call | also called |", "|---|---|---|", *rows, ""]))
    return "\n".join(parts)


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
