"""Work on blocks of rows in several Python threads: compiled loops run without the GIL.

Numba's own parallel loops are not used: they would have to be compiled separately, and some of Numba's threading
layers must not be entered by two Python threads at once, or after a fork.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from queue import SimpleQueue
from threading import Lock, Thread
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

_ALONE: ContextVar[bool] = ContextVar("alone", default=False)


@contextmanager
def one_thread() -> Iterator[None]:
    """Work on one thread inside the block by default, as where several such blocks run side by side."""
    token = _ALONE.set(True)
    try:
        yield
    finally:
        _ALONE.reset(token)


def threads_or_default(threads: int | None, work: int) -> int:
    """Return the number of row blocks to work on at once: `threads` if given, 1 for little work, else all threads."""
    if threads is not None:
        return threads
    return 1 if work < SERIAL_WORK or _ALONE.get() else get_num_threads()


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
    call = _Call(blocks[1:], work)
    try:
        _own_helpers().ask(call, min(threads or len(blocks), len(blocks)))
        call.found[0] = work(*blocks[0])
        call.work_on(call.blocks.pop)  # from the last one backwards
    finally:
        call.finish()
    for error in call.errors:
        raise error
    return [call.found[number] for number in range(len(blocks))]


class _Call:
    """The blocks of one call that nobody has taken yet, and the results of the others by number.

    A helper records that it enters before it takes a block, and that it leaves after its last one. If no blocks remain
    and as many helpers have left as have entered, no block is being worked on.
    """

    def __init__(self, blocks: list[tuple[int, int, int]], work: Callable[[int, int, int], Any]) -> None:
        self.blocks, self.work = deque(blocks), work
        self.found: dict[int, Any] = {}
        self.errors: list[BaseException] = []
        self.entered: list[None] = []  # lists, as threads append to them at once
        self.left: list[None] = []
        self.signals: SimpleQueue[None] = SimpleQueue()  # one for each helper that has left

    def work_on(self, take: Callable[[], tuple[int, int, int]]) -> None:
        """Work on the blocks that `take` returns, until none remain."""
        while True:
            try:
                block = take()
            except IndexError:
                return
            self.found[block[0]] = self.work(*block)

    def help(self) -> None:
        """Work on blocks that nobody has taken; store their exceptions for the caller."""
        self.entered.append(None)
        try:
            self.work_on(self.blocks.popleft)
        except BaseException as error:
            self.errors.append(error)
            self.blocks.clear()
        self.left.append(None)
        self.signals.put(None)

    def finish(self) -> None:
        """Start no more blocks, wait for those that helpers began, and only then raise Ctrl-C or another signal."""
        interrupt = None
        while True:
            try:
                self.blocks.clear()
                while len(self.left) < len(self.entered):
                    self.signals.get()
                break
            except BaseException as error:  # raised by a signal: waiting raises nothing else
                interrupt = error
        if interrupt is not None:
            raise interrupt


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
