"""Run independent tempered samplers side by side, up a ladder of powers that is refined while the runs disagree.

A pilot run sets the first ladder. If the logs of the runs' estimates then have a standard deviation σ above 1 nat, all
runs are made again on a ladder with more steps: the variance falls at least in proportion to their number, so that
(σ / AIM)² times as many are enough. At most STAGE times as many are taken at once, since σ is an estimate, and often
that of a few runs that went astray. Each pass has a fixed ladder that does not depend on its own particles, so its
estimates are unbiased. Where the runs disagree because they end in different modes, (σ / AIM)² is beyond the limit, and
no other pass is made.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from threading import Event
from typing import Any

import numba
import numpy as np

from bayesnmf.inference.ascent.course import next_slot
from bayesnmf.inference.side_by_side import side_by_side
from bayesnmf.inference.tempering.annealing import Run, Way, climb_ladder, finer_ladder, pilot_ladder
from bayesnmf.inference.tempering.combining import WIDEST_SPREAD, spread_of
from bayesnmf.inference.tempering.target import Target
from bayesnmf.types import Array

Report = Callable[[str, int, int, float], None]  # label, steps done, steps in all, power

AIM = 0.7  # spread for which a refined ladder is made, in nats: that of 8 runs varies by a quarter of itself
STAGE = 4  # most steps of a refined ladder, as a multiple of those of the one before


@dataclass(eq=False)
class TemperedRuns:
    """Independent runs up one ladder, which can be made again on a finer one.

    Parameters
    ----------
    target : Target
    options : SMC
    seed : int or None
        Seed of the pilot run and of all others. The results do not depend on the number of threads.
    report : callable
        Function of a label, steps done, steps in all, and the power reached. An exception that it raises ends the runs.

    Attributes
    ----------
    ladder : ndarray
        Powers, from 0 to 1.
    runs : list of Run
        Runs up this ladder that have finished.
    refined : int
        Number of steps, as a multiple of those of the first ladder.
    interrupted : bool
        Whether Ctrl-C ended other runs.

    Raises
    ------
    KeyboardInterrupt
        Ctrl-C before the first run has finished.
    """

    target: Target
    options: Any
    seed: int | None
    report: Report
    ladder: Array = field(init=False)
    runs: list[Run] = field(init=False)
    refined: int = 1
    interrupted: bool = False

    def __post_init__(self) -> None:
        self._seeds = np.random.SeedSequence(self.seed)
        pilot, *streams = self._seeds.spawn(self.options.runs + 1)
        report = partial(_report_pilot, self.report, [0.0])
        self.ladder = pilot_ladder(self.target, self.options, np.random.default_rng(pilot), report)
        self.runs = self._climb(self.ladder, streams)
        self.interrupted = len(self.runs) < len(streams)
        if not self.runs:
            raise KeyboardInterrupt

    @property
    def logs(self) -> Array:
        """Log estimates of p(X) of the runs, in nats."""
        return np.array([run.log_estimate for run in self.runs])

    def refine(self) -> bool:
        """Make the runs again on a finer ladder; return False if they agree, or need one beyond the limit.

        After Ctrl-C, the finer runs replace the others only if all of them have finished.
        """
        spread = spread_of(self.logs)
        if self.interrupted or not spread > WIDEST_SPREAD:
            return False
        needed = np.ceil((spread / AIM) ** 2)
        if self.refined * needed > self.options.refinement:
            return False
        factor = int(min(needed, STAGE))
        ladder = finer_ladder(self.ladder, factor)
        runs = self._climb(ladder, self._seeds.spawn(self.options.runs))
        self.interrupted = len(runs) < self.options.runs
        if not self.interrupted:
            self.ladder, self.runs, self.refined = ladder, runs, self.refined * factor
        return not self.interrupted

    def _climb(self, ladder: Array, seeds: list[np.random.SeedSequence]) -> list[Run]:
        """Return the runs that finished; Ctrl-C ends the others."""
        number, threads = len(seeds), self.options.threads
        blocks = threads if number == 1 else 1
        stop, done = Event(), [0] * number
        ways = [Way(ladder, self.options.particles, next_slot("run", self.target.counts)) for _ in seeds]

        def run(place: int) -> Run | None:
            def show(rung: int, power: float) -> None:
                if stop.is_set():
                    raise KeyboardInterrupt
                done[place] = rung
                self.report("runs", sum(done), number * (len(ladder) - 1), power)

            try:
                rng = np.random.default_rng(seeds[place])
                return climb_ladder(self.target, ways[place], rng, blocks, show)
            except KeyboardInterrupt:
                stop.set()
                return None

        at_once = min(threads or numba.get_num_threads(), number)
        found = side_by_side([partial(run, place) for place in range(number)], at_once, stop)
        return [each for each in found if each is not None]


def tempered_runs(target: Target, options: Any, seed: int | None, report: Report) -> TemperedRuns:
    """Make the runs, and make them again on finer ladders while they disagree and the limit allows it."""
    found = TemperedRuns(target, options, seed, report)
    while found.refine():
        pass
    return found


def _report_pilot(report: Report, before: list[float], rung: int, power: float) -> None:
    """Report a rung of the pilot run; the number of all is a guess from the last step."""
    left = np.ceil((1.0 - power) / max(power - before[0], 1e-3))
    before[0] = power
    report("pilot", rung, rung + int(left), power)
