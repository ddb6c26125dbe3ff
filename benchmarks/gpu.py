"""Measure seconds per iteration and memory of whole fits on a device and on the host: newsgroups, stacked 30 times.

    uv run python -m benchmarks.gpu [--copies 30] [--rank 50] [--device gpu] [--lanes 0 8] [--iterations 20]

The loop is that of the host, with counts and factors on the device. Stacked 30 times, newsgroups has 73 million
nonzeros. Iterations are timed after the first objective, so that transfer of the counts and compilation do not count;
they are reported separately. "gap" is the largest relative difference of the objectives from the host's, in the same
type.
`--device cpu` runs the same code on JAX's CPU backend, which only shows that it works. `--lanes` compares the lanes of
a warp that share a segment in `bayesnmf.kernels.gpu.warps`; 0 are XLA's sums.
"""

from __future__ import annotations

import argparse
import json
import time
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
from scipy.sparse import csr_array, vstack

from bayesnmf import MAP, VI
from bayesnmf.data.conversion import as_counts
from bayesnmf.data.counts import Counts
from bayesnmf.fitting.closed_form import schedule_of
from bayesnmf.fitting.job import resolve_priors
from bayesnmf.fitting.problems import point_or_mean_field, start_state
from bayesnmf.inference.ascent.coordinate_ascent import ascend
from bayesnmf.inference.ascent.course import Schedule
from bayesnmf.inference.device.checks import find_gpus
from bayesnmf.inference.device.placing import run_on_devices
from bayesnmf.inference.problem import Problem, State
from bayesnmf.kernels.gpu import allocation
from benchmarks.published.common import real_counts

METHODS: dict[str, tuple[str, type[MAP | VI]]] = {"map": ("poisson", MAP), "vi": ("gamma_poisson", VI)}


def stacked(counts: Counts, copies: int) -> csr_array:
    """Return the rows of a count matrix, repeated several times."""
    return csr_array(vstack([counts.matrix] * copies, format="csr"))


def problem_and_start(matrix: csr_array, method: str, rank: int, dtype: str) -> tuple[Problem, State, Schedule]:
    """Build the problem of a method with default priors, and a random start."""
    model, options_of = METHODS[method]
    counts = as_counts(matrix, dtype=dtype)
    options = options_of(dtype=dtype, tol=0)  # type: ignore[arg-type]
    options = replace(options, priors=resolve_priors(model, counts, rank, options.priors))
    problem = point_or_mean_field(counts, options)
    return problem, start_state(problem, "random", rank, np.random.default_rng(0)), schedule_of(options)


def on_host(problem: Problem, state: State, schedule: Schedule, iterations: int) -> tuple[dict[str, Any], list[float]]:
    """Time the Numba code: return the median over iterations after the first, and the objectives."""
    times: list[float] = []
    schedule = replace(schedule, max_iter=iterations + 1)
    found = ascend(problem, state, schedule, progress=lambda *_: times.append(time.perf_counter()))
    return {"seconds": float(np.median(np.diff(times)[1:]))}, found.trace


def measured(
    device: Any, given: tuple[Problem, State, Schedule], iterations: int
) -> tuple[dict[str, Any], list[float]]:
    """Time the iterations on a device after the first objective, which includes transfer and compilation."""
    problem, state, schedule = given
    times = [time.perf_counter()]
    schedule = replace(schedule, max_iter=iterations)

    def tick(*_: Any) -> None:
        times.append(time.perf_counter())

    found = run_on_devices([device], partial(ascend, schedule=schedule, progress=tick), problem, state)
    peak = (device.memory_stats() or {}).get("peak_bytes_in_use")
    return {
        "seconds": float(np.median(np.diff(times)[2:])),
        "until the first objective": times[1] - times[0],
        "peak GB": None if peak is None else peak / 1e9,
    }, found.trace


def main() -> None:
    """Measure both methods in both types, and print one line for each."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--data", default="newsgroups")
    parser.add_argument("--copies", type=int, default=30)
    parser.add_argument("--rank", type=int, default=50)
    parser.add_argument("--iterations", type=int, default=20, help="number on the device (default: %(default)s)")
    parser.add_argument("--host-iterations", type=int, default=3, help="0 skips the host (default: %(default)s)")
    parser.add_argument("--device", choices=("gpu", "cpu"), default="gpu")
    parser.add_argument("--lanes", type=int, nargs="*", help="lanes to compare (default: those that a fit takes)")
    parser.add_argument("--dtypes", nargs="*", default=["float32", "float64"])
    parser.add_argument("--out", type=Path, help="JSON file to write")
    options = parser.parse_args()
    if options.device == "gpu":
        device = find_gpus("gpu")[0]
    else:
        import jax

        device = jax.devices("cpu")[0]
    matrix = stacked(real_counts(options.data), options.copies)
    print(
        f"{matrix.shape[0]:,} x {matrix.shape[1]:,}, {matrix.nnz:,} nonzeros, rank {options.rank}, {device.device_kind}"
    )
    table = []
    for method in METHODS:
        for dtype in options.dtypes:
            given = problem_and_start(matrix, method, options.rank, dtype)
            host, expected = on_host(*given, options.host_iterations) if options.host_iterations else ({}, [])
            for lanes in options.lanes or [allocation.lanes_on(device, options.rank)]:
                row: dict[str, Any] = {"method": method, "dtype": dtype, "lanes": lanes}
                with patch.object(allocation, "lanes_on", return_value=lanes):
                    row["device"], trace = measured(device, given, options.iterations)
                if host:
                    row["host"] = host
                    row["gap"] = max(abs(a / b - 1) for a, b in zip(trace, expected, strict=False))
                print(row, flush=True)
                table.append(row)
    if options.out is not None:
        options.out.parent.mkdir(parents=True, exist_ok=True)
        options.out.write_text(json.dumps(table, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
