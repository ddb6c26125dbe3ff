"""Fits of counts on disk beside the same in memory: seconds an iteration, and memory beyond what imports take.

    python -m benchmarks.on_disk [--times 30] [--rank 10 50] [--method map vi] [--dtype float32] [--scratch DIR]
    python -m benchmarks.on_disk --data nips --times 2 --noise nb2 --nonzeros 262144 --method vi --rank 10

writes a data set (newsgroups) `--times` times over, shuffled, to an uncompressed .h5ad file in the scratch folder
(0.6 GB for newsgroups 30 times), and runs each fit in a process of its own: EM or variational inference from a random
start, without extrapolation, by blocks of `--nonzeros`. Noise that is learned begins with a Poisson fit, whose
iterations are left out of the seconds, of which those of the processor come last.
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
    parser.add_argument("--data", default="newsgroups")
    parser.add_argument("--noise", default="poisson")
    parser.add_argument("--nonzeros", type=int, default=2**21)
    parser.add_argument("--where", nargs="+", default=["memory", "disk"])
    parser.add_argument("--scratch", default=tempfile.gettempdir())
    parser.add_argument("--one", nargs=3, help=argparse.SUPPRESS)
    options = parser.parse_args()
    folder = Path(options.scratch) / "bayesnmf-on-disk"
    path = folder / f"{options.data}-{options.times}.h5ad"
    if options.one:
        where, method, rank = options.one
        print(json.dumps(measure(path, where, method, int(rank), options)))
        return
    write(path, options.data, options.times)
    print("method, K, where | seconds an iteration (median, least, of the processor) | MB beyond imports | objective")
    for rank in options.rank:
        for method in options.method:
            for where in options.where:
                names = ("dtype", "times", "data", "noise", "nonzeros", "scratch")
                given = [each for name in names for each in (f"--{name}", str(getattr(options, name)))]
                command = [sys.executable, "-m", "benchmarks.on_disk", "--one", where, method, str(rank), *given]
                found = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
                print(method, rank, where, "|", found["median"], found["least"], found["processor"], "|",
                      found["memory"], "|", found["objective"], flush=True)  # fmt: skip


def write(path: Path, data: str, times: int) -> None:
    """Write the counts, unless they are there."""
    if path.exists():
        return
    from anndata import AnnData
    from scipy.sparse import csr_matrix

    from benchmarks.data import read

    path.parent.mkdir(exist_ok=True)
    matrix, rng = read(data, 10, 0).matrix, np.random.default_rng(0)
    rows = rng.permutation(np.tile(np.arange(matrix.shape[0]), times))
    AnnData(csr_matrix(matrix.astype(np.float32)[rows])).write_h5ad(path)


def measure(path: Path, where: str, method: str, rank: int, given: argparse.Namespace) -> dict[str, Any]:
    """Fit in this process; return seconds of an iteration and the peak of memory."""
    import anndata

    import bayesnmf

    kind: Any = {"map": bayesnmf.MAP, "vi": bayesnmf.VI}[method]
    settings: Any = {"start": "random", "tol": 0, "max_iter": ITERATIONS, "dtype": given.dtype, "extrapolate": False}
    settings |= {"algorithm": "em"} if method == "map" else {}
    small = bayesnmf.simulate(size=(200, 100), rank=rank, totals=300, seed=0).counts
    asked: Any = {"rank": rank, "method": method, "options": kind(**settings), "seed": 0, "noise": given.noise}
    bayesnmf.fit(small, **asked)  # imports and compiles everything
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    on_disk = where == "disk"
    source: Any = bayesnmf.Blocks(path, given.nonzeros, scratch=path.parent) if on_disk else anndata.read_h5ad(path)
    times: list[tuple[float, float]] = []

    def note(label: str, *_: Any) -> None:
        if label != "reading counts":
            times.append((time.perf_counter(), time.process_time()))

    fit = bayesnmf.fit(source, progress=note, **asked)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    seconds, of_processor = np.diff(times, axis=0)[1 - ITERATIONS :].T
    return {
        "median": f"{np.median(seconds):.3f}",
        "least": f"{seconds.min():.3f}",
        "processor": f"{np.median(of_processor):.3f}",
        "memory": f"{(peak - before) / 1024:.0f}",
        "objective": f"{fit.trace[-1]:,.1f}",
    }


if __name__ == "__main__":
    main()
