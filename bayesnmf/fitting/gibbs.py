"""Run Gibbs sampling: several chains at once, for a number of draws or until they have mixed.

All draws are kept, or thinned ones and moments of all.
"""

from __future__ import annotations

import threading
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any, Literal, NamedTuple

import numba
import numpy as np

from bayesnmf.data.suspicions import PACKAGE
from bayesnmf.fitting.chains import chain_starts, fit_of_draws, matched_draws, statistics_of
from bayesnmf.fitting.closed_form import limit_threads
from bayesnmf.fitting.job import LARGEST_DRAWS, Job
from bayesnmf.fitting.keeping import THINNED, draws_to_keep, keeps_moments, size_of_draws
from bayesnmf.fitting.problems import draws_problem
from bayesnmf.inference.ascent.course import Progress
from bayesnmf.inference.checkpoints.slots import next_slot
from bayesnmf.inference.problem import State
from bayesnmf.inference.sampling.gibbs import (
    Allocating,
    Chain,
    Entries,
    Reassigning,
    Recording,
    Schedule,
    choose_chains,
    collapsed_gibbs_chain,
    gibbs_chain,
    marginal_gibbs_chain,
)
from bayesnmf.inference.sampling.running_moments import DrawsOnDisk, Running, RunningOnDisk
from bayesnmf.inference.side_by_side import side_by_side
from bayesnmf.inference.status import BROKEN, INTERRUPTED, Status
from bayesnmf.options import Gibbs
from bayesnmf.priors.pair import movable_components
from bayesnmf.priors.specification import stated_components
from bayesnmf.priors.values import stack_values
from bayesnmf.results.mixing import (
    difference_of_modes,
    figures_of,
    in_words,
    is_settled,
    judged_parts,
    shares_of,
    whole_is_settled,
)
from bayesnmf.results.record import FitRecord
from bayesnmf.results.thinning import with_moments
from bayesnmf.types import Array

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
        chains = run_chains(job, states, streams, schedules, stop)
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
    job: Job,
    states: list[State],
    streams: list[np.random.Generator],
    schedules: list[Schedule],
    stop: threading.Event,
) -> list[Chain]:
    """Run each chain on its own thread and return the chains; a single chain uses several row blocks instead.

    Ctrl-C and any other exception, in a chain or during the wait, set `stop` and end all chains at their next sweep.
    """
    options: Gibbs = job.options
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


# Chains in blocks: until they have mixed, are in different modes, or a budget is spent.

DRAWS = (500, 750, 1000, 1500, 2000, 3000, 4000, 6000, 8000, 12_000, 16_000, 20_000)  # of a chain, at the block's end
DISCARDED = 4  # one of so many draws, the first ones, are discarded
FEWEST = 12  # draws of a chain, whatever the budget


class Drawn(NamedTuple):
    """Draws of both sides, (chains, draws, …), their log joint, and what is drawn beside, without the first ones."""

    sides: list[Any]
    log_joint: Array
    statistics: dict[str, Array] | None


def run_gibbs(job: Job) -> FitRecord:
    """Run the chains of Gibbs sampling, for a number of draws or until they have mixed, and return their fit."""
    return fit_until_mixed(job) if job.options.draws == "auto" else fit_gibbs(job)


def fit_until_mixed(job: Job) -> FitRecord:
    """Run the chains in blocks and return the fit of their last draws."""
    job = replace(job, options=replace(job.options, algorithm=sampler_of(job)))
    states, streams = chain_starts(job)
    with limit_threads(None):
        course = Course(job, states, streams)
        reason = course.run()
    drawn, interrupted = course.drawn(), course.stop.is_set()
    schedule = {"sweeps": float(course.schedule.sweeps), "sweeps_per_draw": float(course.schedule.thin)}
    found = fit_of_draws(job, list(drawn.sides), drawn.log_joint, schedule, interrupted, drawn.statistics)
    if found.status.reason in BROKEN:
        return found
    posterior: Any = found.estimate
    shares = shares_of(job, posterior)
    parts = judged_parts(posterior, job.seed, found.statistics)
    figures = figures_of(parts, drawn.log_joint, shares, job.options.threads)
    texts = [f"{drawn.log_joint.size} draws", reason, in_words(figures)]
    status = Status(not reason and is_settled(figures), "; ".join(filter(None, texts)), drawn.log_joint.size)
    return replace(found, status=status, diagnostics={**found.diagnostics, **figures})


