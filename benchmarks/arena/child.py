"""Run one tool once, in its own Python: `python -m benchmarks.arena.child MODULE WAY FOLDER`.

FOLDER has counts.npz and job.json. It gets result.npz, the arrays of the tool, and told.json: its version, seconds of
the clock and of the processor, peak memory beyond that before the fit (Linux), and the lines of code of the call.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import json
import resource
import sys
import textwrap
import time
import warnings
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
from scipy.sparse import csr_array

from benchmarks.arena.tools import Job, Way

SMALL = 40  # rows of the first fit, which is not timed


def read_job(folder: Path) -> Job:
    """Return the job that the arena wrote."""
    told = json.loads((folder / "job.json").read_text())
    with np.load(folder / "counts.npz") as arrays:
        parts = arrays["data"], arrays["indices"], arrays["indptr"]
        counts = csr_array(parts, shape=tuple(arrays["shape"]))
        catalogue = arrays["catalogue"] if "catalogue" in arrays.files else None
    return Job(counts, catalogue=catalogue, **told)


def lines_of(way: Way) -> int:
    """Return the number of lines of the function that calls the tool, without its docstring and its types."""
    function: Any = ast.parse(textwrap.dedent(inspect.getsource(way.call))).body[0]
    function.body = function.body[1:]
    return len(ast.unparse(function).splitlines()) - 1


def used() -> tuple[float, float]:
    """Return seconds of the clock, and of the processor with those of processes that have ended."""
    both = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return time.perf_counter(), sum(each.ru_utime + each.ru_stime for each in both)


def memory(name: str) -> float:
    """Return memory of this process in MB: VmRSS is what it has now, VmHWM the most since `forget_peak`."""
    line = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith(name))
    return int(line.split()[1]) / 1024


def forget_peak() -> None:
    """Let the peak memory of this process begin again with what it has now."""
    Path("/proc/self/clear_refs").write_text("5")


def of_largest_child() -> float:
    """Return the peak memory in MB of the largest process that this one started and that has ended."""
    return resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024


def main(module: str, name: str, folder: Path) -> None:
    """Fit and write."""
    warnings.simplefilter("ignore")
    tool = importlib.import_module(f"benchmarks.arena.tools.{module}")
    way: Way = tool.WAYS[name]
    job = read_job(folder)
    if way.warm:
        few = csr_array(job.counts[:SMALL])
        way.call(Job(few, min(job.rank, 3), 0, job.threads, job.catalogue), **way.settings)
    forget_peak()
    before, begun = memory("VmRSS"), used()
    found = way.call(job, **way.settings)
    ended, megabytes = used(), max(memory("VmHWM") - before, of_largest_child())
    np.savez(folder / "result.npz", **found)
    told = {"version": version(tool.VERSION), "seconds": ended[0] - begun[0], "cpu": ended[1] - begun[1]}
    told |= {"MB": megabytes, "lines": lines_of(way)}
    (folder / "told.json").write_text(json.dumps(told))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], Path(sys.argv[3]))
