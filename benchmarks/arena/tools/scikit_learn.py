"""scikit-learn: LDA by variational inference, and NMF by Kullback-Leibler divergence."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from benchmarks.arena.tools import Array, Job, Way

NAME, REQUIREMENTS, VERSION = "scikit-learn", ("scikit-learn==1.9.1",), "scikit-learn"


def lda(job: Job, **settings: Any) -> Mapping[str, Array]:
    """Fit LatentDirichletAllocation."""
    from sklearn.decomposition import LatentDirichletAllocation

    model = LatentDirichletAllocation(job.rank, random_state=job.seed, n_jobs=job.threads, **settings)
    loadings = model.fit_transform(job.counts)
    return {"loadings": loadings, "components": model.components_ / model.components_.sum(axis=1, keepdims=True)}


def nmf(job: Job, **settings: Any) -> Mapping[str, Array]:
    """Fit NMF by multiplicative updates."""
    from sklearn.decomposition import NMF

    given = {"beta_loss": "kullback-leibler", "solver": "mu", "random_state": job.seed, **settings}
    model = NMF(job.rank, **given)
    return {"loadings": model.fit_transform(job.counts), "components": model.components_}


def best_nmf(job: Job, starts: int, **settings: Any) -> Mapping[str, Array]:
    """Fit NMF from several starts, and keep the one of least divergence."""
    from sklearn.decomposition import NMF

    given = {"beta_loss": "kullback-leibler", "solver": "mu", "init": "random", **settings}
    models = [NMF(job.rank, random_state=job.seed + each, **given) for each in range(starts)]
    loadings = [model.fit_transform(job.counts) for model in models]
    best = int(np.argmin([model.reconstruction_err_ for model in models]))
    return {"loadings": loadings[best], "components": models[best].components_}


PRIORS = {"doc_topic_prior": 0.1, "topic_word_prior": 0.05}
WAYS = {
    "LDA, defaults": Way(("texts", "cells"), lda),
    "LDA, 50 iterations, 0.1 and 0.05": Way(("texts",), lda, {"max_iter": 50, **PRIORS}),
    "NMF by KL, 200 iterations": Way(("texts", "cells", "signatures", "images", "items"), nmf),
    "NMF by KL, 1,000 iterations": Way(("cells", "signatures", "images"), nmf, {"max_iter": 1000, "tol": 1e-6}),
    "NMF by KL, best of ten starts": Way(("signatures",), best_nmf, {"starts": 10, "max_iter": 1000, "tol": 1e-6}),
}
