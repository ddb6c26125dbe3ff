"""Coordinate ascent on a device: the loop of `coordinate_ascent`, with `extrapolation`, compiled as a whole.

Up to `MOST` iterations run without the host; then it reads their objectives, reports progress and may be interrupted.
Schedules, stopping rules, what is accepted and what is returned are those of the host.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from bayesnmf.inference.ascent.coordinate_ascent import Ascent, Schedule
from bayesnmf.inference.ascent.extrapolation import CUT, GROWTH, LIMIT, START
from bayesnmf.inference.device.sides import FLOAT, from_host, parameters_of, to_host
from bayesnmf.inference.device.steps import (
    Data,
    Pair,
    Plan,
    Stated,
    beyond,
    carried,
    data_of,
    like,
    objective,
    plan_of,
    residual_of,
    step,
    totals_of,
)
from bayesnmf.inference.sides import Problem, State
from bayesnmf.inference.status import INTERRUPTED, NOT_A_NUMBER, Status
from bayesnmf.inference.strides import next_length
from bayesnmf.kernels.cpu.allocation import Totals

MOST = 50  # iterations without the host
GOING, NAN, SETTLED, STATIONARY = range(4)


class Loop(NamedTuple):
    """Where a loop stands.

    Attributes
    ----------
    reached : pair of parameters
        The last iterate, whose objective is the last that was recorded.
    next : pair of parameters
        What is tried next.
    plain : pair of parameters
        The plain step, taken where `next` goes further and the objective falls. None without extrapolation.
    stepped, further : bool
        Whether `plain` is a step, not the start; whether `next` goes further than it.
    weight : float
        How much further.
    latest : (window + 1,)
        The last objectives.
    objectives, residuals : (MOST,)
        Those recorded since the host last looked, and how many (`filled`).
    stop : int
        GOING, or why not.
    """

    reached: Stated
    next: Stated
    plain: Stated | None
    stepped: Any
    further: Any
    weight: Any
    latest: Any
    objectives: Any
    residuals: Any
    filled: Any
    stop: Any


def ascend_on(
    device: Any,
    problem: Problem,
    state: State,
    schedule: Schedule,
    extrapolate: bool,
    progress: Callable[[int, float], None],
) -> Ascent:
    """Iterate on a device from `state` until the objective settles, `max_iter` is reached or Ctrl-C is pressed.

    Parameters
    ----------
    device : jax.Device
        Any, a CPU too.
    extrapolate : bool
        Go further along each step, as `bayesnmf.inference.ascent.extrapolation.extrapolated` does.
    progress : callable
        Takes the iteration and its objective, in nats; called for each after the fact, up to `MOST` at a time.

    Returns
    -------
    Ascent
        After Ctrl-C, the last iterate that the host has seen the objective of.
    """
    with jax.enable_x64(True), jax.default_device(device):
        return _ascend(device, problem, state, schedule, plan_of(problem, schedule, extrapolate), progress)


def _ascend(
    device: Any, problem: Problem, state: State, schedule: Schedule, plan: Plan, progress: Callable[[int, float], None]
) -> Ascent:
    trace: list[float] = []
    residuals: list[float] = []
    data = data_of(device, problem, state, schedule)
    loop = jax.device_put(_begin(data, plan, state, problem.counts.dtype), device)
    status = Status(False, f"all {schedule.max_iter} iterations done", schedule.max_iter)
    limit = 1
    try:
        while len(trace) <= schedule.max_iter:
            began = time.perf_counter()
            new = _run(data, loop, min(limit, schedule.max_iter + 1 - len(trace)), plan)
            seen, before = int(new.filled), len(trace)
            objectives, found = (np.asarray(each)[:seen].tolist() for each in (new.objectives, new.residuals))
            loop, trace, residuals = new, trace + objectives, residuals + (found if plan.residuals else [])
            limit = next_length(limit, time.perf_counter() - began, MOST)
            for iteration in range(before, len(trace)):
                progress(iteration, trace[iteration])
            if int(loop.stop) != GOING:
                status = _stopped(int(loop.stop), schedule, len(trace) - 1)
                break
    except KeyboardInterrupt:
        status = Status(False, INTERRUPTED, max(len(trace) - 1, 0))
    end = State(
        to_host(problem.loadings_summary, problem.loadings_prior, loop.reached[0]),
        to_host(problem.components_summary, problem.components_prior, loop.reached[1]),
    )
    return Ascent(problem, end, trace, residuals, status)


def _stopped(stop: int, schedule: Schedule, iterations: int) -> Status:
    reasons = {
        NAN: NOT_A_NUMBER,
        SETTLED: f"objective settled to {schedule.tol:g} relative",
        STATIONARY: f"KKT residual at most {schedule.kkt_tol or 0:g} counts",
    }
    return Status(stop != NAN, reasons[stop], iterations)


def _begin(data: Data, plan: Plan, state: State, dtype: Any) -> Loop:
    """Return the loop before its first iterate, with parameters of the shapes that updates give them or larger."""
    start = (from_host(state.loadings, dtype), from_host(state.components, dtype))
    once = plan._replace(alternating=False, sweeps=1)
    after = jax.eval_shape(partial(_after, once), data, start)
    start = jax.tree.map(lambda a, b: np.broadcast_to(a, np.broadcast_shapes(a.shape, b.shape)), start, after)
    return Loop(
        reached=start,
        next=start,
        plain=start if plan.extrapolate else None,
        stepped=np.zeros((), bool),
        further=np.zeros((), bool),
        weight=np.asarray(START, FLOAT),
        latest=np.full(plan.window + 1, -np.inf, FLOAT),
        objectives=np.zeros(MOST, FLOAT),
        residuals=np.zeros(MOST, FLOAT),
        filled=np.zeros((), int),
        stop=np.zeros((), int),
    )


def _after(plan: Plan, data: Data, state: Stated) -> Stated:
    """Return the state after one step."""
    sides = carried(data, plan, state)
    loadings, components = step(data, sides, totals_of(data, sides, plan), plan)
    return parameters_of(loadings), parameters_of(components)


@partial(jax.jit, static_argnames="plan")
def _run(data: Data, loop: Loop, limit: Any, plan: Plan) -> Loop:
    """Go on for up to `limit` iterations."""

    def going(loop: Loop) -> Any:
        return (loop.stop == GOING) & (loop.filled < limit)

    return jax.lax.while_loop(going, partial(_visit, data, plan), loop._replace(filled=jnp.zeros_like(loop.filled)))


def _visit(data: Data, plan: Plan, loop: Loop) -> Loop:
    """Take the allocation step and the objective at `next`, and find what comes after it."""
    sides = carried(data, plan, loop.next)
    totals = totals_of(data, sides, plan)
    value = objective(data, sides, totals.loglik)
    if loop.plain is None:
        return _accept(data, plan, loop, (sides, totals, value))
    eps = jnp.finfo(sides[0].geometric.dtype).eps
    lowest = loop.latest[-1] - eps * jnp.abs(loop.latest[-1])
    fallen = loop._replace(next=loop.plain, further=jnp.zeros_like(loop.further), weight=loop.weight * CUT)
    return jax.lax.cond(
        loop.further & ~(value >= lowest),
        lambda: fallen,
        lambda: _accept(data, plan, loop, (sides, totals, value)),
    )


def _accept(data: Data, plan: Plan, loop: Loop, here: tuple[Pair, Totals, Any]) -> Loop:
    """Record an iterate, see whether to stop there, and propose the next."""
    sides, totals, value = here
    latest = jnp.append(loop.latest[1:], value)
    residual = residual_of(data, sides, totals, plan) if plan.residuals else jnp.zeros((), FLOAT)
    loadings, components = step(data, sides, totals, plan)
    plain = like((parameters_of(loadings), parameters_of(components)), loop.next)
    accepted = loop._replace(
        reached=loop.next,
        next=plain,
        latest=latest,
        objectives=loop.objectives.at[loop.filled].set(value),
        residuals=loop.residuals.at[loop.filled].set(residual),
        filled=loop.filled + 1,
        stop=_reason(data, latest, residual),
    )
    if loop.plain is None:
        return accepted
    weight = jnp.where(loop.stepped, jnp.minimum(loop.weight * GROWTH, LIMIT["logarithms"]), loop.weight)
    return accepted._replace(
        next=beyond(data, plain, loop.plain, jnp.where(loop.stepped, weight, 0.0)),
        plain=plain,
        stepped=jnp.ones_like(loop.stepped),
        further=loop.stepped,
        weight=weight,
    )


def _reason(data: Data, latest: Any, residual: Any) -> Any:
    """Why to stop: the rules of `coordinate_ascent.ascend`, in its order."""
    change = jnp.abs(latest[-1] - latest[0])
    settled = (data.tol > 0) & jnp.isfinite(latest[0]) & (change < data.tol * jnp.maximum(jnp.abs(latest[-1]), 1))
    stationary = (data.kkt_tol > 0) & (residual <= data.kkt_tol)
    rules = [jnp.isnan(latest[-1]), settled, stationary]
    return jnp.select(rules, [NAN, SETTLED, STATIONARY], GOING).astype(int)
