"""Make a start by its name: random, or from a decomposition of the data, with or without a descent after it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from bayesnmf.data.counts import Counts
from bayesnmf.data.rated import RatedCounts
from bayesnmf.inference.alignment import assign_components, cosine
from bayesnmf.inference.allocating import allocate_at_means
from bayesnmf.inference.ascent.coordinate_ascent import Schedule, Steps, ascend
from bayesnmf.inference.ascent.poisson_regression import regression_steps
from bayesnmf.inference.blocked.passes import pass_over_rows, totals_of
from bayesnmf.inference.blocked.tasks import Where
from bayesnmf.inference.problem import Problem, State
from bayesnmf.inference.side import Side, empty_side
from bayesnmf.inference.starts.decomposition import positive_factors
from bayesnmf.inference.starts.states import loadings_of_totals, random_state, with_components
from bayesnmf.inference.status import INTERRUPTED
from bayesnmf.inference.summaries import Mode
from bayesnmf.kernels.cpu.allocation import Totals
from bayesnmf.options.algorithms import ALGORITHMS
from bayesnmf.priors import Dirichlet, Gamma
from bayesnmf.priors.values import rows_to_shares
from bayesnmf.types import Array

type Begin = Callable[[Problem, int, np.random.Generator], State]
DESCENT = 50  # iterations without priors
RANK_ONE = 10  # iterations that fit rows and features to counts with missing cells


def state_from_word(problem: Problem, word: str, rank: int, rng: np.random.Generator) -> State:
    """Return the start with this name: "svd", "descent", "random" or "random_descent"."""
    if isinstance(problem.counts, RatedCounts):  # rates would be those of a start that there is not yet
        problem = replace(problem, counts=problem.counts.plain)
    begin = random_state if word.startswith("random") else data_state
    return _descended_state(problem, begin, rank, rng) if word.endswith("descent") else begin(problem, rank, rng)


def data_state(problem: Problem, rank: int, rng: np.random.Generator) -> State:
    """Return the state of the conditionals given the allocations at the NNDSVD factors.

    Priors and summaries do not affect these factors. Components beyond the rank of the counts are random.
    """
    filled = replace(problem, counts=completed(problem.counts))
    return _state_at(problem, *positive_factors(filled, rank, rng))


def _descended_state(problem: Problem, begin: Begin, rank: int, rng: np.random.Generator) -> State:
    """Return the state of the conditionals given the allocations at factors from a short descent without priors.

    With small concentrations, each row soon keeps its first components, and these are still poor. Coordinate descent on
    the likelihood alone ([C] alg. 1) first finds better components.
    """
    flat = flat_problem(completed(problem.counts))
    schedule = Schedule("alternating", sweeps=ALGORITHMS["scd"].sweeps, max_iter=DESCENT)
    fitted = state_after_steps(flat, begin(flat, rank, rng), schedule, regression_steps(flat, schedule, "scd"))
    return _state_at(problem, fitted.loadings, fitted.components.geometric)


def flat_problem(counts: Counts) -> Problem:
    """Return the problem whose objective is the log-likelihood of these counts; its factors include exposures."""
    return Problem(
        counts.with_mask(None).with_exposure(None, None), Gamma(1.0, 0.0), Dirichlet(1.0), Mode(), Mode(estimated=True)
    )


def completed(counts: Counts) -> Counts:
    """Return counts for a start, with missing cells filled by means of rank one, or with zeros if they are most."""
    mask = counts.mask
    return counts.completed(means_of_rank_one(counts) if mask is not None and mask.of_missing else None)


def means_of_rank_one(counts: Counts) -> tuple[Array, Array]:
    """Return factors (n,) and (m,) whose products are the means of the counts given their totals, without the mask."""
    mask: Any = counts.mask
    rows, features = np.ones((counts.shape[0], 1)), np.ones((counts.shape[1], 1))
    for _ in range(RANK_ONE):
        seen = features.sum() - mask.sums_by_row(features)
        rows = np.divide(counts.row_totals[:, None], seen, out=np.zeros_like(rows), where=seen > 0)
        seen = rows.sum() - mask.sums_by_feature(rows)
        features = np.divide(counts.feature_totals[:, None], seen, out=np.zeros_like(features), where=seen > 0)
    return rows[:, 0], features[:, 0]


def _state_at(problem: Problem, loadings: Side, components: Array) -> State:
    """Return the state of the conditionals given the allocations at factors, with known components in their places."""
    dtype = problem.counts.dtype
    order, components = _with_known(problem, components.astype(dtype))

    def work(part: Problem, here: State, at: Where) -> tuple[Side, Totals, float]:
        rows = here.loadings.matrix.astype(dtype)
        totals = allocate_at_means(part.counts, rows if order is None else rows[:, order], components, at.threads)
        return loadings_of_totals(part, totals.loadings), totals, 0.0

    found, loadings = pass_over_rows(problem, State(loadings, empty_side()), work)
    return with_components(problem, loadings, totals_of(problem, found))


def _with_known(problem: Problem, components: Array) -> tuple[Array | None, Array]:
    """Return components with each known one in place of the one most like it, and the order of the loadings then.

    The others are then what is left. The known one gets the sum of the other, as the loadings stay.
    """
    constants = problem.components_prior.constants
    if "known" not in constants:
        return None, components
    at, known = constants["at"], constants["known"] * problem.counts.feature_factor
    alike = np.zeros((len(components), len(components)))
    alike[:, at] = cosine(components, known)
    order = assign_components(alike)
    components = components[order]
    components[at] = rows_to_shares(known, known.sum(axis=1)) * components[at].sum(axis=1, keepdims=True)
    return order, np.maximum(components, np.finfo(components.dtype).tiny)


def state_after_steps(problem: Problem, state: State, schedule: Schedule, steps: Steps) -> State:
    """Return the state after the iterations that prepare a start.

    Raises
    ------
    KeyboardInterrupt
        Ctrl-C was pressed; an unfinished start is not kept.
    """
    ascent = ascend(problem, state, schedule, steps=steps)
    if ascent.status.reason == INTERRUPTED:
        raise KeyboardInterrupt
    return ascent.state
