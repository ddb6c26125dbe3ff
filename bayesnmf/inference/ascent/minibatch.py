"""Stochastic variational inference: natural-gradient steps from batches of rows.

Hoffman, Blei, Wang and Paisley (2013), *Stochastic variational inference*, JMLR 14, for every pair of priors. The
loadings of a batch's rows are updated until they settle given the components. Then the natural parameters λ of
q(components) move by a fraction ρ towards the values that they would have if all rows were like the batch::

    λ ← (1 − ρ) λ + ρ (prior + n / |batch| · totals of the batch)         ρ = (t + delay)^(−forgetting)

λ is the prior plus n times a running mean of the totals per row, so `RunningComponents` stores this mean. Rates of
Gammas follow in the same way from a running mean of exposures. Components without a prior are the mode at the running
totals (stochastic EM). Allocation step, updates and objective are those of coordinate ascent. Exposures of Gamma
components are those of the observed entries of a batch; those on the simplex would receive counts of missing entries,
while the loadings of a batch do not, so the two would raise different bounds.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy.sparse import csr_array

from bayesnmf.data.counts import Counts
from bayesnmf.inference.ascent.coordinate_ascent import Ascent, Reached
from bayesnmf.inference.ascent.course import WINDOW, Schedule
from bayesnmf.inference.ascent.settled_loadings import (
    FINAL_ITER,
    FINAL_TOL,
    even_loadings,
    loadings_at,
    put_rows,
    rows_of_problem,
    rows_to_change,
    settle_blocks,
    settle_loadings,
)
from bayesnmf.inference.checkpoints.slots import next_slot
from bayesnmf.inference.dispersion import learner_of
from bayesnmf.inference.problem import Problem, State
from bayesnmf.inference.side import MeanField, Side
from bayesnmf.inference.sides import allocate, exposure_of_components, update_loadings
from bayesnmf.priors import Distribution
from bayesnmf.types import Array

LOCAL_TOL, LOCAL_ITER = 1e-2, 100  # tolerance for a batch's rows, relative to their largest loading
SHARED_WORK = 5_000_000  # multiply-adds per pass over a batch above which threads help, even on a busy machine
WORDS = "bound rose by less than {tol:g} relative in {window} epochs", "all {max_iter} epochs done"
LEAST_FACTOR = 1e-6  # below this the factor is multiplied into the running totals


@dataclass(frozen=True)
class Batching:
    """Batch size and step sizes.

    Attributes
    ----------
    size : int
        Largest number of rows of a batch.
    forgetting, delay : float
        Parameters of the size (t + delay)^−forgetting of step t = 1, 2, …, which is at most 1. With forgetting in
        (0.5, 1] the steps converge (Robbins & Monro 1951).
    sweeps : int or None
        Number of updates of a batch's loadings before the components move; None updates them until they settle.
    """

    size: int = 256
    forgetting: float = 0.6
    delay: float = 1.0
    sweeps: int | None = None

    def rate(self, step: int) -> float:
        """Return the size of a step; steps are counted from 1."""
        return (step + self.delay) ** -self.forgetting

    def split(self, rows: Array) -> list[Array]:
        """Return the rows in as few batches as possible, with sizes that differ by at most one."""
        return np.array_split(rows, -(-len(rows) // self.size))


class RunningComponents:
    """Components as running means over rows: totals (K, m), in counts per row, and exposures (K, 1 or m).

    Totals are stored as a factor times an array, so that a step writes only the features of its batch.

    Parameters
    ----------
    problem : Problem
        Problem with the prior and summary of the components, and with the counts from which `side` was computed.
    side : Side
        Components to start from.
    rows : int
        Number of rows of the whole problem.
    """

    checkpointed = "values", "factor", "sums", "exposure"

    def __init__(self, problem: Problem, side: Side, rows: int) -> None:
        self.prior: Any = problem.components_prior
        self.summary: Any = problem.components_summary
        self.rows = rows
        q: Any = side.conditional
        if q is None:  # values do not show how many counts they come from
            total, exposure = side.matrix * (problem.counts.total / len(side.matrix)), np.zeros((1, 1))
        else:
            counted = self.prior.counted
            total = np.asarray(q.parameters[counted]) - self.prior.parameters[counted]
            exposure = np.atleast_2d(q.exposed_parameter - np.asarray(self.prior.exposed_parameter))
        if np.all(exposure == exposure[:, :1]):
            exposure = exposure[:, :1]
        dtype = problem.counts.dtype
        self.exposure = np.asarray(exposure / rows, dtype)
        self.equal_features = problem.counts.feature_weights is None and problem.counts.mask is None
        self.factor = 1.0
        self.values = np.asarray(total / rows, dtype).T.copy()
        self.sums = self.values.sum(axis=0, dtype=np.float64)

    def side(self) -> Side:
        """Return all components as a side."""
        total = (self.rows * self.factor) * self.values.T
        return self.summary.summarise(self.prior, total, self.rows * self.exposure, None)

    def side_of(self, features: Array) -> Side:
        """Return a side with the chosen features and, in one last column, the sum of all others if there are any.

        The local problem of a batch depends on features without counts only through their sum. Sums of Dirichlet
        entries are Dirichlet, and sums of Gammas with one rate are Gamma. The penalty is left out.
        """
        prior, summary = self.prior, self.summary
        if isinstance(summary, MeanField):
            prior, summary = self._prior_of(features), replace(summary, penalised=False)
        total = self.values[features] * (self.rows * self.factor)
        if len(features) < len(self.values):
            others = self.rows * self.sums - total.sum(axis=0, dtype=np.float64)
            total = np.vstack([total, np.maximum(others, 0).astype(total.dtype)])
        return summary.summarise(prior, total.T, self.rows * self.exposure, None)

    def step(self, features: Array, total: Array, exposure: Array, rate: float) -> None:
        """Move by the fraction `rate` towards a batch's means: totals (K, features) and exposures (K, 1 or m)."""
        factor = (1 - rate) * self.factor
        if factor < LEAST_FACTOR:
            self.values, self.factor, factor = self.values * factor, 1.0, 1.0
        sums = (1 - rate) * self.sums + rate * total.sum(axis=1, dtype=np.float64)
        exposure = (1 - rate) * self.exposure + rate * exposure
        self.values[features] += (rate / factor) * total.T
        self.factor, self.sums, self.exposure = factor, sums, exposure

    @property
    def mergeable(self) -> bool:
        """Whether sums of features have a distribution of the same family, that is, their rates are equal."""
        rate = np.atleast_1d(self.prior.exposed_parameter)
        return rate.shape[-1] == 1 and self.exposure.shape[-1] == 1 and self.equal_features

    def _prior_of(self, features: Array) -> Distribution:
        """Return the prior of the chosen features and of the sum of all others."""
        given = np.asarray(self.prior.parameters[self.prior.counted])
        m, each = len(self.values), given.shape and given.shape[-1] > 1
        few = given[..., features] if each else np.broadcast_to(given, (*given.shape[:-1], len(features)))
        if len(features) < m:
            whole = given.sum(axis=-1, keepdims=True) if each else given * m
            last = whole - few.sum(axis=-1, keepdims=True)
            few = np.concatenate([few, last], axis=-1)
        return replace(self.prior, **{self.prior.counted: few})


