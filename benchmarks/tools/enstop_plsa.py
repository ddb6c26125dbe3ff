"""Fit by enstop: PLSA by EM."""

from __future__ import annotations

from functools import partial
from importlib.metadata import version

import numpy as np
from enstop.plsa import plsa_e_step, plsa_m_step

from benchmarks.worker import Clock, Job

THRESHOLD = np.float32(1e-32)  # its default


def plsa(job: Job, clock: Clock) -> None:
    """Fit PLSA by the body of `plsa_fit_inner`, without its tests of the likelihood; loadings are proportions."""
    counts = job.counts.tocoo().astype(np.float32)
    rows, columns = (counts.coords[axis].astype(np.int32) for axis in (0, 1))
    loadings = job.start["loadings"]
    topics = np.ascontiguousarray(job.start["components"], np.float32)
    sums = loadings.sum(axis=1, keepdims=True)
    documents = np.divide(loadings, sums, out=np.full_like(loadings, 1 / job.rank), where=sums > 0).astype(np.float32)
    clock.start(version("enstop"))
    shares = np.zeros((len(rows), job.rank), np.float32)
    topic_sums, document_sums = np.zeros(job.rank, np.float32), np.zeros(len(documents), np.float32)
    while True:
        plsa_e_step(rows, columns, counts.data, topics, documents, shares, THRESHOLD)
        plsa_m_step(rows, columns, counts.data, topics, documents, shares, topic_sums, document_sums)
        clock.tick(partial(dict, loadings=documents, components=topics))
