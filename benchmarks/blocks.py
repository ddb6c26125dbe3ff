"""Blocks of rows on our own threads, beside the same on those of `concurrent.futures`.

    python -m benchmarks.blocks [--data pbmc_small newsgroups] [--rank 10] [--repeats 41]

prints microseconds of calls whose blocks do nothing, or run a compiled loop for so long, and of an allocation step, on
two threads. Both ways are taken in turn; the ratio is the median of the ratios of such pairs. Last, how many processes
never end of those that a signal, as Ctrl-C is one, interrupts while their first helper is being started.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, wait
from functools import cache
from itertools import pairwise
from typing import Any
from unittest.mock import patch

import numpy as np
from numba import njit
from numpy.typing import NDArray

from bayesnmf.kernels.cpu import allocation
from bayesnmf.kernels.cpu.threads import block_count, in_blocks
from benchmarks.data import ROOT, read
from benchmarks.limit import seconds_of

THREADS = 2
LEAST = 0.005  # seconds of calls timed together
LOOPS = (0.0, 1e-4, 1e-3)  # seconds of a whole call
WHEN = 5e-5, 3.5e-4  # seconds after the first call has begun, about when a thread is being started
SIZES = (THREADS, block_count(1e9))


@cache
def _executor() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(THREADS - 1)


def by_executor(
    bounds: NDArray[np.int64],
    work: Callable[[int, int, int], Any],
    threads: int | None = None,
    cuts: NDArray[np.int64] | None = None,
) -> Any:
    """Do what `in_blocks` does: the caller works, too, and waits for those alone who have begun."""
    edges = bounds.tolist()
    inner = [] if cuts is None else cuts.tolist()
    blocks = deque(zip(range(len(edges) - 1), edges[:-1], edges[1:], strict=True))
    number = len(blocks)
    found: dict[int, Any] = {}

    def run(block: int, first: int, last: int) -> list[Any]:
        pieces = pairwise([first, *(cut for cut in inner if first < cut < last), last])
        return [work(block, *piece) for piece in pieces]

    if number == 1:
        return run(*blocks[0])

    def work_on(take: Callable[[], tuple[int, int, int]]) -> None:
        while True:
            try:
                block = take()
            except IndexError:
                return
            found[block[0]] = run(*block)

    helpers = [_executor().submit(work_on, blocks.popleft) for _ in range(min(threads or number, number) - 1)]
    try:
        work_on(blocks.pop)
    finally:
        blocks.clear()
        begun = [helper for helper in helpers if not helper.cancel()]
        wait(begun)
    for helper in begun:
        helper.result()
    return [each for block in range(number) for each in found[block]]


@njit(nogil=True)
def _spin(rounds: int) -> float:
    total = 0.0
    for each in range(rounds):
        total += np.sqrt(total + each)
    return total


def pairs(call: Callable[[Callable[..., Any]], Any], repeats: int) -> NDArray[np.float64]:
    """Return seconds (repeats, 2) of a call that is handed `in_blocks`, and `by_executor`."""
    for way in (in_blocks, by_executor):
        call(way)
    times = max(1, int(LEAST / seconds_of(lambda: call(in_blocks))))

    def one(way: Callable[..., Any]) -> float:
        return seconds_of(lambda: [call(way) for _ in range(times)]) / times

    return np.array([[one(in_blocks), one(by_executor)] for _ in range(repeats)])


def row(name: str, seconds: NDArray[np.float64]) -> str:
    """Return a line of the table."""
    ours, other = np.median(seconds, axis=0) * 1e6
    return f"| {name} | {ours:,.1f} | {other:,.1f} | {np.median(seconds[:, 1] / seconds[:, 0]):.2f} |"


INTERRUPTED = """
import signal, sys, time
import numpy as np
from benchmarks.blocks import {way}

def interrupt(*_):
    raise KeyboardInterrupt

signal.signal(signal.SIGALRM, interrupt)
signal.setitimer(signal.ITIMER_REAL, {seconds})
try:
    {way}(np.arange(3), lambda *_: None, 2)
    time.sleep(0.05)
except KeyboardInterrupt:
    print("interrupted", flush=True)
"""


def never_ends(way: str, seconds: float) -> bool:
    """Whether a process lives on for 5 s where a signal interrupts it so soon after its first call has begun."""
    command = [sys.executable, "-W", "ignore", "-c", INTERRUPTED.format(way=way, seconds=seconds)]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
        assert process.stdout is not None
        process.stdout.readline()
        try:
            process.wait(5)
            return False
        except subprocess.TimeoutExpired:
            process.kill()
            return True


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--data", nargs="+", default=["pbmc_small", "pcawg_breast_sbs96", "nips", "newsgroups"])
    parser.add_argument("--rank", type=int, default=10)
    parser.add_argument("--repeats", type=int, default=41)
    parser.add_argument("--processes", type=int, default=10, help="that are interrupted (default: %(default)s)")
    given = parser.parse_args()
    print("| | ours, µs | executor, µs | executor / ours |")
    print("|---|--:|--:|--:|")
    _spin(1)
    pace = min(seconds_of(lambda: _spin(100_000)) for _ in range(9)) / 100_000
    for seconds in LOOPS:
        for blocks in SIZES:
            bounds, rounds = np.arange(blocks + 1), int(seconds / pace / blocks)
            work = (lambda *_, rounds=rounds: _spin(rounds)) if rounds else (lambda *_: None)
            timed = pairs(lambda way, bounds=bounds, work=work: way(bounds, work, THREADS), given.repeats)
            print(row(f"{blocks} blocks, {seconds * 1e6:.0f} µs of work", timed), flush=True)
    rng = np.random.default_rng(0)
    for name in given.data:
        matrix = read(name, given.rank, 0).matrix.astype(np.float64)
        U, V = rng.gamma(1.0, size=(matrix.shape[0], given.rank)), rng.gamma(1.0, size=(given.rank, matrix.shape[1]))

        def step(way: Callable[..., Any], matrix: Any = matrix, U: Any = U, V: Any = V) -> None:
            with patch.object(allocation, "in_blocks", way):
                allocation.expected_allocations(matrix, U, V, THREADS)

        print(row(f"allocation step, {name}, {matrix.nnz:,} nonzeros", pairs(step, given.repeats)), flush=True)
    after = np.linspace(*WHEN, given.processes)
    stuck = [sum(never_ends(way, seconds) for seconds in after) for way in ("in_blocks", "by_executor")]
    print(f"| processes of {given.processes} that never end after Ctrl-C | {stuck[0]} | {stuck[1]} | |")


if __name__ == "__main__":
    main()
