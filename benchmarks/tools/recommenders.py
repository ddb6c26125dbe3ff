"""Fit by poismf and hpfrec, which factorise Poisson counts for recommender systems."""

from __future__ import annotations

import ctypes
import time
from importlib.metadata import version

import numpy as np
from scipy.sparse import coo_matrix, csr_matrix

from benchmarks.worker import Clock, Job


def poismf_likelihood(job: Job, clock: Clock) -> None:
    """Fit PoisMF without a penalty from the start of the job, by maximum likelihood."""
    factors = job.start["loadings"], job.start["components"].T
    poismf_from(job, clock, factors, l2_reg=0.0, reuse_prev=True)


def poismf(job: Job, clock: Clock) -> None:
    """Fit PoisMF with its defaults, including penalty and start."""
    rng = np.random.default_rng(job.seed)
    poismf_from(job, clock, [0.3 + rng.uniform(0, 0.01, (size, job.rank)) for size in job.counts.shape])


def poismf_from(job: Job, clock: Clock, start: object, **settings: object) -> None:
    """Continue from given factors; a tick is an iteration of both sides."""
    from poismf import PoisMF

    counts = csr_matrix(job.counts, dtype=np.float32)
    by_row, by_column = counts, counts.tocsc()
    for each in (by_row, by_column):
        each.indptr, each.indices = each.indptr.astype(ctypes.c_size_t), each.indices.astype(ctypes.c_size_t)
    A, B = (np.array(side, np.float32, order="C") for side in start)
    model = PoisMF(job.rank, niter=1, nthreads=job.threads, use_float=True, reindex=False, **settings)
    model.fit(coo_matrix(np.eye(job.rank + 1)))  # sets up its options
    clock.start(version("poismf"))
    while True:
        model.fit_unsafe(A, B, by_row, by_column)
        clock.tick(lambda: {"loadings": model.A, "components": model.B.T})


def hpfrec(job: Job, clock: Clock) -> None:
    """Fit HPF with its defaults. It cannot continue a fit, so each answer is a new fit that is timed separately."""
    from hpfrec import HPF

    counts = job.counts.tocoo()
    clock.start(version("hpfrec"))
    iterations = 1
    while True:
        started = time.perf_counter()
        model = HPF(
            job.rank, maxiter=iterations, stop_crit="maxiter", check_every=iterations, ncores=job.threads,
            random_seed=job.seed + 1, verbose=False, reindex=False, keep_data=False,
        )  # fmt: skip
        model.fit(counts.copy())
        one = (time.perf_counter() - started) / iterations
        clock.tick_whole(lambda m=model: {"loadings": m.Theta, "components": m.Beta.T}, iterations)
        iterations = max(iterations + 1, int(clock.until / one))
