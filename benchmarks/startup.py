"""Measure start-up: imports, `--help`, and a first fit with and without compiled kernels.

All times are wall seconds from the start of the interpreter, in fresh processes; the median of several. "first":
Numba's cache is an empty folder, so all kernels of the fit are compiled; until the end of the fit. Bytecode exists, as
after pip; with "modules compiled too" it does not, as after uv without --compile-bytecode. "second": with the caches of
the process before; until the first report of progress, and until the end. "bytecode forbidden": Python must not write
bytecode either (PYTHONDONTWRITEBYTECODE), so every process compiles SciPy and Numba from source. The limits are those
that the package promises.

    uv run python -m benchmarks.startup [--processes 5] [--out results/startup.json]
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

FIT = (
    "import time; began = []\n"
    "def show(*_):\n    if not began: began.append(time.time()); print(began[0])\n"
    "import bayesnmf; bayesnmf.fit([[3, 0, 1], [0, 2, 4], [5, 1, 0], [0, 3, 6]], 'poisson', 2, {method!r}, seed=0, "
    "options=bayesnmf.{options}, progress=show)"
)
PLAIN = "start='random', extrapolate=False, max_iter=5, tol=0"
PROPER = "priors=bayesnmf.Priors(bayesnmf.Gamma(1, 1))"
FITS = {
    "map em": FIT.format(
        method="map", options="MAP(start='random', algorithm='em', extrapolate=False, max_iter=5, tol=0)"
    ),
    "map scd": FIT.format(
        method="map", options="MAP(start='random', algorithm='scd', extrapolate=False, max_iter=5, tol=0)"
    ),
    "vi": FIT.format(method="vi", options=f"VI(start='random', extrapolate=False, max_iter=5, tol=0, {PROPER})"),
    "gibbs": FIT.format(method="gibbs", options=f"Gibbs(chains=1, draws=50, warmup=50, {PROPER})"),
}
QUIETLY = ["-W", "ignore"]
HEAVY = ("jax", "numpyro", "arviz", "matplotlib")


class Measured(NamedTuple):
    """One line of the table: seconds of each process, and the limit."""

    name: str
    seconds: list[float]
    limit: float | None

    @property
    def median(self) -> float:
        """Median, which is compared with the limit."""
        return statistics.median(self.seconds)


def seconds_of(command: list[str], cache: str) -> float:
    """Run a command in its own process, with bytecode in a folder."""
    began = time.perf_counter()
    subprocess.run(command, env=environment(cache), check=True, capture_output=True)
    return time.perf_counter() - began


def seconds_of_fit(code: str, cache: str, bytecode: bool = True) -> tuple[float, float]:
    """Run a fit in its own process, with caches in a folder; return seconds to its first report, and to the end."""
    began = time.time()
    done = subprocess.run(python(code), env=environment(cache, bytecode), check=True, capture_output=True, text=True)
    return float(done.stdout) - began, time.time() - began


def environment(cache: str, bytecode: bool = True) -> dict[str, str]:
    """Return the environment of a process that keeps kernels, and possibly bytecode, in a folder."""
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    kept |= {"NUMBA_CACHE_DIR": f"{cache}/kernels", "PYTHONPYCACHEPREFIX": f"{cache}/bytecode"}
    if not bytecode:
        kept |= {"PYTHONPYCACHEPREFIX": f"{cache}/none", "PYTHONDONTWRITEBYTECODE": "1"}
    return kept


def python(code: str) -> list[str]:
    """Return the command that runs some code."""
    return [sys.executable, *QUIETLY, "-c", code]


def measure(processes: int, fits: list[str]) -> list[Measured]:
    """Measure the imports and the named fits, each `processes` times."""
    absent = f"import bayesnmf, sys; assert not set({HEAVY!r}) & set(sys.modules)"
    simple = [
        ("python alone", python("pass"), None),
        ("import bayesnmf", python(absent), 0.5),
        ("bayesnmf --help", [sys.executable, "-m", "bayesnmf.cli", "--help"], 0.7),
    ]
    with tempfile.TemporaryDirectory() as cache:
        for _, command, _ in simple:
            seconds_of(command, cache)
        table = [
            Measured(name, [seconds_of(command, cache) for _ in range(processes)], limit)
            for name, command, limit in simple
        ]
    for name in fits:
        code = FITS[name]
        nothing, first, started, second, bare = [], [], [], [], []
        for _ in range(processes):
            with tempfile.TemporaryDirectory() as cache:
                nothing.append(seconds_of_fit(code, cache)[1])
                shutil.rmtree(f"{cache}/kernels")
                first.append(seconds_of_fit(code, cache)[1])
                for times, seconds in zip((started, second), seconds_of_fit(code, cache), strict=True):
                    times.append(seconds)
                bare.append(seconds_of_fit(code, cache, bytecode=False)[0])
        table += [
            Measured(f"{name}, first", first, 15.0),
            Measured(f"{name}, first, modules compiled too", nothing, 15.0),
            Measured(f"{name}, second, started", started, 1.0),
            Measured(f"{name}, second, done", second, None),
            Measured(f"{name}, second, started, bytecode forbidden", bare, None),
        ]
    return table


def main() -> None:
    """Print the table, and write it to a file on request."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--processes", type=int, default=5, help="number for each line (default: %(default)s)")
    parser.add_argument("--fits", nargs="*", choices=list(FITS), default=list(FITS), help="(default: all)")
    parser.add_argument("--out", type=Path, help="JSON file to write")
    options = parser.parse_args()
    table = measure(options.processes, options.fits)
    print(f"{'':40}{'median s':>10}{'least':>8}{'most':>8}{'limit':>8}")
    for row in table:
        limit = "" if row.limit is None else f"{row.limit:8.1f}" + ("" if row.median < row.limit else "  missed")
        print(f"{row.name:40}{row.median:10.2f}{min(row.seconds):8.2f}{max(row.seconds):8.2f}{limit}")
    if options.out is not None:
        options.out.parent.mkdir(parents=True, exist_ok=True)
        options.out.write_text(json.dumps([row._asdict() for row in table], indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
