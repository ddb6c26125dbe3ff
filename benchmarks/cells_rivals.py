"""The rivals of `benchmarks.cells`, run by the interpreter of their own environment, which lacks bayesnmf.

    rivals/bin/python -P benchmarks/cells_rivals.py TASK COUNTS RESULT [RANK]

TASK is markers, cnmf or nmf. COUNTS is an h5ad of the counts with the labels of cells; RESULT a json.
"""

from __future__ import annotations

import json
import sys
import tempfile
import warnings
from importlib.metadata import version
from pathlib import Path
from typing import Any

import anndata
import numpy as np

TOP, ITERATIONS = 50, 20


def markers(adata: Any, _: int) -> dict[str, Any]:
    """Return the genes of each type with the greatest Wilcoxon scores of scanpy, after its usual normalisation."""
    import scanpy

    scanpy.pp.normalize_total(adata, target_sum=1e4)
    scanpy.pp.log1p(adata)
    found = {}
    for labels in ("celltype", "subpop"):
        scanpy.tl.rank_genes_groups(adata, labels, method="wilcoxon", n_genes=TOP)
        names = adata.uns["rank_genes_groups"]["names"]
        found[labels] = {group: names[group].tolist() for group in names.dtype.names}
    return {"version": f"scanpy {version('scanpy')}", "genes": found}


def cnmf(adata: Any, rank: int) -> dict[str, Any]:
    """Return usages and leading genes of cNMF, with its 2,000 variable genes, and 20 runs."""
    from cnmf import cNMF

    found: dict[str, Any] = {"version": f"cNMF {version('cnmf')}"}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "counts.h5ad"
        adata.write_h5ad(path)
        run = cNMF(output_dir=folder, name="cells")
        run.prepare(str(path), components=[rank], n_iter=ITERATIONS, seed=14, num_highvar_genes=2000)
        run.factorize()
        run.combine()
        for threshold in (0.5, 2.0):
            try:
                run.consensus(k=rank, density_threshold=threshold, show_clustering=False, close_clustergram_fig=True)
            except Exception as error:  # too few runs are left at 0.5
                found[f"refused at {threshold}"] = f"{type(error).__name__}: {str(error)[:200]}"
                continue
            usage, scores, _, _ = run.load_results(K=rank, density_threshold=threshold)
            usage = usage.loc[adata.obs_names]
            order = np.argsort(-np.nan_to_num(scores.to_numpy(), nan=-np.inf), axis=0)[:TOP].T
            genes = scores.index.to_numpy()[order].tolist()
            return found | {"threshold": threshold, "usage": usage.to_numpy().tolist(), "genes": {"score": genes}}
    return found


def nmf(adata: Any, rank: int) -> dict[str, Any]:
    """Return usages, in counts, and leading genes of scikit-learn's NMF of the counts by Kullback-Leibler."""
    from sklearn.decomposition import NMF

    model = NMF(rank, beta_loss="kullback-leibler", solver="mu", max_iter=500, random_state=0)
    usage = model.fit_transform(adata.X.astype(np.float64)) * model.components_.sum(axis=1)
    shares = model.components_ / model.components_.sum(axis=1, keepdims=True)
    lift = shares * np.log(np.maximum(shares, 1e-300) / np.maximum(shares.mean(axis=0), 1e-300))
    genes = adata.var_names.to_numpy()[np.argsort(-lift, axis=1)[:, :TOP]].tolist()
    return {"version": f"scikit-learn {version('scikit-learn')}", "usage": usage.tolist(), "genes": {"lift": genes}}


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    task, counts, result, *more = sys.argv[1:]
    found = {"markers": markers, "cnmf": cnmf, "nmf": nmf}[task](anndata.read_h5ad(counts), int((more or ["0"])[0]))
    Path(result).write_text(json.dumps(found))
