"""References besides the tools: the C loop of `limit.py`, and fastTopics, which needs R.

fastTopics was measured together with this C loop on another machine. Its seconds are scaled by (C loop here / C loop
there), in float64 with one thread, and marked "scaled". Most of the time of an iteration is spent on the dense
log-likelihood, so the updates alone are reported too. Its log-likelihoods on that machine, from its own random
start, need no assumption about the number of iterations.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.special import gammaln

from benchmarks.data import Problem

# Seconds there, medians: of an iteration by number of threads, and of its updates alone with one thread.
C_LOOP = {("newsgroups", 10): 0.0249, ("newsgroups", 50): 0.0883, ("pbmc_facs", 10): 0.0163, ("pbmc_facs", 50): 0.0547}
WHOLE = {
    ("newsgroups", 10): {"EM": {1: 2.09}, "SCD": {1: 2.61, 2: 2.34}, "CCD": {1: 2.47, 2: 2.35}},
    ("newsgroups", 50): {"EM": {1: 17.6}, "SCD": {1: 20.2, 2: 18.4}},
    ("pbmc_facs", 10): {"EM": {1: 0.45}, "SCD": {1: 1.00, 2: 0.54}, "CCD": {1: 0.76, 2: 0.44}},
    ("pbmc_facs", 50): {"EM": {1: 2.46}, "SCD": {1: 5.17, 2: 3.01}, "CCD": {1: 3.72, 2: 2.16}},
}
UPDATES = {
    ("newsgroups", 10): {"EM": 0.32, "SCD": 0.54, "CCD": 0.24},
    ("pbmc_facs", 10): {"EM": 0.32, "SCD": 0.51, "CCD": 0.23},
}
# Σ X log λ − Σ λ after this number of seconds there, with two threads.
SEEN = {
    ("newsgroups", 10): {"SCD": {10: -9_245_734, 50: -8_888_585}, "CCD": {10: -9_505_866, 50: -8_938_977}},
    ("pbmc_facs", 10): {"SCD": {10: 786_977, 45: 813_774}, "CCD": {10: 792_898, 42: 814_640}},
}
ALGORITHMS = {  # name, description of one iteration, and our tool with the same algorithm
    "EM": ("EM", "1 sweep, both sides", ""),
    "SCD": ("SCD, extrapolated", "4 sweeps, both sides", "ours SCD, extrapolated float64"),
    "CCD": ("CCD, extrapolated", "1 sweep, both sides", ""),
}


@dataclass(frozen=True)
class Anchor:
    """A row not measured here: its seconds per iteration, the iteration, and our tool with the same algorithm."""

    name: str
    per_iteration: float
    iteration: str
    like: str


@dataclass(frozen=True)
class Sighting:
    """Result of a tool on another machine: scaled seconds, and the log-likelihood at that time."""

    name: str
    seconds: float
    value: float


class CLoop:
    """Seconds of one allocation step by the C loop with one thread, measured repeatedly during a race; by dtype.

    Without ℓ, as on the other machine, to scale fastTopics. Empty without a C compiler.
    """

    def __init__(self, problem: Problem) -> None:
        from benchmarks.limit import Limit, NoCompilerError

        self.limits: dict[str, Limit] = {}
        self.seconds: dict[str, list[tuple[float, float]]] = {}
        if problem.rank > 64:  # beyond the range of limit.c
            return
        for dtype in ("float64", "float32"):
            matrix = problem.counts.matrix.astype(np.dtype(dtype))
            try:
                self.limits[dtype] = Limit(matrix, problem.start["loadings"], problem.start["components"])
            except NoCompilerError:
                return
            self.seconds[dtype] = []

    def sample(self) -> None:
        """Measure the seconds, with as much of the counts in the cache as fits."""
        for dtype, limit in self.limits.items():
            limit.seconds(log=False)
            self.seconds[dtype].append(limit.seconds(log=False))

    def medians(self) -> dict[str, float]:
        """Return the median seconds of the faster variant, as for the tools' iterations."""
        return {dtype: float(np.median(taken, axis=0).min()) for dtype, taken in self.seconds.items() if taken}


def _key(problem: Problem) -> tuple[str, int]:
    """Return the key of the published figures; there are none for thinned counts."""
    return problem.name if problem.keep == 1 else "", problem.rank


def fasttopics(problem: Problem, limit: dict[str, float], threads: int) -> list[Anchor]:
    """Return the scaled figures for this problem: of the whole call, and of the updates alone."""
    key = _key(problem)
    if key not in C_LOOP or "float64" not in limit:
        return []
    factor = limit["float64"] / C_LOOP[key]
    measured = []
    for algorithm, by_threads in WHOLE[key].items():
        used = min(threads, max(by_threads))
        measured.append((algorithm, f"{used} thread{'s' * (used > 1)}", by_threads[used]))
    measured += [(each, "updates alone, 1 thread", seconds) for each, seconds in UPDATES.get(key, {}).items()]
    rows = []
    for algorithm, how, seconds in measured:
        words, iteration, like = ALGORITHMS[algorithm]
        rows.append(Anchor(f"fastTopics {words}, {how}, scaled", seconds * factor, iteration, like))
    return rows


def sightings(problem: Problem, limit: dict[str, float]) -> list[Sighting]:
    """Return the value of fastTopics after some time, in seconds of this machine and with the constant Σ log X!."""
    key = _key(problem)
    if key not in SEEN or "float64" not in limit:
        return []
    factor, constant = limit["float64"] / C_LOOP[key], float(gammaln(problem.counts.matrix.data + 1).sum())
    return [
        Sighting(f"fastTopics {ALGORITHMS[algorithm][0]}, 2 threads, scaled", seconds * factor, value - constant)
        for algorithm, seen in SEEN[key].items()
        for seconds, value in seen.items()
    ]
