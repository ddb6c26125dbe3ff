"""Path 1 of variational inference: gradient ascent on the bound with the allocations put back ([P] 31).

The best allocations are a function of the other parameters, so the bound is a function of these alone. Its gradient
needs one allocation step; the climb itself is SciPy's L-BFGS, in logarithms of the parameters. Path 2, coordinate
ascent ([P] 34-36), has the same optima.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize
from threadpoolctl import threadpool_limits

from bayesnmf.inference.ascent.coordinate_ascent import Ascent, Iterate, Progress, Schedule, visit
from bayesnmf.inference.sides import (
    Problem,
    Side,
    State,
    exposure_of_components,
    exposure_of_loadings,
    parameters_of,
    side_of,
)
from bayesnmf.priors import Distribution

Array = NDArray[Any]
NEGLIGIBLE = 1e-100  # of a derivative, in nats


def gradient_ascent(problem: Problem, state: State, schedule: Schedule, progress: Progress | None = None) -> Ascent:
    """Climb the bound from `state` until it settles, `max_iter` steps are done or Ctrl-C is pressed.

    A step of L-BFGS is an iteration, whatever evaluations its line search takes.
    """
    course, reached = schedule.course(progress), state
    seen: dict[bytes, Iterate] = {}

    def at(logs: Array) -> Iterate:
        key = logs.tobytes()
        if key not in seen:
            seen.clear()  # the line search asks for the same point twice at most
            with np.errstate(over="ignore", invalid="ignore"):  # far out the bound is not a number, and refused
                seen[key] = visit(problem, unpack(problem, state, logs), schedule.threads)
        return seen[key]

    def negative(logs: Array) -> tuple[float, Array]:
        place = at(logs)
        if not np.isfinite(place.value):
            return np.inf, np.zeros_like(logs)
        gradient = gradient_of_logs(place)
        gradient[np.abs(gradient) < NEGLIGIBLE] = 0  # else a first step of the inverse of its length overflows
        return -place.value, -gradient

    def reach(place: Iterate) -> bool:
        nonlocal reached
        reached = place.state
        return course.reach(place.value, place.state)

    def keep(logs: Array) -> None:
        place = at(logs)
        if not place.value >= course.trace[-1] or not reach(place):
            raise StopIteration

    with course:
        if reach(visit(problem, state, schedule.threads)):
            said = _climb(negative, pack(state), keep, schedule.max_iter)
            course.end(True, f"no step raises the objective ({said})")
    return Ascent(problem, reached, course.trace, [], course.status)


def _climb(negative: Callable[[Array], Any], start: Array, keep: Callable[[Array], None], max_iter: int) -> str:
    """Run L-BFGS, telling `keep` of every step, and return why it stopped."""
    limits: Any = {"maxiter": max_iter, "maxfun": 20 * max_iter + 20, "ftol": 0.0, "gtol": 0.0}
    with threadpool_limits(1, user_api="blas"):  # steps are of vectors: waking threads costs far more
        found = minimize(negative, start, method="L-BFGS-B", jac=True, callback=keep, options=limits)  # type: ignore[call-overload]
    return found.message


def pack(state: State) -> Array:
    """Return the logarithms of all parameters, in one vector of doubles."""
    tiny = np.finfo(np.float64).tiny  # components that are parameters may be 0, and then stay there
    parts = [np.log(np.maximum(each, tiny, dtype=np.float64)).ravel() for side in state for each in parameters_of(side)]
    return np.concatenate(parts)


def unpack(problem: Problem, like: State, logs: Array) -> State:
    """Return the state of given logarithms, of the shapes and types of `like`."""
    priors = (problem.loadings_prior, problem.components_prior)
    summaries = (problem.loadings_summary, problem.components_summary)
    sides, first = [], 0
    most = 0.45 * np.log(np.finfo(problem.counts.dtype).max)  # a line search may look where squares would overflow
    tiny = np.log(np.finfo(problem.counts.dtype).tiny)
    for prior, summary, side in zip(priors, summaries, like, strict=True):
        parameters = []
        for each in parameters_of(side):
            part = logs[first : first + each.size].reshape(each.shape)
            least = tiny if side.conditional is None else -most
            parameters.append(np.exp(np.clip(part, least, most)).astype(each.dtype))
            first += each.size
        sides.append(side_of(prior, summary, side, parameters))
    return State(*sides)


def gradient_of_logs(here: Iterate) -> Array:
    """Return the gradient of the bound with respect to the logarithms of all parameters."""
    problem, state, totals, _ = here
    exposures = (exposure_of_loadings(state), exposure_of_components(state))
    priors = (problem.loadings_prior, problem.components_prior)
    parts: list[Array] = []
    for side, prior, total, exposure in zip(state, priors, totals[:2], exposures, strict=True):
        parts += _side_gradient(side, prior, total, exposure)
    return np.concatenate([part.ravel() for part in parts]).astype(np.float64)


def _side_gradient(side: Side, prior: Distribution, total: Array, exposure: Array) -> list[Array]:
    """Derivatives with respect to the logarithms of one side's parameters, given its total and exposure."""
    q: Any = side.conditional
    if q is None:  # components without a prior, on the simplex: the softmax of their logarithms
        return [total - side.matrix * total.sum(axis=-1, keepdims=True)]
    best: Any = prior.conditional(total, exposure)
    return q.gradient(best)
