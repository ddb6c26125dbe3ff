"""Alternating Poisson regression of counts on disk, by rows and by features (`poisson_regression`).

Three passes make a step. The first regresses the rows of each block and writes their loadings. The second regresses the
features of each block of the transposed counts, for which the loadings of all rows are in memory, though no counts are.
The third turns the loadings into modes. Scales of components are applied to rows when these are read.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from threading import Lock
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bayesnmf.data.blocks.transposed import TransposedStore
from bayesnmf.inference.allocating import allocate
from bayesnmf.inference.ascent.coordinate_ascent import Iterate, Schedule, Steps, update_both_sides
from bayesnmf.inference.ascent.poisson_regression import (
    FLOOR,
    NEWTON_STEPS,
    gamma_terms,
    modes_of_components,
    modes_of_rows,
    scale_loadings,
    scale_of,
    sums_of_rows,
    unnormalised_components,
    unnormalised_rows,
)
from bayesnmf.inference.blocked.engine import run_pass
from bayesnmf.inference.blocked.passes import pass_over_rows
from bayesnmf.inference.blocked.sides import RowReader
from bayesnmf.inference.blocked.tasks import Pass, Where
from bayesnmf.inference.problem import Problem, State
from bayesnmf.inference.side import Side
from bayesnmf.kernels.cpu.regression import poisson_regression
from bayesnmf.kernels.cpu.sums import scale_rows
from bayesnmf.kernels.cpu.vectors import padded, padded_copy

Array = NDArray[Any]
LOADING = Lock()


def regression_steps_on_disk(problem: Problem, schedule: Schedule, kind: str) -> Steps:
    """Return the steps of `regression_steps` for counts on disk; the counts are written once more, by features."""
    counts: Any = problem.counts
    transposed = TransposedStore(counts.store, counts.blocks, counts.matrix.nonzeros, counts.scratch)
    settings = {"sweeps": schedule.sweeps, "newton_steps": NEWTON_STEPS[kind], "floor": FLOOR, "threads": 1}
    plain = replace(schedule, kind="alternating", sweeps=1)

    def steps(here: Iterate) -> Iterator[State]:
        yield _regress(problem, here.state, transposed, settings)
        yield update_both_sides(
            problem, here.state, allocate(problem, here.state, schedule.threads, plain.visited), plain
        )

    return steps


def _regress(problem: Problem, state: State, transposed: TransposedStore, settings: dict[str, Any]) -> State:
    """Return the state after a regression of the rows and one of the features."""
    components = padded_copy(np.maximum(unnormalised_components(problem, state), FLOOR), 0)
    of_components = gamma_terms(problem, len(components))[1]

    def regress(part: Problem, here: State, _: Where) -> tuple[Side, None, Array]:
        terms = gamma_terms(part, len(components))[0]
        loadings = padded_copy(np.maximum(unnormalised_rows(part, here.loadings), FLOOR))
        loadings = poisson_regression(part.counts.matrix, loadings, components, terms, reuse=True, **settings)
        return Side(loadings, loadings, None, 0.0), None, sums_of_rows(part, terms, loadings)

    found, rows = pass_over_rows(problem, state, regress)
    ratio = scale_of(problem, of_components, found.more, components)
    scale_rows(components.T, 1 / ratio)
    counts: Any = problem.counts
    slim = replace(problem, counts=counts.without_names())
    task = ColumnTask(slim, rows.reader, ratio, components, of_components, transposed.by_feature, settings)
    components = padded_copy(np.concatenate(run_pass(task, len(transposed.by_feature.blocks))).T, 0)
    again = scale_of(problem, of_components, found.more * [np.ones_like(ratio), ratio], components)
    scale_rows(components.T, 1 / again)

    def finish(part: Problem, here: State, at: Where) -> tuple[Side, None, float]:
        loadings = rows.reader.read(at.number).matrix
        for scale in (ratio, again):
            scale_loadings(part, loadings, scale)
        return modes_of_rows(part, here.loadings, loadings), None, 0.0

    _, loadings = pass_over_rows(problem, state, finish, Pass(reads=False))
    return State(loadings, modes_of_components(problem, components))


@dataclass(frozen=True)
class ColumnTask:
    """The task of a pass over blocks of features: regress their components on the loadings of all rows.

    Attributes
    ----------
    problem : Problem
    reader : RowReader
        Where the loadings are.
    ratio : ndarray (K,)
        Scales that they are multiplied by.
    components : ndarray (K, m)
        Components to start from.
    prior : pair of ndarray
        Terms of the prior of the components.
    by_feature : object
        Counts by features.
    settings : dict
        Settings of `poisson_regression`.
    """

    problem: Problem
    reader: RowReader
    ratio: Array
    components: Array
    prior: tuple[Array, Array]
    by_feature: Any
    settings: dict[str, Any]
    pure = True

    def __getstate__(self) -> dict[str, Any]:
        """Return the state without the loadings, which other processes read from the files."""
        return {name: value for name, value in vars(self).items() if name != "_held"}

    @cached_property
    def _held(self) -> list[Array]:
        return []

    def _loadings(self) -> Array:
        """Return the loadings of all rows, read once in a process."""
        counts: Any = self.problem.counts
        with LOADING:
            if not self._held:
                whole = padded((counts.shape[0], len(self.components)), self.components.dtype)
                for number, rows in enumerate(counts.blocks):
                    part = replace(self.problem, counts=counts.empty_block(rows.start, rows.stop))
                    whole[rows] = self.reader.read(number).matrix
                    scale_loadings(part, whole[rows], self.ratio)
                self._held.append(whole)
            return self._held[0]

    def run(self, blocks: Sequence[int]) -> list[Array]:
        """Return the components at the features of each block, (features, K)."""
        loadings, found = self._loadings(), []
        for number in blocks:
            features = self.by_feature.blocks[number]
            prior = tuple(each[features] if len(each) > 1 else each for each in self.prior)
            matrix = self.by_feature.read(number, self.components.dtype)
            found.append(
                poisson_regression(matrix, self.components.T[features], loadings.T, prior, **self.settings)  # type: ignore[arg-type]
            )
        return found

    def add(self, one: list[Array], two: list[Array]) -> list[Array]:
        """Return what both shards have found, in order."""
        return one + two
