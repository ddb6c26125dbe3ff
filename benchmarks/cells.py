"""Do programs of sorted blood cells have the markers of their types, and do cells fall into the types?

    python -m venv rivals; rivals/bin/pip install cnmf==1.7.1 scanpy
    python -m benchmarks.cells --rivals rivals/bin/python [--ranks 6 10] [--methods ours hierarchical cnmf nmf]
    python -m benchmarks.cells --clusters

pbmc_facs: 3,774 blood cells in ten types, sorted by FACS, with all 16,791 genes. Markers of a type are the genes with
the greatest Wilcoxon scores of scanpy, against all other cells after its usual normalisation. For each type, "of 20" is
the largest number of them among the 20 leading genes of a program, ours in the default order and by `markers`, of cNMF
by its gene scores (z-scores of its regression), of NMF by lift. Cells go to a program by the largest share of their
usage, or by share × log lift (`Fit.leading_components`), and NMI and ARI are those with `subpop`, five types, and
`celltype`, ten.

Every run is a process of its own, whose wall and processor seconds (of all its processes) and peak memory are those of
the operating system, with imports and compiling in them. scHPF is not on the package index; `hierarchical_poisson` is
the same model. Results that are in the folder are not run again.

--clusters: NMI of known labels with as many clusters by k-means (ten starts), of roots of shares, of roots of share
over mean share, and of `Fit.coordinates`, of plain fits. The labels are `subpop` of pbmc_facs, whole and in two random
halves, and the 13 identities of the simulated cells of `benchmarks.programs`. The rule of the coordinates was chosen on
the first half and on scsim_k14.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array
from scipy.special import xlogy
from sklearn.cluster import KMeans
from sklearn.metrics import adjusted_rand_score, normalized_mutual_info_score

import bayesnmf
from bayesnmf.datasets import real

Array = NDArray[Any]
HERE = Path(__file__).parent
OURS = {"ours": "gamma_poisson", "hierarchical": "hierarchical_poisson", "consensus": "gamma_poisson"}
RIVALS = ("cnmf", "nmf")
TYPES = {"NK": "CD56+ NK", "monocytes": "CD14+ Monocyte", "B": "CD19+ B", "CD34+": "CD34+"}


def ours(method: str, rank: int) -> dict[str, Any]:
    """Return shares and leading genes of a fit of ours by default options."""
    counts = real("pbmc_facs").counts
    if method == "consensus":
        fit = bayesnmf.modes(counts, rank=rank, starts=10, seed=0).consensus().fit
    else:
        fit = bayesnmf.fit(counts, OURS[method], rank=rank, seed=0)
    usage = bayesnmf.to_topic_model(fit).proportions
    genes = {"distinct": fit.top_features(20).T.to_numpy().tolist()}
    table = bayesnmf.markers(fit, 20)
    genes["markers"] = [table.loc[table["component"] == k, "feature"].tolist() for k in fit.component_labels]
    return {"version": f"bayesnmf {bayesnmf.__version__}", "usage": usage.tolist(), "genes": genes}


def run_once(command: list[str], result: Path) -> dict[str, Any]:
    """Return what a process wrote to `result`, with its seconds and peak memory; keep both there."""
    if result.exists():
        return dict(json.loads(result.read_text()))
    began = time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    _, status, used = os.wait4(process.pid, 0)
    seconds = time.perf_counter() - began
    if status:
        raise SystemExit(f"{' '.join(command)} ended with {status}")
    found = json.loads(result.read_text())
    found |= {"wall": seconds, "cpu": used.ru_utime + used.ru_stime, "MB": used.ru_maxrss / 1024}
    result.write_text(json.dumps(found))
    return dict(found)


def write_counts(path: Path) -> None:
    """Write the counts with the labels of cells as an h5ad."""
    import anndata
    import pandas as pd
    from scipy.sparse import csr_matrix

    data = real("pbmc_facs")
    obs = data.rows[["celltype", "subpop"]].astype(str).set_axis(data.counts.row_names.astype(str))
    var = pd.DataFrame(index=data.counts.feature_names.astype(str))
    anndata.AnnData(csr_matrix(data.counts.matrix.astype(np.float32)), obs, var).write_h5ad(path)


def groups_of(usage: Array) -> dict[str, Array]:
    """Return the program of each cell by largest share, and by share × log lift."""
    shares = usage / np.maximum(usage.sum(axis=1, keepdims=True), 1e-300)
    lift = shares / np.maximum(shares.mean(axis=0), 1e-300)
    return {"share": shares.argmax(axis=1), "lift": xlogy(shares, np.maximum(lift, 1e-300)).argmax(axis=1)}


def line_of(method: str, rank: int, found: dict[str, Any], genes: dict[str, list[str]]) -> list[str]:
    """Return the line of a table of one run: overlaps of leading genes, agreement of labels, and costs."""
    told = [method, str(rank)]
    for name in TYPES.values():
        known = [genes[name][:20], genes[name][:50]]
        best = [
            " + ".join(str(max(len({*top[:20]} & {*marked}) for top in tops)) for marked in known)
            for tops in found["genes"].values()
        ]
        told.append(" / ".join(best))
    rows, groups = real("pbmc_facs").rows, groups_of(np.array(found["usage"]))
    for labels in ("subpop", "celltype"):
        truth = rows[labels].astype(str)
        for group in groups.values():
            scores = normalized_mutual_info_score(truth, group), adjusted_rand_score(truth, group)
            told.append(" / ".join(f"{score:.2f}" for score in scores))
    return [*told, f"{found['wall']:.0f}", f"{found['cpu']:.0f}", f"{found['MB']:,.0f}"]


def labelled_cells() -> Iterator[tuple[str, Any, Array, tuple[int, ...]]]:
    """Yield names, counts, labels and numbers of programs to fit."""
    data = real("pbmc_facs")
    labels, order = data.rows["subpop"].astype(str).to_numpy(), np.random.default_rng(7).permutation(len(data.rows))
    first, second = np.sort(order[: len(order) // 2]), np.sort(order[len(order) // 2 :])
    for name, rows in {"first half": first, "second half": second, "whole": np.sort(order)}.items():
        yield f"pbmc_facs, {name}", data.counts.rows(rows), labels[rows], (6, 10, 15)
    for name in ("scsim_k14", "scsim_k14_b"):
        held = np.load(Path(os.environ["BAYESNMF_DATA"]) / f"{name}.npz")
        parts = held["data"].astype(np.float64), held["indices"], held["indptr"]
        yield name, csr_array(parts, shape=tuple(held["shape"])), held["group"], (14, 24)


def print_clusters() -> None:
    """Print how clusters of cells by several rules agree with known labels."""
    print("| cells | K | roots of shares | roots of share / mean share | coordinates | processor s of the fit |")
    print("|---|--:|--:|--:|--:|--:|")
    for name, counts, labels, ranks in labelled_cells():
        for rank in ranks:
            began = time.process_time()
            fit = bayesnmf.fit(counts, rank=rank, seed=0)
            seconds = time.process_time() - began
            shares = bayesnmf.to_topic_model(fit).proportions
            rules = np.sqrt(shares), np.sqrt(shares / shares.mean(axis=0)), fit.coordinates().to_numpy()
            means = KMeans(len(np.unique(labels)), n_init=10, random_state=0)
            scores = [normalized_mutual_info_score(labels, means.fit_predict(each)) for each in rules]
            told = [name, str(rank), *(f"{score:.3f}" for score in scores), f"{seconds:.0f}"]
            print(f"| {' | '.join(told)} |", flush=True)


def main(given: list[str] | None = None) -> None:
    """Run what is not in the folder yet, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rivals", default="rivals/bin/python", help="interpreter with cnmf and scanpy")
    parser.add_argument("--ranks", type=int, nargs="+", default=[6, 10], help="numbers of programs")
    parser.add_argument("--methods", nargs="+", default=["ours", "hierarchical", *RIVALS], help="what to run",
                        choices=[*OURS, *RIVALS])  # fmt: skip
    parser.add_argument("--out", type=Path, default=HERE / "cells", help="folder of results")
    parser.add_argument("--one", nargs=3, metavar=("METHOD", "RANK", "RESULT"), help="run one of ours (used inside)")
    parser.add_argument("--clusters", action="store_true", help="compare clusters of cells with their types")
    options = parser.parse_args(given)
    if options.clusters:
        print_clusters()
        return
    if options.one:
        method, rank, result = options.one
        Path(result).write_text(json.dumps(ours(method, int(rank))))
        return
    options.out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        counts = Path(folder) / "counts.h5ad"
        write_counts(counts)
        rival = [options.rivals, "-P", str(HERE / "cells_rivals.py")]
        marked = run_once([*rival, "markers", str(counts), str(path := options.out / "markers.json")], path)
        print(f"markers: {marked['version']}\n")
        heads = [f"{kind}, {labels}: NMI / ARI" for labels in ("subpop", "celltype") for kind in ("share", "lift")]
        head = ["method", "K", *(f"{name}: of 20" for name in TYPES), *heads, "wall s", "CPU s", "MB"]
        print(f"| {' | '.join(head)} |\n|{'---|' * len(head)}")
        for rank in options.ranks:
            for method in options.methods:
                path = options.out / f"{method}_{rank}.json"
                own = [sys.executable, "-m", "benchmarks.cells", "--one", method, str(rank), str(path)]
                other = [*rival, method, str(counts), str(path), str(rank)]
                found = run_once(own if method in OURS else other, path)
                line = line_of(method, rank, found, marked["genes"]["celltype"])
                line[0] = f"{method} ({found['version']})"
                print(f"| {' | '.join(line)} |", flush=True)


if __name__ == "__main__":
    main()