class Course:
    """The course of the chains through the blocks.

    Parameters
    ----------
    job : Job
    states, streams : list
        Start and random generator of each chain.

    Attributes
    ----------
    schedule : Schedule
        Schedule of the newest block.
    stop : Event
        Whether Ctrl-C ended the run.
    """

    def __init__(self, job: Job, states: list[State], streams: list[np.random.Generator]) -> None:
        self.job, self.options, self.stop = job, job.options, threading.Event()
        rounds = -(-self.options.chains // chains_at_once(job))
        self.seconds = seconds_of_a_sweep(job, states[0]) * rounds  # of a sweep of every chain
        self.judging = 0.0  # seconds that the newest judgement took; the last draws are judged twice
        slot = next_slot("warmup", None)
        kept = slot.result()
        self.warmup = min(self.options.warmup, self._affordable(0) // 3) if kept is None else kept
        if kept is None:
            slot.end(self.warmup)
        self.schedule = Schedule(self.warmup, 0, self.options.thin)
        self.chains: list[Chain] = []
        self.recordings = [
            Recording(sweeps_of(job, state, stream), next_slot("chain", job.counts))
            for state, stream in zip(states, streams, strict=True)
        ]

    def run(self) -> str:
        """Run blocks until the chains have mixed; return why they ended without, or "" if they have, or by Ctrl-C."""
        for schedule in self._schedules():
            planned, self.schedule = schedule, self._within_budget(schedule)
            try:
                self._run_block()
                if self.stop.is_set():
                    return ""
                mixed, reason = self._judge()
            except KeyboardInterrupt:
                self.stop.set()
                return ""
            if mixed or reason:
                return self._end(reason)
            if self.schedule.draws < planned.draws:
                return self._end(f"the budget of {self.options.budget:g} s is spent")
        return self._end(f"the most draws of a chain, {DRAWS[-1]:,}, are made")

    def drawn(self) -> Drawn:
        """Return the draws of as many chains as have about equally many, without the first quarter."""
        kept, length = choose_chains([len(chain.log_joint) for chain in self.chains])
        first = length // DISCARDED
        chosen = [self.chains[chain] for chain in kept]
        sides = [
            stack_values([stack_values([draw[side] for draw in chain.draws[first:length]]) for chain in chosen])
            for side in range(len(chosen[0].draws[first]))
        ]
        log_joint = np.array([chain.log_joint[first:length] for chain in chosen])
        beside = [chain.beside[first:length] for chain in chosen]
        return Drawn(sides, log_joint, statistics_of(beside, self.job.counts))

    def _schedules(self) -> Iterator[Schedule]:
        """Yield the schedules of the blocks, from that in which a checkpoint was left."""
        most = draws_to_keep(self.options, self.job.rank, self.job.counts.shape)
        reached = max(recording.done for recording in self.recordings)
        thinned = max(recording.thin for recording in self.recordings)
        for draws in DRAWS:
            thin = 1
            while draws // thin > most:
                thin *= 2
            schedule = Schedule(self.warmup, draws // thin, self.options.thin * thin)
            if (schedule.sweeps + 1 >= reached and schedule.thin >= thinned) or draws == DRAWS[-1]:
                yield schedule

    def _affordable(self, done: int) -> int:
        """Return the number of sweeps, of which some are done, that the budget allows for."""
        left = self.job.started + self.options.budget - time.perf_counter() - 2 * self.judging
        return done + int(max(left, 0.0) / self.seconds)

    def _within_budget(self, schedule: Schedule) -> Schedule:
        """Return the schedule, with fewer draws if the budget does not allow for all."""
        done = min(recording.done for recording in self.recordings)
        draws = (self._affordable(done) - schedule.warmup) // schedule.thin
        reached = (max(recording.done for recording in self.recordings) - schedule.warmup) // schedule.thin
        return schedule._replace(draws=min(schedule.draws, max(draws, reached, FEWEST)))

    def _run_block(self) -> None:
        """Run all chains to the end of the schedule, and measure the seconds of a sweep."""
        schedule, job = self.schedule, self.job
        done, began = min(recording.done for recording in self.recordings), time.perf_counter()
        label = f"gibbs {job.model}, to {schedule.sweeps - schedule.warmup:,} draws, at most {job.options.budget:g} s"
        self.chains = run_side_by_side(
            job, label, [schedule.sweeps] * len(self.recordings),
            lambda number, show: self.recordings[number].run(schedule, show), self.stop,
        )  # fmt: skip
        if (sweeps := schedule.sweeps + 1 - done) > 0:
            self.seconds = max((time.perf_counter() - began) / sweeps, 1e-9)

    def _judge(self) -> tuple[bool, str]:
        """Return whether the chains have mixed, and why more draws would not help, or ""."""
        began = time.perf_counter()
        found = self._judged(self.drawn())
        self.judging = time.perf_counter() - began
        return found

    def _judged(self, drawn: Drawn) -> tuple[bool, str]:
        threads = self.options.threads
        loadings, components, *_ = drawn.sides
        posterior, _, statistics = matched_draws(self.job, loadings, components, drawn.statistics)
        if reason := difference_of_modes(posterior.components, drawn.log_joint):
            return False, reason
        shares = shares_of(self.job, posterior)
        if not whole_is_settled(shares, drawn.log_joint, threads):
            return False, ""
        parts = judged_parts(posterior, self.job.seed, statistics)
        return is_settled(figures_of(parts, drawn.log_joint, shares, threads)), ""

    def _end(self, reason: str) -> str:
        """Say that all chains have ended, and return the reason."""
        for recording in self.recordings:
            recording.end()
        return reason


def sweeps_of(job: Job, state: State, stream: np.random.Generator) -> Any:
    """Return what runs the sweeps of a chain."""
    options: Gibbs = job.options
    blocks = options.threads if options.chains == 1 else 1
    problem = draws_problem(job.counts, options.priors, stream, blocks)
    kinds: dict[Any, Any] = {"marginal": Entries, "allocations": Allocating}
    return (Reassigning if options.collapsed else kinds[options.algorithm])(problem, state, stream, blocks)
