"""Fits as parts of a study: each is whole or counts as interrupted, and several run side by side."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from functools import partial
from threading import Event, Lock
from typing import Any

import numba
import numpy as np

from bayesnmf.checks import check_count
from bayesnmf.fitting.job import ProgressReport
from bayesnmf.inference.side_by_side import side_by_side
from bayesnmf.inference.status import INTERRUPTED, FitWarning
from bayesnmf.kernels.cpu.threads import one_blas_thread
from bayesnmf.results.record import FitRecord

MOST_JOBS = 1024


def uninterrupted[F: FitRecord](fit: F) -> F:
    """Return a fit as part of a study, of which half a fit is none.

    Raises
    ------
    KeyboardInterrupt
        Ctrl-C stopped the fit early.
    """
    if fit.status.reason == INTERRUPTED:
        raise KeyboardInterrupt
    return fit


def fit_side_by_side[T](
    one: Callable[[int, ProgressReport], T],
    total: int,
    jobs: int,
    told: tuple[ProgressReport, str],
    value: Callable[[T], float] = lambda _: np.nan,
) -> tuple[dict[int, T], bool]:
    """Run the fits of a study on threads, `jobs` at once, without warnings about convergence, which results report.

    Parameters
    ----------
    one : callable
        Function of a number and of the progress report of its fits; this report ends them once the study is to end.
    told : (callable, str)
        Progress report of the study, and its label; it is told the highest value so far.
    value : callable
        Function of what `one` returned, such as the objective that it has reached.

    Returns
    -------
    found : dict of int
        What has ended, by number.
    interrupted : bool
        Whether Ctrl-C came.
    """
    found, stop, lock, highest = dict[int, T](), Event(), Lock(), -np.inf

    def tick(*_: Any) -> None:
        if stop.is_set():
            raise KeyboardInterrupt

    def run(number: int) -> None:
        nonlocal highest
        try:
            tick()
            ended = one(number, tick)
            with lock:
                found[number] = ended
                highest = max(highest, float(np.nan_to_num(value(ended), nan=-np.inf)))
                told[0](told[1], len(found), total, highest)
        except KeyboardInterrupt:
            stop.set()

    with warnings.catch_warnings(), one_blas_thread():
        warnings.simplefilter("ignore", FitWarning)
        side_by_side([partial(run, number) for number in range(total)], jobs, stop)
    return found, stop.is_set()


def number_of_jobs(jobs: Any, most: int, options: Any) -> int:
    """Return the number of fits at once: by default as many as the cores have room for, and one on a GPU."""
    if jobs is not None:
        return min(check_count(jobs, "jobs", most=MOST_JOBS), most)
    if getattr(options, "device", "cpu") != "cpu":
        return 1
    return min(max(numba.get_num_threads() // (getattr(options, "threads", None) or 1), 1), most)
