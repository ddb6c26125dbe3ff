"""Compare speed with other tools: `python -m benchmarks` fits the same counts from the same start with all of them.

It writes table.md, results.json and a figure for each problem to the folder `--out`. benchmarks/README.md describes the
measurements.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import platform
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import bayesnmf
from benchmarks import anchors, data, figure, objectives, report
from benchmarks.race import Terms, race
from benchmarks.tools import LEFT_OUT, PEERS, TASKS, TOOLS

# An ELBO is expensive to evaluate, since q(documents) is optimised for it.
STRIDES = {"likelihood": 1.25, "lda": 2.0, "gamma_poisson": 1.25, "heldout": 1.6, "gibbs": 2.0}


def whole(least: int) -> Callable[[str], int]:
    """Return a parser of whole numbers of at least `least`."""

    def parse(text: str) -> int:
        if not text.isascii() or not text.isdigit() or int(text) < least:
            raise argparse.ArgumentTypeError(f"{text} is not a whole number of at least {least}")
        return int(text)

    return parse


def positive(text: str) -> float:
    """Parse a finite number above 0."""
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 < value < math.inf:
        raise argparse.ArgumentTypeError(f"{text} is not a number above 0")
    return value


def share(text: str) -> float:
    """Parse a number above 0 and at most 1."""
    if (value := positive(text)) > 1:
        raise argparse.ArgumentTypeError(f"{text} is not a share, above 0 and at most 1")
    return value


def options_of_the_command() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=(__doc__ or "").splitlines()[0])
    add, out = parser.add_argument, data.ROOT / "results" / "benchmarks"
    add("--data", nargs="+", default=["newsgroups"], help="names of files, digits, or NxM (simulated)")
    add("--thin", type=share, default=1.0, metavar="KEEP", help="probability with which a count is kept beforehand")
    add("--rank", nargs="+", type=whole(1), default=[10], help="numbers of components, a race each")
    add("--concentrations", nargs=2, type=positive, metavar=("ALPHA", "ETA"), help="of lda, gibbs, heldout; 1/K each")
    add("--tasks", nargs="+", choices=TASKS, default=["likelihood"], help="tasks, see benchmarks/README.md")
    add("--peers", nargs="+", choices=PEERS, default=list(PEERS), help="authors of the tools; all by default")
    add("--budget", type=positive, default=30.0, help="seconds of fitting for each tool (each chain)")
    add("--chains", type=whole(1), help="number for each tool, gibbs only; 2 by default")
    add("--threads", type=whole(1), default=os.cpu_count(), help="number for each tool; all cores by default")
    add("--seed", type=whole(0), default=0, help="seed of simulation, thinning, starts and tools")
    add("--out", type=Path, default=out, help="folder for the table, the results and figures")
    add("--python-for", nargs="+", default=[], metavar="PEER=PATH", help="separate interpreters of peers")
    return parser


def arguments(given: list[str] | None = None) -> argparse.Namespace:
    """Parse the command line, and refuse options that the tasks would ignore."""
    parser = options_of_the_command()
    parsed = parser.parse_args(given)
    for pair in parsed.python_for:
        if pair.partition("=")[0] not in PEERS or not Path(pair.partition("=")[2]).exists():
            parser.error(f"--python-for takes PEER=PATH of an interpreter, not {pair}")
    if parsed.chains and "gibbs" not in parsed.tasks:
        parser.error("--chains is for --tasks gibbs")
    if parsed.concentrations and not {"lda", "gibbs", "heldout"} & set(parsed.tasks):
        parser.error("--concentrations is for --tasks lda, gibbs and heldout")
    return parsed


def measure(name: str, rank: int, task: str, options: argparse.Namespace) -> report.Result:
    """Run one race."""
    concentrations = tuple(options.concentrations) if options.concentrations else None
    problem = data.problem(name, task, rank, options.seed, data.Variant(options.thin, concentrations))
    tools = [t for t in TOOLS if t.task == task and t.peer in options.peers]
    pythons = dict(pair.split("=", 1) for pair in options.python_for)
    chains = (options.chains or 2) if task == "gibbs" else 1
    terms = Terms(options.budget, STRIDES[task], options.threads, pythons, chains)

    def evaluate(factors: dict[str, Any]) -> float:
        return objectives.evaluate(problem, task, factors)

    logs = options.out / "logs"
    logs.mkdir(parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix=f"{task}_{name}_", dir=logs))
    loop = anchors.CLoop(problem) if task == "likelihood" else None
    between = None if loop is None else loop.sample
    runs = race(problem, task, tools, terms, folder, None if task == "gibbs" else evaluate, between)
    limit = {} if loop is None else loop.medians()
    scaled, seen = anchors.fasttopics(problem, limit, options.threads), anchors.sightings(problem, limit)
    for file in ("counts.npz", "start.npz"):
        (folder / file).unlink()
    return report.Result(problem, task, options.threads, options.budget, runs, limit, scaled, seen)


def machine() -> str:
    """Return the names of the machine and the versions."""
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
    """Run every requested race."""
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
