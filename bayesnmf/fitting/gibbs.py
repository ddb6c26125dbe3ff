"""Run Gibbs sampling: several chains at once, with all draws kept or thinned draws and moments."""

from __future__ import annotations

import threading
import time
import warnings
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any, Literal

import numba
import numpy as np

from bayesnmf.data.suspicions import PACKAGE
from bayesnmf.fitting.chains import chain_starts, fit_of_draws, statistics_of
from bayesnmf.fitting.closed_form import limit_threads
from bayesnmf.fitting.job import LARGEST_DRAWS, Job
from bayesnmf.fitting.keeping import THINNED, keeps_moments, size_of_draws
from bayesnmf.fitting.problems import draws_problem
from bayesnmf.inference.ascent.course import Progress
from bayesnmf.inference.checkpoints.slots import next_slot
from bayesnmf.inference.problem import State
from bayesnmf.inference.sampling.gibbs import (
    Chain,
    Schedule,
    choose_chains,
    collapsed_gibbs_chain,
    gibbs_chain,
    marginal_gibbs_chain,
)
from bayesnmf.inference.sampling.running_moments import DrawsOnDisk, Running, RunningOnDisk
from bayesnmf.inference.side_by_side import side_by_side
from bayesnmf.inference.status import INTERRUPTED
from bayesnmf.options import Gibbs
from bayesnmf.priors.pair import movable_components
from bayesnmf.priors.specification import stated_components
from bayesnmf.priors.values import stack_values
from bayesnmf.results.record import FitRecord
from bayesnmf.results.thinning import with_moments

# Counts for each entry of loadings and components from which on the marginal sampler is the default. Above, it was
# sooner on all data sets and simulations but two of shape 0.03 (up to 92 times sooner, at most 1.9 times
# later); below, it was later (up to 3.3 times) but on toys: benchmarks/README.md, "Chains".
MANY_COUNTS = 16


