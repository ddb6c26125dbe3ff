"""Alternating Poisson regression by coordinate descent ([C] alg. 1, 29-31): maximum likelihood and MAP.

Each side is regressed on the other: rows in a pass over the counts, which makes new loadings; features in one over the
counts by features, for which the loadings of all rows are in memory, though no counts on disk are. Coordinate descent
gets stuck less often than EM.

The two factors of alternating Poisson regression: their priors, their scales, and the modes that they stand for.

Dirichlet sides are fitted without the constraint and then normalised ([C] lemma 1, cor. 2): if the prior of the
loadings is flat, the scale of a component may move between the sides. A rate τ shared by all loadings of a row only
divides them by r + τ, with the exposure r of the row ([GP] lemma 6.1), so these loadings are fitted with a flat prior
and divided at the end. In between, both sides are times their exposures, and rates are divided by them. Where entries
are missing, each line has the exposure of its observed entries, and both sides must be Gamma: totals of rows would be
those of the observed entries.
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
from bayesnmf.inference.blocked.passes import Pass, pass_over_rows, run_pass
from bayesnmf.inference.problem import Problem, State
from bayesnmf.inference.side import Side
from bayesnmf.inference.sides import Where, allocate, exposure_left
from bayesnmf.kernels.cpu.allocation import Spread, turned
from bayesnmf.kernels.cpu.factors import padded, padded_copy, scale_rows, sum_rows
from bayesnmf.kernels.cpu.regression import poisson_regression
from bayesnmf.priors.values import separate_scale
from bayesnmf.types import Array


def exposure_of_observed(problem: Problem, side: str, other: Array) -> Array | None:
    """Return sums of the other factor over the observed entries of each line of a side; None if none are missing."""
    mask = problem.counts.mask
    if mask is None:
        return None
    missing = mask.sums_by_row(other.T) if side == "loadings" else mask.sums_by_feature(other.T)
    return exposure_left(sum_rows(other.T)[None], missing)


def spread_of_factors(problem: Problem) -> Spread | None:
    """Return the spreads of counts that cluster, for the product of the unnormalised factors; None for others."""
    counts = problem.counts
    if (spread := counts.spread(None, None)) is None:
        return None
    rows, features = spread
    by_feature = None if features is None else features * counts.feature_factor
    return rows * _shrinkage(problem)[:, 0], by_feature


Terms = list[tuple[Array, Array]]


def gamma_terms(problem: Problem, rank: int) -> Terms:
    """Return, for each side, c − 1 and d of Gamma(c, d) priors, with K columns.

    A Dirichlet(η) on a component is replaced by Gamma(η, Σ(η − 1)), for which the optimal sum is 1 ([C] cor. 2).
    """
    dtype, (n, m) = problem.counts.dtype, problem.counts.shape
    components: Any = problem.components_prior
    loadings: Any = problem.loadings_prior
    less, rate = components.regression_terms(m)
    pairs: list[tuple[Any, Any]] = [(0.0, 0.0), (less.T, rate.T)]
    if _both_positive(problem):
        pairs[0] = loadings.regression_terms(n)
    given = problem.counts.row_weights, problem.counts.feature_weights
    for side, exposure in enumerate(given):
        if exposure is not None and (side or _both_positive(problem)):
            pairs[side] = (pairs[side][0], pairs[side][1] / exposure[:, None])

    def rows(each: Any) -> Array:
        each = np.atleast_2d(each)
        return np.broadcast_to(each, (len(each), rank)).astype(dtype)

    return [(rows(less), rows(rate)) for less, rate in pairs]


def unnormalised_rows(problem: Problem, side: Side) -> Array:
    """Return the loadings on the scale of the counts, perhaps without copying them."""
    loadings, _ = separate_scale(side.value)
    if problem.loadings_prior.support != "positive":
        return loadings * problem.counts.row_totals[:, None].astype(loadings.dtype)
    factor = _shrinkage(problem).astype(loadings.dtype)
    return loadings if np.all(factor == 1) else loadings * factor


def unnormalised_components(problem: Problem, state: State) -> Array:
    """Return the components on the scale of the counts, perhaps without copying them."""
    return problem.counts.exposed_components(state.components.matrix)


def scale_loadings(problem: Problem, loadings: Array, ratio: Array) -> None:
    """Multiply loadings by the scales of their components, in place; then scale rows to their totals, if they may.

    Where counts cluster, no totals are known that would be those of the best loadings.
    """
    scale_rows(loadings, ratio)
    if problem.components_prior.support == "simplex" and not problem.counts.in_clusters:
        totals = problem.counts.row_totals[:, None].astype(loadings.dtype)
        sums = loadings.sum(axis=1, keepdims=True)
        loadings *= np.divide(totals, sums, out=np.ones_like(sums), where=(totals > 0) & (sums > 0))


def sums_of_rows(problem: Problem, prior: tuple[Array, Array], loadings: Array) -> Array:
    """Return what the best scale depends on, for the loadings of some rows, (2, K): Σ(a − 1) and Σ bθ, or 0 and Σ θ."""
    if problem.components_prior.support == "simplex":
        return np.zeros((2, loadings.shape[1]))
    if problem.components_prior.flat and problem.loadings_prior.flat:
        return np.stack([np.zeros(loadings.shape[1]), sum_rows(loadings)])
    return np.stack(_sums_of_prior(prior, loadings))


def _sums_of_prior(prior: tuple[Array, Array], value: Array) -> tuple[Array, Array]:
    less, rate = prior
    whole = np.broadcast_to(less, value.shape)
    return whole.sum(axis=0, dtype=np.float64), (rate * value).sum(axis=0, dtype=np.float64)


def scale_of(problem: Problem, prior: tuple[Array, Array], of_rows: Array, components: Array) -> Array:
    """Return r (K,) that loadings are multiplied by and components are divided by, given `sums_of_rows` of all rows.

    With priors Gamma(a, b) and Gamma(c, d), the best r solves P r² − p r − Q = 0 with p = Σ(a − 1) − Σ(c − 1),
    P = Σ bθ and Q = Σ dβ. It is 1 if there is no maximum.
    """
    sums, (n, _) = sum_rows(components.T), problem.counts.shape
    if problem.components_prior.support == "simplex":
        return sums
    if problem.components_prior.flat and problem.loadings_prior.flat:
        return np.sqrt((sums / components.shape[1]) / (of_rows[1] / n))
    (p_loadings, P), (p_components, Q) = of_rows, _sums_of_prior(prior, components.T)
    p = p_loadings - p_components
    root = np.sqrt(p**2 + 4 * P * Q)
    top, bottom = np.where(p > 0, p + root, 2 * Q), np.where(p > 0, 2 * P, root - p)
    return np.divide(top, bottom, out=np.ones_like(top), where=bottom > 0)


def _both_positive(problem: Problem) -> bool:
    """Return whether neither side lies on a simplex."""
    return problem.loadings_prior.support == problem.components_prior.support == "positive"


def _shrinkage(problem: Problem) -> Array:
    """Return r + τ, (1 or n, 1), which divides the loadings ([GP] lemma 6.1); r if τ is part of the regression."""
    if _both_positive(problem):
        return problem.counts.row_factor
    prior: Any = problem.loadings_prior
    _, rate = prior.regression_terms(1)
    return problem.counts.row_factor + rate[:, :1]


def modes_of_components(problem: Problem, components: Array) -> Side:
    """Return the modes that correspond to unnormalised components."""
    if problem.counts.feature_weights is not None:
        components = (components / problem.counts.feature_weights).astype(components.dtype)
    summary: Any = problem.components_summary
    side: Side = summary.at(problem.components_prior, components)
    return side


def modes_of_rows(problem: Problem, before: Side, loadings: Array) -> Side:
    """Return the modes that correspond to unnormalised loadings; rows without counts stay as they were before."""
    prior: Any = problem.loadings_prior
    counts, totals = problem.counts, problem.counts.row_totals[:, None]
    if prior.support != "positive":
        kept, _ = separate_scale(before.value)
        loadings = np.where(totals > 0, loadings / loadings.sum(axis=1, keepdims=True), kept)
    else:
        divisor = _shrinkage(problem).astype(loadings.dtype)
        loadings = loadings if np.all(divisor == 1) else loadings / divisor
    value: Any = loadings
    if prior.support == "scaled simplex":
        exposure = counts.row_factor.astype(loadings.dtype)
        value = prior.with_best_scale(loadings, totals.astype(loadings.dtype), exposure)
    summary: Any = problem.loadings_summary
    side: Side = summary.at(prior, value)
    return side


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
    plain = replace(schedule, kind="alternating", sweeps=1)
    known, terms = problem, None  # terms of the priors of a problem, until a dispersion is learned

    def steps(here: Iterate) -> Iterator[State]:
        nonlocal known, terms
        now = here.problem
        if terms is None or now is not known:
            known, terms = now, gamma_terms(now, len(here.state.components.geometric))
        yield descended(now, here.state, schedule, kind, terms=terms)
        yield update_both_sides(now, here.state, allocate(now, here.state, schedule.threads, plain.visited), plain)

    return steps


def descended(
    problem: Problem, state: State, schedule: Schedule, kind: str, times: int = 1, terms: Terms | None = None
) -> State:
    """Return the state after coordinate descent over both sides, some times; the objective may fall.

    The parameters are those of `regression_steps`, and `gamma_terms` of the problem, if they are known.
    """
    settings = {"sweeps": schedule.sweeps, "newton_steps": NEWTON_STEPS[kind], "floor": FLOOR, "reuse": True}
    columns, factors = problem.counts.by_feature(), Factors(problem, state, settings, schedule.threads, terms)
    for _ in range(times):
        for side in schedule.sides:
            if side == "loadings":
                factors.regress_rows()
            else:
                factors.regress_features(columns)
            factors.rescale()
    return factors.state()


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
    terms : list, optional
        The `gamma_terms` of the problem, if they are known.
    """

    def __init__(
        self, problem: Problem, state: State, settings: dict[str, Any], threads: int | None, terms: Terms | None = None
    ) -> None:
        self.problem = replace(problem, counts=problem.counts.without_names())
        self.begun, self.settings, self.threads = state, settings, threads
        self.components = padded_copy(np.maximum(unnormalised_components(problem, state), FLOOR), 0)
        self.terms = gamma_terms(problem, len(self.components)) if terms is None else terms
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
