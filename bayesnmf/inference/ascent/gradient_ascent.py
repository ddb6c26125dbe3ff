"""Path 1 of variational inference: gradient ascent on the elbo with the optimal allocations inserted ([P] 31).

The optimal allocations are a function of the other parameters, so the elbo is a function of these alone. Its gradient
needs one allocation step. SciPy's L-BFGS maximises it over the logarithms of the parameters, and of dispersions that
are learned. Path 2, coordinate ascent ([P] 34-36), has the same optima.

Rates of entries and clusters of counts are optimal at every point, as allocations are, so the gradient is that with
rates held, and with expected clusters in place of counts.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
from scipy.optimize import minimize

from bayesnmf.inference.ascent.coordinate_ascent import Ascent, Iterate, Reached, evaluate_state
from bayesnmf.inference.ascent.course import Progress, Schedule
from bayesnmf.inference.checkpoints.slots import next_slot
from bayesnmf.inference.evidence_of_dispersion import ShapeEvidence, evidence_at
from bayesnmf.inference.problem import Problem, State
from bayesnmf.inference.side import side_like
from bayesnmf.inference.sides import conditional_of, given_totals
from bayesnmf.kernels.cpu.threads import one_blas_thread
from bayesnmf.types import Array

NEGLIGIBLE = 1e-100  # derivatives below this, in nats, are set to 0


def gradient_ascent(problem: Problem, state: State, schedule: Schedule, progress: Progress | None = None) -> Ascent:
    """Maximise the elbo from `state` until it settles, `max_iter` steps are done or Ctrl-C is pressed.

    An iteration is one step of L-BFGS, with any number of evaluations in its line search.
    """
    slot, course = next_slot("gradient", problem.counts), schedule.course(progress)
    reached = Reached(problem, state, course)
    if slot.recall(reached) == "ended":  # no snapshots are written
        return reached.ascent()
    seen: dict[bytes, Iterate] = {}

    def evaluate(logs: Array) -> Iterate:
        key = logs.tobytes()
        if key not in seen:
            seen.clear()  # the line search asks for the same point at most twice
            with np.errstate(over="ignore", invalid="ignore"):  # the elbo of a far point may be NaN, and is rejected
                seen[key] = evaluate_state(*at_logs(problem, state, logs), schedule.threads)
        return seen[key]

    def negative(logs: Array) -> tuple[float, Array]:
        place = evaluate(logs)
        if not np.isfinite(place.value):
            return np.inf, np.zeros_like(logs)
        gradient = np.append(gradient_of_logs(place), slope_of_parameters(place, schedule.threads))
        gradient[np.abs(gradient) < NEGLIGIBLE] = 0  # else L-BFGS's first step, 1 / its length, would overflow
        return -place.value, -gradient

    def reach(place: Iterate) -> bool:
        reached.problem, reached.state = place.problem, place.state
        return course.reach(place.value, place.state)

    def accept(logs: Array) -> None:
        place = evaluate(logs)
        if not place.value >= course.trace[-1] or not reach(place):
            raise StopIteration

    with course:
        if reach(evaluate_state(problem, state, schedule.threads)):
            start = np.append(logs_of_state(state), np.log(problem.counts.parameters))
            message = _run_lbfgs(negative, start, accept, schedule.max_iter)
            course.end(True, f"no step raises the objective ({message})")
    if not course.interrupted:
        slot.end(reached)
    return reached.ascent()


def _run_lbfgs(negative: Callable[[Array], Any], start: Array, accept: Callable[[Array], None], max_iter: int) -> str:
    """Run L-BFGS, with a call of `accept` after every step, and return the message with which it stopped."""
    limits: Any = {"maxiter": max_iter, "maxfun": 20 * max_iter + 20, "ftol": 0.0, "gtol": 0.0}
    with one_blas_thread():  # for operations on vectors, waking threads costs more than it saves
        found = minimize(negative, start, method="L-BFGS-B", jac=True, callback=accept, options=limits)  # type: ignore[call-overload]
    return found.message


def at_logs(problem: Problem, like: State, logs: Array) -> tuple[Problem, State]:
    """Return the problem and the state with the given logarithms, those of what else is learned last."""
    state, number = state_of_logs(problem, like, logs), len(problem.counts.parameters)
    if number:
        problem = replace(problem, counts=problem.counts.with_parameters(np.exp(logs[len(logs) - number :])))
    return problem, state


def slope_of_parameters(here: Iterate, threads: int | None) -> Array:
    """Return the derivatives of the objective by the logarithms of learned dispersions, and of 1/a of factors."""
    counts: Any = here.problem.counts
    learned = [evidence_at(here.problem, here.state, threads)] if counts.learned else []
    learned += [ShapeEvidence.at(counts)] if counts.has_factors and counts.learns_shape else []
    return np.concatenate([np.zeros(0), *(each.slope(each.values) for each in learned)])


def logs_of_state(state: State) -> Array:
    """Return the logarithms of all parameters, as one float64 vector."""
    tiny = np.finfo(np.float64).tiny  # entries of components without a prior may be 0; they stay 0
    parts = [np.log(np.maximum(each, tiny, dtype=np.float64)).ravel() for side in state for each in side.parameters]
    return np.concatenate(parts)


def state_of_logs(problem: Problem, like: State, logs: Array) -> State:
    """Return the state with the given logarithms, with the shapes and types of `like`."""
    priors = (problem.loadings_prior, problem.components_prior)
    summaries = (problem.loadings_summary, problem.components_summary)
    sides, first = [], 0
    most = 0.45 * np.log(np.finfo(problem.counts.dtype).max)  # keeps squares from overflowing during a line search
    tiny = np.log(np.finfo(problem.counts.dtype).tiny)
    for prior, summary, side in zip(priors, summaries, like, strict=True):
        parameters = []
        for each in side.parameters:
            part = logs[first : first + each.size].reshape(each.shape)
            least = tiny if side.conditional is None else -most
            parameters.append(np.exp(np.clip(part, least, most)).astype(each.dtype))
            first += each.size
        sides.append(side_like(side, prior, summary, parameters))
    return State(*sides)


def gradient_of_logs(here: Iterate) -> Array:
    """Return the gradient of the elbo with respect to the logarithms of all parameters."""
    problem, state, totals, _ = here
    parts: list[Array] = []
    for side in State._fields:
        parts += _side_gradient(problem, state, side, getattr(totals, side))
    return np.concatenate([part.ravel() for part in parts]).astype(np.float64)


def _side_gradient(problem: Problem, state: State, side: str, total: Array) -> list[Array]:
    """Return the derivatives by the logarithms of one side's parameters, given its total."""
    q: Any = getattr(state, side).conditional
    if q is None:  # components without a prior are the softmax of their logarithms
        total = given_totals(problem, state, side, total)
        return [total - getattr(state, side).matrix * total.sum(axis=-1, keepdims=True)]
    gradient: list[Array] = q.gradient(conditional_of(problem, state, side, total))
    return gradient