def fit_gibbs(job: Job) -> FitRecord:
    """Run the chains of Gibbs sampling and return their fit."""
    job = replace(job, options=replace(job.options, algorithm=sampler_of(job)))
    states, streams = chain_starts(job)
    schedules = schedules_of(job)
    if job.options.keep == "auto" and schedules[0].running is not None:
        _warn_of_thinning(job, states[0], schedules[0])
    stop = threading.Event()
    with limit_threads(job.options.threads):
        chains = run_chains(job, (states, streams), schedules, stop)
    interrupted = stop.is_set() or any(chain.interrupted for chain in chains)
    kept, length = choose_chains([len(chain.log_joint) for chain in chains])
    every = schedules[0].every
    drawn = _stack_draws(job, [chains[c].draws for c in kept], -(-length // every))
    log_joint = np.array([chains[c].log_joint[:length] for c in kept])
    statistics = statistics_of([chains[c].beside[:length] for c in kept], job.counts)
    found = fit_of_draws(job, drawn, log_joint, {}, interrupted, statistics)
    running = [schedules[c].running for c in kept]
    if running[0] is None:
        return found
    try:
        return with_moments(found, running, every)  # type: ignore[arg-type]
    except KeyboardInterrupt:  # try again, since without moments only the thinned draws would be left
        found = replace(found, status=found.status._replace(converged=False, reason=INTERRUPTED))
        return with_moments(found, running, every)  # type: ignore[arg-type]


def _stack_draws(job: Job, chains: list[list[Any]], length: int) -> list[Any]:
    """Return the first `length` draws of every chain, (chains, draws, …) for each side; the lists are emptied."""
    values: list[Any] = []
    counts: Any = job.counts
    if not counts.rows_held:
        rows = DrawsOnDisk([[draw[0] for draw in draws[:length]] for draws in chains], counts)
        others = range(1, len(chains[0][0]))
        return [rows, *(np.stack([[draw[part] for draw in draws[:length]] for draws in chains]) for part in others)]
    parts = range(len(chains[0][0]))  # both sides, and factors of batches if there are any
    for draws in chains:
        values.append([stack_values([draw[part] for draw in draws[:length]]) for part in parts])
        draws.clear()
    return [stack_values([chain[part] for chain in values]) for part in parts]


def schedules_of(job: Job) -> list[Schedule]:
    """Return the schedule of each chain, which keeps every draw, or thinned draws and running moments."""
    options: Any = job.options  # with a number of draws
    every = 1
    moments = keeps_moments(options, job.rank, job.counts.shape)
    if moments:
        every = min(-(-size_of_draws(options, job.rank, job.counts.shape) // THINNED), options.draws)
    parts = (options.warmup, options.draws, options.thin, every)
    movable = movable_components(options.priors, job.rank)
    running = [
        _running(job, Running(options.draws, len(movable) > 1, movable)) if moments else None
        for _ in range(options.chains)
    ]
    return [Schedule(*parts, each, next_slot("chain", job.counts)) for each in running]


def _running(job: Job, running: Running) -> Running | RunningOnDisk:
    """Return the sums over the draws of a chain, with those of loadings on disk in files."""
    if job.counts.rows_held:
        return running
    return RunningOnDisk(draws_problem(job.counts, job.options.priors, np.random.default_rng(0)), running)


def _warn_of_thinning(job: Job, state: State, schedule: Schedule) -> None:
    """Warn that not all draws are kept, and estimate the time of the run from the time of a sweep."""
    options: Any = job.options  # with a number of draws
    at_once = chains_at_once(job)
    seconds = seconds_of_a_sweep(job, state) * schedule.sweeps * -(-options.chains // at_once)
    kept = options.chains * -(-options.draws // schedule.every)
    size = size_of_draws(options, job.rank, job.counts.shape) / 2**30
    or_all = ", or bayesnmf.Gibbs(keep='draws') for all draws" if size * 2**30 <= LARGEST_DRAWS else ""
    warnings.warn(
        f"all {options.chains} × {options.draws:,} draws would take {size:.1f} GiB: every {schedule.every}th is kept, "
        f"{kept:,} in all, with means, standard deviations, R-hat and effective sample sizes of all draws "
        f"(Fit.moments); {schedule.sweeps * options.chains:,} sweeps to go, {duration_in_words(seconds)}; choose "
        f"bayesnmf.Gibbs(keep='moments') to have this without a warning{or_all}",
        UserWarning,
        skip_file_prefixes=(PACKAGE,),
    )


def sampler_of(job: Job) -> Literal["marginal", "allocations"] | None:
    """Return the sampler that the options name, or else the one that is quicker for counts of this size.

    A chain over allocations moves an entry by about the root of its count at most, so it needs more sweeps the more
    counts there are; a sweep that sums them out costs more.
    """
    options: Gibbs = job.options
    if options.algorithm is not None or options.collapsed:
        return options.algorithm
    if not job.counts.rows_held:
        return "allocations"
    sides: Any = options.priors.loadings, stated_components(options.priors.components)
    entries = job.rank * sum(job.counts.shape)
    many = job.counts.total >= MANY_COUNTS * entries and all("entries" in prior.optional for prior in sides)
    return "marginal" if many else "allocations"


def chains_at_once(job: Job) -> int:
    """Return the number of chains to run at once; of counts on disk, blocks of rows are worked on at once instead."""
    options: Gibbs = job.options
    return min(options.threads or numba.get_num_threads(), options.chains) if job.counts.rows_held else 1


def chain_function(options: Gibbs) -> Any:
    """Return the function that runs one chain."""
    if options.collapsed:
        return collapsed_gibbs_chain
    return marginal_gibbs_chain if options.algorithm == "marginal" else gibbs_chain


def seconds_of_a_sweep(job: Job, state: State) -> float:
    """Return the time of one sweep of a chain, measured after compilation and without changing the chains."""
    options: Gibbs = job.options
    rng = np.random.default_rng(0)
    problem = draws_problem(job.counts, options.priors, rng, 1)
    run_chain = chain_function(options)
    blocks = options.threads if chains_at_once(job) == 1 else 1
    seconds = []
    for _ in range(2):
        started = time.perf_counter()
        # Three sweeps: a warm-up, a draw, and one that computes the log joint of the draw.
        if run_chain(problem, state, rng, Schedule(1, 1, 1), blocks).interrupted:
            raise KeyboardInterrupt
        seconds.append((time.perf_counter() - started) / 3)
    return min(seconds)


def duration_in_words(seconds: float) -> str:
    """Return a duration in words, rounded to one unit."""
    for unit, length in (("hours", 3600), ("minutes", 60)):
        if seconds >= 2 * length:
            return f"about {seconds / length:.0f} {unit}"
    return f"about {max(seconds, 1):.0f} seconds"


def run_chains(
    job: Job, starts: tuple[list[State], list[np.random.Generator]], schedules: list[Schedule], stop: threading.Event
) -> list[Chain]:
    """Run each chain on its own thread and return the chains; a single chain uses several row blocks instead.

    Ctrl-C and any other exception, in a chain or during the wait, set `stop` and end all chains at their next sweep.
    """
    options: Gibbs = job.options
    states, streams = starts
    blocks = options.threads if chains_at_once(job) == 1 else 1

    def run(number: int, show: Progress) -> Chain:
        problem = draws_problem(job.counts, options.priors, streams[number], blocks)
        run_chain = chain_function(options)
        return run_chain(problem, states[number], streams[number], schedules[number], blocks, show)

    return run_side_by_side(job, f"gibbs {job.model}", [each.sweeps for each in schedules], run, stop)


def run_side_by_side(
    job: Job, label: str, sweeps: list[int], run: Callable[[int, Progress], Chain], stop: threading.Event
) -> list[Chain]:
    """Run chains, by a function of their number and of what reports their sweeps; parameters as for `run_chains`."""
    done = [0] * len(sweeps)

    def run_one(number: int) -> Chain:
        def show(iteration: int, value: float, _: State) -> None:
            if stop.is_set():
                raise KeyboardInterrupt
            done[number] = iteration + 1
            job.report(label, sum(done), sum(sweeps), value)

        chain = run(number, show)
        if chain.interrupted:
            stop.set()
        return chain

    return side_by_side([partial(run_one, number) for number in range(len(sweeps))], chains_at_once(job), stop)
