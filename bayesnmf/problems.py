"""A problem to be solved, and a state to start from, out of counts, priors and the `start` option."""

from __future__ import annotations

from typing import Any

import numpy as np

from bayesnmf import checks
from bayesnmf.counts import Counts
from bayesnmf.inference.sides import Draw, MeanField, Mode, Problem, State, Summary
from bayesnmf.inference.start import Given, given_state, random_state
from bayesnmf.options import MAP, VI, Priors, Start
from bayesnmf.priors import Dirichlet, ScaledDirichlet, ScaledProportions
from bayesnmf.results import Fit, VariationalPosterior
from bayesnmf.specification import PARAMETER


def natural_basis(options: MAP) -> bool:
    """Whether the mode is taken in the natural basis: as asked, else where every prior is at least 1."""
    if options.basis is not None:
        return options.basis == "natural"
    sides = (options.priors.loadings, options.priors.components)
    return all(prior == PARAMETER or prior.smallest_shape >= 1 for prior in sides)  # type: ignore[union-attr]


def build_problem(
    counts: Counts, priors: Priors, loadings: Summary, components: Summary, *, fixed_components: bool = False
) -> Problem:
    """Put counts, priors and summaries together; a parameter is the mode of a flat simplex."""
    prior: Any = priors.loadings
    other: Any = priors.components
    if other == PARAMETER:
        return Problem(counts, prior, Dirichlet(1.0), loadings, Mode(estimated=True), fixed_components)
    return Problem(counts, prior, other, loadings, components, fixed_components)


def point_or_mean_field(counts: Counts, options: MAP | VI) -> Problem:
    """Build the problem of map or vi."""
    if isinstance(options, MAP):
        mode = Mode("natural" if natural_basis(options) else "log")
        return build_problem(counts, options.priors, mode, mode)
    return build_problem(counts, options.priors, MeanField(component_axis=1), MeanField(component_axis=0))


def draws_problem(counts: Counts, priors: Priors, rng: np.random.Generator) -> Problem:
    """Build the problem of gibbs, whose draws come from `rng`."""
    return build_problem(counts, priors, Draw(rng), Draw(rng))


def start_state(problem: Problem, start: Any, rank: int, rng: np.random.Generator) -> State:
    """Carry out the `start` option."""
    if isinstance(start, str):
        return random_state(problem, rank, rng)
    n, m = problem.counts.shape
    loadings, components = given_start(start, problem)
    return given_state(
        problem,
        _checked(loadings, problem.loadings_prior, "loadings", (n, rank)),
        _checked(components, problem.components_prior, "components", (rank, m)),
    )


def given_start(start: Start | Fit, problem: Problem | None = None) -> tuple[Given, Given]:
    """Take loadings and components out of a Start, or of a Fit: its q, where it is of the problem's family."""
    if not isinstance(start, Fit):
        return start.loadings, start.components
    q = start._posterior if isinstance(start._posterior, VariationalPosterior) else None
    sides: list[Given] = []
    for side in ("loadings", "components"):
        prior = getattr(start.priors if problem is None else problem, side if problem is None else f"{side}_prior")
        of_q = getattr(q, side, None)
        sides.append(of_q if of_q is not None and type(of_q) is type(prior) else _point_of(start, side, prior))
    return sides[0], sides[1]


def _point_of(start: Fit, side: str, prior: Any) -> Given:
    """Return one side of a fit as a point on the scale of this prior, whatever the fit's model."""
    if side == "loadings" and isinstance(prior, ScaledDirichlet) and start.scale is not None:
        return ScaledProportions(start.loadings, start.scale[:, None])
    if not isinstance(prior, Dirichlet):
        return start.components if side == "components" else start.expected_loadings
    point = np.asarray(getattr(start, side), dtype=np.float64)
    sums = point.sum(axis=1, keepdims=True)
    return point if np.allclose(sums, 1) else np.divide(
        point, sums, out=np.full_like(point, 1 / point.shape[1]), where=sums > 0
    )  # fmt: skip


def _checked(given: Given, prior: Any, name: str, size: tuple[int, int]) -> Given:
    if isinstance(given, ScaledProportions) and isinstance(prior, ScaledDirichlet):
        proportions = checks.check_start_factor(given.proportions, f"{name}.proportions", size)
        return ScaledProportions(proportions, checks.check_start_factor(given.scale, f"{name}.scale", (size[0], 1)))
    if hasattr(given, "conditional"):
        return checks.check_start_distribution(given, prior, name, size)
    factor = checks.check_start_factor(given, name, size)
    if isinstance(prior, Dirichlet):
        checks.check_on_simplex(factor, name)
    return factor
