"""Fit from many starts, side by side; with a checkpoint, each in a folder of its own (`start-0000`, …)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from bayesnmf.data.counts import Counts
from bayesnmf.fitting.checkpointing import has_damaged_fit
from bayesnmf.fitting.fit import fit
from bayesnmf.fitting.fitted import Fit
from bayesnmf.fitting.job import ProgressReport
from bayesnmf.fitting.known import with_given_names
from bayesnmf.fitting.many import fit_side_by_side, uninterrupted
from bayesnmf.noise.abilities import Noise
from bayesnmf.noise.poisson import POISSON
from bayesnmf.options import Options, options_of
from bayesnmf.options.checkpoint import Checkpoint, place_within
from bayesnmf.options.methods import varied_start
from bayesnmf.studies.stability.checks import check_varied_start

MOST_STARTS = 100_000


def seed_of(seed: int, start: int) -> int:
    """Return the seed of a start; it does not depend on the number of starts."""
    state = np.random.SeedSequence(seed, spawn_key=(start,)).generate_state(1, np.uint64)
    return int(state[0]) >> 1


@dataclass(frozen=True, eq=False)
class Runs:
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
    checkpoint : Checkpoint or None
        Folder with a folder for each start.
    noise : Noise
    names : sequence of str
        Names of the first components.
    """

    counts: Counts
    model: str
    rank: int
    method: str
    options: Options
    seed: int
    jobs: int
    checkpoint: Checkpoint | None = None
    noise: Noise = POISSON
    names: Sequence[str | None] = ()

    def fit(self, tick: ProgressReport, **changed: Any) -> Fit:
        """Fit with other counts, seed, options or noise, or a checkpoint; `tick` may end it by KeyboardInterrupt."""
        own = {"counts": self.counts, "seed": self.seed, "options": self.options, "noise": self.noise}
        given: Any = {**own, **changed}
        found = uninterrupted(fit(model=self.model, rank=self.rank, method=self.method, progress=tick, **given))
        return with_given_names(found, self.names)


def fit_from_starts(runs: Runs, starts: int, report: ProgressReport) -> tuple[dict[int, Fit], list[int], bool]:
    """Fit from every start; after Ctrl-C return the fits that have ended.

    Returns
    -------
    fits : dict of int to Fit
        Fits by number of the start.
    damaged : list of int
        Starts that were fitted again, as their files were damaged.
    interrupted : bool
        Whether Ctrl-C came.

    Raises
    ------
    KeyboardInterrupt
        Ctrl-C before the first fit has ended.
    """
    damaged = list[int]()

    def one(start: int, tick: ProgressReport) -> Fit:
        place = place_within(runs.checkpoint, f"start-{start:04d}")
        if has_damaged_fit(place):
            damaged.append(start)
        return runs.fit(tick, seed=seed_of(runs.seed, start), checkpoint=place)

    told = report, "fits from starts"
    fits, interrupted = fit_side_by_side(one, starts, runs.jobs, told, lambda fit: fit.trace[-1])
    if not fits:
        raise KeyboardInterrupt
    return fits, sorted(damaged), interrupted


def with_one_power(runs: Runs, tick: ProgressReport) -> Runs:
    """Return the runs with one power of a quasi-Poisson likelihood, as each would else have an objective of its own.

    Its dispersion is that of a fit from the counts, which avoids poor modes.
    """
    if runs.noise.known or not runs.noise.from_first_fit:
        return runs
    options: Any = runs.options
    first = runs.fit(tick, options=replace(options, start=None), checkpoint=place_within(runs.checkpoint, "dispersion"))
    return replace(runs, noise=first.noise)


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
