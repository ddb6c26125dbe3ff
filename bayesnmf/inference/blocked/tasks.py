"""Work on blocks of rows: what it finds, and the task that does it for the blocks of a shard."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from bayesnmf.data.blocks.raw import Buffers
from bayesnmf.inference.blocked.sides import RowLayout, RowReader, RowSums, RowWriter
from bayesnmf.inference.problem import Problem, State
from bayesnmf.inference.side import Side
from bayesnmf.inference.sides import Where
from bayesnmf.kernels.cpu.allocation import ComponentTotals, Sides, Totals
from bayesnmf.types import Array

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
