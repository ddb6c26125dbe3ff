"""Run every tool on every matrix, and write the tables.

    python -m benchmarks.arena [--tasks texts cells …] [--tools bayesnmf scikit-learn …] [--matrices digits …]
                               [--folder FOLDER] [--task TASK] [--repeats 3] [--hours 3] [--fresh SEED] [--reveal]
                               [--out FOLDER] [--table]

A run is a tool, called in one way, on one split of one matrix: a fifth of the counts is held out, for users and items a
fifth of the entries. Repeat r has split r and seed r for all tools, which take turns. Each tool has an environment of
its own in FOLDER/environments, which is made when it is first needed; one that cannot be installed is named. Finished
runs are lines of FOLDER/rows.jsonl, and a command that was stopped goes on. FOLDER gets table.md and arena.html.

Matrices: the digits and Swimmer images; matrices that are simulated anew, with a seed that is drawn unless --fresh says
it; and those of BAYESNMF_DATA, of which scsim_k14_b is kept out: its rows are in the tables with --reveal alone.
--folder takes all .npz files of a folder in their place (README.md). Nothing else should run on the machine.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import secrets
import time
from collections.abc import Iterator, Sequence
from datetime import date
from pathlib import Path
from typing import Any

from benchmarks.arena.judging import split
from benchmarks.arena.matrices import RANKS, Matrix, images, of_folder, shared, simulated
from benchmarks.arena.running import Environments, Terms, Tool, find_tools, run
from benchmarks.arena.tables import Row, markdown, page, tables_of

HERE = Path(__file__).parent


def options_of(given: Sequence[str] | None) -> argparse.Namespace:
    """Return the options of a command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tasks", nargs="+", choices=sorted(RANKS), default=sorted(RANKS))
    parser.add_argument("--tools", nargs="+", metavar="TOOL", help="names of tools; all by default")
    parser.add_argument("--matrices", nargs="+", metavar="NAME", help="names of matrices; all by default")
    parser.add_argument("--folder", type=Path, help="folder of .npz files, in place of other matrices")
    parser.add_argument("--task", choices=sorted(RANKS), help="task of files that do not say it")
    parser.add_argument("--repeats", type=int, default=3, help="splits, each with a seed of its own")
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--limit", type=float, default=900, help="most seconds of a run")
    parser.add_argument("--hours", type=float, default=3, help="no run begins later")
    parser.add_argument("--fresh", type=int, metavar="SEED", help="seed of the simulated matrices; drawn by default")
    parser.add_argument("--reveal", action="store_true", help="show the matrices that are kept out, too")
    parser.add_argument("--out", type=Path, default=HERE / "results", help="folder of results")
    parser.add_argument("--table", action="store_true", help="only write the tables again")
    return parser.parse_args(given)


def seed_of_simulated(options: argparse.Namespace) -> int:
    """Return the seed of the simulated matrices, which is drawn once and kept beside the rows."""
    path = options.out / "fresh.json"
    if options.fresh is None and path.exists():
        return int(json.loads(path.read_text())["seed"])
    seed = secrets.randbelow(2**31) if options.fresh is None else options.fresh
    path.write_text(json.dumps({"seed": seed}) + "\n")
    return int(seed)


def matrices_of(options: argparse.Namespace) -> list[Matrix]:
    """Return the matrices that are asked for."""
    if options.folder is not None:
        every = of_folder(options.folder, options.task)
    else:
        every = [*images(), *shared(), *simulated(seed_of_simulated(options))]
    names = options.matrices
    return [each for each in every if each.task in options.tasks and (names is None or each.name in names)]


def planned(matrices: list[Matrix], tools: list[Tool], repeats: int) -> Iterator[tuple[int, Matrix, Tool, str]]:
    """Yield repeat, matrix, tool and way of every run; tools take turns, and begin in another place each time."""
    for repeat in range(repeats):
        for matrix in matrices:
            ways = [(tool, name) for tool in tools for name, way in tool.ways.items() if matrix.task in way.tasks]
            first = repeat * len(ways) // max(repeats, 1)
            for tool, name in ways[first:] + ways[:first]:
                yield repeat, matrix, tool, name


