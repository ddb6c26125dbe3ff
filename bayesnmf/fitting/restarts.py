"""Several starts, of which the best is kept: what map, vi and bld share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from bayesnmf.fitting.job import Job
from bayesnmf.inference.starts.racing import as_interrupted
from bayesnmf.inference.status import INTERRUPTED

FIRST_ALONE = ("race", "svd", "descent")  # starts that would be much the same again


def best_of(job: Job, climb: Callable[[Any, np.random.Generator, str], Any]) -> tuple[Any, dict[str, float]]:
    """Climb from as many starts as the options ask for; return where the highest ended, and how many were finished.

    Parameters
    ----------
    climb : callable
        Takes a start, a random generator and a label for progress; returns a named tuple with a `trace` and a `status`.
        The first start is that of a single run with the same seed; after one that is made from the counts all others
        are random. After Ctrl-C the best so far is kept.
    """
    best: Any = None
    highest = -np.inf
    finished: list[float] = []
    left = False
    for restart in range(job.options.restarts):
        rng = np.random.default_rng(job.seed if restart == 0 else [job.seed, restart])
        label = f"{job.method} {job.model}" + (f", start {restart + 1}" if job.options.restarts > 1 else "")
        start = job.options.start
        if restart and start in FIRST_ALONE:
            start = "random"
        try:
            found = climb(start, rng, label)
            if not found.trace:
                raise KeyboardInterrupt
        except KeyboardInterrupt:  # before its first iterate
            if best is None:
                raise
            left = True
            break
        end = found.trace[-1] if found.trace and not np.isnan(found.trace[-1]) else -np.inf
        if best is None or end > highest:
            best, highest = found, end
        if found.status.reason == INTERRUPTED:
            left = True
            break
        finished.append(end)
    if left:
        best = as_interrupted(best)
    if job.options.restarts == 1:
        return best, {}
    worst = {"worst_restart": float(min(finished))} if finished else {}
    return best, {"restarts": float(len(finished)), **worst}
