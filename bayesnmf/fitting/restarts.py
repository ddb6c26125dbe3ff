"""Run map, vi or bld from several starts and keep the best."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from bayesnmf.fitting.job import Job
from bayesnmf.inference.ascent.climbing import as_interrupted
from bayesnmf.inference.status import INTERRUPTED
from bayesnmf.options.defaults import varied_start


def from_counts(start: Any) -> bool:
    """Return whether a start is made from the counts, so that it would be similar if repeated."""
    return isinstance(start, str) and start in ("svd", "descent")


def best_of_restarts(job: Job, climb: Callable[[Any, np.random.Generator, str], Any]) -> tuple[Any, dict[str, float]]:
    """Run from `restarts` starts; return the result with the highest objective, and diagnostics of the restarts.

    The first start is the same as that of a single run with this seed. If it is made from the counts, all others are
    random. After Ctrl-C the best result so far is returned.

    Parameters
    ----------
    climb : callable
        Function of a start, a random generator and a label for progress that returns a named tuple with a `trace` and a
        `status`.
    """
    best: Any = None
    highest = -np.inf
    finished: list[float] = []
    stopped = False
    for restart in range(job.options.restarts):
        rng = np.random.default_rng(job.seed if restart == 0 else [job.seed, restart])
        label = f"{job.method} {job.model}" + (f", start {restart + 1}" if job.options.restarts > 1 else "")
        start = job.options.start
        if restart and from_counts(start):
            start = varied_start(job.options, job.counts.in_memory)
        try:
            found = climb(start, rng, label)
            if not found.trace:
                raise KeyboardInterrupt
        except KeyboardInterrupt:  # before the first iterate of this start
            if best is None:
                raise
            stopped = True
            break
        end = found.trace[-1] if found.trace and not np.isnan(found.trace[-1]) else -np.inf
        if best is None or end > highest:
            best, highest = found, end
        if found.status.reason == INTERRUPTED:
            stopped = True
            break
        finished.append(end)
    if stopped:
        best = as_interrupted(best)
    if job.options.restarts == 1:
        return best, {}
    worst = {"worst_restart": float(min(finished))} if finished else {}
    return best, {"restarts": float(len(finished)), **worst}
