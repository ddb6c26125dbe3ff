"""Build a problem and a state to start from, from counts, priors and the `start` option."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from bayesnmf.data.checks import check_start_names
from bayesnmf.data.counts import Counts
from bayesnmf.fitting.checks import (
    check_on_simplex,
    check_start_distribution,
    check_start_factor,
)
from bayesnmf.inference.problem import Problem, State
from bayesnmf.inference.side import Draw, MeanField, Mode, Summary
from bayesnmf.inference.starts.states import Given, given_state, state_from_word
from bayesnmf.options import BLD, MAP, SMC, VI, Options, Start
from bayesnmf.options.methods import basis_of_mode
from bayesnmf.priors import Distribution, Priors, ScaledProportions
from bayesnmf.priors.specification import PARAMETER, stated_components
from bayesnmf.priors.values import attach_scale, component_sums, rows_to_shares
from bayesnmf.results.record import FitRecord
from bayesnmf.types import Array


def build_problem(counts: Counts, priors: Priors, loadings: Summary, components: Summary) -> Problem:
    """Return the problem of counts, priors and summaries; components without a prior are modes under Dirichlet(1)."""
    if priors.components == PARAMETER:
        components = Mode(estimated=True)
    prior: Any = priors.loadings
    return Problem(counts, prior, stated_components(priors.components), loadings, components)


def point_or_mean_field(counts: Counts, options: MAP | VI) -> Problem:
    """Return the problem of map or vi."""
    if isinstance(options, MAP):
        mode = Mode(basis_of_mode(options))
        return build_problem(counts, options.priors, mode, mode)
    sides = (MeanField(component_axis=axis, threads=options.threads) for axis in (1, 0))
    return build_problem(counts, options.priors, *sides)


def draws_problem(counts: Counts, priors: Priors, rng: np.random.Generator, threads: int | None = 1) -> Problem:
    """Return the problem of gibbs, with draws from `rng` on `threads` threads."""
    draw = Draw(rng, threads)
    return build_problem(counts, priors, draw, draw)


def start_state(problem: Problem, start: Any, rank: int, rng: np.random.Generator, show: Any = None) -> State:
    """Return the state that the `start` option describes; a descent calls `show` with its iteration and objective."""
    if isinstance(start, str):
        return state_from_word(problem, start, rank, rng, show)
    n, m = problem.counts.shape
    loadings, components = given_start(start, problem.counts, problem.loadings_prior, problem.components_prior)
    loadings = _check_given(loadings, problem.loadings_prior, "loadings", (n, rank))
    components = _check_given(components, problem.components_prior, "components", (rank, m))
    return given_state(problem, loadings, problem.components_prior.with_known(components))


def with_own_start(options: Options, counts: Counts) -> Options:
    """Return the options with a fit given as start replaced by a `Start`.

    Otherwise each fit in a chain of continued fits would keep all earlier ones in memory.
    """
    start = getattr(options, "start", None)
    if isinstance(options, SMC) or not isinstance(start, FitRecord):
        return options
    if isinstance(options, BLD) and start.multipliers is not None:
        return replace(options, start=Start(*start.multipliers))
    priors = options.priors
    taken: Any = given_start(start, counts, priors.loadings, stated_components(priors.components))
    return replace(options, start=Start(*taken))


def given_start(
    start: Start | FitRecord, counts: Counts, loadings_prior: Any, components_prior: Any
) -> tuple[Given, Given]:
    """Return the loadings and components of a start for these counts.

    The q of a fit is used if it has the families of these priors and the same exposures, else its point estimates.
    """
    if not isinstance(start, FitRecord):
        return start.loadings, start.components
    check_start_names(start, counts)
    q: Any = start.estimate
    same_unit = start.counts.exposed_like(counts.plain)  # without what a noise exposes
    if q.kind == "mean field" and same_unit and type(q.loadings) is loadings_prior.conditional_family:
        if q.components is None:
            return q.loadings, start.components
        if type(q.components) is components_prior.conditional_family:
            return q.loadings, q.components
    return _points_of(start, counts, loadings_prior, components_prior)


def _points_of(start: FitRecord, counts: Counts, loadings_prior: Any, components_prior: Any) -> tuple[Given, Given]:
    """Return both sides of a fit of any model as points on the scale of these priors, with the same fitted shares."""
    components = np.asarray(start.exposed_components, dtype=np.float64)
    loadings = np.asarray(start.expected_loadings, dtype=np.float64)
    if components_prior.support == "simplex":
        loadings, components = loadings * component_sums(components), _normalise_rows(components)
    components = components / counts.feature_factor
    if loadings_prior.support == "scaled simplex" and start.scale is not None:
        scale = start.counts.exposed_loadings(start.scale[:, None]) / counts.row_factor
        return attach_scale(start.loadings, scale[:, 0]), components  # proportions of empty rows too
    if loadings_prior.support == "simplex":
        return start.loadings if np.allclose(start.loadings.sum(axis=1), 1) else _normalise_rows(loadings), components
    return loadings / counts.row_factor, components


def _normalise_rows(rows: Array) -> Array:
    """Return rows divided by their sums; rows with sum 0 get equal entries."""
    return rows_to_shares(rows, rows.sum(axis=1))


def _check_given(given: Given, prior: Any, name: str, size: tuple[int, int]) -> Given:
    if isinstance(given, ScaledProportions) and prior.support == "scaled simplex":
        proportions = check_start_factor(given.proportions, f"{name}.proportions", size)
        return ScaledProportions(proportions, check_start_factor(given.scale, f"{name}.scale", (size[0], 1)))
    if isinstance(given, Distribution):
        return check_start_distribution(given, prior, name, size)
    factor = check_start_factor(given, name, size)
    if prior.support == "simplex":
        check_on_simplex(factor, name)
    return factor


def mean_field_of_fit(fit: FitRecord) -> tuple[Problem, State]:
    """Return the q of a vi or svi fit as a state of coordinate ascent, in float64; loadings on disk stay in files."""
    q: Any = fit.estimate
    problem = point_or_mean_field(fit.working_counts.as_type(np.float64), VI(priors=fit.priors))
    return problem, given_state(problem, q.loadings, fit.components if q.components is None else q.components)
