"""Sweeps of Gibbs sampling over counts on disk: one pass draws the allocations and the loadings of every block.

Random numbers belong to rows of the whole matrix, and sums over rows are exact. The draws are therefore those of counts
in memory to the bit, however the rows are cut into blocks and wherever these are worked on. A new scale of the
components is not written to the files: rows are multiplied when they are read, and their density is computed then.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from bayesnmf.inference.blocked.passes import Pass, Where, pass_over_rows
from bayesnmf.inference.blocked.sides import Part
from bayesnmf.inference.sampling.scales import (
    SumsOfRows,
    draw_scales,
    moved_components,
    moves_scales,
    sums_of_rows,
)
from bayesnmf.inference.side import Side
from bayesnmf.inference.sides import Problem, State, objective, update_components, update_loadings
from bayesnmf.inference.summaries import skip_rows
from bayesnmf.kernels.cpu.allocation import Totals
from bayesnmf.kernels.cpu.sampling import sampled_allocations


def sweep_on_disk(problem: Problem, state: State, rng: np.random.Generator) -> tuple[State, float]:
    """Draw allocations, loadings and components once; return the new state and the log joint of the old state."""
    given: Any = state.loadings
    seed, rescaled = int(rng.integers(2**63)), given.reader.form.times is not None

    def update(part: Problem, here: State, at: Where) -> tuple[Side, Totals, Part | None]:
        summary: Any = part.loadings_summary
        now = summary.at(part.loadings_prior, here.loadings.value) if rescaled else None
        factors = here.loadings.geometric, here.components.geometric
        totals = sampled_allocations(part.counts.matrix, *factors, seed, 1, at.rows.start)
        drawn = update_loadings(part, here, totals.loadings).loadings
        return drawn, totals, None if now is None else Part.of(part.counts, now)

    found, loadings = pass_over_rows(problem, state, update, Pass(plus=_plus))
    skip_rows(problem.loadings_summary, problem.loadings_prior, given.shape[1], again=True)
    given = given if found.more is None else given.with_part(found.more)
    log_joint = objective(problem, State(given, state.components), found.loglik + given.part.shift)
    assert found.components is not None
    state = update_components(problem, State(loadings, state.components), found.components.T)
    if not problem.fixed_components and moves_scales(problem):
        state = _with_scale_moves(problem, state, rng)
    return state, log_joint


def _plus(one: Part | None, two: Part | None) -> Part | None:
    return None if one is None or two is None else one + two


def _with_scale_moves(problem: Problem, state: State, rng: np.random.Generator) -> State:
    """Return the state with a new scale for every component that is not known (`with_scale_moves`)."""
    loadings: Any = state.loadings
    summary: Any = problem.components_summary

    def measure(part: Problem, here: State, at: Where) -> tuple[None, None, SumsOfRows]:
        own: Any = part.loadings_summary
        return None, None, sums_of_rows(part.loadings_prior, here.loadings.matrix, own.rng, at.rows.start)

    def sums() -> SumsOfRows:
        found, _ = pass_over_rows(problem, state, measure, Pass(writes=False, reads=False))
        problem.loadings_prior.rows(slice(0, 1)).drawn(np.ones((1, loadings.shape[1])), rng)  # takes what all rows take
        more: SumsOfRows = found.more
        return more

    beta = state.components.matrix
    v = draw_scales(problem, sums, beta, rng)
    if not v.any():
        return state
    return State(
        loadings.rescaled(np.exp(-v)),
        summary.at(problem.components_prior, moved_components(beta, v)),
    )
