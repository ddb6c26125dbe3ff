"""cNMF: consensus of many runs of NMF, of cells."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from benchmarks.arena.tools import Array, Job, Way

NAME, REQUIREMENTS, VERSION = "cNMF", ("cnmf==1.7.1", "scanpy"), "cnmf"


def cnmf(job: Job, runs: int, genes: int) -> Mapping[str, Array]:
    """Fit by its steps, and take the usages and the spectra in counts."""
    import anndata
    import pandas as pd
    from cnmf import cNMF
    from scipy.sparse import csr_matrix

    n, m = job.counts.shape
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "counts.h5ad"
        names = [[f"{kind}{i}" for i in range(size)] for kind, size in (("cell", n), ("gene", m))]
        obs, var = (pd.DataFrame(index=each) for each in names)
        anndata.AnnData(csr_matrix(job.counts), obs, var).write_h5ad(path)
        model = cNMF(output_dir=folder, name="arena")
        model.prepare(str(path), components=[job.rank], n_iter=runs, seed=job.seed, num_highvar_genes=min(genes, m))
        model.factorize()
        model.combine()
        for threshold in (0.5, 2.0):  # with 0.5 too few runs may be left
            try:
                model.consensus(k=job.rank, density_threshold=threshold, show_clustering=False,
                                close_clustergram_fig=True)  # fmt: skip
            except Exception:
                if threshold == 2.0:
                    raise
                continue
            usage, _, spectra, _ = model.load_results(K=job.rank, density_threshold=threshold)
            break
    loadings = np.tile(usage.to_numpy().mean(axis=0), (n, 1))
    loadings[usage.index.get_indexer(names[0])] = usage.to_numpy()
    components = np.zeros((job.rank, m))
    components[:, [int(name[4:]) for name in spectra.index]] = spectra.to_numpy().T
    return {"loadings": loadings, "components": np.maximum(np.nan_to_num(components), 0.0)}


WAYS = {"20 runs, 2,000 genes": Way(("cells",), cnmf, {"runs": 20, "genes": 2000}, warm=False)}
