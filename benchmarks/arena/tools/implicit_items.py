"""implicit: alternating least squares, and Bayesian personalised ranking, of users and items."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from benchmarks.arena.tools import Array, Job, Way

NAME, REQUIREMENTS, VERSION = "implicit", ("implicit==0.7.3",), "implicit"


def als(job: Job, **settings: Any) -> Mapping[str, Array]:
    """Fit AlternatingLeastSquares."""
    from implicit.als import AlternatingLeastSquares

    model = AlternatingLeastSquares(job.rank, random_state=job.seed, num_threads=job.threads, **settings)
    return _factors(model, job)


def bpr(job: Job, **settings: Any) -> Mapping[str, Array]:
    """Fit BayesianPersonalizedRanking."""
    from implicit.bpr import BayesianPersonalizedRanking

    model = BayesianPersonalizedRanking(job.rank, random_state=job.seed, num_threads=job.threads, **settings)
    return _factors(model, job)


def _factors(model: Any, job: Job) -> Mapping[str, Array]:
    from scipy.sparse import csr_matrix

    model.fit(csr_matrix(job.counts.astype(np.float32)), show_progress=False)
    return {"loadings": model.user_factors, "components": model.item_factors.T}


WAYS = {
    "ALS, defaults": Way(("items",), als),
    "ALS, regularization=0.1": Way(("items",), als, {"regularization": 0.1}),
    "BPR, defaults": Way(("items",), bpr),
}
