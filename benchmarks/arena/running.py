"""Run tools, each in an environment of its own and each run in a process of its own, one after the other."""

from __future__ import annotations

import importlib
import json
import os
import pkgutil
import subprocess
import sys
import tempfile
import venv
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.arena import tools
from benchmarks.arena.judging import CPU, MEGABYTES, SECONDS, Split, judged
from benchmarks.arena.matrices import Matrix
from benchmarks.arena.tools import Way
from benchmarks.data import ROOT

OURS = "bayesnmf_here"
BESIDE = ("numpy", "scipy")
THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS")


@dataclass(frozen=True)
class Tool:
    """A file of `benchmarks.arena.tools`.

    Attributes
    ----------
    module, name : str
        Name of the file, and of the tool in tables.
    requirements : tuple of str
        What is installed for it.
    ways : dict of Way
    """

    module: str
    name: str
    requirements: tuple[str, ...]
    ways: dict[str, Way]


def find_tools() -> list[Tool]:
    """Return all tools, ours first."""
    names = sorted((each.name for each in pkgutil.iter_modules(tools.__path__)), key=lambda name: name != OURS)
    found = [(name, importlib.import_module(f"{tools.__name__}.{name}")) for name in names]
    return [Tool(name, module.NAME, tuple(module.REQUIREMENTS), dict(module.WAYS)) for name, module in found]


class Environments:
    """Makes the environment of each tool when it is first needed.

    Parameters
    ----------
    folder : Path
        Where they are made, and kept for the next run.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.refused: dict[str, str] = {}  # why a tool could not be installed

    def python(self, tool: Tool) -> Path | None:
        """Return the Python of a tool; None if it cannot be installed."""
        if not tool.requirements:
            return Path(sys.executable)
        mark = sha256(" ".join(tool.requirements).encode()).hexdigest()[:8]
        home = self.folder / f"{tool.module}-{mark}"
        python, done = home / "bin" / "python", home / "installed"
        if tool.name in self.refused:
            return None
        if not done.exists():
            venv.create(home, with_pip=True, clear=True)
            command = [str(python), "-m", "pip", "install", "-q", *tool.requirements, *BESIDE]
            result = subprocess.run(command, capture_output=True, text=True, check=False)
            if result.returncode:
                lines = [line for line in result.stderr.splitlines() if line.startswith("ERROR")]
                self.refused[tool.name] = " ".join(lines[-1:]) or f"pip ended with {result.returncode}"
                return None
            done.touch()
        return python


@dataclass(frozen=True)
class Terms:
    """Conditions of all runs.

    Attributes
    ----------
    threads : int
    limit : float
        Seconds after which a run is ended.
    """

    threads: int
    limit: float


def run(tool: Tool, way: str, python: Path, matrix: Matrix, given: Split, seed: int, terms: Terms) -> dict[str, Any]:
    """Return the figures of one run of a tool, or why there are none, as "missing"."""
    counts = given.train
    job = {"rank": matrix.rank, "seed": seed, "threads": terms.threads}
    arrays = {"data": counts.data, "indices": counts.indices, "indptr": counts.indptr, "shape": counts.shape}
    if matrix.catalogue is not None:
        arrays["catalogue"] = matrix.catalogue
    environment = os.environ | dict.fromkeys(THREADS, str(terms.threads))
    environment |= {"PYTHONPATH": str(ROOT), "PYTHONWARNINGS": "ignore"}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        np.savez(folder / "counts.npz", **arrays)
        (folder / "job.json").write_text(json.dumps(job))
        command = [str(python), "-m", "benchmarks.arena.child", tool.module, way, name]
        try:
            result = subprocess.run(
                command, cwd=folder, env=environment, capture_output=True, text=True, timeout=terms.limit, check=False
            )
        except subprocess.TimeoutExpired:
            return {"missing": f"no result within {terms.limit:.0f} s"}
        if result.returncode:
            return {"missing": (result.stderr.strip().splitlines() or [f"ended with {result.returncode}"])[-1][:200]}
        told = json.loads((folder / "told.json").read_text())
        with np.load(folder / "result.npz") as arrays_found:
            found = {side: np.asarray(arrays_found[side], np.float64) for side in arrays_found.files}
    about = {"version": told["version"], "lines": told["lines"]}
    costs = {SECONDS: told["seconds"], CPU: told["cpu"], MEGABYTES: told["MB"]}
    return {**about, "figures": {**judged(matrix, given, found), **costs}}
