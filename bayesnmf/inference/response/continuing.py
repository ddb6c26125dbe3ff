"""Continue a mean field to its optimum by Newton's method."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from bayesnmf.inference.ascent.coordinate_ascent import Extrapolated, ascend, plain_steps
from bayesnmf.inference.ascent.course import Schedule
from bayesnmf.inference.ascent.settled_loadings import settle_loadings
from bayesnmf.inference.problem import Problem, State
from bayesnmf.inference.response.coupled import Coupled, Tilt
from bayesnmf.inference.response.spread import solve
from bayesnmf.inference.sides import objective

GRADIENT = 1e-8
MOST_STEPS = 60
UPDATES = 20  # updates where Newton's step fails first
SETTLED, MOST_UPDATES = 1e-10, 100_000  # of a row given the components, before the first step
HALVINGS, LARGEST_STEP = 6, 2.0  # of a step; the largest is in logarithms of the parameters
ROUNDING = 1e-12  # of the bound
Show = Callable[[int, float], None]


class Optimum(NamedTuple):
    """The optimum of a mean field.

    Attributes
    ----------
    coupled : Coupled
        Sides there, linearised.
    gradient : float
        Largest change of a shape, rate or concentration by an update, relative to it.
    steps : int
        Number of Newton steps.
    """

    coupled: Coupled
    gradient: float
    steps: int


def continue_to_optimum(problem: Problem, state: State, threads: int | None, show: Show | None = None) -> Optimum:
    """Continue until an update changes no parameter by more than 1e-8 of it, or for at most 60 steps.

    Where no part of Newton's step raises the bound, extrapolated updates take its place, twice as many each time.
    """
    coupled = Coupled(problem, _begun(problem, state, threads), threads)
    tilt, updates = coupled.residual(), UPDATES
    size = gradient(coupled, tilt)
    for done in range(MOST_STEPS):
        if show is not None:
            show(done, size)
        if size <= GRADIENT:
            return Optimum(coupled, size, done)
        found = _newton(coupled, tilt, size)
        if found is None:
            found = Coupled(problem, _updated(problem, coupled.state, updates, threads), threads)
            updates *= 2
        coupled = found
        tilt = coupled.residual()
        size = gradient(coupled, tilt)
    return Optimum(coupled, size, MOST_STEPS)


def gradient(coupled: Coupled, tilt: Tilt) -> float:
    """Return the largest step of a shape, rate or concentration, relative to it; for an update, the gradient."""
    largest = 0.0
    for side, fisher, steps in zip(coupled.state, (coupled.loadings, coupled.components), tilt, strict=True):
        q: Any = side.conditional
        if fisher is None or q is None:
            continue
        for value, step in zip(fisher.q.parameters.values(), steps, strict=True):  # type: ignore[attr-defined]
            largest = max(largest, float(np.abs(step / np.asarray(value)).max(initial=0.0)))
    return largest


def _newton(coupled: Coupled, tilt: Tilt, size: float) -> Coupled | None:
    """Return the sides after a part of Newton's step that raises the bound; None if there is none.

    Where the bound does not curve downwards, the step is the part of it that was found until then.
    """
    step = coupled.whole(solve(coupled, coupled.right_side(tilt), min(1e-2, size)).x, tilt)
    before = _bound(coupled)
    rounding = ROUNDING * abs(before)
    part = min(1.0, LARGEST_STEP / max(gradient(coupled, step), 1e-300))
    for _ in range(HALVINGS):
        moved = coupled.moved(Tilt(*(tuple(part * each for each in side) for side in step)))
        after = Coupled(coupled.problem, _state_of(coupled.problem, coupled.state, *moved), coupled.threads)
        gain = _bound(after) - before
        if gain > rounding or (gain > -rounding and gradient(after, after.residual()) < size):
            return after
        part /= 2
    return None


def _bound(coupled: Coupled) -> float:
    return objective(coupled.problem, coupled.state, coupled.totals.loglik)


def _state_of(problem: Problem, state: State, q_loadings: Any, q_components: Any) -> State:
    loadings = problem.loadings_summary.of(problem.loadings_prior, q_loadings)
    if q_components is None:
        return State(loadings, state.components)
    return State(loadings, problem.components_summary.of(problem.components_prior, q_components))


def _begun(problem: Problem, state: State, threads: int | None) -> State:
    """Return the state after an update; with components held, that of rows each settled by itself.

    Under sparse priors a few rows settle many times slower than the others, and all would wait for them.
    """
    if problem.fixed_components and "settled" in problem.loadings_prior.optional:
        return settle_loadings(problem, state, SETTLED, MOST_UPDATES, threads).state
    return _updated(problem, state, 1, threads)


def _updated(problem: Problem, state: State, updates: int, threads: int | None) -> State:
    """Return the state after extrapolated updates of both sides."""
    schedule = Schedule(max_iter=updates, tol=0.0, threads=threads)
    return ascend(problem, state, schedule, steps=Extrapolated(plain_steps(schedule))).state
