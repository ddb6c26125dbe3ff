"""Run the closed-form methods, map and vi, from one or several starts."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import numpy as np

from bayesnmf.fitting.job import Job
from bayesnmf.fitting.problems import point_or_mean_field, start_state
from bayesnmf.inference.ascent.batch_scales import BatchLearner
from bayesnmf.inference.ascent.coordinate_ascent import Ascent, Extrapolated, Steps, ascend, plain_steps, prior_learner
from bayesnmf.inference.ascent.course import WINDOW, Schedule
from bayesnmf.inference.ascent.kkt import checked_status, least_gradient
from bayesnmf.inference.ascent.minibatch import Batching, minibatch_ascent
from bayesnmf.inference.ascent.poisson_regression import FLOOR, NEWTON_STEPS, regression_steps
from bayesnmf.inference.ascent.settled_loadings import settling_steps, with_settled_loadings
from bayesnmf.inference.blocked.passes import THREADS
from bayesnmf.inference.device.checks import find_gpus
from bayesnmf.inference.dispersion import DispersionLearner
from bayesnmf.inference.problem import Problem, State
from bayesnmf.inference.starts.exchanging import Climb, as_interrupted, exchange_components, told_of_no_chance
from bayesnmf.inference.starts.states import descent_for
from bayesnmf.inference.status import BROKEN, INTERRUPTED
from bayesnmf.kernels.cpu.threads import one_blas_thread
from bayesnmf.options import MAP, METHODS, VI
from bayesnmf.options.algorithms import ALGORITHMS
from bayesnmf.options.methods import varied_start
from bayesnmf.priors import Priors
from bayesnmf.priors.pair import replace_sides
from bayesnmf.priors.values import separate_scale
from bayesnmf.results.batches import factors_at
from bayesnmf.results.estimates import Point, VariationalPosterior
from bayesnmf.results.record import FitRecord


def from_counts(start: Any) -> bool:
    """Return whether a start is made from the counts, so that it would be similar if repeated."""
    return isinstance(start, str) and start in ("svd", "descent")


def best_of_restarts(job: Job, climb: Callable[[Any, np.random.Generator, str], Any]) -> tuple[Any, dict[str, float]]:
    """Run from `restarts` starts; return the result with the highest objective, and diagnostics of the restarts.

    The first start is the same as that of a single run with this seed. If it is made from the counts, all others are
    random. After Ctrl-C the best result so far is returned.

    Parameters
    ----------
    climb : callable
        Function of a start, a random generator and a label for progress that returns a named tuple with a `trace` and a
        `status`.
    """
    best: Any = None
    highest = -np.inf
    finished: list[float] = []
    stopped = False
    for restart in range(job.options.restarts):
        rng = np.random.default_rng(job.seed if restart == 0 else [job.seed, restart])
        label = f"{job.method} {job.model}" + (f", start {restart + 1}" if job.options.restarts > 1 else "")
        start = job.options.start
        if restart and from_counts(start):
            start = varied_start(job.options, bool(job.counts.rows_held))
        try:
            found = climb(start, rng, label)
            if not found.trace:
                raise KeyboardInterrupt
        except KeyboardInterrupt:  # before the first iterate of this start
            if best is None:
                raise
            stopped = True
            break
        end = found.trace[-1] if found.trace and not np.isnan(found.trace[-1]) else -np.inf
        if best is None or end > highest:
            best, highest = found, end
        if found.status.reason == INTERRUPTED:
            stopped = True
            break
        finished.append(end)
    if stopped:
        best = as_interrupted(best)
    if job.options.restarts == 1:
        return best, {}
    worst = {"worst_restart": float(min(finished))} if finished else {}
    return best, {"restarts": float(len(finished)), **worst}


def fit_closed_form(job: Job) -> FitRecord:
    """Run map or vi from one or several starts, and return the best fit."""
    problem = point_or_mean_field(job.counts, job.options)
    devices = [] if job.options.device == "cpu" else find_gpus(job.options.device)
    with limit_threads(job.options.threads):
        best, diagnostics = best_of_restarts(job, partial(run_from_start, job, problem, devices))
        best = _settle_and_report(job, best)
    if best.residuals:
        diagnostics |= {"kkt_residual": best.residuals[-1]}
        try:
            diagnostics |= {"least_gradient": least_gradient(best.problem, best.state)}
            status = checked_status(best.status, diagnostics, job.counts.total, job.options.kkt_tol)
            best = best._replace(status=status)
        except KeyboardInterrupt:
            best = as_interrupted(best)
    return fit_of_ascent(job, best, diagnostics)


def _settle_and_report(job: Job, ascent: Ascent) -> Ascent:
    """Settle the loadings and report the end; after Ctrl-C return the given ascent as interrupted."""
    try:
        ascent = _settle_unless_stopped(job, ascent)
        status = ascent.status
        if status.converged:
            job.report(f"{job.method} {job.model}", status.iterations, status.iterations, ascent.trace[-1])
    except KeyboardInterrupt:
        return as_interrupted(ascent)
    return ascent


def _settle_unless_stopped(job: Job, ascent: Ascent) -> Ascent:
    """Settle the loadings of vi given the components, unless the ascent stopped early or needs no settling."""
    status, finished = ascent.status, ALGORITHMS[job.options.algorithm].ends_settled
    stopped = status.reason in BROKEN or not status.iterations
    if not _is_mean_field(job) or not job.options.tol or stopped or finished:
        return ascent
    return with_settled_loadings(ascent)


def _is_mean_field(job: Job) -> bool:
    return METHODS[job.method].posterior == "mean field"


@contextmanager
def limit_threads(threads: int | None) -> Iterator[None]:
    """Work on at most so many blocks of rows at once, each with matrix products on one thread."""
    token = THREADS.set(None if threads is None else int(threads))
    try:
        with one_blas_thread():
            yield
    finally:
        THREADS.reset(token)


def run_from_start(
    job: Job, problem: Problem, devices: list[Any], start: Any, rng: np.random.Generator, label: str
) -> Ascent:
    """Run the chosen algorithm from one start; on the host if there are no `devices`."""
    options: MAP | VI = job.options
    schedule = schedule_of(options)

    def show(iteration: int, value: float, *_: Any) -> None:
        job.report(label, iteration, options.max_iter, value)

    prepared = descent_for(problem.counts, job.rank).iterations

    def prepare(iteration: int, *_: Any) -> None:  # whose objective is another one
        job.report(f"{label}, preparation", iteration, prepared, np.nan)

    def climber(problem: Problem, state: State) -> Climb:
        return Climb(_ascent_of_options(job, problem, devices, rng), problem, state)

    def search(done: int, total: int, value: float) -> None:
        job.report(f"{label}, exchanges", done, total, value)

    climb = climber(problem, start_state(problem, start, job.rank, rng, prepare))
    found = climb(schedule, show)
    able = ALGORITHMS[options.algorithm or "em"].exchanges and job.counts.rows_held and not devices
    if able and from_counts(start) and found.status.converged:
        return exchange_components(climber, (climb, found), schedule, rng, show, search)
    return told_of_no_chance(found)


def _ascent_of_options(job: Job, problem: Problem, devices: list[Any], rng: np.random.Generator) -> Any:
    """Return the chosen algorithm, as a function of a problem, a state, a schedule and what shows progress."""
    options: MAP | VI = job.options
    if options.algorithm == "gradient":
        from bayesnmf.inference.ascent.gradient_ascent import gradient_ascent

        return gradient_ascent
    if options.algorithm == "minibatch":
        return partial(minibatch_ascent, batching=batching_of(options), rng=rng)
    learned = {*getattr(options, "learn", ()), *(["loadings"] if problem.loadings_prior.has_effects else [])}
    learn: Any = prior_learner(sorted(learned)) if learned else None
    if problem.counts.learned:
        learn = DispersionLearner(options.threads, learn)
    if problem.counts.has_factors:
        learn = BatchLearner(options.threads, learn)
    climb = partial(ascend, steps=steps_of(problem, options, schedule_of(options)), learn=learn)
    if not devices:
        return climb
    from bayesnmf.inference.device.placing import run_on_devices

    return partial(run_on_devices, devices, climb)


def schedule_of(options: MAP | VI) -> Schedule:
    """Return the schedule of coordinate ascent for these options."""
    algorithm = ALGORITHMS[options.algorithm or "em"]
    return Schedule(
        kind="alternating" if algorithm.alternates else options.schedule or "joint",
        order=options.order,
        sweeps=options.sweeps or algorithm.sweeps,
        max_iter=options.max_iter,
        tol=algorithm.tol if options.tol is None else options.tol,
        window=WINDOW if options.extrapolate or algorithm.uneven else 1,
        kkt_tol=getattr(options, "kkt_tol", None),
        threads=options.threads,
    )


def batching_of(options: VI) -> Batching:
    """Return the batch size and step sizes for these options."""
    given = {"size": options.batch_size, "forgetting": options.forgetting, "delay": options.delay}
    stated: Any = {name: value for name, value in given.items() if value is not None}
    return Batching(**stated, sweeps=options.sweeps)


def steps_of(problem: Problem, options: MAP | VI, schedule: Schedule) -> Steps:
    """Return the steps of the chosen algorithm."""
    steps, floor = plain_steps(schedule), None
    if options.algorithm in NEWTON_STEPS:
        steps, floor = regression_steps(problem, schedule, options.algorithm), FLOOR
    if options.algorithm == "settled":
        steps = settling_steps(schedule)
    if options.extrapolate:
        steps = Extrapolated(steps, floor)
    return steps


def fit_of_ascent(job: Job, ascent: Ascent, diagnostics: dict[str, float] | None = None) -> FitRecord:
    """Return the fit of the last state of an ascent."""
    state: State = ascent.state
    estimate: Point | VariationalPosterior = Point()
    for side in state:
        side.forget()
    value, q = state.loadings.whole()
    loadings, scale = separate_scale(value)
    if q is not None:
        estimate = VariationalPosterior(q, state.components.whole()[1])
    return job.record(
        np.ascontiguousarray(loadings),
        np.ascontiguousarray(state.components.matrix),
        scale,
        trace=np.asarray(ascent.trace),
        residuals=np.asarray(ascent.residuals) if ascent.residuals else None,
        status=ascent.status,
        priors=_given_or_learned_priors(job.options.priors, ascent.problem),
        diagnostics=diagnostics or {},
        noise=ascent.problem.counts.noise if ascent.problem.counts.learned else job.noise,
        estimate=estimate,
        batch=factors_at(ascent.problem, state) if ascent.problem.counts.has_factors else None,
    )


def _given_or_learned_priors(given: Priors, problem: Problem) -> Priors:
    """Return the given priors, with learned priors in their place if there are any."""
    sides: dict[str, Any] = {}
    for side in ("loadings", "components"):
        now = getattr(problem, f"{side}_prior")
        if not isinstance(getattr(given, side), str) and now is not getattr(given, side):
            sides[side] = now
    return replace_sides(given, **sides) if sides else given