def read_rows(path: Path) -> list[Row]:
    """Return the finished runs; a last line that was cut off is left out."""
    rows = []
    for line in path.read_text().splitlines() if path.exists() else []:
        try:
            rows.append(json.loads(line))
        except json.JSONDecodeError:
            break
    return rows


def measure(options: argparse.Namespace) -> None:
    """Run what has not been run."""
    path, begun = options.out / "rows.jsonl", time.monotonic()
    rows = read_rows(path)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    done = {(row["task"], row["matrix"], row["tool"], row["way"], row["split"]) for row in rows}
    tools = [tool for tool in find_tools() if options.tools is None or tool.name in options.tools]
    environments, terms = Environments(options.out / "environments"), Terms(options.threads, options.limit)
    for repeat, matrix, tool, name in planned(matrices_of(options), tools, options.repeats):
        if (matrix.task, matrix.name, tool.name, name, repeat) in done:
            continue
        if time.monotonic() - begun > 3600 * options.hours:
            print(f"{options.hours:g} hours are over: the same command goes on")
            return
        row: Row = {"task": matrix.task, "matrix": matrix.name, "kept_out": matrix.kept_out, "tool": tool.name}
        row |= {"way": name, "split": repeat, "seed": repeat, "date": date.today().isoformat()}
        row |= result_of(environments, tool, name, matrix, repeat, terms)
        with path.open("a") as file:
            file.write(json.dumps(row) + "\n")
        told = row.get("missing") or ("kept out" if matrix.kept_out else _told(row["figures"]))
        print(f"{repeat} {matrix.task}, {matrix.name}: {tool.name}, {name}: {told}", flush=True)


def _told(figures: dict[str, float]) -> str:
    return ", ".join(f"{name} {value:.4g}" for name, value in figures.items())


def result_of(
    environments: Environments, tool: Tool, name: str, matrix: Matrix, repeat: int, terms: Terms
) -> dict[str, Any]:
    """Return the figures of a run, or why there are none."""
    way, entries = tool.ways[name], matrix.counts.shape[0] * matrix.counts.shape[1]
    if way.most_entries is not None and entries > way.most_entries:
        return {"missing": f"fills {entries:,} entries in, above {way.most_entries:,}"}
    python = environments.python(tool)
    if python is None:
        return {"missing": f"not installed: {environments.refused[tool.name]}"}
    return run(tool, name, python, matrix, split(matrix, repeat), repeat, terms)


def write_tables(options: argparse.Namespace) -> None:
    """Write the tables of all finished runs."""
    rows = [row for row in read_rows(options.out / "rows.jsonl") if options.reveal or not row["kept_out"]]
    if not rows:
        raise SystemExit(f"{options.out} has no runs to show: run the command without --table first")
    by_matrix = tables_of(rows)
    days = sorted({row["date"] for row in rows})
    threads = f"{options.threads} thread{'s' * (options.threads > 1)}"
    about = f"Runs of {' to '.join(dict.fromkeys((days[0], days[-1])))} on {machine()}, {threads}."
    for name, made in (("table.md", markdown), ("arena.html", page)):
        (options.out / name).write_text(made(by_matrix, about))
    print(f"wrote {options.out / 'table.md'} and {options.out / 'arena.html'}")


def machine() -> str:
    """Return the name of the processor."""
    path = Path("/proc/cpuinfo")
    lines = path.read_text().splitlines() if path.exists() else []
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return next(iter(names), platform.processor() or platform.machine())


def main(given: Sequence[str] | None = None) -> None:
    """Run and write."""
    options = options_of(given)
    options.out.mkdir(parents=True, exist_ok=True)
    if not options.table:
        measure(options)
    write_tables(options)


if __name__ == "__main__":
    main()
