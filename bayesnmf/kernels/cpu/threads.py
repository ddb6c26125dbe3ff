"""Row blocks on several threads: Python's own, as compiled loops work without the GIL.

Numba's parallel loops would be compiled a second time, and not all of its threading layers may be entered by two
threads of Python at once, or after a fork.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable
from queue import SimpleQueue
from threading import Lock, Thread
from typing import Any

import numpy as np
from numba import config, get_num_threads
from numpy.typing import NDArray

Array = NDArray[Any]

# Multiply-adds below which waking a second thread costs more than it saves.
SERIAL_WORK = 2_000_000

# Blocks a thread, where more of them cost nothing: cores are seldom equally free, and the quicker takes more.
PIECES = 8


def threads_or_default(threads: int | None, work: int) -> int:
    """Return the number of row blocks worked on at once: as asked, or 1 where the work is small, or all threads."""
    if threads is not None:
        return threads
    return 1 if work < SERIAL_WORK else get_num_threads()


def pieces(threads: int) -> int:
    """Return the number of blocks to cut work into for this many threads, where blocks need no memory of their own."""
    return 1 if threads == 1 else PIECES * threads


def even_bounds(length: int, blocks: int) -> Array:
    """Return the bounds (blocks + 1,) of blocks as long as one another."""
    return np.array([0, length]) if blocks == 1 else np.linspace(0, length, blocks + 1).astype(np.int64)


def in_blocks[T](bounds: Array, work: Callable[[int, int, int], T], threads: int | None = None) -> list[T]:
    """Return `work(block, first, last)` of every block, worked on by this thread and by others that are free.

    Parameters
    ----------
    bounds : ndarray of shape (blocks + 1,)
        Block b goes from bounds[b] to before bounds[b + 1].
    work : callable
        Calls compiled code that leaves the GIL; no block writes where another one reads or writes.
    threads : int, optional
        Most blocks worked on at once; by default all of them.

    Raises
    ------
    BaseException
        What a block raised, or a signal, as Ctrl-C does; no block is being worked on any longer then.
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
    """The blocks of one call that are still to be worked on, and what came of the others, by number.

    A helper says that it enters before it takes a block, and that it leaves after its last one: where no blocks remain,
    and as many have left as entered, nobody works on any.
    """

    def __init__(self, blocks: list[tuple[int, int, int]], work: Callable[[int, int, int], Any]) -> None:
        self.blocks, self.work = deque(blocks), work
        self.found: dict[int, Any] = {}
        self.errors: list[BaseException] = []
        self.entered: list[None] = []  # lists, as threads append to them at once
        self.left: list[None] = []
        self.signals: SimpleQueue[None] = SimpleQueue()  # one for each helper that has left

    def work_on(self, take: Callable[[], tuple[int, int, int]]) -> None:
        """Work on the blocks that `take` takes, until none remain."""
        while True:
            try:
                block = take()
            except IndexError:
                return
            self.found[block[0]] = self.work(*block)

    def help(self) -> None:
        """Work on blocks that nobody took; what they raise is for the caller."""
        self.entered.append(None)
        try:
            self.work_on(self.blocks.popleft)
        except BaseException as error:
            self.errors.append(error)
            self.blocks.clear()
        self.left.append(None)
        self.signals.put(None)

    def finish(self) -> None:
        """Let nobody begin another block, and wait for those that helpers began; only then heed Ctrl-C or the like."""
        interrupt = None
        while True:
            try:
                self.blocks.clear()
                while len(self.left) < len(self.entered):
                    self.signals.get()
                break
            except BaseException as error:  # of a signal: nothing else is raised by waiting
                interrupt = error
        if interrupt is not None:
            raise interrupt


class _Helpers:
    """Threads that wait for blocks. The interpreter ends without waiting for them."""

    def __init__(self) -> None:
        self.process = os.getpid()
        self.calls: SimpleQueue[_Call] = SimpleQueue()
        self.threads, self.starting = 0, Lock()

    def ask(self, call: _Call, threads: int) -> None:
        """Have a call worked on by as many more threads as are asked for, and Numba would start."""
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
        del call  # it holds arrays, and the next one may be long in coming


_helpers = _Helpers()


def _own_helpers() -> _Helpers:
    """Return the helpers of this process: a fork has a copy of its parent's, without the threads."""
    global _helpers
    if _helpers.process != os.getpid():
        _helpers = _Helpers()
    return _helpers
