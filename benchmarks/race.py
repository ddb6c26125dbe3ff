"""Run each tool in its own process, in turns: only one runs at a time, and drift of the machine affects all equally."""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.data import ROOT, Problem
from benchmarks.tools import Tool

Array = NDArray[Any]
Evaluate = Callable[[dict[str, Array]], float]

SET_UP_SECONDS = 600  # compilation and conversion of the counts
SLOWEST = 20  # largest ratio of a tool's time for an answer to its permitted time, plus:
SPARE_SECONDS = 300


@dataclass(frozen=True)
class Checkpoint:
    """Seconds of fitting, iterations, objective, and the increase of the peak memory since before the fit (MB)."""

    seconds: float
    iterations: int
    value: float
    megabytes: float


@dataclass
class Run:
    """Results of one tool.

    Attributes
    ----------
    tool : Tool
    version : str
    setup : float
        Seconds before the fit, for imports, compilation and conversion of the counts.
    checkpoints : list of Checkpoint
        Checkpoints, beginning with the start.
    per_iteration : float
        Median seconds of one iteration.
    draws : list of pairs of float
        For every sweep in the second half of the budget (gibbs only): training log-likelihood per count, and share of
        the counts in the largest component.
    chain : int
        Number of the chain; a sampling tool has several.
    missing : str
        Reason why there is no result, or no further one.
    """

    tool: Tool
    version: str = ""
    setup: float = 0.0
    checkpoints: list[Checkpoint] = field(default_factory=list)
    per_iteration: float = float("nan")
    draws: list[tuple[float, float]] = field(default_factory=list)
    chain: int = 0
    missing: str = ""


class Worker:
    """Process of one tool."""

    def __init__(self, run: Run, folder: Path, terms: Terms) -> None:
        self.log = (folder / "stderr.txt").open("wb")
        names = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS")
        environment = os.environ | dict.fromkeys(names, str(terms.threads))
        environment |= {"PYTHONPATH": str(ROOT), "PYTHONWARNINGS": "ignore"}
        python = terms.pythons.get(run.tool.peer, sys.executable)
        self.process = subprocess.Popen(
            [python, "-m", "benchmarks.worker", str(folder)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.log, env=environment,
        )  # fmt: skip
        self.run = run

    def receive(self, timeout: float) -> dict[str, Any]:
        """Return the next message, or one that says that the process has ended or takes too long."""
        assert self.process.stdout is not None
        if not select.select([self.process.stdout], [], [], timeout)[0]:
            self.process.kill()
            return {"missing": f"no answer within {timeout:.0f} s"}
        line = self.process.stdout.readline()
        return json.loads(line) if line else {"missing": f"ended with an error, see {self.log.name}"}

    def set_up(self) -> None:
        """Wait until the tool is ready to fit."""
        message = self.receive(SET_UP_SECONDS)
        self.run.missing = message.get("missing", "")
        self.run.version, self.run.setup = message.get("version", ""), message.get("setup", 0.0)

    def advance(self, until: float, evaluate: Evaluate | None, look: bool) -> None:
        """Let the tool fit up to this number of seconds, and evaluate its factors then.

        With `look`, keep the draws after every iteration.
        """
        assert self.process.stdin is not None
        try:  # bypass the buffer, which could not be closed if the process has ended
            os.write(self.process.stdin.fileno(), (json.dumps({"until": until, "look": look}) + "\n").encode())
        except BrokenPipeError:
            self.run.missing = f"ended with an error, see {self.log.name}"
            return
        message = self.receive(SLOWEST * until + SPARE_SECONDS)
        if "missing" in message:
            self.run.missing = message["missing"]
            return
        file = Path(message["file"])
        value = float("nan")
        if evaluate is not None:
            with np.load(file) as factors:
                value = evaluate(dict(factors))
        file.unlink()
        self.run.per_iteration = message["median"]
        self.run.draws += map(tuple, message["values"])
        here = Checkpoint(message["seconds"], message["iterations"], value, message["megabytes"])
        self.run.checkpoints.append(here)

    @property
    def used(self) -> float:
        """Seconds of fitting so far."""
        return self.run.checkpoints[-1].seconds if self.run.checkpoints else 0.0

    def close(self) -> None:
        """End the process."""
        if self.process.stdin is not None:
            self.process.stdin.close()
        try:
            self.process.wait(30)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        if self.process.stdout is not None:
            self.process.stdout.close()
        self.log.close()


def grid(budget: float, stride: float, least: float = 0.05) -> Array:
    """Return the seconds of all checkpoints: a geometric series that ends at the budget."""
    steps = max(int(np.floor(np.log(budget / least) / np.log(stride))), 0)
    return budget / stride ** np.arange(steps, -1, -1.0)


def write_job(problem: Problem, task: str, run: Run, threads: int, folder: Path) -> None:
    """Write the job of a worker into the folder of the counts and the start."""
    module, function = run.tool.function.split(":")
    job: dict[str, Any] = {
        "problem": str(folder.parent),
        "function": f"benchmarks.tools.{module}:{function}",
        "task": task,
    }
    seed = problem.seed + run.chain
    job |= {"rank": problem.rank, "threads": threads, "seed": seed, "settings": run.tool.settings}
    job |= {"alpha": problem.alpha, "eta": problem.eta}
    (folder / "job.json").write_text(json.dumps(job), encoding="utf-8")


def write_problem(problem: Problem, folder: Path) -> None:
    """Write the counts and the start."""
    matrix = problem.counts.matrix
    arrays = {"data": matrix.data, "indices": matrix.indices, "indptr": matrix.indptr, "shape": matrix.shape}
    np.savez(folder / "counts.npz", **arrays)
    np.savez(folder / "start.npz", **problem.start)


@dataclass(frozen=True)
class Terms:
    """Conditions for all tools of a race.

    Attributes
    ----------
    budget : float
        Seconds of fitting for each tool.
    stride : float
        Ratio between the seconds of successive checkpoints.
    threads : int
    pythons : dict
        Interpreters by peer, if they differ from this one.
    chains : int
        Number of processes of each tool, with different seeds.
    """

    budget: float
    stride: float = 1.25
    threads: int = 2
    pythons: dict[str, str] = field(default_factory=dict)
    chains: int = 1


def race(
    problem: Problem, task: str, tools: list[Tool], terms: Terms, folder: Path, evaluate: Evaluate | None,
    between: Callable[[], None] | None = None,
) -> list[Run]:  # fmt: skip
    """Fit the problem with every tool, in rounds.

    Parameters
    ----------
    evaluate : callable or None
        Function that evaluates the factors of a checkpoint, while no tool runs. Without it values are NaN, and the
        draws in the second half of the budget are evaluated one by one.
    between : callable, optional
        Function called before every round, while no tool runs.
    """
    write_problem(problem, folder)
    workers: list[Worker] = []
    try:
        for number, (chain, tool) in enumerate(product(range(terms.chains), tools)):
            own = folder / f"tool_{number}"
            own.mkdir()
            run = Run(tool, chain=chain)
            write_job(problem, task, run, terms.threads, own)
            workers.append(Worker(run, own, terms))
            workers[-1].set_up()  # one after the other: no tool compiles while another is timed
        for until in grid(terms.budget, terms.stride, min(0.05, terms.budget / terms.stride)).tolist():
            if between is not None:
                between()
            for worker in workers:
                if not worker.run.missing and worker.used < until:
                    worker.advance(until, evaluate, look=evaluate is None and until > terms.budget / 2)
    finally:
        for worker in workers:
            worker.close()
    return [worker.run for worker in workers]
