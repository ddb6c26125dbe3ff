"""Work on blocks of rows in several Python threads: compiled loops run without the GIL.

Numba's own parallel loops are not used: they would have to be compiled separately, and some of Numba's threading
layers must not be entered by two Python threads at once, or after a fork.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from queue import SimpleQueue
from threading import Lock, Thread, get_ident
from typing import Any

import numpy as np
from numba import config, get_num_threads
from numpy.typing import NDArray

Array = NDArray[Any]

# Multiply-adds below which waking a second thread costs more than it saves.
SERIAL_WORK = 2_000_000

# Blocks for each thread where blocks need no memory of their own: cores are rarely equally free, so a free one takes
# more.
PIECES = 8


def threads_or_default(threads: int | None, work: int) -> int:
    """Return the number of row blocks to work on at once: `threads` if given, 1 for little work, else all threads."""
    if threads is not None:
        return threads
    return 1 if work < SERIAL_WORK else get_num_threads()


def block_count(threads: int) -> int:
    """Return the number of blocks to cut the work into, where blocks need no memory of their own."""
    return 1 if threads == 1 else PIECES * threads


def even_bounds(length: int, blocks: int) -> Array:
    """Return the bounds (blocks + 1,) of blocks of equal length."""
    return np.array([0, length]) if blocks == 1 else np.linspace(0, length, blocks + 1).astype(np.int64)


def in_blocks[T](bounds: Array, work: Callable[[int, int, int], T], threads: int | None = None) -> list[T]:
    """Return `work(block, first, last)` for every block, computed by this thread and by free helper threads.

    Parameters
    ----------
    bounds : ndarray of shape (blocks + 1,)
        Block b covers the rows from bounds[b] up to, but not including, bounds[b + 1].
    work : callable
        Function that calls compiled code which releases the GIL. A block must not write where another reads or writes.
    threads : int, optional
        Largest number of blocks to work on at once; by default all of them.

    Raises
    ------
    BaseException
        The exception that a block raised, or a signal such as Ctrl-C. No block is running any more at that point.
    """
    edges = bounds.tolist()
    blocks = list(zip(range(len(edges) - 1), edges[:-1], edges[1:], strict=True))
    if len(blocks) == 1:
        return [work(*blocks[0])]
    call = _Call(blocks, work)
    try:
        _own_helpers().ask(call, min(threads or len(blocks), len(blocks)))
        call.run()
    finally:
        call.finish()
    return call.results()


class _Call:
    """The blocks of one call: which thread took each of them, and its result.

    If two threads ask for the same block at once, `dict.setdefault` gives it to only one of them.
    """

    def __init__(self, blocks: list[tuple[int, int, int]], work: Callable[[int, int, int], Any]) -> None:
        self.blocks, self.work = blocks, work
        self.taken: dict[int, int] = {}
        self.ended: dict[int, tuple[Any, BaseException | None]] = {}
        self.signals: SimpleQueue[None] = SimpleQueue()  # one entry for each block that a helper finished

    def run(self) -> None:
        """Work on the first block, then backwards from the last one on those that no helper has taken."""
        me = get_ident()
        for number in (0, *range(len(self.blocks) - 1, 0, -1)):
            if self.taken.setdefault(number, me) == me:
                self.ended[number] = self.work(*self.blocks[number]), None

    def help(self) -> None:
        """Work on blocks that nobody has taken; store their exceptions for the caller."""
        me = get_ident()
        for number in range(1, len(self.blocks)):
            if self.taken.setdefault(number, me) == me:
                try:
                    self.ended[number] = self.work(*self.blocks[number]), None
                except BaseException as error:
                    self.ended[number] = None, error
                self.signals.put(None)

    def finish(self) -> None:
        """Start no more blocks, wait for those that helpers began, and only then raise Ctrl-C or another signal."""
        interrupt = None
        while True:
            try:
                self._wait()
                break
            except BaseException as error:  # raised by a signal: waiting raises nothing else
                interrupt = error
        if interrupt is not None:
            raise interrupt

    def _wait(self) -> None:
        me = get_ident()
        begun = [number for number in range(1, len(self.blocks)) if self.taken.setdefault(number, me) != me]
        for number in begun:
            while number not in self.ended:
                self.signals.get()

    def results(self) -> list[Any]:
        """Return the result of every block, or raise the exception of one that failed."""
        for _, error in self.ended.values():
            if error is not None:
                raise error
        return [self.ended[number][0] for number in range(len(self.blocks))]


class _Helpers:
    """Threads that wait for blocks. Python does not wait for them when it exits."""

    def __init__(self) -> None:
        self.process = os.getpid()
        self.calls: SimpleQueue[_Call] = SimpleQueue()
        self.threads, self.starting = 0, Lock()

    def ask(self, call: _Call, threads: int) -> None:
        """Let more threads work on a call: as many as requested, but no more than Numba would start."""
        wanted = min(threads, config.NUMBA_NUM_THREADS) - 1  # type: ignore[attr-defined]
        with self.starting:
            while self.threads < wanted:
                Thread(target=_help, args=(self.calls,), name="bayesnmf blocks", daemon=True).start()
                self.threads += 1
        for _ in range(wanted):
            self.calls.put(call)


def _help(calls: SimpleQueue[_Call]) -> None:
    while True:
        call = calls.get()
        call.help()
        del call  # it refers to arrays, and the next call may come much later


_helpers = _Helpers()


def _own_helpers() -> _Helpers:
    """Return the helpers of this process: a forked process has a copy of its parent's object, without the threads."""
    global _helpers
    if _helpers.process != os.getpid():
        _helpers = _Helpers()
    return _helpers
