"""Are simulated programs of cells found, without knowing how many there are?

    python -m venv rivals; rivals/bin/pip install cnmf==1.7.1 scanpy
    python -m benchmarks.programs --rivals rivals/bin/python [--data scsim_k14 scsim_k14_b] [--methods NAME …]

The counts are cNMF's own simulator's (scsim), of 13 identities and one activity on top of a profile that all cells
share: files NAME.npz of the folder that BAYESNMF_DATA names, with `usage`, the true shares (n, 14), the activity last.
`scsim_k14` was tuned on, `scsim_k14_b` was not. A method is NAME:RANK: `plain` is ``fit(counts, rank)``, `nb1` has
noise="nb1", `consensus` is ``modes(counts, rank, noise="nb1", starts=5).consensus()``, which is what the guide advises,
and `cnmf` is cNMF with 20 runs.

Programs are matched one to one to the true ones by the correlation of shares over cells. "r" is the mean of the 14
correlations, "activity" that of the activity, "least" the smallest of an identity. Seconds are those of whole
processes, with imports and compiling. Results that are in the folder are not run again.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from scipy.optimize import linear_sum_assignment
from scipy.sparse import csr_array

import bayesnmf
from benchmarks.cells import HERE, run_once

Array = np.ndarray[Any, Any]
METHODS = ("plain:14", "plain:24", "nb1:24", "consensus:24", "cnmf:14", "cnmf:20", "cnmf:24")


def data_of(name: str) -> tuple[csr_array, Array]:
    """Return simulated counts (n, m) and the true shares (n, 14)."""
    held = np.load(Path(os.environ["BAYESNMF_DATA"]) / f"{name}.npz")
    parts = held["data"].astype(np.float64), held["indices"], held["indptr"]
    return csr_array(parts, shape=tuple(held["shape"])), held["usage"].astype(np.float64)


def ours(method: str, rank: int, counts: csr_array) -> dict[str, Any]:
    """Return the shares (n, K) of a method of ours."""
    if method == "consensus":
        fit = bayesnmf.modes(counts, rank=rank, noise="nb1", starts=5, seed=0).consensus().fit
    else:
        fit = bayesnmf.fit(counts, rank=rank, seed=0, noise="nb1" if method == "nb1" else "poisson")
    usage = bayesnmf.to_topic_model(fit).proportions
    return {"version": f"bayesnmf {bayesnmf.__version__}", "usage": usage.tolist()}


def correlations(truth: Array, usage: Array) -> Array:
    """Return the correlation of each true program (n, L) with the one that it is matched to, of shares (n, K)."""
    shares = usage / np.maximum(usage.sum(axis=1, keepdims=True), 1e-300)
    shares = shares[:, shares.std(axis=0) > 0]
    number = truth.shape[1]
    every = np.corrcoef(truth.T, shares.T)[:number, number:]
    found = np.zeros(number)
    rows, columns = linear_sum_assignment(-every)
    found[rows] = every[rows, columns]
    return found


def write_counts(path: Path, counts: csr_array) -> None:
    """Write counts as an h5ad."""
    import anndata
    import pandas as pd
    from scipy.sparse import csr_matrix

    names = [pd.DataFrame(index=[f"{kind}{i}" for i in range(size)])
             for kind, size in zip(("cell", "gene"), counts.shape, strict=True)]  # fmt: skip
    anndata.AnnData(csr_matrix(counts.astype(np.float32)), *names).write_h5ad(path)


def main(given: list[str] | None = None) -> None:
    """Run what is not in the folder yet, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rivals", default="rivals/bin/python", help="interpreter with cnmf and scanpy")
    parser.add_argument("--data", nargs="+", default=["scsim_k14", "scsim_k14_b"], help="names of files")
    parser.add_argument("--methods", nargs="+", default=list(METHODS), help="what to run, NAME:RANK")
    parser.add_argument("--out", type=Path, default=HERE / "programs", help="folder of results")
    parser.add_argument("--one", nargs=4, metavar=("METHOD", "RANK", "DATA", "RESULT"), help="run one of ours (inside)")
    options = parser.parse_args(given)
    if options.one:
        method, rank, name, result = options.one
        Path(result).write_text(json.dumps(ours(method, int(rank), data_of(name)[0])))
        return
    options.out.mkdir(parents=True, exist_ok=True)
    head = ["counts", "method", "K", "r", "activity", "least", "wall s", "CPU s", "MB"]
    print(f"| {' | '.join(head)} |\n|---|---|{'--:|' * (len(head) - 2)}")
    for name in options.data:
        counts, truth = data_of(name)
        with tempfile.TemporaryDirectory() as folder:
            write_counts(written := Path(folder) / "counts.h5ad", counts)
            for each in options.methods:
                method, rank = each.split(":")
                path = options.out / f"{name}_{method}_{rank}.json"
                own = [sys.executable, "-m", "benchmarks.programs", "--one", method, rank, name, str(path)]
                rival = [options.rivals, "-P", str(HERE / "cells_rivals.py"), method, str(written), str(path), rank]
                found = run_once(rival if method == "cnmf" else own, path)
                each_r = correlations(truth, np.array(found["usage"]))
                line = [name, f"{method} ({found['version']})", rank, f"{each_r.mean():.3f}", f"{each_r[-1]:.3f}",
                        f"{each_r[:-1].min():.2f}", f"{found['wall']:.0f}", f"{found['cpu']:.0f}",
                        f"{found['MB']:,.0f}"]  # fmt: skip
                print(f"| {' | '.join(line)} |", flush=True)


if __name__ == "__main__":
    main()
