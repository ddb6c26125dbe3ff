"""Run a fit of counts in batches, whose features have factors in each."""

from __future__ import annotations

from dataclasses import replace

from bayesnmf.data.batched import BatchedCounts
from bayesnmf.fitting.job import Job
from bayesnmf.options import METHODS
from bayesnmf.results.record import FitRecord


def run_with_batch(job: Job) -> FitRecord:
    """Run the method of a job for counts in batches, and return the record of its fit."""
    shape = job.counts.batch.shape
    counts = BatchedCounts.in_batches(job.counts, shape, learned=shape is None)
    found = METHODS[job.method].run(replace(job, counts=counts))
    return replace(found, counts=job.counts, noise=job.noise)
