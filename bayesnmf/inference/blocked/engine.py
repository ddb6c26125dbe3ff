"""The engines that run the tasks of a pass over blocks of rows: threads of this process, or a Dask cluster.

A task knows the number of a block, reads its counts and its rows, writes new rows and returns what they add to sums.
It depends on nothing else, so running it again does the same again, wherever it runs. Blocks are gathered in shards
that depend on their number alone; sums are made within a shard, one block after the other, and then over the shards in
order, so that they are the same numbers to the bit with any engine and any number of workers.

The active client of `distributed` is used if there is one. No cluster is ever started here.
"""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextvars import ContextVar, copy_context
from itertools import pairwise
from typing import Any, Protocol

import numba
import numpy as np

from bayesnmf.kernels.cpu.threads import one_thread

SHARDS, LEAST, MOST = 32, 4, 64  # shards, whose sums travel to the driver; blocks of each, where that allows SHARDS
RETRIES = 5  # of a shard whose worker was lost
THREADS: ContextVar[int | None] = ContextVar("threads", default=None)  # blocks at once in this process


class Task[Found](Protocol):
    """A task of a pass."""

    @property
    def pure(self) -> bool:
        """Whether the task may run anywhere, in any order and more than once."""

    def run(self, blocks: Sequence[int]) -> Found:
        """Read, compute and write the blocks of a shard."""

    def add(self, one: Found, two: Found) -> Found:
        """Return the sum of what two shards have found; the first may be overwritten."""


def run_pass[Found](task: Task[Found], blocks: int) -> Found:
    """Run a task for every block, and return the sum of what they found."""
    shards, client = shards_of(blocks), active_client()
    if client is not None and task.pure:
        found = _on_cluster(client, task, shards)
    else:
        found = _in_threads(task, shards, THREADS.get() or numba.get_num_threads() if task.pure else 1)
    total = next(found)
    for each in found:
        total = task.add(total, each)
    return total


def shards_of(blocks: int) -> list[range]:
    """Return the blocks of each shard; few shards are 1, 2, 4 or a multiple of 8, to be shared by so many threads."""
    number = min(-(-blocks // LEAST), max(SHARDS, -(-blocks // MOST)))
    if number < SHARDS:
        number = (1, 2, 4, 4)[number - 1] if number < 5 else 8 * max(round(number / 8), 1)
    edges = np.linspace(0, blocks, number + 1).astype(int).tolist()
    return [range(first, last) for first, last in pairwise(edges)]


def run_shard[Found](task: Task[Found], shard: Sequence[int]) -> Found:
    """Run a task for the blocks of a shard on one thread, since other shards run beside it.

    The number of threads would change the rounding of sums, too.
    """
    with one_thread():
        return task.run(shard)


def active_client() -> Any:
    """Return the client of a Dask cluster that is active in this process, or None."""
    distributed: Any = sys.modules.get("distributed")
    if distributed is None:
        return None
    try:
        return distributed.default_client()
    except ValueError:  # there is none
        return None


def _in_threads[Found](task: Task[Found], shards: list[range], threads: int) -> Iterator[Found]:
    """Yield what each shard has found, in order; some shards are worked on at once."""
    if threads == 1:
        yield from (run_shard(task, shard) for shard in shards)
        return
    with ThreadPoolExecutor(threads, thread_name_prefix="bayesnmf shard") as pool:
        waiting: deque[Future[Found]] = deque()
        try:
            for shard in shards:
                waiting.append(pool.submit(copy_context().run, run_shard, task, shard))
                if len(waiting) > threads:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        finally:
            for future in waiting:
                future.cancel()


def _on_cluster[Found](client: Any, task: Task[Found], shards: list[range]) -> Iterator[Found]:
    """Yield what each shard has found, in order; what a lost worker had is submitted again."""
    held = client.scatter(task, broadcast=True, hash=False)
    futures = [client.submit(run_shard, held, shard, pure=False, retries=RETRIES) for shard in shards]
    for place, shard in enumerate(shards):
        for attempt in range(RETRIES + 1):
            try:
                yield futures[place].result()
                break
            except lost_errors() as error:
                if attempt == RETRIES:
                    raise RuntimeError(f"workers were lost {RETRIES + 1} times while blocks {shard} ran") from error
                held = client.scatter(task, broadcast=True, hash=False)
                futures[place] = client.submit(run_shard, held, shard, pure=False, retries=RETRIES)
        futures[place] = None  # its result need not be kept on the cluster


def lost_errors() -> tuple[type[BaseException], ...]:
    """Return the errors by which `distributed` says that a task or what it needs was lost with a worker."""
    from concurrent.futures import CancelledError

    from distributed import KilledWorker

    return (CancelledError, KilledWorker)
