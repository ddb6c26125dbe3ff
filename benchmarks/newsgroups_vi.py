"""Seconds an iteration and peak memory of closed-form VI on 20 newsgroups: the figures of the README.

``python benchmarks/newsgroups_vi.py [K]``, with newsgroups.npz in the folder that BAYESNMF_DATA names,
or in ../shared/data.
"""

import os
import resource
import sys
import time
from itertools import pairwise
from pathlib import Path
from statistics import median

import bayesnmf

FOLDER = Path(os.environ.get("BAYESNMF_DATA", Path(__file__).parents[2] / "shared" / "data"))
ITERATIONS = 15


def peak_megabytes() -> float:
    """Return the largest resident size of this process so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def main() -> int:
    """Measure both models of the family with closed-form VI, in both precisions."""
    path = FOLDER / "newsgroups.npz"
    if not path.exists():
        print(f"{path} is not there; set BAYESNMF_DATA to the folder that holds newsgroups.npz", file=sys.stderr)
        return 2
    rank = int(sys.argv[1]) if len(sys.argv) > 1 else 20
    for dtype in ("float64", "float32"):  # compile first
        bayesnmf.fit([[1, 2], [3, 4]], rank=2, options=bayesnmf.VI(max_iter=2, tol=0, dtype=dtype, threads=2), seed=0)
    before = peak_megabytes()
    counts = bayesnmf.read_counts(path)
    for model in ("gamma_poisson", "dirichlet_poisson"):
        for dtype in ("float64", "float32"):
            stamps: list[float] = []
            options = bayesnmf.VI(max_iter=ITERATIONS, tol=0, dtype=dtype)
            bayesnmf.fit(
                counts,
                model,
                rank,
                options=options,
                seed=0,
                progress=lambda *_, s=stamps: s.append(time.perf_counter()),
            )
            seconds = median(after - start for start, after in pairwise(stamps))
            print(f"{model} {dtype} K={rank}: {seconds:.3f} s an iteration, peak {peak_megabytes() - before:.0f} MB")
    return 0


if __name__ == "__main__":
    sys.exit(main())
