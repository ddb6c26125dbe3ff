"""The factors of batches that are expected at a state, and the means of the counts of whole batches.

Given what is counted, x_gj, and its mean R_gj without factors, q(b_gj) = Gamma(a + x_gj, a + R_gj). Of Poisson counts
both are known. Expected clusters depend on b̃ = exp E log b, and the rates of entries on E b, which R depends on: so
log b̃ = ψ(a + x) − log(a + R) is solved for b̃, by steps of the secant, from the factors of an earlier state. The root
is where the objective is largest, as the right-hand side rises less than log b̃ does.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
from scipy.special import digamma

from bayesnmf.data.batched import TINY
from bayesnmf.inference.problem import Problem, State
from bayesnmf.inference.rates import EntryMeans, rated_problem, sum_of_row_blocks
from bayesnmf.inference.side import empty_side, spread_at
from bayesnmf.kernels.cpu.clusters import expected_clusters
from bayesnmf.types import Array

MOST, STEEPEST = 30, 0.95  # steps of the secant, and how much of log b̃ its right-hand side may be taken to follow
NEAR = 1e3  # distance of log b̃ from its root, in its standard deviations and roots of rounding

Counted = Callable[[Array], tuple[Array, Array]]


def means_of_batches(problem: Problem, state: State) -> Array:
    """Return sums of the means without factors of the observed entries of each batch and feature, (B, m)."""
    counts: Any = problem.counts
    components = counts.noisy.exposed_components(np.asarray(state.components.matrix, np.float64))

    def of_rows(part: Problem, here: State, rows: slice) -> Array:
        own: Any = part.counts
        loadings = own.noisy.exposed_loadings(np.asarray(here.loadings.matrix, np.float64))
        whole = own.noisy.mask is None
        return own.batches.sums(loadings) if whole else sums_of_means(own, loadings, components)

    found = problem.over_rows(State(state.loadings, empty_side()), of_rows, operator.add, reads=False)
    return np.asarray(found @ components if counts.noisy.mask is None else found)


def sums_of_means(own: Any, loadings: Array, components: Array) -> Array:
    """Return sums of means over the observed entries of each batch and feature, (B, m).

    Own are the counts in batches, of the rows of these loadings.
    """
    sums = own.batches.sums(loadings) @ components
    for batch, (rows, mask) in enumerate(own.missing_parts):
        sums[batch] -= (mask.sums_by_feature(loadings[rows]).T * components).sum(axis=0)
    return np.maximum(sums, 0.0) if own.missing_parts else sums


def problem_at(problem: Problem, state: State, threads: int | None = None, moving: Array | None = None) -> Problem:
    """Return the problem with the factors of batches and the rates of entries that are expected at a state.

    With `moving`, booleans (n,), the other rows keep their rates, and factors stay.
    """
    counts: Any = problem.counts
    if moving is not None or not (counts.has_factors and counts.expects_factors):
        return rated_problem(problem, state, threads, moving)
    x, a = counts.of_batches, counts.shape_of_factors
    if counts.summed_out:
        return replace(problem, counts=counts.expecting(x, means_of_batches(problem, state), x, state))
    begun = np.ones(x.shape) if counts.factors is None else np.maximum(counts.factors, TINY)
    before = a + (x if counts.counted is None else counts.counted)
    logs, counted = np.log(begun / before) + digamma(before), _counted(problem, state, threads)
    near = NEAR * np.sqrt(np.finfo(counts.dtype).eps)
    last: tuple[Array, Array] | None = None
    for left in reversed(range(MOST)):
        clusters, means = counted(logs)
        aim = digamma(a + clusters) - np.log(a + means)
        step = aim - logs
        if not left or (np.abs(step) * np.sqrt(a + clusters)).max() < near:
            break
        follows = 0.0 if last is None else _slopes(logs - last[0], aim - last[1])
        last, logs = (logs, aim), logs + step / (1.0 - follows)
    if counts.has_entry_rates:
        problem = rated_problem(_with_means(problem, logs), state, threads)
    own: Any = problem.counts
    return replace(problem, counts=own.expecting(clusters, means, np.exp(logs), state))


def _slopes(moved: Array, followed: Array) -> Array:
    """Return how much the right-hand side has followed log b̃, as far as this has moved at all."""
    far = np.abs(moved) > np.finfo(np.float32).eps
    return np.clip(np.divide(followed, moved, out=np.zeros_like(moved), where=far), 0.0, STEEPEST)


def _with_means(problem: Problem, logs: Array) -> Problem:
    """Return the problem with the factors E b of counts with rates, whose q has the shape a + x."""
    counts: Any = problem.counts
    shapes = counts.shape_of_factors + counts.of_batches
    return replace(problem, counts=replace(counts, factors=np.exp(logs - digamma(shapes)) * shapes))


def _counted(problem: Problem, state: State, threads: int | None) -> Counted:
    """Return what is counted, and its means without factors, as a function of log b̃."""
    counts: Any = problem.counts
    if counts.has_entry_rates:

        def with_rates(logs: Array) -> tuple[Array, Array]:
            given = _with_means(problem, logs)
            own: Any = given.counts

            means = EntryMeans.at(own, state)

            def sums(rows: slice) -> Array:
                x, rho, _ = means.beside(rows)
                rates = own.noise.expected_rates_alone(x, rho, own.of_entries(own.dispersions, rows))
                found: Array = own.batches.rows(rows).sums(rates * rho)
                return found

            return own.of_batches, sum_of_row_blocks(own.shape, sums, threads) / own.factors

        return with_rates
    means = means_of_batches(problem, state)

    def in_clusters(logs: Array) -> tuple[Array, Array]:
        def of_rows(part: Problem, here: State, rows: slice) -> Array:
            own: Any = part.counts
            spread: Any = spread_at(own, here)
            factors = here.loadings.geometric, here.components.geometric
            found = expected_clusters(own.matrix, *factors, spread, threads)[0]
            return np.asarray((own.batches.members @ found).toarray())

        given = replace(problem, counts=replace(counts, factors=np.exp(logs), geometric=np.exp(logs)))
        return given.over_rows(state, of_rows, reads=True), means

    return in_clusters
