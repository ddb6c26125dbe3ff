"""Passes over the counts: work on each block of rows, which may make new loadings and totals of the components.

The loadings of a block depend on the components and on nothing of the other blocks. Counts in memory are one block,
which the work is done on at once. A pass over counts on disk reads the counts and the loadings of a block, does the
work, and writes the new loadings; the totals of the components, the log-likelihood, the sums of the new loadings and
what else the work has found are added over the blocks.

Threads of this process or a Dask cluster run the tasks of a pass. A task knows the number of a block, reads its counts
and its rows, writes new rows and returns what they add to sums. It depends on nothing else, so running it again does
the same again, wherever it runs. Blocks are gathered in shards that depend on their number alone; sums are made within
a shard, one block after the other, and then over the shards in order, so that they are the same numbers to the bit with
any engine and any number of workers. The active client of `distributed` is used if there is one. No cluster is ever
started here.
"""

from __future__ import annotations

import operator
import sys
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextvars import ContextVar, copy_context
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, NamedTuple, Protocol

import numba
import numpy as np

from bayesnmf.data.blocks.counts import BlockedCounts
from bayesnmf.data.blocks.raw import Buffers, TemporaryFolder
from bayesnmf.inference.blocked.sides import RowLayout, RowReader, RowSums, RowWriter
from bayesnmf.inference.problem import Problem, State
from bayesnmf.inference.side import Side
from bayesnmf.inference.sides import Updated, Where, exposure_of_loadings, given_totals, imbalance, update_loadings
from bayesnmf.kernels.cpu.allocation import ComponentTotals, Sides, Totals
from bayesnmf.kernels.cpu.factors import is_padded, padded
from bayesnmf.kernels.cpu.threads import one_thread
from bayesnmf.priors import Distribution
from bayesnmf.priors.values import Value
from bayesnmf.types import Array

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


Work = Callable[[Problem, Any, Where], tuple[Side | None, Totals | None, Any]]


class Found(NamedTuple):
    """What a pass has found in some blocks.

    Attributes
    ----------
    components : ndarray (m, K) or None
        Totals of the components; in float64 once those of two blocks were added.
    loglik : float
        ℓ of the allocation step.
    rows : RowSums or None
        Sums over the new loadings, if they were written.
    layout : RowLayout or None
        How they are written.
    more : object
        What else the work has found.
    """

    components: Array | None
    loglik: float
    rows: RowSums | None
    layout: RowLayout | None
    more: Any


class Pass(NamedTuple):
    """What kind of a pass it is.

    Attributes
    ----------
    writes : bool
        Whether the work makes new loadings.
    plus : callable
        How to add what else two blocks have found.
    pure : bool
        Whether blocks may run anywhere, in any order and more than once.
    tallies : {"both", "loadings", "components"}, optional
        Sides whose totals the work adds to by itself, from counts in the type of the store.
    reads : bool
        Whether the work needs the counts.
    """

    writes: bool = True
    plus: Callable[[Any, Any], Any] = operator.add
    pure: bool = True
    tallies: Sides | None = None
    reads: bool = True


WRITES = Pass()


