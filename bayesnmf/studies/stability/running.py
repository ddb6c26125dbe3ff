"""Fit from many starts, side by side."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from threading import Event, Lock
from typing import Any

import numba
import numpy as np
from threadpoolctl import threadpool_limits

from bayesnmf.checks import check_count
from bayesnmf.data.counts import Counts
from bayesnmf.fitting.fit import fit
from bayesnmf.fitting.fitted import Fit
from bayesnmf.fitting.progress import ProgressReport
from bayesnmf.inference.side_by_side import side_by_side
from bayesnmf.inference.status import INTERRUPTED, FitWarning
from bayesnmf.options import Options, options_of
from bayesnmf.options.checkpoint import Checkpoint
from bayesnmf.options.defaults import varied_start
from bayesnmf.studies.stability.checks import check_varied_start
from bayesnmf.studies.stability.folder import Folder

MOST_JOBS = 1024
MOST_STARTS = 100_000


def seed_of(seed: int, start: int) -> int:
    """Return the seed of a start; it does not depend on the number of starts."""
    state = np.random.SeedSequence(seed, spawn_key=(start,)).generate_state(1, np.uint64)
    return int(state[0]) >> 1


@dataclass(frozen=True, eq=False)
class Study:
    """What is fitted from every start, and how many fits run at once.

    Attributes
    ----------
    counts : Counts
    model : str
    rank : int
    method : str
    options : MAP, VI or BLD
        Options with defaults filled in, and `start` and `threads` given.
    seed : int
    jobs : int
        Number of fits at once.
    folder : Folder or None
        Folder that keeps the fits.
    seconds : float
        Time between snapshots of a fit that runs.
    """

    counts: Counts
    model: str
    rank: int
    method: str
    options: Options
    seed: int
    jobs: int
    folder: Folder | None = None
    seconds: float = 60.0

    def fit(
        self, counts: Counts, seed: int, options: Options, stop: Event, checkpoint: Checkpoint | None = None
    ) -> Fit | None:
        """Fit counts; return None if `stop` ended the fit early."""

        def report(*_: Any) -> None:
            if stop.is_set():
                raise KeyboardInterrupt

        found: Fit | None
        try:
            found = fit(
                counts, self.model, self.rank, self.method, seed=seed, options=options, checkpoint=checkpoint,
                progress=report,
            )  # fmt: skip
        except KeyboardInterrupt:
            found = None
        if found is None or found.status.reason == INTERRUPTED:
            stop.set()
            return None
        return found


@dataclass(eq=False)
class Runs:
    """Fits from the starts that have ended, by number of the start.

    Attributes
    ----------
    fits : dict of int to Fit
    damaged : list of int
        Starts that were fitted again, as their files were damaged.
    interrupted : bool
        Whether Ctrl-C came while the starts were fitted.
    """

    fits: dict[int, Fit] = field(default_factory=dict)
    damaged: list[int] = field(default_factory=list)
    interrupted: bool = False


def fit_from_starts(study: Study, starts: int, report: ProgressReport) -> Runs:
    """Fit from every start that the folder has no fit of; after Ctrl-C return the fits that have ended.

    Raises
    ------
    KeyboardInterrupt
        Ctrl-C before the first fit has ended.
    """
    runs, stop = Runs(), Event()
    told = Report(report, "fits from starts", starts, stop)

    def run(start: int) -> None:
        seed = seed_of(study.seed, start)
        found, damaged = (None, False) if study.folder is None else study.folder.read(start, study.counts, seed)
        if found is None and not stop.is_set():
            under_way = None if study.folder is None else study.folder.under_way(start, study.seconds)
            found = study.fit(study.counts, seed, study.options, stop, under_way)
            if found is not None and study.folder is not None:
                study.folder.write(start, found)
        if found is not None:
            with told.lock:
                runs.fits[start] = found
                runs.damaged += [start] * damaged
            told.one_more(found.trace[-1])

    run_tasks([partial(run, start) for start in range(starts)], study.jobs, stop)
    runs.interrupted = stop.is_set()
    if not runs.fits:
        raise KeyboardInterrupt
    return runs


@dataclass(eq=False)
class Report:
    """Progress of tasks that end on several threads."""

    report: ProgressReport
    label: str
    total: int
    stop: Event
    done: int = 0
    highest: float = -np.inf
    lock: Any = field(default_factory=Lock)

    def one_more(self, value: float = np.nan) -> None:
        """Report that a task has ended, with the highest value so far; Ctrl-C in the report sets `stop`."""
        with self.lock:
            self.done += 1
            self.highest = max(self.highest, float(np.nan_to_num(value, nan=-np.inf)))
            try:
                self.report(self.label, self.done, self.total, self.highest)
            except KeyboardInterrupt:
                self.stop.set()


def run_tasks(tasks: Sequence[Callable[[], None]], jobs: int, stop: Event) -> None:
    """Run tasks on threads, `jobs` at once, without warnings about convergence, which the results report.

    Matrix products are limited to one thread around all tasks: each fit sets and restores that limit, and one that ends
    while another runs would leave it changed.
    """
    with warnings.catch_warnings(), threadpool_limits(1):
        warnings.simplefilter("ignore", FitWarning)
        side_by_side(tasks, jobs, stop)


def varied_options(options: Any, method: str) -> Any:
    """Return options with a start that differs from run to run, and one thread; refuse others."""
    options = options_of(method, options)
    if options.start is None:
        options = replace(options, start=varied_start(options))
    check_varied_start(options.start)
    return with_one_thread(options)


def with_one_thread(options: Any) -> Any:
    """Return options with one thread, unless a number of threads or a device is given."""
    free = options.threads is None and getattr(options, "device", "cpu") == "cpu"
    return replace(options, threads=1) if free else options


def number_of_jobs(jobs: Any, most: int, options: Any) -> int:
    """Return the number of fits at once: by default as many as the cores have room for, and one on a GPU."""
    if jobs is not None:
        return min(check_count(jobs, "jobs", most=MOST_JOBS), most)
    if getattr(options, "device", "cpu") != "cpu":
        return 1
    return min(max(numba.get_num_threads() // (options.threads or 1), 1), most)
