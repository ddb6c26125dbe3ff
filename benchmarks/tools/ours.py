"""Fit by bayesnmf, with the same loops as `bayesnmf.fit`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

import bayesnmf
from bayesnmf import MAP, VI, Dirichlet, Gamma, Priors, Start
from bayesnmf.data.conversion import as_counts
from bayesnmf.data.counts import Counts
from bayesnmf.fitting.closed_form import batching_of, schedule_of, steps_of
from bayesnmf.fitting.job import resolve_priors
from bayesnmf.fitting.problems import draws_problem, point_or_mean_field, start_state
from bayesnmf.inference.ascent.coordinate_ascent import ascend
from bayesnmf.inference.ascent.course import Progress
from bayesnmf.inference.ascent.minibatch import RunningComponents, step_on_batch
from bayesnmf.inference.ascent.settled_loadings import put_rows, rows_of_problem
from bayesnmf.inference.marginal.allocation_model import urn_of
from bayesnmf.inference.problem import State
from bayesnmf.inference.sampling.gibbs import Schedule, gibbs_chain
from bayesnmf.inference.sides import update_components, update_loadings
from bayesnmf.kernels.cpu.urn import assign_tokens, reassign_tokens
from bayesnmf.options.methods import resolve_options
from benchmarks.worker import Clock, Job

Array = NDArray[Any]

FOR_EVER = 10**9
FLAT = Priors(Gamma(1.0, 0.0), "parameter")


def likelihood(job: Job, clock: Clock) -> None:
    """Maximise the likelihood: map with flat priors."""
    start = Start(job.start["loadings"], job.start["components"])
    given = {"algorithm": "em", "extrapolate": False, **job.settings}
    options = MAP(priors=FLAT, start=start, max_iter=FOR_EVER, tol=0, threads=job.threads, **given)
    climb(job, clock, options)


def lda(job: Job, clock: Clock) -> None:
    """Fit Dirichlet-Poisson by variational inference."""
    priors = Priors(Dirichlet(job.alpha), Dirichlet(job.eta))
    options = VI(priors=priors, start=drawn_start(job), max_iter=FOR_EVER, tol=0, threads=job.threads, **job.settings)
    climb(job, clock, options)


def plain_call(job: Job, clock: Clock) -> None:
    """Fit as a call without options, from its own start, which takes part of the time; a tick is an iteration."""
    task = job.task
    priors = FLAT if task == "likelihood" else Priors(Dirichlet(job.alpha), Dirichlet(job.eta))
    given: Any = (MAP if task == "likelihood" else VI)(priors=priors, max_iter=FOR_EVER, tol=0, threads=job.threads)
    options: Any = resolve_options(replace(given, **job.settings))
    counts = as_counts(job.counts, dtype=options.dtype)
    run(counts, replace(options, max_iter=3), job, None)  # compile
    clock.start(bayesnmf.__version__)
    climb_on(job, clock, counts, options)


def gamma_poisson(job: Job, clock: Clock) -> None:
    """Fit Gamma-Poisson by variational inference, with its default priors."""
    start = Start(job.start["loadings"], job.start["components"])
    priors = resolve_priors("gamma_poisson", as_counts(job.counts), job.rank, Priors())
    options = VI(priors=priors, start=start, max_iter=FOR_EVER, tol=0, threads=job.threads, **job.settings)
    climb(job, clock, options)


def lda_minibatch(job: Job, clock: Clock) -> None:
    """Fit Dirichlet-Poisson by stochastic variational inference; a tick is an epoch."""
    priors = Priors(Dirichlet(job.alpha), Dirichlet(job.eta))
    options = VI(priors=priors, algorithm="minibatch", threads=job.threads, **job.settings)
    counts = as_counts(job.counts, dtype=options.dtype)
    next(epochs(job, options, counts))  # compile
    running = epochs(job, options, counts)
    clock.start(bayesnmf.__version__)
    for q, components in running:
        clock.tick(partial(means, q, components))


def means(q: Any, components: RunningComponents) -> dict[str, Array]:
    """Return the posterior means of both sides."""
    return {"loadings": q.mean(), "components": components.side().matrix}


def epochs(job: Job, options: VI, counts: Counts) -> Iterator[tuple[Any, RunningComponents]]:
    """Run the loop of `minibatch_ascent` without the bound of every epoch, as the other tools compute none either."""
    n = counts.shape[0]
    rng = np.random.default_rng(job.seed)
    problem, batching = point_or_mean_field(counts, options), batching_of(options)
    state = start_state(problem, drawn_start(job), job.rank, rng)
    q: Any = state.loadings.conditional
    components = RunningComponents(problem, state.components, n)
    step = 0
    while True:
        for rows in batching.split(rng.permutation(n)):
            step += 1
            part = rows_of_problem(problem, rows)
            put_rows(q, rows, step_on_batch(components, part, q.rows(rows), batching, step, job.threads))
        yield q, components


def climb(job: Job, clock: Clock, options: MAP | VI) -> None:
    """Ascend from the start of the options; a tick is an iteration."""
    counts = as_counts(job.counts, dtype=options.dtype)
    run(counts, replace(options, max_iter=3), job, None)  # compile
    climb_on(job, clock, counts, options, lambda: clock.start(bayesnmf.__version__))


def climb_on(
    job: Job, clock: Clock, counts: Counts, options: MAP | VI, ready: Callable[[], None] | None = None
) -> None:
    """Ascend from the start of the options; a tick is an iteration, and `ready` is called before the first."""

    def show(iteration: int, _value: float, here: State) -> None:
        if iteration:
            clock.tick(lambda: export(job.task, here))

    run(counts, options, job, show, ready)


def export(task: str, state: State) -> dict[str, Array]:
    """Return the parameters of q if the objective is a bound (for lda, of the topics only), else means or modes."""
    if task in ("likelihood", "heldout"):
        return {"loadings": state.loadings.matrix, "components": state.components.matrix}
    q: Any = state.loadings.conditional
    of_components: Any = state.components.conditional
    of_loadings = {} if task == "lda" else {"shape": q.shape, "rate": q.rate}
    return {**of_loadings, "nu": of_components.concentration}


def run(counts: Counts, options: Any, job: Job, show: Progress | None, ready: Callable[[], None] | None = None) -> None:
    """Fit as `fit` does for map or vi; `ready` is called before the first step."""
    problem = point_or_mean_field(counts, options)
    states = [start_state(problem, options.start, job.rank, np.random.default_rng(job.seed))]
    schedule = schedule_of(options)
    if ready is not None:
        ready()
    ascend(problem, states.pop(), schedule, show, steps_of(problem, options, schedule))


def gibbs(job: Job, clock: Clock) -> None:
    """Sample Dirichlet-Poisson; a tick is a sweep."""
    rng = np.random.default_rng(job.seed)
    priors = Priors(Dirichlet(job.alpha), Dirichlet(job.eta))
    problem = draws_problem(as_counts(job.counts), priors, rng, job.threads)
    state = start_state(problem, drawn_start(job), job.rank, rng)
    gibbs_chain(problem, state, rng, Schedule(1, 1, 1), job.threads)  # compile

    def show(sweeps: int, _value: float, here: State) -> None:
        if sweeps:
            clock.tick(lambda: {"loadings": here.loadings.matrix, "components": here.components.matrix})

    clock.start(bayesnmf.__version__)
    gibbs_chain(problem, state, rng, Schedule(FOR_EVER, 1, 1), job.threads, show)


def collapsed_gibbs(job: Job, clock: Clock) -> None:
    """Draw the component of every single count; a tick is a sweep.

    This is the sweep of `collapsed_gibbs_chain`, with loadings and components drawn outside the clock, as for tomotopy.
    """
    rng = np.random.default_rng(job.seed)
    priors = Priors(Dirichlet(job.alpha), Dirichlet(job.eta))
    problem = draws_problem(as_counts(job.counts), priors, rng, job.threads)
    state = start_state(problem, drawn_start(job), job.rank, rng)
    counts, factors = problem.counts.matrix, (state.loadings.geometric, state.components.geometric)
    urn = urn_of(problem.loadings_prior, problem.components_prior, job.rank, counts.shape[1])
    tokens = assign_tokens(counts, *factors, int(rng.integers(2**63)))
    reassign_tokens(counts, tokens, urn, int(rng.integers(2**63)))  # compile

    def draw() -> dict[str, Array]:
        here = update_loadings(problem, state, tokens.loadings)
        here = update_components(problem, here, tokens.components.T)
        return {"loadings": here.loadings.matrix, "components": here.components.matrix}

    clock.start(bayesnmf.__version__)
    while True:
        reassign_tokens(counts, tokens, urn, int(rng.integers(2**63)))
        clock.tick(draw)


def drawn_start(job: Job) -> Start:
    """Return the q from which VI starts, and from which samplers draw their start."""
    return Start(Dirichlet(job.start["gamma"]), Dirichlet(job.start["nu"]))
