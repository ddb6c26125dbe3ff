"""Fit by scikit-learn: NMF by multiplicative updates, LatentDirichletAllocation in batch and online."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

import numpy as np
import sklearn
from joblib import Parallel
from scipy.sparse import csr_matrix
from sklearn.decomposition import LatentDirichletAllocation
from sklearn.decomposition._lda import _dirichlet_expectation_2d
from sklearn.decomposition._nmf import _multiplicative_update_h, _multiplicative_update_w

from benchmarks.worker import Clock, Job

KULLBACK_LEIBLER = 1
LEAST = float(np.finfo(np.float64).eps)


def nmf(job: Job, clock: Clock) -> None:
    """Fit NMF(solver="mu", beta_loss="kullback-leibler") by the body of its loop, without the check of convergence.

    It sets entries below 2e-16 to 0, where they stay.
    """
    dtype = np.dtype(job.settings["dtype"])
    counts = csr_matrix(job.counts, dtype=dtype)
    W, H = job.start["loadings"].astype(dtype), job.start["components"].astype(dtype)
    clock.start(sklearn.__version__)
    penalties = {"l1_reg_W": 0, "l2_reg_W": 0}
    while True:
        W, *_ = _multiplicative_update_w(counts, W, H, KULLBACK_LEIBLER, gamma=1.0, **penalties)
        H = _multiplicative_update_h(counts, W, H, KULLBACK_LEIBLER, l1_reg_H=0, l2_reg_H=0, gamma=1.0)
        H[H < LEAST] = 0.0
        clock.tick(partial(dict, loadings=W, components=H))


def prepared(job: Job, **settings: object) -> tuple[LatentDirichletAllocation, csr_matrix]:
    """Return a model that starts from the topics of the job."""
    model = LatentDirichletAllocation(
        job.rank, doc_topic_prior=job.alpha, topic_word_prior=job.eta, random_state=job.seed,
        n_jobs=job.threads, **settings,
    )  # fmt: skip
    counts = csr_matrix(job.counts)
    model._init_latent_vars(counts.shape[1])
    model.components_ = job.start["nu"].copy()
    model.exp_dirichlet_component_ = np.exp(_dirichlet_expectation_2d(model.components_))
    return model, counts


def lda(job: Job, clock: Clock) -> None:
    """Fit LatentDirichletAllocation(learning_method="batch"); a tick is a pass."""
    model, counts = prepared(job)
    with started(model, counts) as parallel:
        clock.start(sklearn.__version__)
        while True:
            model._em_step(counts, total_samples=counts.shape[0], batch_update=True, parallel=parallel)
            clock.tick(lambda: {"nu": model.components_})


@contextmanager
def started(model: LatentDirichletAllocation, counts: csr_matrix) -> Iterator[Parallel]:
    """Yield a pool whose processes have started."""
    with Parallel(n_jobs=model.n_jobs) as parallel:
        model._e_step(counts[: 2 * model.n_jobs], cal_sstats=True, random_init=False, parallel=parallel)
        yield parallel


def lda_online(job: Job, clock: Clock) -> None:
    """Fit LatentDirichletAllocation(learning_method="online") with minibatches of 128; a tick is a pass."""
    model, counts = prepared(job, learning_method="online")
    n = counts.shape[0]

    def means() -> dict[str, np.ndarray]:
        gamma, _ = model._e_step(counts, cal_sstats=False, random_init=False)
        rows = model.components_ / model.components_.sum(axis=1, keepdims=True)
        return {"loadings": gamma / gamma.sum(axis=1, keepdims=True), "components": rows}

    with started(model, counts) as parallel:
        clock.start(sklearn.__version__)
        while True:
            for begin in range(0, n, model.batch_size):
                batch = counts[begin : begin + model.batch_size]
                model._em_step(batch, total_samples=n, batch_update=False, parallel=parallel)
            clock.tick(means)
