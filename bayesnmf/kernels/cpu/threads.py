"""Work on blocks of rows in several Python threads: compiled loops run without the GIL, matrix products on one thread.

Numba's own parallel loops are not used: they would have to be compiled separately, and some of Numba's threading
layers must not be entered by two Python threads at once, or after a fork.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache
from itertools import pairwise
from queue import SimpleQueue
from threading import Event, Lock, Thread
from typing import Any

import numpy as np
from numba import config, get_num_threads

from bayesnmf.types import Array

type Block = tuple[int, int, int]  # its number, its first row, and the row after its last

# Multiply-adds below which waking a second thread costs more than it saves.
SERIAL_WORK = 2_000_000

# Most blocks where these need no memory of their own, unless Ctrl-C asks for more, and the least work of each: cores
# are rarely equally free, so a free one takes more.
PIECES, PIECE_WORK = 32, 2**17

# Multiply-adds of a piece. Python handles signals between pieces only, so one takes less than a second: 0.05 to 0.4 s.
LONGEST = 2**25

_ALONE: ContextVar[bool] = ContextVar("alone", default=False)

# Where work is done beside the main thread, which alone hears Ctrl-C: whether it is to end.
STOP: ContextVar[Event | None] = ContextVar("stop", default=None)


@contextmanager
def one_thread() -> Iterator[None]:
    """Work on one thread inside the block by default, as where several such blocks run side by side."""
    token = _ALONE.set(True)
    try:
        yield
    finally:
        _ALONE.reset(token)


def threads_or_default(threads: int | None, work: float) -> int:
    """Return the number of row blocks to work on at once: `threads` if given, 1 for little work, else all threads."""
    if threads is not None:
        return threads
    return 1 if work < SERIAL_WORK or _ALONE.get() else get_num_threads()


def piece_count(work: float) -> int:
    """Return the least number of pieces of work (in multiply-adds) that are short enough to wait for on Ctrl-C."""
    return max(int(-(-work // LONGEST)), 1)


def block_count(work: float) -> int:
    """Return the number of blocks to cut the work into, where blocks need no memory of their own.

    It depends on the work alone, so that sums over blocks are the same numbers with any number of threads.
    """
    return max(1 if work < SERIAL_WORK else min(PIECES, int(work / PIECE_WORK)), piece_count(work))


def heed() -> None:
    """Raise KeyboardInterrupt if this work, beside the main thread, is to end."""
    stop = STOP.get()
    if stop is not None and stop.is_set():
        raise KeyboardInterrupt


def even_bounds(length: int, blocks: int) -> Array:
    """Return the bounds (blocks + 1,) of blocks of equal length."""
    return np.array([0, length]) if blocks == 1 else np.linspace(0, length, blocks + 1).astype(np.int64)


def row_blocks(indptr: Array, blocks: int) -> Array:
    """Return bounds that cut the rows of a CSR matrix into blocks of about equally many nonzeros, or fewer blocks."""
    if blocks == 1:
        return np.array([0, len(indptr) - 1])
    targets = np.linspace(0, indptr[-1], blocks + 1)[1:-1]
    return np.unique(np.concatenate([[0], np.searchsorted(indptr, targets), [len(indptr) - 1]])).astype(np.int64)


def in_blocks[T](
    bounds: Array, work: Callable[[int, int, int], T], threads: int | None = None, cuts: Array | None = None
) -> list[T]:
    """Return `work(block, first, last)` for every block, computed by this thread and by free helper threads.

    Signals are handled, and `STOP` is read, between blocks. A block with memory of its own should be a large one; then
    it is cut into pieces, which one thread works on in order.

    Parameters
    ----------
    bounds : ndarray of shape (blocks + 1,)
        Block b covers the rows from bounds[b] up to, but not including, bounds[b + 1].
    work : callable
        Function that calls compiled code which releases the GIL. A block must not write where another reads or writes.
    threads : int, optional
        Largest number of blocks to work on at once; by default all of them.
    cuts : ndarray, optional
        Rows at which blocks are cut into pieces. `work` is then called for every piece, with the number of its block.

    Raises
    ------
    BaseException
        The exception that a block raised, or a signal such as Ctrl-C; KeyboardInterrupt once `STOP` is set. No block is
        running any more at that point.
    """
    edges = bounds.tolist()
    if len(edges) == 2 and (cuts is None or len(cuts) < 3):
        return [work(0, *edges)]
    blocks = list(zip(range(len(edges) - 1), edges[:-1], edges[1:], strict=True))
    inner = [] if cuts is None else cuts.tolist()
    call = _Call(blocks[1:], work, inner)
    try:
        if len(blocks) > 1:
            _own_helpers().ask(call, min(threads or len(blocks), len(blocks)))
        call.run(*blocks[0])
        call.work_on(call.blocks.pop)  # from the last one backwards
    except BaseException:
        call.ended = True
        raise
    finally:
        call.finish()
    for error in call.errors:
        raise error
    return [found for number in range(len(blocks)) for found in call.found[number]]


def over_rows[T](rows: int | Array, work: float, loop: Callable[[int, int], T], threads: int | None = None) -> list[T]:
    """Return `loop(first, last)` for blocks of rows, which need no memory of their own.

    Parameters
    ----------
    rows : int or ndarray (n + 1,)
        Number of rows, of equally many of which blocks are made; or where the rows of a CSR matrix begin, for blocks of
        equally many nonzeros.
    work : float
        Work on all rows, in multiply-adds.
    loop : callable
        Function of the first row of a block and of the row after its last, as for `in_blocks`.
    threads : int, optional
        Number of blocks to work on at once; by default one for each of Numba's threads, or 1 for little work.
    """
    blocks = block_count(work)
    if blocks == 1:  # at once: of small counts, Python takes longer than the loop
        return [loop(0, rows if isinstance(rows, int) else len(rows) - 1)]
    bounds = even_bounds(rows, min(blocks, max(rows, 1))) if isinstance(rows, int) else row_blocks(rows, blocks)
    return in_blocks(bounds, lambda _, first, last: loop(first, last), threads_or_default(threads, work))


class _Call:
    """The blocks of one call that nobody has taken yet, and the results of the others by number.

    A helper records that it enters before it takes a block, and that it leaves after its last one. If no blocks remain
    and as many helpers have left as have entered, no block is being worked on.
    """

    def __init__(
        self, blocks: list[tuple[int, int, int]], work: Callable[[int, int, int], Any], cuts: list[int]
    ) -> None:
        self.blocks, self.work, self.cuts = deque(blocks), work, cuts
        self.ended, self.stop = False, STOP.get()
        self.found: dict[int, list[Any]] = {}
        self.errors: list[BaseException] = []
        self.entered: list[None] = []  # lists, as threads append to them at once
        self.left: list[None] = []
        self.signals: SimpleQueue[None] = SimpleQueue()  # one for each helper that has left

    def work_on(self, take: Callable[[], Block]) -> None:
        """Work on the blocks that `take` returns, until none remain."""
        while True:
            try:
                block = take()
            except IndexError:
                return
            self.run(*block)

    def run(self, number: int, first: int, last: int) -> None:
        """Work on the pieces of a block, unless the call is to end."""
        found = []
        for bounds in pairwise([first, *(cut for cut in self.cuts if first < cut < last), last]):
            if self.ended or (self.stop is not None and self.stop.is_set()):
                raise KeyboardInterrupt
            found.append(self.work(number, *bounds))
        self.found[number] = found

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
                self.ended, interrupt = True, error
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


@cache
def _libraries() -> Any:
    """Return what limits the threads of matrix products; None where threadpoolctl is not installed."""
    try:
        from threadpoolctl import ThreadpoolController
    except ModuleNotFoundError:
        return None
    return ThreadpoolController()


class _OneThread:
    """Context in which matrix products of NumPy have one thread each; several threads may be in it at once.

    A light installation without threadpoolctl leaves their threads as they are.
    """

    def __init__(self) -> None:
        self._entering, self._inside = Lock(), 0
        self._limit: Any = None

    def __enter__(self) -> None:
        with self._entering:
            if not self._inside and _libraries() is not None:
                self._limit = _libraries().limit(limits=1, user_api="blas")
            self._inside += 1

    def __exit__(self, *_: object) -> None:
        with self._entering:
            self._inside -= 1
            if not self._inside and self._limit is not None:
                self._limit.restore_original_limits()


_CONTEXT = _OneThread()


def one_blas_thread() -> _OneThread:
    """Return a context in which matrix products have one thread each, so that their rounding is the same everywhere."""
    return _CONTEXT
