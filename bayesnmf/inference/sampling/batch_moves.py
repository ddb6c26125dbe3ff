"""Moves of Gibbs sampling that change drawn factors of batches together with components or loadings.

The counts say nothing of these scales (`bayesnmf.inference.ascent.batch_scales`), and updates of one side at a time
change them slowly. Where sides are positive, v has the density of other scale moves.

Components on the simplex, β_k, are w_k / W_k with w_kj ~ Gamma(η_kj, 1) and sums W_k; the loadings are W_k t_ik. With t
held, b_j ← e^v b_j and w_j ← e^−v w_j leave all means as they are. The prior of the loadings ties features
through W_k: by powers of it, which pseudo-counts replace (`untied`), so that all features move at once.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from bayesnmf.inference.ascent.batch_scales import Terms, along_both, terms_of_side
from bayesnmf.inference.problem import Problem, State
from bayesnmf.inference.sampling.marginal_gibbs import untied
from bayesnmf.inference.sampling.scales import sums_over_rows
from bayesnmf.inference.side import Side
from bayesnmf.kernels.cpu.draws import gamma_draws
from bayesnmf.kernels.cpu.orbits import log_scales
from bayesnmf.types import Array


def with_batch_moves(problem: Problem, state: State, rng: np.random.Generator) -> tuple[State, Array | None]:
    """Return the state with new scales of features and of the rows of batches, and drawn factors (B, m) of the others.

    Factors are None where there are none to draw.
    """
    counts = problem.counts
    if counts.held or counts.factors is None:
        return state, None
    if moves_simplex(problem):
        problem, state = _with_simplex_moves(problem, state, rng)

    def terms(prior: Any, side: Side, first: int) -> Terms:
        return terms_of_side(prior.drawn(side.matrix, rng, first), side, None)

    def draw(power: Array, up: Array, down: Array) -> Array:
        return log_scales(power, up, down, int(rng.integers(2**63)))

    return along_both(problem, state, terms, draw)


def moves_simplex(problem: Problem) -> bool:
    """Return whether features of components on the simplex can be scaled together: all are free, and loadings Gamma."""
    prior, loadings = problem.components_prior, problem.loadings_prior
    free = prior.support == "simplex" and not prior.constants and not problem.fixed_components
    able = loadings.support == "positive" and "entries" in loadings.optional and not loadings.has_effects
    return free and able


def _with_simplex_moves(problem: Problem, state: State, rng: np.random.Generator) -> tuple[Problem, State]:
    """Return the problem with new factors, and the state with new components and loadings of the same means."""
    counts: Any = problem.counts
    summary: Any = problem.components_summary
    prior: Any = problem.components_prior
    beta, a = state.components.matrix, counts.shape_of_factors
    shapes = np.broadcast_to(np.asarray(prior.concentration, np.float64), beta.shape)
    sums = gamma_draws(shapes.sum(axis=1)[:, None], int(rng.integers(2**63)))
    w, of_rows = beta * sums, sums_over_rows(problem, state, rng)
    pseudo, more = untied(w.T, of_rows.shapes, np.arange(len(beta)), rng)
    rates = 1.0 + of_rows.rates / sums[:, 0] + more
    power = a * counts.batches.number - (shapes + pseudo.T).sum(axis=0)
    v = log_scales(power, a * counts.factors.sum(axis=0), rates @ w, int(rng.integers(2**63)))
    w = w * np.exp(-v)
    moved = w.sum(axis=1)
    components = summary.at(prior, np.asfortranarray(w / moved[:, None]))
    problem = replace(problem, counts=replace(counts, factors=counts.factors * np.exp(v)))
    return problem, State(state.loadings.rescaled(moved / sums[:, 0]), components)
