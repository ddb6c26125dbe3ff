"""Speed against other tools: `python -m benchmarks` fits the same counts from the same start with all of them.

Writes table.md, results.json and a figure for each problem to the folder `--out`. What is measured and how:
benchmarks/README.md.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import tempfile
from pathlib import Path
from typing import Any

import bayesnmf
from benchmarks import anchors, data, figure, objectives, report
from benchmarks.race import Terms, race
from benchmarks.tools import LEFT_OUT, PEERS, TASKS, TOOLS

# An ELBO is dear to evaluate, since q(documents) is optimised for it.
STRIDES = {"likelihood": 1.25, "lda": 2.0, "gamma_poisson": 1.25, "heldout": 1.6, "gibbs": 2.0}


def arguments(given: list[str] | None = None) -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--data", nargs="+", default=["newsgroups"], help="names of files, digits, or NxM (simulated)")
    parser.add_argument("--rank", nargs="+", type=int, default=[10])
    parser.add_argument("--tasks", nargs="+", choices=TASKS, default=["likelihood"])
    parser.add_argument("--peers", nargs="+", choices=PEERS, default=list(PEERS))
    parser.add_argument("--budget", type=float, default=30.0, help="seconds of fitting, each tool")
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=data.ROOT / "results" / "benchmarks")
    parser.add_argument("--python-for", nargs="+", default=[], metavar="PEER=PATH", help="interpreters of their own")
    parsed = parser.parse_args(given)
    for pair in parsed.python_for:
        if pair.partition("=")[0] not in PEERS or not Path(pair.partition("=")[2]).exists():
            parser.error(f"--python-for takes PEER=PATH of an interpreter, not {pair}")
    return parsed


def measure(name: str, rank: int, task: str, options: argparse.Namespace) -> report.Result:
    """Run one race."""
    problem = data.problem(name, task, rank, options.seed)
    tools = [t for t in TOOLS if t.task == task and t.peer in options.peers]
    pythons = dict(pair.split("=", 1) for pair in options.python_for)
    terms = Terms(options.budget, STRIDES[task], options.threads, pythons)

    def evaluate(factors: dict[str, Any]) -> float:
        return objectives.evaluate(problem, task, factors)

    logs = options.out / "logs"
    logs.mkdir(parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix=f"{task}_{name}_", dir=logs))
    runs = race(problem, task, tools, terms, folder, None if task == "gibbs" else evaluate)
    limit = anchors.limits(problem) if task == "likelihood" else {}
    scaled = anchors.fasttopics(problem, limit, options.threads) if task == "likelihood" else []
    for file in ("counts.npz", "start.npz"):
        (folder / file).unlink()
    return report.Result(problem, task, options.threads, options.budget, runs, limit, scaled)


def machine() -> str:
    """Name the machine and the versions."""
    cpuinfo = Path("/proc/cpuinfo")
    lines = cpuinfo.read_text(encoding="utf-8").splitlines() if cpuinfo.exists() else []
    models = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    model = models[0] if models else platform.processor() or platform.machine()
    return f"{model}, {os.cpu_count()} cores; Python {platform.python_version()}, bayesnmf {bayesnmf.__version__}"


def present(result: report.Result, options: argparse.Namespace) -> str:
    """Print a result, draw it, and return it as Markdown."""
    from rich.console import Console
    from rich.table import Table

    console, found = Console(width=200), report.tables(result)
    for rows in found:
        shown = Table(*rows[0], title=result.title)
        for row in rows[1:]:
            shown.add_row(*row)
        console.print(shown)
    stem = f"{result.task}_{result.problem.name}_{result.problem.rank}"
    figure.draw(result, options.out / f"{stem}.png")
    versions = {f"{run.tool.peer} {run.version}": None for run in result.runs if run.version}
    failed = [f"{name} gave no result: {why}." for name, why in report.left_out(result).items()]
    if failed:
        console.print("\n".join(failed))
    text = [f"### {result.title}", *(report.markdown(rows) for rows in found)]
    return "\n\n".join([*text, " ".join([f"Versions: {', '.join(versions)}.", *failed]), ""])


def main(given: list[str] | None = None) -> int:
    """Run every race that is asked for."""
    options = arguments(given)
    options.out.mkdir(parents=True, exist_ok=True)
    not_run = "Not run: " + "; ".join(f"{name} ({why})" for name, why in LEFT_OUT.items()) + "."
    sections, records = [f"{machine()}\n\n{not_run}\n"], []
    for task in options.tasks:
        for name in options.data:
            for rank in options.rank:
                result = measure(name, rank, task, options)
                sections.append(present(result, options))
                records.append(report.record(result))
                (options.out / "table.md").write_text("\n".join(sections), encoding="utf-8")
                (options.out / "results.json").write_text(json.dumps(records, indent=1), encoding="utf-8")
    print(f"{not_run}\nWritten to {options.out}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
