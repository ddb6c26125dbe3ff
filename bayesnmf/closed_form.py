"""Fits by the closed forms: map and vi."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from bayesnmf import checks
from bayesnmf.fitting import Job
from bayesnmf.inference.coordinate_ascent import WINDOW, Ascent, Schedule, Steps, ascend, plain_steps
from bayesnmf.inference.kkt import least_gradient
from bayesnmf.inference.minibatch import Batching, minibatch_ascent
from bayesnmf.inference.optimality import judged
from bayesnmf.inference.sides import Problem, State
from bayesnmf.options import MAP, VI, Priors
from bayesnmf.priors import ScaledProportions
from bayesnmf.problems import point_or_mean_field, start_state
from bayesnmf.restarts import best_of
from bayesnmf.results import Fit, VariationalPosterior


def fit_closed_form(job: Job) -> Fit:
    """Run map or vi from one start, or from several, and keep the best."""
    problem = point_or_mean_field(job.counts, job.options)
    device = checks.first_gpu() if job.options.device == "gpu" else None
    with _limited(job.options.threads):
        best, diagnostics = best_of(job, partial(_climb, job, problem, device))
    if best.status.converged:
        with suppress(KeyboardInterrupt):  # what is computed is kept
            job.report(f"{job.method} {job.model}", best.status.iterations, best.status.iterations, best.trace[-1])
    if best.residuals:
        diagnostics |= {"kkt_residual": best.residuals[-1], "least_gradient": least_gradient(problem, best.state)}
        status = judged(best.status, diagnostics, job.counts.total, job.options.kkt_tol)
        best = best._replace(status=status)
    return replace(fit_of_ascent(job, best), diagnostics=diagnostics)


def _limited(threads: int | None) -> AbstractContextManager[Any]:
    """Hold the matrix products of dense counts to the threads that were asked for."""
    if threads is None:
        return nullcontext()
    from threadpoolctl import threadpool_limits

    return threadpool_limits(threads)


def _climb(job: Job, problem: Problem, device: Any, rng: np.random.Generator, label: str) -> Ascent:
    """Run the algorithm that the options name from one start; on the host where `device` is None."""
    options: MAP | VI = job.options
    schedule = schedule_of(options)

    def start() -> State:  # held by nobody here: a state is as large as the factors
        return start_state(problem, options.start, job.rank, rng)

    def show(iteration: int, value: float, *_: Any) -> None:
        job.report(label, iteration, options.max_iter, value)

    if device is not None:
        from bayesnmf.inference.device_ascent import ascend_on

        return ascend_on(device, problem, start(), schedule, options.extrapolate, show)
    if options.algorithm == "gradient":
        from bayesnmf.inference.gradient_ascent import gradient_ascent

        return gradient_ascent(problem, start(), schedule, show)
    if options.algorithm == "minibatch":
        return minibatch_ascent(problem, start(), schedule, batching_of(options), rng, show)
    steps = _steps(problem, options, schedule)
    learn = None
    if isinstance(options, VI) and options.learn:
        from bayesnmf.inference.learning import learner

        learn = learner(options.learn)
    return ascend(problem, start(), schedule, steps, learn, show)


def schedule_of(options: MAP | VI) -> Schedule:
    """Return the schedule of coordinate ascent that the options state."""
    in_turn = options.algorithm in ("scd", "ccd", "settled")
    return Schedule(
        kind="alternating" if in_turn else options.schedule or "joint",
        order=options.order,
        sweeps=options.sweeps or (3 if options.algorithm == "scd" else 1),
        max_iter=options.max_iter,
        tol=options.tol,
        window=WINDOW if options.extrapolate or options.algorithm in ("gradient", "settled") else 1,
        kkt_tol=options.kkt_tol if isinstance(options, MAP) else None,
        threads=options.threads,
    )


def batching_of(options: VI) -> Batching:
    """Return the batches and step sizes that the options state."""
    given = {"size": options.batch_size, "forgetting": options.forgetting, "delay": options.delay}
    stated: Any = {name: value for name, value in given.items() if value is not None}
    return Batching(**stated, sweeps=options.sweeps)


def _steps(problem: Problem, options: MAP | VI, schedule: Schedule) -> Steps:
    steps, floor = plain_steps(schedule), None
    if options.algorithm in ("scd", "ccd"):
        from bayesnmf.inference.poisson_regression import FLOOR, regression_steps

        steps, floor = regression_steps(problem, schedule, options.algorithm), FLOOR
    if options.algorithm == "settled":
        from bayesnmf.inference.local import settling_steps

        steps = settling_steps(schedule)
    if options.extrapolate:
        from bayesnmf.inference.extrapolation import extrapolated

        steps = extrapolated(steps, floor)
    return steps


def fit_of_ascent(job: Job, ascent: Ascent) -> Fit:
    """Make a `Fit` of where an ascent ended."""
    state, posterior = ascent.state, None
    for side in state:
        side.forget()
    value = state.loadings.value
    if state.loadings.conditional is not None:
        posterior = VariationalPosterior(*(_compact(side.conditional) for side in state))
    return Fit(
        model=job.model,
        method=job.method,
        rank=job.rank,
        loadings=np.ascontiguousarray(value.proportions if isinstance(value, ScaledProportions) else value),
        components=np.ascontiguousarray(state.components.matrix),
        scale=value.scale[:, 0] if isinstance(value, ScaledProportions) else None,
        trace=np.asarray(ascent.trace),
        residuals=np.asarray(ascent.residuals) if ascent.residuals else None,
        status=ascent.status,
        priors=_priors(job.options.priors, ascent.problem),
        options=job.options,
        counts=job.counts,
        seed=job.seed,
        seconds=0.0,
        diagnostics={},
        _posterior=posterior,
    )


def _compact(q: Any) -> Any:
    """Return a distribution without the columns that fill its parameters up to whole vectors in memory."""
    return None if q is None else type(q)(**{name: np.array(value, order="K") for name, value in vars(q).items()})


def _priors(given: Priors, problem: Problem) -> Priors:
    """Return the priors that were given, or those that were learned from them."""
    sides: dict[str, Any] = {}
    for side in ("loadings", "components"):
        now = getattr(problem, f"{side}_prior")
        if not isinstance(getattr(given, side), str) and now is not getattr(given, side):
            sides[side] = now
    return replace(given, **sides) if sides else given
