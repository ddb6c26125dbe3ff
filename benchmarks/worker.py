"""Run one tool in its own process, controlled over a pipe: `python -m benchmarks.worker FOLDER`.

The process needs NumPy, SciPy and the tool, not bayesnmf, and uses the tool's own interpreter. `FOLDER` contains
job.json, counts.npz and start.npz. Messages are lines of JSON. The parent sends the permitted number of seconds; the
tool fits until they are used up, and answers with the seconds used and a file of factors. The clock stops in between.
On request, the answer also has functionals of the factors after every iteration.
"""

from __future__ import annotations

import ctypes
import gc
import importlib
import json
import os
import resource
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from benchmarks.formulas import largest_share, sparse_loglik_per_count

Array = NDArray[Any]
Export = Callable[[], dict[str, Array]]


class Finished(Exception):  # noqa: N818 - not an error
    """The parent requests nothing more."""


@dataclass(frozen=True)
class Job:
    """Problem to fit.

    Attributes
    ----------
    counts : csr_array (n, m)
        Counts in float64, which the tool converts.
    start : dict of ndarray
        Factors `loadings` (n, K) and `components` (K, m), and Dirichlet parameters `gamma` and `nu` of these shapes.
    rank, threads, seed : int
    task : str
        One of `benchmarks.tools.TASKS`.
    alpha, eta : float
        Concentrations of the priors of loadings and components.
    settings : dict
        Settings of the tool.
    """

    counts: csr_array
    start: dict[str, Array]
    rank: int
    threads: int
    seed: int
    task: str
    alpha: float
    eta: float
    settings: dict[str, Any]


def peak_megabytes() -> float:
    """Return the peak resident size of this process since `forget_peak`, or since its start if it cannot be reset."""
    status = Path("/proc/self/status")
    if status.exists():
        lines = [line for line in status.read_text(encoding="ascii").splitlines() if line.startswith("VmHWM")]
        return int(lines[0].split()[1]) / 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (2**20 if sys.platform == "darwin" else 1024)


def release_memory() -> None:
    """Return memory that set-up has freed to the system, as it would hide the memory of the fit (glibc)."""
    gc.collect()
    if trim := getattr(ctypes.CDLL(None), "malloc_trim", None):
        trim(0)


def forget_peak() -> None:
    """Reset the peak to the present size (Linux)."""
    if os.access("/proc/self/clear_refs", os.W_OK):
        Path("/proc/self/clear_refs").write_text("5", encoding="ascii")


class Clock:
    """Clock that counts the seconds of the fit only, and stops the tool when the permitted seconds are used up.

    A tool calls `start` when it is ready, and `tick` after every iteration with a function that returns its factors.
    """

    def __init__(self, folder: Path, send: Callable[[dict[str, Any]], None], counts: Any) -> None:
        self.folder, self.send, self.counts, self.looking = folder, send, counts, False
        self.seconds, self.iterations, self.until, self.answers = 0.0, 0, 0.0, 0
        self.base, self.peak = 0.0, 0.0
        self.durations: list[float] = []
        self.values: list[tuple[float, float]] = []
        self.created = self.began = time.perf_counter()

    def start(self, version: str) -> None:
        """Report that the fit may begin, and wait for seconds."""
        release_memory()
        forget_peak()
        self.base = peak_megabytes()
        self.send({"ready": True, "setup": time.perf_counter() - self.created, "version": version})
        self._wait()

    def tick(self, export: Export) -> None:
        """Record that an iteration is done."""
        taken = time.perf_counter() - self.began
        if not self.looking:  # evaluating the factors leaves the caches cold
            self.durations.append(taken)
        self.seconds += taken
        self.iterations += 1
        self._after(export)

    def tick_whole(self, export: Export, iterations: int) -> None:
        """Record a fit of this number of iterations from the start: its seconds are those of this fit only."""
        self.seconds = time.perf_counter() - self.began
        self.iterations = iterations
        self.durations = [self.seconds / iterations]
        self._after(export)

    def _after(self, export: Export) -> None:
        self.peak = max(self.peak, peak_megabytes())
        if self.looking:
            factors = export()
            loglik = sparse_loglik_per_count(self.counts, factors["loadings"], factors["components"])
            self.values.append((loglik, largest_share(self.counts, factors["loadings"])))
            forget_peak()  # memory for evaluating a state is not the tool's
        if self.seconds >= self.until:
            self._answer(export)
            forget_peak()
            self._wait()
        self.began = time.perf_counter()

    def _answer(self, export: Export) -> None:
        self.answers += 1
        file = self.folder / f"factors_{self.answers}.npz"
        np.savez(file, **export())
        answer = {"seconds": self.seconds, "iterations": self.iterations, "file": str(file)}
        answer |= {"megabytes": self.peak - self.base, "median": float(np.median(self.durations))}
        self.send(answer | {"values": self.values})
        self.values = []

    def _wait(self) -> None:
        line = sys.stdin.readline()
        if not line or "until" not in (message := json.loads(line)):
            raise Finished
        self.until, self.looking = message["until"], message["look"]
        self.began = time.perf_counter()


def load(folder: Path) -> tuple[Job, str]:
    """Return a job, and the tool's function, which it names as module:name."""
    described = json.loads((folder / "job.json").read_text(encoding="utf-8"))
    shared = Path(described.pop("problem"))
    function = described.pop("function")
    with np.load(shared / "counts.npz") as file:
        counts = csr_array((file["data"], file["indices"], file["indptr"]), shape=tuple(file["shape"]))
    with np.load(shared / "start.npz") as file:
        start = dict(file)
    return Job(counts=counts, start=start, **described), function


def main() -> int:
    """Run one tool until the parent stops it."""
    channel = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # output of a tool goes to its errors

    def send(message: dict[str, Any]) -> None:
        channel.write(json.dumps(message) + "\n")

    folder = Path(sys.argv[1])
    job, function = load(folder)
    clock = Clock(folder, send, job.counts)
    module, name = function.split(":")
    try:
        getattr(importlib.import_module(module), name)(job, clock)
    except ModuleNotFoundError as error:
        send({"missing": str(error)})
        return 1
    except Finished:
        return 0
    send({"missing": "it ended by itself"})
    return 1


if __name__ == "__main__":
    sys.exit(main())
