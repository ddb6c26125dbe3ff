"""Fit replicated counts again: what the statistics of a right model would be, fitted as these counts were.

Counts lie closer to means that were fitted to them than to the means that they come from, so statistics of a right
model must be compared with those of replicates that were fitted, too (a parametric bootstrap; Efron & Tibshirani 1993,
chapter 16). Each replicate is made at a posterior draw, or at the point of a fit that has no posterior. Its fit has the
noise of the fit, with its dispersion, starts from that of the counts, and takes the extrapolated steps of map or of vi:
on 60 × 30 and 100 × 96 counts, replicated at one point, the misfit after 12 steps was within 0.07 standard deviations
of that after 200.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import chain, islice
from typing import Any, Self

import numpy as np

from bayesnmf.assessment.predictive_statistics import Measured, measure
from bayesnmf.assessment.replicates import replicate_of
from bayesnmf.data.counts import Counts
from bayesnmf.fitting.closed_form import schedule_of, steps_of
from bayesnmf.fitting.problems import point_or_mean_field, start_state
from bayesnmf.inference.ascent.coordinate_ascent import ascend
from bayesnmf.inference.problem import Problem, State
from bayesnmf.inference.status import INTERRUPTED
from bayesnmf.options import MAP, VI
from bayesnmf.options.methods import resolve_options
from bayesnmf.priors.noise import POISSON
from bayesnmf.priors.values import separate_scale
from bayesnmf.results.draws import restrict_rows
from bayesnmf.results.record import FitRecord, effective_loadings
from bayesnmf.results.replication import draws_to_replicate, number_to_replicate
from bayesnmf.types import Array

STEPS, FIRST_STEPS = 12, 200  # of a replicate, and of the counts themselves, from the fit
MOST = 2**26  # nonzeros times components, beyond which some rows stand for all


@dataclass(frozen=True, eq=False)
class Refitted:
    """Counts with the means that were fitted to them.

    Attributes
    ----------
    fit : FitRecord
        Fit of these rows, for its model and exposures.
    options : MAP or VI
        Options of the ascent.
    rows : ndarray
        Positions of these rows among all.
    problem : Problem
        Problem of map or vi of these counts.
    state : State
        State that the ascent reached.
    """

    fit: FitRecord
    options: MAP | VI
    rows: Array
    problem: Problem
    state: State

    @classmethod
    def of(cls, fit: FitRecord) -> Self:
        """Return the counts of a fit, or of rows of it if they are many, at the optimum of map or vi near the fit."""
        part, rows = _rows_of(fit)
        options = _options(part)
        problem = point_or_mean_field(part.working_counts, options)
        problem = replace(problem, constant=False, fixed_components=part.is_projected)
        state = start_state(problem, part, fit.rank, np.random.default_rng(fit.seed))
        return cls(part, options, rows, problem, state).settled(FIRST_STEPS)

    def settled(self, steps: int) -> Self:
        """Return the same counts after up to `steps` steps of ascent."""
        schedule = replace(schedule_of(self.options), max_iter=steps, kkt_tol=None)
        found = ascend(self.problem, self.state, schedule, steps=steps_of(self.problem, self.options, schedule))
        if found.status.reason == INTERRUPTED:
            raise KeyboardInterrupt
        return replace(self, state=found.state)

    @property
    def counts(self) -> Counts:
        """The counts, as routines for Poisson counts are given them."""
        return self.problem.counts

    def factors(self) -> tuple[Array, Array]:
        """Return loadings (n, K) and components (K, m), in float64, whose product are the fitted means."""
        loadings = effective_loadings(
            self.fit, *separate_scale(self.state.loadings.value), self.state.components.matrix
        )
        components = self.fit.counts.exposed_components(self.state.components.matrix)
        return np.asarray(loadings, np.float64), np.asarray(components, np.float64)

    def measured(self, threads: int | None) -> Measured:
        """Return the statistics of the counts and of their means."""
        return measure(self.counts.matrix, *self.factors(), threads, self.fit.noise, self.fit.counts.mask)

    def replicates(self, number: int, seed: int) -> Iterator[Refitted]:
        """Yield replicates of the counts at draws of the fit, each fitted from these means."""
        counts, rng = self.fit.counts, np.random.default_rng([seed, 2])
        draws = number_to_replicate(self.fit, number)  # if a sampler kept fewer, each makes several replicates
        drawn = chain.from_iterable(draws_to_replicate(self.fit, draws, seed) for _ in range(-(-number // draws)))
        for take, components in islice(drawn, number):
            loadings = effective_loadings(self.fit, *take(slice(0, counts.shape[0])), components)
            means = np.asarray(loadings, np.float64), np.asarray(counts.exposed_components(components), np.float64)
            matrix = replicate_of(self.fit, means, int(rng.integers(2**63)), self.options.threads)
            replicated = self.counts.with_matrix(matrix.astype(counts.dtype, copy=False))
            yield replace(self, problem=replace(self.problem, counts=replicated)).settled(STEPS)


def _rows_of(fit: FitRecord) -> tuple[FitRecord, Array]:
    """Return a fit whose rows are in memory and few enough, all or evenly spaced ones, and their positions."""
    n = fit.counts.shape[0]
    number = min(n, max(int(n * MOST / max(fit.counts.nnz * fit.rank, 1)), 1))
    rows = np.arange(number) * n // number
    if number == n:
        return replace(fit, counts=fit.counts.at_hand()), rows
    part = restrict_rows(fit, rows)
    prior: Any = fit.priors.loadings
    own = prior.of_new_rows(part.loadings).rows(rows)
    return replace(part, priors=replace(fit.priors, loadings=own)), rows


def _options(fit: FitRecord) -> MAP | VI:
    """Return options of an ascent near the fit, by map if the fit is one, else by vi."""
    given: dict[str, Any] = {"priors": fit.priors, "threads": getattr(fit.options, "threads", None)}
    options: MAP | VI = MAP(basis=fit.options.basis, **given) if isinstance(fit.options, MAP) else VI(**given)
    resolved: Any = resolve_options(options, plain=fit.noise != POISSON or fit.counts.mask is not None)
    return resolved
