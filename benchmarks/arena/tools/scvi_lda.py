"""scvi-tools: amortised LDA, of cells, on the CPU."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from benchmarks.arena.tools import Array, Job, Way

NAME, REQUIREMENTS, VERSION = "scvi-tools", ("scvi-tools==1.5.1",), "scvi-tools"


def lda(job: Job, **settings: Any) -> Mapping[str, Array]:
    """Fit AmortizedLDA."""
    import anndata
    import scvi
    from scipy.sparse import csr_matrix

    scvi.settings.seed = job.seed
    adata = anndata.AnnData(csr_matrix(job.counts.astype(np.float32)))
    scvi.model.AmortizedLDA.setup_anndata(adata)
    model = scvi.model.AmortizedLDA(adata, n_topics=job.rank)
    model.train(accelerator="cpu", enable_progress_bar=False, **settings)
    shares, genes = model.get_latent_representation(adata), model.get_feature_by_topic()
    return {"loadings": np.asarray(shares, np.float64), "components": np.asarray(genes, np.float64).T}


WAYS = {"AmortizedLDA, 50 epochs": Way(("cells",), lda, {"max_epochs": 50})}
