"""Row blocks on several threads: Python's own, as compiled loops work without the GIL.

Numba's parallel loops would be compiled a second time, and not all of its threading layers may be entered by two
threads of Python at once, or after a fork.
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
    call = _Call(blocks, work)
    try:
        _own_helpers().ask(call, min(threads or len(blocks), len(blocks)))
        call.run()
    finally:
        call.finish()
    return call.results()


class _Call:
    """The blocks of one call, by number: which thread took them, and what came of them.

    Of two threads that ask for a block at once, dict.setdefault gives it to one.
    """

    def __init__(self, blocks: list[tuple[int, int, int]], work: Callable[[int, int, int], Any]) -> None:
        self.blocks, self.work = blocks, work
        self.taken: dict[int, int] = {}
        self.ended: dict[int, tuple[Any, BaseException | None]] = {}
        self.signals: SimpleQueue[None] = SimpleQueue()  # one for each block that a helper ended

    def run(self) -> None:
        """Work on the first block, and from the last one backwards on those that no helper took."""
        me = get_ident()
        for number in (0, *range(len(self.blocks) - 1, 0, -1)):
            if self.taken.setdefault(number, me) == me:
                self.ended[number] = self.work(*self.blocks[number]), None

    def help(self) -> None:
        """Work on blocks that nobody took; what they raise is for the caller."""
        me = get_ident()
        for number in range(1, len(self.blocks)):
            if self.taken.setdefault(number, me) == me:
                try:
                    self.ended[number] = self.work(*self.blocks[number]), None
                except BaseException as error:
                    self.ended[number] = None, error
                self.signals.put(None)

    def finish(self) -> None:
        """Let nobody begin another block, and wait for those that helpers began; only then heed Ctrl-C or the like."""
        interrupt = None
        while True:
            try:
                self._wait()
                break
            except BaseException as error:  # of a signal: nothing else is raised by waiting
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
        """Return what every block returned, or raise what one raised."""
        for _, error in self.ended.values():
            if error is not None:
                raise error
        return [self.ended[number][0] for number in range(len(self.blocks))]


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
