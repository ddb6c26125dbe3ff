"""Passes over counts on disk: the allocation step with the update of the loadings, and others that write new loadings.

The loadings of a block depend on the components and on nothing of the other blocks. A pass therefore reads the counts
and the loadings of a block, makes an allocation step, and at once writes the next loadings; the totals of the
components, the log-likelihood and the sums of the new loadings are added over the blocks. What is done with a block is
what would be done with all rows in memory, by the same functions.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from bayesnmf.data.blocks.counts import BlockedCounts
from bayesnmf.data.blocks.raw import Buffers, TemporaryFolder
from bayesnmf.inference.blocked.engine import run_pass
from bayesnmf.inference.blocked.sides import Form, Part, RowReader, RowWriter
from bayesnmf.inference.imbalance import imbalance
from bayesnmf.inference.side import Side
from bayesnmf.inference.sides import Problem, State, Updated, exposure_of_loadings, update_loadings
from bayesnmf.kernels.cpu.allocation import ComponentTotals, Sides, Totals, expected_allocations
from bayesnmf.kernels.cpu.vectors import padded
from bayesnmf.priors import Distribution
from bayesnmf.priors.values import Value

Array = NDArray[Any]
Work = Callable[[Problem, Any, "Where"], tuple[Side | None, Totals | None, Any]]


class Found(NamedTuple):
    """What a pass has found in some blocks.

    Attributes
    ----------
    components : ndarray (m, K) or None
        Totals of the components; in float64 once those of two blocks were added.
    loglik : float
        ℓ of the allocation step.
    part : Part or None
        What the new loadings add to sums.
    form : Form or None
        How they are written.
    more : object
        What else the work has found.
    """

    components: Array | None
    loglik: float
    part: Part | None
    form: Form | None
    more: Any


class Where(NamedTuple):
    """A block: its number and its rows, and the totals that it adds to, if the pass has them."""

    number: int
    rows: slice
    tally: Any


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
        components, cells = self.components.geometric, self.problem.cells
        if cells is None:
            return ComponentTotals(components)
        return cells.tally(components, self.kind.tallies, blocks[0] // len(blocks))

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
            loadings_summary=summary.on_rows(rows.start),
            constant=False,
        )
        state: Any = None if self.reader is None else State(self.reader.read(number), self.components)  # type: ignore[arg-type]
        side, totals, more = self.work(part, state, Where(number, rows, tally))
        added, form = None, None
        if side is not None and self.writer is not None:
            added, form = self.writer.write(number, counts, side)
        if totals is None:
            return Found(None, 0.0, added, form, more)
        return Found(totals.components.T if totals.components.shape[1] else None, totals.loglik, added, form, more)

    def add(self, one: Found, two: Found) -> Found:
        """Return the sum of what was found in different rows; totals of the components are added in float64."""
        received = one.components
        if received is not None and two.components is not None:
            received = received.astype(np.float64, copy=False)
            received += two.components
        part = None if one.part is None or two.part is None else one.part + two.part
        return Found(received, one.loglik + two.loglik, part, one.form, self.kind.plus(one.more, two.more))


class BlockedLoadings(Side):
    """Loadings in files, one for each block of rows, as a pass has written them."""

    in_memory = False

    def __init__(self, folder: TemporaryFolder, form: Form, part: Part, counts: BlockedCounts) -> None:
        self.reader, self.part, self._folder, self._counts = RowReader(folder.path, form), part, folder, counts
        self.penalty, self.log_shift, self.dtype = part.penalty, None, counts.dtype
        self.shape = counts.shape[0], len(part.sums)

    def rescaled(self, times: Array) -> BlockedLoadings:
        """Return these draws with component k times `times[k]`, whose sums are not known before a pass."""
        unknown = np.full(self.shape[1], np.nan)
        form = replace(self.reader.form, times=times)
        return BlockedLoadings(self._folder, form, Part(unknown, unknown, np.nan, 0.0), self._counts)

    def with_part(self, part: Part) -> BlockedLoadings:
        """Return the same with what the rows add, as a pass has found it."""
        return BlockedLoadings(self._folder, self.reader.form, part.rounded(), self._counts)

    def sums(self, component_axis: int) -> Array:
        """Return Σ of the value for each component, (K,), float64."""
        return self.part.sums

    def exposed_sums(self, component_axis: int, exposure: Array | None) -> Array:
        """Return Σ of the value times the exposure of its rows, for each component, (K,), float64."""
        return self.part.sums if exposure is None else self.part.exposed_sums

    def forget(self) -> None:
        """Keep everything: rows are in files."""

    def allocate(self, problem: Problem, components: Side, sides: Sides) -> Totals:
        """Return the totals of an allocation step over all blocks; the next loadings are in place of their totals."""
        return allocate_blocks(problem, State(self, components), sides)

    def whole(self) -> tuple[Value, Distribution | None]:
        """Return the value and the mean field of all rows, in files mapped into memory."""
        return self.reader.collect(self._counts)


def pass_over_rows(problem: Problem, state: State | None, work: Work, kind: Pass = WRITES) -> tuple[Found, Any]:
    """Do some work on every block; return what was found, and the new loadings if the work makes them."""
    counts: Any = problem.counts
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
    assert found.part is not None
    assert found.form is not None
    return found, BlockedLoadings(folder, found.form, found.part.rounded(), counts)


def allocate_blocks(problem: Problem, state: State, sides: Sides) -> Totals:
    """Return the totals of an allocation step over all blocks; in place of the loadings' totals, the next loadings."""

    def update(part: Problem, here: State, at: Where) -> tuple[Side | None, Totals, float]:
        none = here.components.geometric[:, :0]
        if at.tally is None:
            received, loglik = shared_out(part, here, "loadings")[::2]
        else:
            received, loglik = at.tally.add(part.counts.matrix, here.loadings.geometric)
        if sides == "components":
            return None, Totals(received, none, loglik), np.nan
        off = _imbalance_of(part, here, received)
        return update_loadings(part, here, received, reuse=True).loadings, Totals(received, none, loglik), off

    tallies = None if sides == "loadings" and problem.cells is None else sides
    kind = Pass(writes=sides != "components", plus=max, tallies=tallies)
    found, loadings = pass_over_rows(problem, state, update, kind)
    given: Any = state.loadings
    received = np.empty((len(state.components.geometric), 0)) if found.components is None else totals_of(problem, found)
    loglik = np.nan if sides == "components" else found.loglik + given.part.shift
    return Totals(Updated(loadings, state.components, found.more), received, loglik)  # type: ignore[arg-type]


def shared_out(part: Problem, here: State, sides: Sides = "both") -> Totals:
    """Return the totals of the allocation step of a block.

    Totals of the components are scattered by one thread, as blocks run side by side: the numbers then depend neither on
    threads nor on a library for matrix products.
    """
    factors = here.loadings.geometric, here.components.geometric
    return expected_allocations(part.counts.matrix, *factors, threads=1, sides=sides)


def _imbalance_of(part: Problem, here: State, total: Array) -> float:
    """Return how far the loadings are from stationary, given their totals; NaN unless they are a mode."""
    prior, summary = part.loadings_prior, part.loadings_summary
    if summary.basis is None:
        return np.nan
    return imbalance(prior, summary, here.loadings, total, exposure_of_loadings(part, here.components), 1)


def totals_of(problem: Problem, found: Found) -> Array:
    """Return the totals of the components, (K, m), in the type of the factors."""
    assert found.components is not None
    whole = padded(found.components.shape, problem.counts.dtype)
    whole[:] = found.components
    return whole.T
