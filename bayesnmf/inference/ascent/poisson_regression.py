"""Alternating Poisson regression by coordinate descent ([C] alg. 1, 29-31): maximum likelihood and MAP.

Each side is regressed on the other: rows in a pass over the counts, which makes new loadings; features in one over the
counts by features, for which the loadings of all rows are in memory, though no counts on disk are. Coordinate descent
gets stuck less often than EM.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from threading import Lock
from typing import Any

import numpy as np

from bayesnmf.inference.ascent.coordinate_ascent import Iterate, Steps, update_both_sides
from bayesnmf.inference.ascent.course import Schedule
from bayesnmf.inference.ascent.regression_terms import (
    exposure_of_observed,
    gamma_terms,
    modes_of_components,
    modes_of_rows,
    scale_loadings,
    scale_of,
    spread_of_factors,
    sums_of_rows,
    unnormalised_components,
    unnormalised_rows,
)
from bayesnmf.inference.blocked.engine import run_pass
from bayesnmf.inference.blocked.passes import pass_over_rows
from bayesnmf.inference.blocked.tasks import Pass
from bayesnmf.inference.problem import Problem, State
from bayesnmf.inference.side import Side
from bayesnmf.inference.sides import Where, allocate
from bayesnmf.kernels.cpu.allocation import turned
from bayesnmf.kernels.cpu.factors import padded, padded_copy, scale_rows
from bayesnmf.kernels.cpu.regression import poisson_regression
from bayesnmf.types import Array

FLOOR = 1e-15
NEWTON_STEPS = {"scd": 1, "ccd": 2}
LOADING = Lock()


def regression_steps(problem: Problem, schedule: Schedule, kind: str) -> Steps:
    """Return steps that propose coordinate descent over both sides, then an EM step if that lowers the objective.

    Parameters
    ----------
    problem : Problem
    schedule : Schedule
        Schedule with the number of `sweeps` of coordinate descent for each side, after one EM step ("refinement",
        [C] B.2).
    kind : {"scd", "ccd"}
        Sequential descent takes one Newton step per coordinate; cyclic descent takes a second one if the first was
        large.
    """
    columns = problem.counts.by_feature()
    settings = {"sweeps": schedule.sweeps, "newton_steps": NEWTON_STEPS[kind], "floor": FLOOR, "reuse": True}
    plain = replace(schedule, kind="alternating", sweeps=1)

    def steps(here: Iterate) -> Iterator[State]:
        now = here.problem  # whose dispersion may be learned
        factors = Factors(now, here.state, settings, schedule.threads)
        for side in schedule.sides:
            if side == "loadings":
                factors.regress_rows()
            else:
                factors.regress_features(columns)
            factors.rescale()
        yield factors.state()
        yield update_both_sides(now, here.state, allocate(now, here.state, schedule.threads, plain.visited), plain)

    return steps


class Factors:
    """Both factors between two regressions, on the scale of the counts.

    Scales of components are applied to loadings when these are read.

    Parameters
    ----------
    problem : Problem
    state : State
        State that they begin from.
    settings : dict
        Settings of `poisson_regression`.
    threads : int or None
        Number of blocks of rows in memory to work on at once.
    """

    def __init__(self, problem: Problem, state: State, settings: dict[str, Any], threads: int | None) -> None:
        self.problem = replace(problem, counts=problem.counts.without_names())
        self.begun, self.settings, self.threads = state, settings, threads
        self.components = padded_copy(np.maximum(unnormalised_components(problem, state), FLOOR), 0)
        self.terms = gamma_terms(problem, len(self.components))
        self.scales: list[Array] = []
        self.rows: Any = None  # until rows or features are regressed, the loadings are those of the state
        self.sums = np.empty(0)

    def _make_rows(self, work: Any) -> tuple[Side, Array]:
        """Return new loadings, as a function of a block makes them, and their `sums_of_rows`."""

        def make(part: Problem, here: State, at: Where) -> tuple[Side, None, Array]:
            terms = (gamma_terms(part, len(self.components)) if at.beside else self.terms)[0]
            loadings = work(part, here, at, terms)
            return Side(loadings, loadings, None, 0.0), None, sums_of_rows(part, terms, loadings)

        found, rows = pass_over_rows(self.problem, self.begun, make)
        return rows, found.more

    def read(self, part: Problem, here: State, at: Where) -> Array:
        """Return the loadings of a block, which may be overwritten, with their scales."""
        if self.rows is None:
            return padded_copy(np.maximum(unnormalised_rows(part, here.loadings), FLOOR))
        loadings = _scaled(part, self.rows.block(at.number).matrix, self.scales)
        if not at.beside:  # the loadings of all rows, and no copy of them
            self.scales = []
        return loadings

    def regress_rows(self) -> None:
        """Regress the loadings of every row on the components."""

        def work(part: Problem, here: State, at: Where, terms: tuple[Array, Array]) -> Array:
            exposure = exposure_of_observed(part, "loadings", self.components)
            return poisson_regression(
                part.counts.matrix, self.read(part, here, at), self.components, terms, **self.settings,
                threads=1 if at.beside else self.threads, spread=spread_of_factors(part), exposure=exposure,
            )  # fmt: skip

        self.rows, self.sums = self._make_rows(work)
        self.scales = []

    def regress_features(self, columns: Any) -> None:
        """Regress the components of every feature on the loadings."""
        if self.rows is None:
            self.rows, self.sums = self._make_rows(lambda part, here, at, _: self.read(part, here, at))
        settings = {**self.settings, "threads": 1 if columns.beside else self.threads}
        given = self.components, self.terms[1], columns, settings
        task, number = ColumnTask(self.problem, self.rows.reader, self.scales, *given), len(columns.blocks)
        found = run_pass(task, number) if columns.beside else task.run(range(number))
        self.scales = self.scales if columns.beside else []
        self.components = padded_copy(np.concatenate(found).T, 0) if columns.beside else found[0].T

    def rescale(self) -> None:
        """Change the free scales, which keeps the product of the factors or raises the likelihood.

        If components are on the simplex, their sums are moved to the loadings, and each row of loadings is then scaled
        to the total of its counts, which is optimal. If both priors are flat, components are scaled so that the means
        of their loadings and of their entries are equal ([C] B.2). Otherwise each component gets the scale with the
        highest prior density; coordinate descent alone would be slow along this direction.
        """
        ratio = scale_of(self.problem, self.terms[1], self.sums, self.components)
        scale_rows(self.components.T, 1 / ratio)
        self.scales.append(ratio)
        self.sums = self.sums * [np.ones_like(ratio), ratio]

    def state(self) -> State:
        """Return the state with the modes that these factors stand for."""

        def finish(part: Problem, here: State, at: Where) -> tuple[Side, None, float]:
            return modes_of_rows(part, here.loadings, self.read(part, here, at)), None, 0.0

        _, loadings = pass_over_rows(self.problem, self.begun, finish, Pass(reads=False))
        return State(loadings, modes_of_components(self.problem, self.components))


def _scaled(part: Problem, loadings: Array, scales: list[Array]) -> Array:
    """Multiply loadings by scales, in place."""
    for scale in scales:
        scale_loadings(part, loadings, scale)
    return loadings


@dataclass(frozen=True)
class ColumnTask:
    """The task of a pass over blocks of features: regress their components on the loadings of all rows.

    Attributes
    ----------
    problem : Problem
    reader : RowReader or Side
        Where the loadings are.
    scales : list of ndarray (K,)
        Scales that they are multiplied by.
    components : ndarray (K, m)
        Components to start from.
    prior : pair of ndarray
        Terms of the prior of the components.
    columns : object
        Counts by features.
    settings : dict
        Settings of `poisson_regression`.
    """

    problem: Problem
    reader: Any
    scales: list[Array]
    components: Array
    prior: tuple[Array, Array]
    columns: Any
    settings: dict[str, Any]
    pure = True

    def __getstate__(self) -> dict[str, Any]:
        """Return the state without the loadings, which other processes read from the files."""
        return {name: value for name, value in vars(self).items() if name != "_held"}

    @cached_property
    def _held(self) -> list[Array]:
        return []

    def _loadings(self) -> Array:
        """Return the loadings of all rows; those in files are read once in a process."""
        counts: Any = self.problem.counts
        if not self.columns.beside:
            return _scaled(self.problem, self.reader.block(0).matrix, self.scales)
        with LOADING:
            if not self._held:
                whole = padded((counts.shape[0], len(self.components)), self.components.dtype)
                for number, rows in enumerate(counts.blocks):
                    part = replace(self.problem, counts=counts.empty_block(rows.start, rows.stop))
                    whole[rows] = _scaled(part, self.reader.block(number).matrix, self.scales)
                self._held.append(whole)
            return self._held[0]

    def run(self, blocks: Sequence[int]) -> list[Array]:
        """Return the components at the features of each block, (features, K)."""
        loadings, found = self._loadings(), []
        spread = turned(spread_of_factors(self.problem), self.problem.counts.shape)
        exposure = exposure_of_observed(self.problem, "components", loadings.T)
        for number in blocks:
            features = self.columns.blocks[number]
            prior: Any = tuple(each[features] if len(each) > 1 else each for each in self.prior)
            given = self.columns.read(number, self.components.dtype), self.components.T[features], loadings.T, prior
            own = None if spread is None else (spread[0][features], spread[1])
            left = None if exposure is None else exposure[features]
            found.append(poisson_regression(*given, **self.settings, spread=own, exposure=left))
        return found

    def add(self, one: list[Array], two: list[Array]) -> list[Array]:
        """Return what both shards have found, in order."""
        return one + two
