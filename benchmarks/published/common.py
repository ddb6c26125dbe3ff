"""Functions shared by the scripts of published results: locations of data and results, and timing."""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
import warnings
from pathlib import Path
from typing import Any

import bayesnmf
from bayesnmf.data.counts import Counts

ROOT = Path(__file__).resolve().parents[2]


def parse(description: str | None, **extra: dict[str, Any]) -> argparse.Namespace:
    """Parse --out, --seed and further options of one script, and make the folder of results."""
    parser = argparse.ArgumentParser(description=(description or "").splitlines()[0])
    parser.add_argument("--out", type=Path, default=ROOT / "results" / "published", help="folder of results")
    parser.add_argument("--seed", type=int, default=0)
    for name, settings in extra.items():
        parser.add_argument(f"--{name}", **settings)
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    warnings.simplefilter("ignore", bayesnmf.ConvergenceWarning)  # runs of a fixed number of iterations
    return arguments


def shared(kind: str, name: str) -> Path:
    """Return the path of a file of real data or of golden values; exit with a message if it does not exist."""
    folder = os.environ.get("BAYESNMF_DATA") if kind == "data" else None
    path = (Path(folder) if folder else ROOT.parent / "shared" / kind) / name
    if not path.exists():
        cure = "set BAYESNMF_DATA to the folder that holds it" if kind == "data" else "put it there"
        sys.exit(f"{path} does not exist: {cure}")
    return path


def real_counts(name: str) -> Counts:
    """Read one of the real count matrices."""
    return bayesnmf.read_counts(shared("data", f"{name}.npz"))


def row_labels(name: str, column: str) -> list[Any]:
    """Return a column of the metadata of the rows of a real count matrix."""
    about = json.loads(shared("data", f"{name}.json").read_text(encoding="utf-8"))["row_meta"]
    values, levels = about[column], about.get(f"{column}_levels")
    return [levels[value] for value in values] if levels else values


class Clock:
    """Stopwatch that starts when it is created."""

    def __init__(self) -> None:
        self.began = time.perf_counter()

    def __call__(self) -> float:
        """Return the seconds so far."""
        return time.perf_counter() - self.began
