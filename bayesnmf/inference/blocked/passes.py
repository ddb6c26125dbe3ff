"""Passes over the counts: work on each block of rows, which may make new loadings and totals of the components.

The loadings of a block depend on the components and on nothing of the other blocks. Counts in memory are one block,
which the work is done on at once. A pass over counts on disk reads the counts and the loadings of a block, does the
work, and writes the new loadings; the totals of the components, the log-likelihood, the sums of the new loadings and
what else the work has found are added over the blocks.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from bayesnmf.data.blocks.counts import BlockedCounts
from bayesnmf.data.blocks.raw import TemporaryFolder
from bayesnmf.inference.blocked.engine import THREADS, run_pass
from bayesnmf.inference.blocked.sides import RowLayout, RowReader, RowSums, RowWriter
from bayesnmf.inference.blocked.tasks import WRITES, Found, Pass, RowTask, Work
from bayesnmf.inference.problem import Problem, State
from bayesnmf.inference.side import Side
from bayesnmf.inference.sides import Updated, Where, exposure_of_loadings, given_totals, imbalance, update_loadings
from bayesnmf.kernels.cpu.allocation import Sides, Totals
from bayesnmf.kernels.cpu.factors import is_padded, padded
from bayesnmf.priors import Distribution
from bayesnmf.priors.values import Value
from bayesnmf.types import Array


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
