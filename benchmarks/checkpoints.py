"""What a checkpoint costs: seconds of fits with and without one, and its size on disk.

    python -m benchmarks.checkpoints [--seconds 10]

runs each fit without a checkpoint, with one, and again from the folder of the one that has ended, in turn, twice; the
least times are printed. Real data must be in the folder that BAYESNMF_DATA names.
"""

from __future__ import annotations

import argparse
import shutil
import tempfile
import time
import warnings
from pathlib import Path
from typing import Any

import bayesnmf
from bayesnmf import MAP, SMC, VI, Checkpoint, Gibbs
from benchmarks.data import read

FITS: dict[str, tuple[str, int, str, Any]] = {
    "newsgroups, vi, K=20, 150 iterations": ("newsgroups", 20, "vi", VI(start="svd", max_iter=150, tol=0)),
    "newsgroups, vi by minibatches, K=20, 5 epochs": (
        "newsgroups", 20, "vi", VI(algorithm="minibatch", start="svd", max_iter=5, tol=0)
    ),
    "pbmc_facs, map, K=10, default": ("pbmc_facs", 10, "map", MAP()),
    "pcawg_breast_sbs96, gibbs, K=8, 1,000 draws": ("pcawg_breast_sbs96", 8, "gibbs", Gibbs(draws=1000)),
    "pcawg_breast_sbs96, smc, K=2, 2 runs of 32": ("pcawg_breast_sbs96", 2, "smc", SMC(runs=2, particles=32)),
}  # fmt: skip


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=10.0)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    print(
        f"fit | s without | s with a snapshot every {options.seconds:g} s | s from the ended fit | MB of the ended fit"
    )
    for title, (name, rank, method, settings) in FITS.items():
        counts = read(name, rank, 0)
        folder = Path(tempfile.mkdtemp())
        times: dict[str, list[float]] = {"without": [], "with": [], "again": []}
        for _ in range(2):
            shutil.rmtree(folder / "run", ignore_errors=True)
            for kind, given in times.items():
                kept = None if kind == "without" else Checkpoint(folder / "run", options.seconds)
                begun = time.perf_counter()
                bayesnmf.fit(counts, rank=rank, method=method, seed=0, options=settings, checkpoint=kept)
                given.append(time.perf_counter() - begun)
        size = sum(path.stat().st_size for path in (folder / "run").iterdir()) / 1e6
        print(title, "|", " | ".join(f"{min(given):.1f}" for given in times.values()), "|", f"{size:.1f}", flush=True)
        shutil.rmtree(folder)


if __name__ == "__main__":
    main()
