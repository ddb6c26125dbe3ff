"""Fit by gensim: LdaModel in batch and online."""

from __future__ import annotations

from itertools import pairwise

import gensim
import numpy as np
from gensim.models import LdaModel

from benchmarks.worker import Clock, Job

Document = list[tuple[int, float]]


def prepared(job: Job, **settings: object) -> tuple[LdaModel, list[Document]]:
    """Return a model that starts from the topics of the job, and the documents in gensim's format."""
    m = job.counts.shape[1]
    bounds, words, data = job.counts.indptr, job.counts.indices.tolist(), job.counts.data.tolist()
    corpus = [list(zip(words[a:b], data[a:b], strict=True)) for a, b in pairwise(bounds)]
    model = LdaModel(
        num_topics=job.rank, id2word={j: str(j) for j in range(m)}, alpha=[job.alpha] * job.rank, eta=job.eta,
        random_state=job.seed, eval_every=None, **settings,
    )  # fmt: skip
    model.state.sstats[...] = job.start["nu"] - job.eta
    model.sync_state()
    return model, corpus


def batch(job: Job, clock: Clock) -> None:
    """Fit by batch variational Bayes: gensim's E step for all documents, then new topics."""
    model, corpus = prepared(job)
    clock.start(gensim.__version__)
    while True:
        _, model.state.sstats = model.inference(corpus, collect_sstats=True)
        model.sync_state()
        clock.tick(lambda: {"nu": model.state.get_lambda()})


def online(job: Job, clock: Clock) -> None:
    """Fit by online variational Bayes in chunks of 2,000 documents; a tick is a pass."""
    model, corpus = prepared(job)

    def means() -> dict[str, np.ndarray]:
        gamma, _ = model.inference(corpus)
        return {"loadings": gamma / gamma.sum(axis=1, keepdims=True), "components": model.get_topics()}

    clock.start(gensim.__version__)
    while True:
        model.update(corpus, passes=1, update_every=1)
        clock.tick(means)
