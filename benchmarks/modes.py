"""How many modes fits from random starts find, how they differ, and what it takes.

    python -m benchmarks.modes [--data pbmc_facs:6 digits:8 …] [--starts 20] [--start random] [--jobs 1] [--full]

calls `bayesnmf.modes` on whole counts, with default settings but for the start, and prints a row for each data set,
rank and start; --full prints the tables of modes as well, and --plots FOLDER draws the figures.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import Any

import bayesnmf
from bayesnmf import MAP, VI
from benchmarks.data import read

DATA = ("pbmc_facs:6", "pcawg_breast_sbs96:5", "pcawg_breast_sbs96:8", "digits:8", "newsgroups:20:5")
HEADINGS = (
    "data", "K", "method, start", "runs", "modes", "in the best", "behind, median", "come back", "held out, best",
    "stack − best", "kept", "silhouette", "s, fits", "s, all",
)  # fmt: skip


def row_of(name: str, rank: int, found: bayesnmf.Modes, seconds: float) -> list[str]:
    """Return the cells of one row."""
    table, runs = found.table, found.runs
    back = ", ".join(f"{count}" for count in sorted(found.components.loc[0, "runs"], reverse=True))
    try:
        consensus = found.consensus()
        kept = [f"{consensus.kept:.0%}", f"{consensus.silhouette:.3f}"]
    except ValueError:  # too few components below the threshold
        kept = ["–", "–"]
    stack: Any = found.stack
    gain = "–" if len(stack.weights) == 1 else f"{stack.difference:.4f} ± {stack.difference_se:.4f}"
    method = f"{found.best.method}, {found.best.options.start}"
    cells = [name, f"{rank}", method, f"{len(runs)}", f"{len(table)}", f"{table['runs'].iloc[0]}"]
    cells += [f"{runs['behind'].median():,.0f}", back, f"{table['held_out'].iloc[0]:.4f}", gain, *kept]
    return [*cells, f"{runs['seconds'].sum():.1f}", f"{seconds:.1f}"]


def draw(found: bayesnmf.Modes, stem: Path) -> None:
    """Write the figures of modes and of their consensus."""
    from bayesnmf import plots

    plots.modes(found)[0].figure.savefig(f"{stem}_modes.png", dpi=100)
    try:
        consensus = found.consensus()
    except ValueError as error:
        print(f"{stem}: {error}")
        return
    plots.consensus(consensus)[0].figure.savefig(f"{stem}_consensus.png", dpi=100)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", nargs="+", default=DATA, help="name:rank or name:rank:starts")
    parser.add_argument("--starts", type=int, default=20)
    parser.add_argument("--start", nargs="+", default=["random"])
    parser.add_argument("--method", default="vi", choices=["vi", "map"])
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--full", action="store_true")
    parser.add_argument("--plots", type=Path)
    given = parser.parse_args()
    kind: Any = {"vi": VI, "map": MAP}[given.method]
    print(f"| {' | '.join(HEADINGS)} |\n|{'---|' * len(HEADINGS)}", flush=True)
    for each in given.data:
        name, rank, *more = each.split(":")
        counts = read(name, int(rank), 0)
        for start in given.start:
            started = time.perf_counter()
            found = bayesnmf.modes(
                counts, rank=int(rank), method=given.method, starts=int(more[0]) if more else given.starts,
                options=kind(start=start), jobs=given.jobs,
            )  # fmt: skip
            print(f"| {' | '.join(row_of(name, int(rank), found, time.perf_counter() - started))} |", flush=True)
            if given.full:
                print(f"\n{found}\n", flush=True)
            if given.plots is not None:
                draw(found, given.plots / f"{name}_{rank}_{start}")


if __name__ == "__main__":
    main()
