"""Fits of counts on disk beside the same in memory: seconds an iteration, and memory beyond what imports take.

    python -m benchmarks.on_disk [--times 30] [--rank 10 50] [--method map vi] [--dtype float32] [--scratch DIR]

writes newsgroups `--times` times over, shuffled, to an uncompressed .h5ad file in the scratch folder (0.6 GB for 30
times), and runs each fit in a process of its own: EM or variational inference from a random start, without
extrapolation.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

ITERATIONS = 8


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--times", type=int, default=30)
    parser.add_argument("--rank", nargs="+", type=int, default=[10, 50])
    parser.add_argument("--method", nargs="+", default=["map", "vi"])
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--scratch", default=tempfile.gettempdir())
    parser.add_argument("--one", nargs=3, help=argparse.SUPPRESS)
    options = parser.parse_args()
    folder = Path(options.scratch) / "bayesnmf-on-disk"
    path = folder / f"newsgroups-{options.times}.h5ad"
    if options.one:
        print(json.dumps(measure(path, *options.one[:2], int(options.one[2]), options.dtype)))
        return
    write(path, options.times)
    print("method, K, where | seconds an iteration (median, least) | MB beyond imports | objective")
    for rank in options.rank:
        for method in options.method:
            for where in ("memory", "disk"):
                given = ["--one", where, method, str(rank), "--dtype", options.dtype, "--times", str(options.times)]
                command = [sys.executable, "-m", "benchmarks.on_disk", *given, "--scratch", options.scratch]
                found = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
                print(method, rank, where, "|", found["median"], found["least"], "|", found["memory"], "|",
                      found["objective"], flush=True)  # fmt: skip


def write(path: Path, times: int) -> None:
    """Write the counts, unless they are there."""
    if path.exists():
        return
    from anndata import AnnData
    from scipy.sparse import csr_matrix

    from benchmarks.data import read

    path.parent.mkdir(exist_ok=True)
    matrix, rng = read("newsgroups", 10, 0).matrix, np.random.default_rng(0)
    rows = rng.permutation(np.tile(np.arange(matrix.shape[0]), times))
    AnnData(csr_matrix(matrix.astype(np.float32)[rows])).write_h5ad(path)


def measure(path: Path, where: str, method: str, rank: int, dtype: str) -> dict[str, Any]:
    """Fit in this process; return seconds of an iteration and the peak of memory."""
    import anndata

    import bayesnmf

    kind: Any = {"map": bayesnmf.MAP, "vi": bayesnmf.VI}[method]
    settings: Any = {"start": "random", "tol": 0, "max_iter": ITERATIONS, "dtype": dtype, "extrapolate": False}
    settings |= {"algorithm": "em"} if method == "map" else {}
    small = bayesnmf.simulate(size=(200, 100), rank=rank, totals=300, seed=0).counts
    bayesnmf.fit(small, rank=rank, method=method, options=kind(**settings), seed=0)  # imports and compiles everything
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    source: Any = bayesnmf.Blocks(path, scratch=path.parent) if where == "disk" else anndata.read_h5ad(path)
    times: list[float] = []

    def note(label: str, *_: Any) -> None:
        if label != "reading counts":
            times.append(time.perf_counter())

    fit = bayesnmf.fit(source, rank=rank, method=method, options=kind(**settings), seed=0, progress=note)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    seconds = np.diff(times)[1:]
    return {
        "median": f"{np.median(seconds):.3f}",
        "least": f"{seconds.min():.3f}",
        "memory": f"{(peak - before) / 1024:.0f}",
        "objective": f"{fit.trace[-1]:,.1f}",
    }


if __name__ == "__main__":
    main()
