"""Run the chains of Gibbs sampling in blocks: until they have mixed, are in different modes, or a budget is spent."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from bayesnmf.fitting.chains import chain_starts, fit_of_draws, matched_draws, statistics_of
from bayesnmf.fitting.closed_form import limit_threads
from bayesnmf.fitting.gibbs import chains_at_once, fit_gibbs, run_side_by_side, sampler_of, seconds_of_a_sweep
from bayesnmf.fitting.job import Job
from bayesnmf.fitting.keeping import draws_to_keep
from bayesnmf.fitting.problems import draws_problem
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
)
from bayesnmf.inference.status import BROKEN, Status
from bayesnmf.options import Gibbs
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
from bayesnmf.types import Array

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
