"""Measure scores against seconds: `python -m benchmarks.record --data nips newsgroups --rank 20 --out FOLDER`.

Each tool of `benchmarks.plain_calls` is called with several lengths of its run, and its topics are scored as there.
Every length is a fit from the beginning, of which seconds are counted; tomotopy alone goes on in steps. After a minute
of fits a tool gets no longer one. Tools take turns: all, then all again with the fits that took under 20 s, of whose
two times the smaller counts. Rows are added to `record.jsonl` after each turn, and turns that are there already are
not run again; `beside` is the number of cores that other processes used meanwhile, and `--lengths` runs chosen lengths
once more where this was much. `python -m benchmarks.record_figure` makes the table and the figure.
"""

from __future__ import annotations

import argparse
import json
import os
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

import bayesnmf
from bayesnmf.data.counts import Counts
from benchmarks import data
from benchmarks.plain_calls import LEARNED, Found, gensim, hpfrec, judge, ours, scikit_learn, tomotopy
from benchmarks.priors import split_rows

ENOUGH = 60.0  # seconds of fits after which no longer one begins
REPEATED = 20.0  # seconds of a fit below which it is repeated
Lengths = tuple[int, ...]
Call = Callable[[Counts, int, Sequence[int]], Iterator[Found]]


def anew(call: Callable[..., Iterator[Found]], option: str, counts: Counts, rank: int, lengths: Lengths) -> Any:
    """Fit once for each length, from the beginning."""
    for length in lengths:
        yield from call(counts, rank, **{option: length})


TOOLS: dict[str, tuple[Call, Lengths]] = {
    "bayesnmf": (partial(anew, partial(ours, "gamma_poisson"), "max_iter"), (1, 5, 20, 50, 100, 5000)),
    "scikit-learn": (partial(anew, scikit_learn, "max_iter"), (1, 2, 5, 10, 20, 50, 100, 200, 500)),
    "gensim": (partial(anew, partial(gensim, **LEARNED), "passes"), (1, 2, 5, 10, 20, 50, 100)),
    "tomotopy": (tomotopy, (10, 20, 50, 100, 200, 500, 1000, 2000)),
    "hpfrec": (partial(anew, hpfrec, "maxiter"), (10, 20, 50, 100, 200, 500, 1000)),
}


def spent_elsewhere() -> float:
    """Return the processor seconds that all other processes have used since the machine began."""
    user, nice, system, _, _, *rest = map(int, Path("/proc/stat").read_text().splitlines()[0].split()[1:9])
    return (user + nice + system + sum(rest)) / os.sysconf("SC_CLK_TCK") - sum(os.times()[:4])


def turn(tool: str, train: Counts, test: Counts | None, rank: int, lengths: Lengths) -> list[dict[str, Any]]:
    """Return a row for each length; without counts to score, the seconds alone."""
    rows: list[dict[str, Any]] = []
    last, total = np.empty(0), 0.0
    calls = TOOLS[tool][0](train, rank, lengths)
    for length in lengths:
        began, others = time.perf_counter(), spent_elsewhere()
        release, seconds, topics, concentration = next(calls)
        beside = (spent_elsewhere() - others) / (time.perf_counter() - began)
        if np.array_equal(topics, last):
            break  # it had ended by itself
        row = {"version": release.split(",")[0], "length": length, "seconds": round(seconds, 3)}
        scored = {"score": round(judge(topics, concentration, train, test), 5)} if test else {}
        rows.append({**row, "beside": round(beside, 2), **scored})
        total, last = (seconds if tool == "tomotopy" else total + seconds), topics
        if total > ENOUGH:
            break
    return rows


def main() -> None:
    """Run the turns that are missing."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", nargs="+", required=True)
    parser.add_argument("--rank", type=int, default=20)
    parser.add_argument("--tools", nargs="+", default=list(TOOLS), choices=list(TOOLS))
    parser.add_argument("--lengths", type=int, nargs="+", help="of one more turn, instead of the usual ones")
    parser.add_argument("--out", type=Path, required=True)
    given = parser.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    kept = given.out / "record.jsonl"
    done = [json.loads(line) for line in kept.read_text(encoding="utf-8").splitlines()] if kept.exists() else []
    warnings.simplefilter("ignore")
    bayesnmf.fit(np.arange(600).reshape(30, 20), rank=3, seed=0)  # loads compiled code
    for name in given.data:
        train, test = split_rows(data.read(name, given.rank, 0), 0.2, 0)
        for repeat in (3,) if given.lengths else (1, 2):
            for tool in given.tools:
                known = [row for row in done if (row["data"], row["rank"], row["tool"]) == (name, given.rank, tool)]
                if repeat < 3 and any(row["repeat"] == repeat for row in known):
                    continue
                short = tuple(row["length"] for row in known if row["seconds"] < REPEATED)
                lengths = given.lengths or (TOOLS[tool][1] if repeat == 1 else short)
                for row in turn(tool, train, None if repeat == 2 else test, given.rank, tuple(lengths)):
                    row = {"data": name, "rank": given.rank, "tool": tool, "repeat": repeat, **row}
                    done.append(row)
                    print(json.dumps(row), flush=True)
                    with open(kept, "a", encoding="utf-8") as file:
                        file.write(json.dumps(row) + "\n")


if __name__ == "__main__":
    main()