@dataclass(frozen=True)
class RowTask:
    """The task of a pass: work on the problem of each block, given its loadings and the components.

    Attributes
    ----------
    problem : Problem
        Problem of all rows.
    reader : RowReader or None
        Where the loadings are; None for work that makes the first ones.
    components : Side
    work : callable
        Function of the problem, the state and the place of a block that returns new loadings or None, totals or None,
        and more.
    writer : RowWriter or None
        Where the new loadings are written.
    kind : Pass
    """

    problem: Problem
    reader: RowReader | None
    components: Side | None
    work: Work
    writer: RowWriter | None
    kind: Pass

    @property
    def pure(self) -> bool:
        """Whether blocks may run anywhere, in any order and more than once."""
        return self.kind.pure

    def run(self, blocks: Sequence[int]) -> Found:
        """Do the work on the blocks of a shard, one after the other."""
        tally = self._empty_tally(blocks)
        buffers, total = Buffers(), None
        for number in blocks:
            found = self._run_block(number, tally, buffers)
            total = found if total is None else self.add(total, found)
        assert total is not None
        return total if tally is None else total._replace(components=tally.totals())

    def _empty_tally(self, blocks: Sequence[int]) -> Any:
        if self.components is None or self.kind.tallies is None:
            return None
        components, entries = self.components.geometric, self.problem.entries
        if entries is None:
            return ComponentTotals(components)
        return entries.tally(components, self.kind.tallies, blocks[0] // len(blocks))

    def _run_block(self, number: int, tally: Any, buffers: Buffers) -> Found:
        whole: Any = self.problem.counts
        rows = whole.blocks[number]
        ends = rows.start, rows.stop
        if self.kind.reads:
            counts = whole.block(*ends) if tally is None else whole.raw_block(*ends, buffers)
        else:
            counts = whole.empty_block(*ends)
        prior = self.problem.loadings_prior.rows(rows)
        summary: Any = self.problem.loadings_summary
        part = replace(
            self.problem,
            counts=counts,
            loadings_prior=prior,
            loadings_summary=summary.on_rows(rows.start, beside=True),
            constant=False,
        )
        state: Any = None if self.reader is None else State(self.reader.block(number), self.components)  # type: ignore[arg-type]
        side, totals, more = self.work(part, state, Where(number, rows, 1, True, tally))
        added, layout = None, None
        if side is not None and self.writer is not None:
            added, layout = self.writer.write(number, counts, side)
        if totals is None:
            return Found(None, 0.0, added, layout, more)
        return Found(totals.components.T if totals.components.shape[1] else None, totals.loglik, added, layout, more)

    def add(self, one: Found, two: Found) -> Found:
        """Return the sum of what was found in different rows; totals of the components are added in float64."""
        received = one.components
        if received is not None and two.components is not None:
            received = received.astype(np.float64, copy=False)
            received += two.components
        rows = None if one.rows is None or two.rows is None else one.rows + two.rows
        return Found(received, one.loglik + two.loglik, rows, one.layout, self.kind.plus(one.more, two.more))


class BlockedLoadings(Side):
    """Loadings in files, one for each block of rows, as a pass has written them."""

    def __init__(self, folder: TemporaryFolder, layout: RowLayout, over: RowSums, counts: BlockedCounts) -> None:
        self._reader, self.over, self._folder, self._counts = RowReader(folder.path, layout), over, folder, counts
        self.penalty, self.log_shift, self.dtype = over.penalty, None, counts.dtype
        self.shape = counts.shape[0], len(over.sums)

    @property
    def reader(self) -> RowReader:
        """What reads the loadings of blocks of rows, and can be sent to where these are worked on."""
        return self._reader

    def rescaled(self, times: Array) -> BlockedLoadings:
        """Return these draws with component k times `times[k]`, whose penalty and sums are not known before a pass."""
        unknown = np.full(self.shape[1], np.nan)
        before = self.reader.layout.times
        layout = replace(self.reader.layout, times=times if before is None else times * before)
        return BlockedLoadings(self._folder, layout, RowSums(unknown, unknown, np.nan, 0.0), self._counts)

    def unpenalised(self) -> BlockedLoadings:
        """Return these draws, whose penalty is not known before a pass."""
        return self.with_sums(self.over._replace(penalty=np.nan))

    def with_sums(self, sums: RowSums) -> BlockedLoadings:
        """Return these loadings, with the sums that a pass has computed."""
        return BlockedLoadings(self._folder, self.reader.layout, sums, self._counts)

    def shift(self, counts: Any) -> float:
        """Return Σ N_i log_shift_i of the loadings before they were written without the shifts of rows."""
        return self.over.shift

    def block(self, number: int) -> Side:
        """Return the loadings of a block of rows, read from its file."""
        return self.reader.block(number)

    @property
    def drawn(self) -> BlockedLoadings:
        """The loadings themselves, whose rows are in files."""
        return self

    def bare(self) -> BlockedLoadings:
        """Return these loadings, whose arrays are in files."""
        return self

    @property
    def shapes(self) -> list[tuple[int, ...]]:
        """Shape of the loadings."""
        return [self.shape]

    def sums(self, component_axis: int) -> Array:
        """Return Σ of the value for each component, (K,), float64."""
        return self.over.sums

    def exposed_sums(self, component_axis: int, exposure: Array | None) -> Array:
        """Return Σ of the value times the exposure of its rows, for each component, (K,), float64."""
        return self.over.sums if exposure is None else self.over.exposed_sums

    def forget(self) -> None:
        """Keep everything: rows are in files."""

    def allocate(self, problem: Problem, components: Side, sides: Sides) -> Totals:
        """Return the totals of an allocation step over all blocks; the next loadings are in place of their totals."""
        return allocate_blocks(problem, State(self, components), sides)

    def add_up(self, problem: Problem, components: Side, work: Any, plus: Any, reads: bool) -> Any:
        """Return what a function of the problem and the state of some rows finds, added up over blocks."""

        def find(part: Problem, here: State, at: Where) -> tuple[None, None, Any]:
            return None, None, work(part, here, at.rows)

        kind = Pass(writes=False, plus=plus, reads=reads)
        return pass_over_rows(problem, State(self, components), find, kind)[0].more

    def whole(self) -> tuple[Value, Distribution | None]:
        """Return the value and the mean field of all rows, in files mapped into memory."""
        return self.reader.collect(self._counts)


def pass_over_rows(problem: Problem, state: State | None, work: Work, kind: Pass = WRITES) -> tuple[Found, Any]:
    """Do some work on every block; return what was found, and the new loadings if the work makes them."""
    counts: Any = problem.counts
    if counts.in_memory:
        return _work_at_once(problem, state, work)
    counts.store.check()
    folder = TemporaryFolder(counts.scratch, "rows-") if kind.writes else None
    loadings: Any = None if state is None else state.loadings
    task = RowTask(
        replace(problem, counts=counts.without_names()),
        None if loadings is None else loadings.reader,
        None if state is None else state.components,
        work,
        None if folder is None else RowWriter(folder.path),
        kind,
    )
    found = run_pass(task, len(counts.blocks))
    if folder is None:
        return found, None
    assert found.rows is not None
    assert found.layout is not None
    return found, BlockedLoadings(folder, found.layout, found.rows, counts)


def _work_at_once(problem: Problem, state: State | None, work: Work) -> tuple[Found, Any]:
    """Do some work on all rows in memory."""
    at = Where(0, slice(0, problem.counts.shape[0]), THREADS.get())
    summary: Any = problem.loadings_summary
    of_rows = summary.on_rows(0, beside=False)
    part = problem if of_rows is summary else replace(problem, loadings_summary=of_rows)
    side, totals, more = work(part, state, at)
    none = totals is None or not totals.components.shape[1]
    components = None if none else totals.components.T  # type: ignore[union-attr]
    return Found(components, 0.0 if totals is None else totals.loglik, None, None, more), side


def allocate_blocks(problem: Problem, state: State, sides: Sides) -> Totals:
    """Return the totals of an allocation step over all blocks; in place of the loadings' totals, the next loadings."""

    def update(part: Problem, here: State, at: Where) -> tuple[Side | None, Totals, float]:
        totals = at.allocate(part, here, "loadings")
        if sides == "components":
            return None, totals, np.nan
        off = _imbalance_of(part, here, given_totals(part, here, "loadings", totals.loadings))
        return update_loadings(part, here, totals.loadings, reuse=True).loadings, totals, off

    tallies = None if sides == "loadings" and problem.entries is None else sides
    kind = Pass(writes=sides != "components", plus=max, tallies=tallies)
    found, loadings = pass_over_rows(problem, state, update, kind)
    received = np.empty((len(state.components.geometric), 0)) if found.components is None else totals_of(problem, found)
    loglik = np.nan if sides == "components" else found.loglik
    return Totals(Updated(loadings, state.components, found.more), received, loglik)  # type: ignore[arg-type]


def _imbalance_of(part: Problem, here: State, total: Array) -> float:
    """Return how far the loadings are from stationary, given their totals; NaN unless they are a mode."""
    prior, summary = part.loadings_prior, part.loadings_summary
    if summary.basis is None:
        return np.nan
    return imbalance(prior, summary, here.loadings, total, exposure_of_loadings(part, here.components), 1)


def totals_of(problem: Problem, found: Found) -> Array:
    """Return the totals of the components, (K, m), in the type of the factors."""
    assert found.components is not None
    if is_padded(found.components.T, 0) and found.components.dtype == problem.counts.dtype:
        return found.components.T
    whole = padded(found.components.shape, problem.counts.dtype)
    whole[:] = found.components
    return whole.T
