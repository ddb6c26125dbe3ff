"""Fit by tomotopy: LDA by collapsed Gibbs sampling."""

from __future__ import annotations

import numpy as np
import tomotopy

from benchmarks.worker import Clock, Job


def gibbs(job: Job, clock: Clock) -> None:
    """Fit LDAModel with fixed hyperparameters; a tick is a sweep.

    For gibbs, loadings and components are drawn from their Dirichlet conditionals given the assignments, as in the
    posterior; for held-out counts they are the means of these conditionals.
    """
    n, m = job.counts.shape
    model = tomotopy.LDAModel(k=job.rank, alpha=job.alpha, eta=job.eta, seed=job.seed)
    model.optim_interval = 0
    words = np.array([str(j) for j in range(m)])
    bounds = job.counts.indptr
    filled = np.flatnonzero(np.diff(bounds))
    for i in filled:
        entries = slice(bounds[i], bounds[i + 1])
        model.add_doc(np.repeat(words[job.counts.indices[entries]], job.counts.data[entries].astype(int)).tolist())
    model.train(0, workers=job.threads)
    features = np.array([int(word) for word in model.used_vocabs])
    lengths = np.array([len(document.words) for document in model.docs])
    row_of, word_of = np.repeat(filled, lengths), features[np.concatenate([d.words for d in model.docs])]
    rng = np.random.default_rng(job.seed)

    def factors() -> dict[str, np.ndarray]:
        topics = np.concatenate([document.topics for document in model.docs]).astype(np.int64)
        loadings = np.bincount(row_of * job.rank + topics, minlength=n * job.rank).reshape(n, job.rank) + job.alpha
        components = np.bincount(topics * m + word_of, minlength=job.rank * m).reshape(job.rank, m) + job.eta
        if job.task == "gibbs":
            loadings, components = (np.maximum(rng.standard_gamma(side), 1e-300) for side in (loadings, components))
        return {side: value / value.sum(axis=1, keepdims=True) for side, value in
                (("loadings", loadings), ("components", components))}  # fmt: skip

    clock.start(tomotopy.__version__)
    while True:
        model.train(1, workers=job.threads)
        clock.tick(factors)
