"""A plain fit by variational inference of 100,000 and 1,000,000 cells, with its intervals: seconds and memory.

    python -m benchmarks.atlas [--cells 100000 1000000] [--rank 20] [--scratch DIR]

The cells are those of pbmc_facs, repeated in random order; each copy keeps a random share of its counts, from 0.4 to 1,
so that no two are equal. They are written to a .h5ad file in the scratch folder, piece by piece, and read from there by
`bayesnmf.fit(path, rank=20)`, as a user would, in a process of its own: into memory if there is room, else from disk.
Printed are the seconds of the fit (reading the file included) and of its intervals (a table of five cells, and of the
markers of each component), the processor seconds of the fit, and the peak of memory beyond imports. Results are kept in
atlas.json in the scratch folder, and not measured again.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import h5py
import numpy as np
from scipy.sparse import csr_matrix

PIECE = 20_000  # cells written at once
LEAST_KEPT = 0.4


def main() -> None:
    """Measure what has not been, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cells", nargs="+", type=int, default=[100_000, 1_000_000])
    parser.add_argument("--rank", type=int, default=20)
    parser.add_argument("--scratch", default=tempfile.gettempdir())
    parser.add_argument("--one", help=argparse.SUPPRESS)
    options = parser.parse_args()
    folder = Path(options.scratch) / "bayesnmf-atlas"
    if options.one:
        print(json.dumps(measure(Path(options.one), options.rank)))
        return
    folder.mkdir(exist_ok=True)
    kept = folder / "atlas.json"
    found: dict[str, Any] = json.loads(kept.read_text()) if kept.exists() else {}
    for cells in options.cells:
        name = f"{cells} {options.rank}"
        if name not in found:
            path = write(folder / f"cells-{cells}.h5ad", cells)
            command = [sys.executable, "-m", "benchmarks.atlas", "--one", str(path), "--rank", str(options.rank)]
            place = os.environ | {"XDG_CACHE_HOME": str(folder / "cache")}  # where counts on disk are written
            ran = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, env=place)
            found[name] = json.loads(ran.stdout)
            kept.write_text(json.dumps(found, indent=1))
    print("| cells | nonzeros | counts | s of the fit (processor) | iterations | s of intervals | MB beyond imports |")
    print("|--:|--:|---|--:|--:|--:|--:|")
    for name, each in found.items():
        row = [
            f"{int(name.split()[0]):,}",
            f"{each['nonzeros']:,}",
            each["where"],
            "{:,.0f} ({:,.0f})".format(*each["fit"]),
        ]
        row += [str(each["iterations"]), f"{each['intervals'][0]:,.1f}", f"{each['memory']:,.0f}"]
        print(f"| {' | '.join(row)} |")


def write(path: Path, cells: int) -> Path:
    """Write the cells, unless they are there."""
    if path.exists():
        return path
    from anndata import AnnData

    from benchmarks.data import read

    counts = read("pbmc_facs", 10, 0)
    matrix, rng = counts.matrix.tocsr(), np.random.default_rng(0)
    rows = rng.permutation(np.resize(np.arange(matrix.shape[0]), cells))
    unfinished = path.with_suffix(".part")
    empty = AnnData(csr_matrix((cells, matrix.shape[1]), dtype=np.float32))
    empty.obs_names = [f"cell{i}" for i in range(cells)]
    empty.var_names = [f"gene{j}" for j in range(matrix.shape[1])]
    empty.write_h5ad(unfinished)
    with h5py.File(unfinished, "a") as file:
        group = file["X"]
        ends, length = np.zeros(cells + 1, np.int64), 0
        for name, kind in (("data", np.float32), ("indices", np.int32)):
            del group[name]
            group.create_dataset(name, (0,), kind, maxshape=(None,), chunks=(2**20,))
        for first in range(0, cells, PIECE):
            part = thinned(matrix[rows[first : first + PIECE]], rng)
            for name, values in (("data", part.data), ("indices", part.indices)):
                group[name].resize((length + part.nnz,))
                group[name][length:] = values
            ends[first + 1 : first + 1 + part.shape[0]] = length + part.indptr[1:]
            length += part.nnz
        group["indptr"][...] = ends
    unfinished.rename(path)
    return path


def thinned(part: Any, rng: np.random.Generator) -> Any:
    """Return counts of which each row keeps a random share."""
    share = np.repeat(rng.uniform(LEAST_KEPT, 1.0, part.shape[0]), np.diff(part.indptr))
    part.data = rng.binomial(part.data.astype(np.int64), share)
    part.eliminate_zeros()
    return part


def measure(path: Path, rank: int) -> dict[str, Any]:
    """Fit in this process; return seconds, processor seconds and the peak of memory."""
    import bayesnmf

    small = bayesnmf.simulate(size=(200, 100), rank=rank, totals=300, seed=0).counts
    bayesnmf.fit(small, rank=rank, seed=0)  # imports and compiles
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    fit, fitted = seconds_of(lambda: bayesnmf.fit(path, rank=rank, seed=0, progress=told))
    _, intervals = seconds_of(lambda: (fit.summary(rows=fit.row_names[:5]), bayesnmf.markers(fit)))
    return {
        "nonzeros": int(fit.counts.nnz),
        "fit": fitted,
        "intervals": intervals,
        "where": "memory" if fit.counts.rows_held else "disk",
        "iterations": fit.trace.size,
        "status": str(fit.status),
        "objective": float(fit.trace[-1]),
        "memory": (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024,
    }


def told(label: str, done: int, total: int, value: float) -> None:
    """Say how far it is."""
    print(time.strftime("%H:%M:%S"), label, done, total, value, file=sys.stderr, flush=True)


def seconds_of(action: Any) -> tuple[Any, tuple[float, float]]:
    """Return the result of an action, its seconds and its processor seconds."""
    started, used = time.perf_counter(), time.process_time()
    result = action()
    return result, (time.perf_counter() - started, time.process_time() - used)


if __name__ == "__main__":
    main()