def merge_empty_features(counts: Counts, mergeable: bool) -> tuple[Counts, Array]:
    """Return counts with all empty features merged into a last one, and the indices of the other features."""
    matrix, m = counts.matrix, counts.shape[1]
    present = np.zeros(m, dtype=bool)
    present[matrix.indices] = True
    features = np.flatnonzero(present)
    if len(features) == m or not mergeable or counts.mask is not None:
        return counts, np.arange(m)
    places = np.cumsum(present, dtype=matrix.indices.dtype) - 1
    arrays = (matrix.data, places[matrix.indices], matrix.indptr)
    merged = csr_array(arrays, shape=(counts.shape[0], len(features) + 1))
    names = np.append(counts.feature_names[features], "others")
    return counts.with_features(merged, names), features


def step_on_batch(
    components: RunningComponents,
    part: Problem,
    q: Distribution | None,
    batching: Batching,
    step: int,
    threads: int | None,
) -> Distribution:
    """Settle the loadings of a batch, take a step of the components, and return q of the loadings.

    Parameters
    ----------
    components : RunningComponents
        Components, updated in place.
    part : Problem
        Problem of the batch's rows, with all features.
    q : Distribution or None
        Mean field from which the loadings start; None starts with each row's counts divided equally.
    batching : Batching
        Step sizes, and number of updates of the loadings.
    step : int
        Number of the step, counted from 1.
    threads : int or None
        Number of row blocks processed at once.
    """
    counts, features = merge_empty_features(part.counts, components.mergeable)
    side = components.side_of(features)
    summary: Any = MeanField(component_axis=1, penalised=False)
    part = replace(part, counts=counts, loadings_summary=summary, fixed_components=True)
    loadings = even_loadings(part, side, len(side.matrix)) if q is None else summary.of(part.loadings_prior, q)
    if threads is None and counts.nnz * len(side.matrix) < SHARED_WORK:
        threads = 1
    tol, most = (LOCAL_TOL, LOCAL_ITER) if batching.sweeps is None else (0.0, batching.sweeps - 1)
    state = settle_loadings(part, State(loadings, side), tol, most, threads).state
    totals = allocate(part, state, threads)
    state = update_loadings(part, state, totals.loadings)
    rows = counts.shape[0]
    means = totals.components[:, : len(features)] / rows, exposure_of_components(part, state.loadings) / rows
    components.step(features, *means, batching.rate(step))
    return state.loadings.conditional  # type: ignore[return-value]


