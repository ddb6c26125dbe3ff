"""Run independent tempered samplers side by side, up a ladder of powers from a pilot run."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from threading import Event
from typing import Any

import numba
import numpy as np
from numpy.typing import NDArray

from bayesnmf.inference.side_by_side import side_by_side
from bayesnmf.inference.tempering.annealing import Run, climb_ladder, pilot_ladder
from bayesnmf.inference.tempering.target import Target

Array = NDArray[Any]
Report = Callable[[str, int, int, float], None]  # label, steps done, steps in all, power


def tempered_runs(target: Target, options: Any, seed: int | None, report: Report) -> tuple[Array, list[Run], bool]:
    """Return a ladder of powers, the finished runs up this ladder, and whether Ctrl-C ended the others.

    Parameters
    ----------
    options : SMC
        Numbers of particles and runs, efficiency and threads.
    seed : int or None
        Seed of the pilot run and of all others. The result does not depend on the number of threads.
    report : callable
        Function of a label, steps done, steps in all, and the power reached. An exception that it raises ends the runs.

    Raises
    ------
    KeyboardInterrupt
        Ctrl-C before the first run has finished.
    """
    pilot, *streams = (np.random.default_rng(each) for each in np.random.SeedSequence(seed).spawn(options.runs + 1))
    ladder = pilot_ladder(
        target, options.particles, options.efficiency, pilot, options.threads, partial(_report_pilot, report, [0.0])
    )
    at_once = min(options.threads or numba.get_num_threads(), options.runs)
    blocks = options.threads if options.runs == 1 else 1
    stop, done = Event(), [0] * options.runs

    def run(number: int) -> Run | None:
        def show(rung: int, power: float) -> None:
            if stop.is_set():
                raise KeyboardInterrupt
            done[number] = rung
            report("runs", sum(done), options.runs * (len(ladder) - 1), power)

        try:
            return climb_ladder(target, ladder, options.particles, streams[number], blocks, show)
        except KeyboardInterrupt:
            stop.set()
            return None

    found = side_by_side([partial(run, number) for number in range(options.runs)], at_once, stop)
    finished = [each for each in found if each is not None]
    if not finished:
        raise KeyboardInterrupt
    return ladder, finished, len(finished) < options.runs


def _report_pilot(report: Report, before: list[float], rung: int, power: float) -> None:
    """Report a rung of the pilot run; the number of all is a guess from the last step."""
    left = np.ceil((1.0 - power) / max(power - before[0], 1e-3))
    before[0] = power
    report("pilot", rung, rung + int(left), power)
