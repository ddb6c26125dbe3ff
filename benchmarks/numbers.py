"""Keep the numbers that several pages state: `python -m benchmarks.numbers [arena] [main_job] [record] [start]`.

`benchmarks/numbers.json` has them, with the command that measured each group. A page has a number between two comments,
as `<!--record: newsgroups-->14<!---->`; without arguments, this writes the numbers of the file into all pages. Groups
that are named are measured first (on a machine that does nothing else); all others are written into the file by hand,
from what their commands print. `tests/test_numbers.py` compares pages and file.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from datetime import date
from pathlib import Path
from typing import Any

from benchmarks import record_figure
from benchmarks.arena.__main__ import read_rows
from benchmarks.arena.tables import standings, tables_of
from benchmarks.startup import environment, python, seconds_of

ROOT = Path(__file__).parent.parent
FILE = Path(__file__).with_suffix(".json")
MARK = re.compile(r"<!--([\w ]+): ([\w ,.×]+)-->(.*?)<!---->")
PAGES = ("*.md", "docs/**/*.md", "benchmarks/**/*.md", "notebooks/*.ipynb")
RIVALS = ("scikit-learn", "gensim", "tomotopy", "hpfrec")
FIRST = "import bayesnmf, numpy; bayesnmf.fit(numpy.random.default_rng(0).poisson(2, (30, 20)), rank=3, seed=0)"


def record() -> dict[str, str]:
    """Return what `record.csv` says of plain calls: on how many matrices they are ahead, and seconds on newsgroups.

    Those of rivals are of their best scores; on pcawg also by how much the best of them is ahead.
    """
    tops, ours = {}, {}
    for name, tools in record_figure.read().items():
        ours[name] = tools["bayesnmf"][-1]
        tops[name] = [record_figure.best(tools[rival]) for rival in RIVALS if rival in tools]
    ahead = [max(top["score"] for top in tops[name]) < ours[name]["score"] for name in ours]
    seconds = [top["seconds"] for top in tops["newsgroups"]]
    gap = max(top["score"] for top in tops["pcawg_breast_sbs96"]) - ours["pcawg_breast_sbs96"]["score"]
    return {
        "ahead": f"{sum(ahead)}",
        "matrices": f"{len(ahead)}",
        "newsgroups": f"{ours['newsgroups']['seconds']:.0f}",
        "newsgroups rivals": f"{min(seconds):.0f} to {max(seconds):.0f}",
        "pcawg gap": f"{gap:.5f}",
    }


def arena() -> dict[str, str]:
    """Return by how many nats a count the best other tool is behind our plain call, by the rows of the arena."""
    rows = read_rows(FILE.parent / "arena" / "results" / "rows.jsonl")
    found = {each.task: each for each in standings(tables_of(rows))}
    return {task: f"{-found[task].gap:.1g}" for task in ("texts", "cells")}


def processor_seconds_of(code: str, cache: str) -> float:
    """Run some code in its own process, with caches in a folder; return how long it kept a processor."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    seconds_of(python(code), cache)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def start() -> dict[str, str]:
    """Return the processor seconds of `import bayesnmf`, and of a first and a second fit of 30 × 20 counts.

    Those of the interpreter are among them. Modules of Python are compiled before, as pip does.
    """
    with tempfile.TemporaryDirectory() as cache:
        processor_seconds_of(FIRST, cache)
        shutil.rmtree(f"{cache}/kernels")
        first = processor_seconds_of(FIRST, cache)
        imports, second = (
            statistics.median(processor_seconds_of(code, cache) for _ in range(5))
            for code in ("import bayesnmf", FIRST)
        )
    return {"import": f"{imports:.1f}", "first fit": f"{first:.1f}", "second fit": f"{second:.1f}"}


def main_job() -> dict[str, str]:
    """Return the seconds of the main job, with nothing compiled before and again."""
    seconds = []
    with tempfile.TemporaryDirectory() as cache:
        job = [sys.executable, "-m", "bayesnmf", "compare", "--quiet", "--out", f"{cache}/results"]
        for _ in range(2):
            began = time.perf_counter()
            subprocess.run(job, env=environment(cache), check=True, capture_output=True)
            seconds.append(f"{time.perf_counter() - began:.0f}")
    return dict(zip(("first run", "second run"), seconds, strict=True))


MEASURED = {"arena": arena, "main_job": main_job, "record": record, "start": start}
WHERE = {"arena": "the machine of benchmarks/arena/results/table.md", "record": "the machine of benchmarks/record.csv"}
HERE = f"{os.cpu_count()} cores, {platform.machine()}, Python {platform.python_version()}"


def numbers() -> dict[str, dict[str, Any]]:
    """Return the groups of the file: how and where they were measured, and values as text by name."""
    return json.loads(FILE.read_text(encoding="utf-8"))


def pages() -> Iterator[Path]:
    """Yield the files that may state numbers."""
    for pattern in PAGES:
        yield from sorted(ROOT.glob(pattern))


def filled(text: str, found: dict[str, dict[str, Any]]) -> str:
    """Return a page with the numbers of the file in their places; a KeyError names one that the file lacks."""
    return MARK.sub(lambda place: f"<!--{place[1]}: {place[2]}-->{found[place[1]]['values'][place[2]]}<!---->", text)


def main() -> None:
    """Measure what is named, and write all numbers into the pages."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("groups", nargs="*", metavar="GROUP", help=f"to measure again: {', '.join(MEASURED)}")
    given = parser.parse_args()
    if unknown := set(given.groups) - set(MEASURED):
        parser.error(f"GROUP must be one of {', '.join(MEASURED)}: found {', '.join(sorted(unknown))}")
    found = numbers()
    for name in given.groups:
        where = WHERE.get(name, f"{date.today()}, {HERE}")
        found[name] = {"how": f"python -m benchmarks.numbers {name}", "where": where, "values": MEASURED[name]()}
        FILE.write_text(json.dumps(found, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    for page in pages():
        text = page.read_text(encoding="utf-8")
        if (new := filled(text, found)) != text:
            page.write_text(new, encoding="utf-8")
            print(f"{page.relative_to(ROOT)} has new numbers")


if __name__ == "__main__":
    main()
