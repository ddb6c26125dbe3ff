"""Closed-form VI, plain and extrapolated: iterations and seconds to a given ELBO, from the same start.

``python benchmarks/acceleration_vi.py`` fits gamma_poisson to nips (K = 10) and pbmc_facs (K = 6). The targets are
the ELBOs that the plain run has after 100, 200 and 400 iterations.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parent / "published"))
from common import Clock, parse, real_counts

import bayesnmf
from bayesnmf import VI

TARGETS = (100, 200, 400)
METHODS: dict[str, dict[str, Any]] = {
    "plain": {},
    "extrapolated": {"extrapolate": True},
}


def run(counts: Any, rank: int, seed: int, settings: dict[str, Any]) -> tuple[np.ndarray, np.ndarray]:
    """Return the trace and the seconds at which each of its values was reached."""
    clock = Clock()
    moments: list[float] = []

    def note(_label: str, _done: int, _total: int, _value: float) -> None:
        moments.append(clock())

    options = VI(max_iter=TARGETS[-1], tol=0, **settings)
    fit = bayesnmf.fit(counts, "gamma_poisson", rank, "vi", seed=seed, options=options, progress=note)
    return fit.trace, np.array(moments[-len(fit.trace) :])


def table(name: str, rank: int, results: dict[str, tuple[np.ndarray, np.ndarray]]) -> str:
    """Return one problem's table."""
    plain, _ = results["plain"]
    lines = [f"{name}, K = {rank}: iterations (seconds) to the ELBO of plain VI after so many iterations"]
    lines.append(f"{'':<14}" + "".join(f"{target:>18}" for target in TARGETS) + f"{'end':>18}")
    for method, (trace, seconds) in results.items():
        cells = []
        for target in TARGETS:
            there = np.flatnonzero(trace >= plain[target])
            cells.append(f"{there[0]} ({seconds[there[0]]:.1f})" if len(there) else "not reached")
        lines.append(f"{method:<14}" + "".join(f"{cell:>18}" for cell in cells) + f"{trace[-1]:>18,.1f}")
    return "\n".join(lines)


def main() -> None:
    """Print the tables and write them to a file."""
    arguments = parse(__doc__)
    tables = []
    for name, rank in (("nips", 10), ("pbmc_facs", 6)):
        counts = real_counts(name)
        run(counts, rank, arguments.seed, METHODS["extrapolated"])  # compiled before timing
        results = {method: run(counts, rank, arguments.seed, settings) for method, settings in METHODS.items()}
        tables.append(table(name, rank, results))
        print(tables[-1], flush=True)
    (arguments.out / "acceleration_vi.txt").write_text("\n".join(tables) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
