"""Collapsed Gibbs sampling: draw the component of every single count given all others, with both sides integrated out.

The chain consists of assignments alone. For each kept draw, loadings and components are drawn from their conditionals
given its totals, so the posterior is the same as that of plain Gibbs sampling ([K] 7-9; mathematics.md section 4).
Components must be on the simplex.
"""

from __future__ import annotations

import math

import numpy as np

from bayesnmf.inference.allocating import allocate
from bayesnmf.inference.ascent.coordinate_ascent import Progress
from bayesnmf.inference.marginal.allocation_model import urn_of
from bayesnmf.inference.sampling.gibbs import Chain, Schedule, record_chain
from bayesnmf.inference.sides import Problem, State, objective, update_components, update_loadings
from bayesnmf.kernels.cpu.urn import Tokens, assign_tokens, reassign_tokens


def collapsed_gibbs_chain(
    problem: Problem,
    state: State,
    rng: np.random.Generator,
    schedule: Schedule,
    threads: int | None = None,
    progress: Progress | None = None,
) -> Chain:
    """Run one chain; parameters as in `bayesnmf.inference.sampling.gibbs.gibbs_chain`.

    The first assignments are drawn given the factors of `state`. A sweep uses one thread; `threads` are for the log
    joint, which is computed only for kept draws and reported as NaN for all others. During a long sweep `progress` is
    called several times with the previous sweep, so that it can raise an exception.
    """
    matrix, (rank, m) = problem.counts.matrix, state.components.matrix.shape
    urn = urn_of(problem.loadings_prior, problem.components_prior, rank, m)  # type: ignore[arg-type]
    tokens: Tokens | None = None
    done = -1

    def call_progress() -> None:
        if progress is not None:
            progress(done, math.nan, state)

    def step(keep: bool) -> tuple[State, float]:
        nonlocal state, tokens, done
        seed = int(rng.integers(2**63))
        if tokens is None:
            tokens = assign_tokens(matrix, state.loadings.geometric, state.components.geometric, seed, call_progress)
        else:
            reassign_tokens(matrix, tokens, urn, seed, call_progress)
        done += 1
        if not keep:
            return state, math.nan
        state = update_loadings(problem, state, tokens.loadings)
        state = update_components(problem, state, tokens.components.T)
        return state, objective(problem, state, allocate(problem, state, threads).loglik)

    return record_chain(step, schedule, progress)
