"""The engine that runs the tasks of a pass over blocks of rows: here, in this process.

A task knows the number of a block, reads its counts and its rows, writes new rows and returns what they add to sums.
Running it again does the same again. Sums are made in fixed shards of blocks, first within a shard, then over shards,
so that they are the same numbers wherever the shards ran.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import batched
from typing import Protocol

SHARD = 8  # blocks that are summed before the sum is added to those of other shards


class Task[Given, Found](Protocol):
    """A task of a pass."""

    def load(self, number: int) -> Given:
        """Read what block `number` needs; this may happen while another block is computed."""

    def run(self, number: int, given: Given) -> Found:
        """Compute the block."""

    def add(self, one: Found, two: Found) -> Found:
        """Return the sum of what two blocks have found; the first may be overwritten."""


def run_pass[Given, Found](task: Task[Given, Found], blocks: int) -> Found:
    """Run a task for every block, and return the sum of what they found."""
    found = iter(_run_each(task, range(blocks)))
    return _sum(task, (_sum(task, (next(found) for _ in shard)) for shard in batched(range(blocks), SHARD)))


def _run_each[Given, Found](task: Task[Given, Found], numbers: Sequence[int]) -> Iterator[Found]:
    """Yield what each block has found, in order; the next block is read meanwhile."""
    with ThreadPoolExecutor(1, thread_name_prefix="bayesnmf reader") as reader:
        ahead = reader.submit(task.load, numbers[0])
        for number in numbers:
            given = ahead.result()
            if number + 1 in numbers:
                ahead = reader.submit(task.load, number + 1)
            yield task.run(number, given)
            del given


def _sum[Given, Found](task: Task[Given, Found], found: Iterator[Found]) -> Found:
    total = next(found)
    for each in found:
        total = task.add(total, each)
    return total