class Epochs:
    """What random batches have made of both sides: components, q of the loadings, and the number of steps so far."""

    checkpointed = "components", "q", "steps", "rng"

    def __init__(self, components: RunningComponents, q: Any, rng: np.random.Generator) -> None:
        self.components, self.q, self.rng, self.steps = components, q, rng, 0

    def run(self, problem: Problem, batching: Batching, threads: int | None) -> None:
        """Take a step for each batch of all rows, in random order."""
        for rows in batching.split(self.rng.permutation(problem.counts.shape[0])):
            self.steps += 1
            part = rows_of_problem(problem, rows)
            put_rows(
                self.q, rows, step_on_batch(self.components, part, self.q.rows(rows), batching, self.steps, threads)
            )

    def state(self, problem: Problem) -> State:
        """Return both sides."""
        return State(loadings_at(problem, self.q), self.components.side())


def minibatch_ascent(
    problem: Problem,
    state: State,
    schedule: Schedule,
    report: Callable[[int, float], None],
    batching: Batching,
    rng: np.random.Generator,
) -> Ascent:
    """Run epochs over all rows in random batches until the elbo settles, `max_iter` is reached or Ctrl-C is pressed.

    A batch's loadings start from their values in the previous epoch. The trace contains the elbo of all rows after each
    epoch; after the last epoch all rows are settled first. The elbo may fall between epochs, so the ascent is converged
    when the best elbo of the last epochs exceeds the best before by less than `tol`. A dispersion that is to be learned
    is, after each epoch.
    """
    threads, slot = schedule.threads, next_slot("minibatch", problem.counts)
    q = rows_to_change(state.loadings, problem.counts, len(state.components.geometric))
    epochs = Epochs(RunningComponents(problem, state.components, problem.counts.shape[0]), q, rng)
    course = replace(schedule, window=WINDOW).course(report, at_rest=best_settled, words=WORDS)
    learn = learner_of(problem, threads)
    reached, moved = Reached(problem, None, course, epochs, learn), False
    begun = slot.recall(reached)

    def bound(tol: float = 0.0, max_iter: int = 0) -> float:
        return settle_blocks(reached.problem, epochs.components.side(), epochs.q, tol, max_iter, threads)[0]

    with course:
        going = begun == "begun" or (begun == "new" and course.reach(bound()))
        while going:
            if slot.due():
                slot.save(reached)
            moved = True
            epochs.run(reached.problem, batching, threads)
            if learn is not None:
                reached.problem, _ = learn(reached.problem, epochs.state(reached.problem))
            value, moved = bound(), False
            going = course.reach(value)
        if begun != "ended" and schedule.max_iter and not np.isnan(course.trace[-1]):
            course.trace[-1] = bound(FINAL_TOL, FINAL_ITER)
    if course.interrupted:  # include the steps since the last bound
        course.trace[len(course.trace) - (not moved) :] = [bound()]
    elif begun != "ended":
        slot.end(reached)
    return Ascent(reached.problem, epochs.state(reached.problem), course.trace, [], course.status)


def best_settled(trace: list[float], tol: float, window: int) -> bool:
    """Return whether the best of the last epochs exceeds the best before by less than `tol` times its size."""
    if tol == 0 or len(trace) <= window:
        return False
    before, lately = max(trace[:-window]), max(trace[-window:])
    return lately - before < tol * max(abs(lately), 1.0)
