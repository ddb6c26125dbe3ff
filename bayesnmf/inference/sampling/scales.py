"""Scale moves of Gibbs sampling: β_k ← e^v β_k, θ_k ← e^−v θ_k, where both sides have Gamma priors.

The counts say nothing about the scale of a component, and updates of one side at a time change it slowly. Given both
sides, v has the log density p v − e^v Σ_j d_kj β_kj − e^−v Σ_i b_ik θ_ik with p = Σ_j c_kj − Σ_i a_ik, for priors
Gamma(a, b) of the loadings and Gamma(c, d) of the components.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from bayesnmf.inference.blocked.passes import Pass, pass_over_rows
from bayesnmf.inference.problem import Problem, State
from bayesnmf.inference.sides import Where
from bayesnmf.kernels.cpu.orbits import log_scales
from bayesnmf.priors.pair import free_components
from bayesnmf.types import Array

Terms = tuple[Array, Array]


def terms_of(prior: Any) -> Terms:
    """Return shape and rate of the Gamma priors of the entries that are not known, as matrices; 0 for no rate."""
    shape, rate = prior.free_prior.settled_terms(np.zeros((1, 1)))
    return np.atleast_2d(np.asarray(shape, np.float64)), np.atleast_2d(np.asarray(0.0 if rate is None else rate))


def log_scales_of(loadings: Array, components: Array, of_loadings: Terms, of_components: Terms, seed: int) -> Array:
    """Return draws of v, (..., K), given loadings (..., n, K), transposed components (..., m, K) and their terms."""
    (a, b), (c, d) = of_loadings, of_components
    power = np.broadcast_to(c, components.shape).sum(axis=-2) - np.broadcast_to(a, loadings.shape).sum(axis=-2)
    up, down = (d * components).sum(axis=-2), (b * loadings).sum(axis=-2)
    return log_scales(power.ravel(), up.ravel(), down.ravel(), seed).reshape(power.shape)


def moves_scales(problem: Problem) -> bool:
    """Return whether both sides are positive, with Gamma priors given their shared parameters."""
    priors = problem.loadings_prior, problem.components_prior
    return all(prior.support == "positive" and "entries" in prior.optional for prior in priors)


class SumsOfRows(NamedTuple):
    """Σ_i a_ik and Σ_i b_ik θ_ik for priors Gamma(a, b) of the loadings θ of some rows."""

    shapes: Array
    rates: Array

    def __add__(self, other: SumsOfRows) -> SumsOfRows:  # type: ignore[override]
        return SumsOfRows(self.shapes + other.shapes, self.rates + other.rates)


def sums_of_rows(prior: Any, theta: Array, rng: np.random.Generator, first: int = 0) -> SumsOfRows:
    """Return the sums over rows from row `first` on; their own rates are drawn before, if they have any."""
    a, b = terms_of(prior.drawn(theta, rng, first))
    return SumsOfRows(np.broadcast_to(a, theta.shape).sum(axis=0), (b * theta).sum(axis=0))


def draw_scales(problem: Problem, sums: Callable[[], SumsOfRows], beta: Array, rng: np.random.Generator) -> Array:
    """Return draws of v, (K,), given sums over rows and the components; 0 for known components."""
    free, v = free_components(problem.components_prior, len(beta)), np.zeros(len(beta))
    if not len(free):
        return v
    of_rows = sums()
    c, d = (each.T for each in terms_of(problem.components_prior.drawn(beta, rng)))
    of_free = beta[free].T
    power = np.broadcast_to(c, of_free.shape).sum(axis=0) - of_rows.shapes[free]
    v[free] = log_scales(power, (d * of_free).sum(axis=0), of_rows.rates[free], int(rng.integers(2**63)))
    return v


def sums_over_rows(problem: Problem, state: State, rng: np.random.Generator) -> SumsOfRows:
    """Return the sums over all rows of the loadings of a state."""

    def measure(part: Problem, here: State, at: Where) -> tuple[None, None, SumsOfRows]:
        own: Any = part.loadings_summary
        return None, None, sums_of_rows(part.loadings_prior, here.loadings.matrix, own.rng, at.rows.start)

    found, _ = pass_over_rows(problem, state, measure, Pass(writes=False, reads=False))
    rank = len(state.components.geometric)
    problem.loadings_prior.rows(slice(0, 1)).drawn(np.ones((1, rank)), rng)  # takes what all rows take
    more: SumsOfRows = found.more
    return more


def with_scale_moves(problem: Problem, state: State, rng: np.random.Generator) -> State:
    """Return the state with a new scale for every component that is not known; shared rates are drawn before."""
    summary: Any = problem.components_summary
    beta = state.components.matrix
    v = draw_scales(problem, lambda: sums_over_rows(problem, state, rng), beta, rng)
    if not v.any():
        return state
    moved = np.asfortranarray(beta * np.exp(v)[:, None])
    return State(state.loadings.rescaled(np.exp(-v)), summary.at(problem.components_prior, moved))
