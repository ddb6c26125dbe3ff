"""A fit as a job: its parts checked, its priors filled in, and the report of its progress."""

from __future__ import annotations

import os
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from datetime import timedelta
from math import isfinite
from multiprocessing import parent_process
from threading import Lock
from typing import Any, NamedTuple

import numpy as np

from bayesnmf.checks import check_instance, check_progress, check_size
from bayesnmf.data.blocks.checks import check_room_for_rows
from bayesnmf.data.checks import check_start_has_seeds
from bayesnmf.data.conversion import check_integer_counts
from bayesnmf.data.counts import Counts
from bayesnmf.data.covariates.design import with_covariates
from bayesnmf.fitting.checks import check_learnable, check_possible, check_ranges, check_total
from bayesnmf.fitting.keeping import keeps_moments, size_kept, size_written, with_draws
from bayesnmf.fitting.known import NOTHING, Beforehand, with_known_components, with_seeds
from bayesnmf.inference.starts.states import means_of_rank_one
from bayesnmf.inference.status import NOT_A_NUMBER, NOT_FINITE, Status
from bayesnmf.noise.abilities import Noise
from bayesnmf.noise.poisson import POISSON
from bayesnmf.options import METHODS
from bayesnmf.options.combinations import check_together, served_options
from bayesnmf.options.methods import allows_regression, resolve_options
from bayesnmf.options.rules import Request
from bayesnmf.priors import Priors
from bayesnmf.priors.checks import check_family, check_length_of_dispersion
from bayesnmf.priors.pair import with_defaults
from bayesnmf.priors.specification import EVEN, Shapes
from bayesnmf.results.record import FitRecord
from bayesnmf.text import Unread
from bayesnmf.types import Array

ProgressReport = Callable[[str, int, int, float], None]
LARGEST_FACTORS, LARGEST_DRAWS, LARGEST_TOKENS = 4 * 2**30, 4 * 2**30, 4 * 2**30


def resolve_priors(
    model: str, counts: Counts, rank: int, priors: Priors, given: Beforehand = NOTHING, shapes: Shapes = EVEN
) -> Priors:
    """Return the priors with the model's defaults in place of None, and with what is given of the components."""
    check_instance(priors, Priors, "priors")
    check_total(counts)
    rows, total = counts.shape[0] * float(counts.row_factor.mean()), counts.total
    if counts.mask is not None:
        rows, total = _rows_and_total_of_all_entries(counts)
    exposure = counts.feature_factor * np.ones(counts.shape[1])
    seen = int(np.count_nonzero(counts.feature_totals)) / counts.shape[1] if total else 1.0
    filled = with_defaults(priors, model, max(total, 1.0) / rows, rank, exposure, shapes, seen)
    if given.known is not None:
        filled = with_known_components(filled, given.known, counts, rank, given.drift, shapes.beside)
    if given.seeds is not None:
        filled = with_seeds(filled, given.seeds, counts, rank)
    return filled if given.covariates is None else with_covariates(filled, given.covariates, rank)


def _rows_and_total_of_all_entries(counts: Counts) -> tuple[float, float]:
    """Return the exposure of rows with an observed entry, and what all their entries have by means of rank one."""
    seen = counts.mask.seen_rows  # type: ignore[union-attr]
    rows, features = means_of_rank_one(counts)
    exposure = np.broadcast_to(counts.row_factor[:, 0], counts.shape[:1])
    return float(exposure[seen].sum()) or 1.0, float(rows[seen].sum() * features.sum())


def completed_options(
    options: Any, model: str, method: str, counts: Counts, rank: int, given: Beforehand, noise: Noise
) -> Any:
    """Return options with priors, algorithm and start in place of None; refuse combinations that cannot be fitted."""
    priors = resolve_priors(model, counts, rank, options.priors, given, METHODS[method].default_shapes)
    if given.seeds is not None:
        check_start_has_seeds(getattr(options, "start", None), given.seeds)
    if getattr(priors.components, "is_learned", False) and hasattr(options, "learn"):
        options = replace(options, learn=(*options.learn, "components"))
    plain = counts.mask is not None or counts.batch is not None or not allows_regression(noise, priors)
    resolved = resolve_options(replace(options, priors=priors), bool(counts.rows_held), plain)
    if getattr(resolved, "draws", None) == "auto":
        resolved = with_draws(resolved, rank, counts)
    return check_combination(Request(model, method, priors, resolved, noise, counts, rank))


def check_combination(request: Request) -> Any:
    """Return the options of a request with what noise, missing entries and batches choose; refuse other requests.

    Refused is what does not go together (`bayesnmf.options.combinations`), is too large, or needs a library.
    """
    method, counts, rank = METHODS[request.method], request.counts, request.rank
    options, priors, (n, m) = request.options, request.priors, counts.shape
    method.load(request.method)
    check_size(
        8 * rank * (m + counts.rows_held), LARGEST_FACTORS, f"loadings and components of rank {rank}", "lower rank"
    )
    check_ranges(options, getattr(options, "dtype", "float64"))
    check_family(request.model, "loadings", priors.loadings, (n, rank))
    check_family(request.model, "components", priors.components, (rank, m))
    draws = method.posterior == "draws"
    check_together(replace(request, thinned=draws and keeps_moments(options, rank, counts.shape)))
    check_possible(counts, rank, priors.components)
    check_learnable(getattr(options, "learn", ()), priors)
    check_length_of_dispersion(request.noise, counts.shape)
    if not counts.rows_held:
        check_room_for_rows(counts, rank, size_written(options, rank, counts))
    if method.whole_counts:
        check_integer_counts(counts, f"method={request.method!r}", "round them or use method='vi'")
    if request.collapsed:
        size_of_tokens = np.min_scalar_type(rank - 1).itemsize * options.chains * int(counts.total)
        check_size(
            size_of_tokens, LARGEST_TOKENS, "every single count in every chain", "use bayesnmf.Gibbs(collapsed=False)"
        )
    if draws:
        all_draws = getattr(options, "keep", "auto") == "draws"
        cure = (
            "ask for bayesnmf.Gibbs(keep='moments')" if all_draws else "ask for fewer draws or chains, fit fewer rows"
        )
        size = size_kept(options, rank, counts.shape) if counts.rows_held else 0
        check_size(size, LARGEST_DRAWS, f"the draws of {request.method}", f"{cure}, or leave {request.method} out")
    return served_options(request)


@dataclass(frozen=True, eq=False)
class Job:
    """Checked description of a fit, with priors filled in: the argument of every runner.

    `report` is called with a label, the number of steps done, the number of all steps, and the objective. `started` is
    the time at which the fit began.
    """

    counts: Counts
    model: str
    rank: int
    method: str
    seed: int
    options: Any
    report: ProgressReport
    noise: Noise = POISSON
    started: float = field(default_factory=time.perf_counter)

    def record(
        self,
        loadings: Array,
        components: Array,
        scale: Array | None = None,
        *,
        trace: Array,
        status: Status,
        **more: Any,
    ) -> FitRecord:
        """Return the record of the fit, with `more` attributes of a `FitRecord`; every runner uses this method.

        The status says so if parameters are not finite, whatever the method.
        """
        attributes: dict[str, Any] = {"priors": self.options.priors, "diagnostics": {}, "noise": self.noise, **more}
        return FitRecord(
            model=self.model,
            method=self.method,
            rank=self.rank,
            loadings=loadings,
            components=components,
            scale=scale,
            trace=trace,
            status=told_of_parameters(status, loadings, components, scale),
            options=self.options,
            counts=self.counts,
            seed=self.seed,
            seconds=time.perf_counter() - self.started,
            **attributes,
        )


def told_of_parameters(status: Status, *parameters: np.ndarray | None) -> Status:
    """Return the status of a fit: not converged, with the reason, if some of its parameters are not finite."""
    finite = all(each is None or np.isfinite(each.sum(dtype=np.float64)) for each in parameters)
    return status if finite or status.reason == NOT_A_NUMBER else status._replace(converged=False, reason=NOT_FINITE)


VARIABLE = "BAYESNMF_PROGRESS"
SILENT = 2.0  # seconds in which nothing is shown by default
REFRESHED = 0.1  # seconds between two lines
BAR = 20


class Reached(NamedTuple):
    """How far something is, after how many seconds."""

    done: int
    total: int
    objective: float
    seconds: float


class ProgressLine:
    """One line about what goes on: a label, a bar, steps done and in all, elapsed and remaining time, the objective.

    In a terminal and in a notebook the line is written again and again, and is gone in the end. Elsewhere there is a
    line for each label, in the end. A narrow screen has no bar and no remaining time, and a label is cut instead of
    numbers.
    """

    def __init__(self, after: float = 0.0) -> None:
        self._file: Any = sys.stderr and Unread(sys.stderr)  # None without a standard error
        self._watched, self._shown = _is_watched(), ""
        self._next, self._lock = time.monotonic() + after, Lock()
        self._begun, self._reached = dict[str, float](), dict[str, Reached]()

    def report(self, label: str, done: int, total: int, objective: float) -> None:
        """Show how far something is; chains are threads, and may report at once."""
        now = time.monotonic()
        with self._lock:
            if label not in self._begun:
                self._begun[label] = now
                for other, so_far in self._reached.items():  # has ended, mostly before its last step
                    self._reached[other] = so_far._replace(total=so_far.done)
            self._reached[label] = Reached(done, total, objective, now - self._begun[label])
            if self._watched and now >= self._next:
                self._next = now + REFRESHED
                self._write(self._line(label))

    def close(self) -> None:
        """Clear the line, or write that of each label."""
        with self._lock:
            if self._watched and self._shown:
                self._write("")
                self._write("")  # from the beginning of the line
            for label in () if self._watched else self._reached:
                self._write(f"{self._line(label)}\n")

    def _line(self, label: str) -> str:
        done, total, objective, seconds = self._reached[label]
        width = shutil.get_terminal_size().columns - 1
        left = seconds * (total - done) / done if done else 0.0
        parts = [f"{done}/{total}", _clock(seconds)]
        parts += [f"{objective:,.1f}"] if isfinite(objective) and width >= 60 else []
        if width >= 110:
            filled = BAR * done // max(total, 1)
            parts = [f"[{'#' * filled:<{BAR}}]", *parts, *([f"about {_clock(left)} left"] if left >= 1 else [])]
        room = width - len(" ".join(parts)) - 1
        return " ".join([label if len(label) <= room else f"{label[: max(room - 1, 1)]}…", *parts])

    def _write(self, line: str) -> None:
        """Write a line, in a terminal over the one before."""
        if self._file is not None:
            self._file.write(f"\r{line:<{len(self._shown)}}" if self._watched else line)
            self._file.flush()
            self._shown = line


def _clock(seconds: float) -> str:
    return str(timedelta(seconds=int(seconds)))


def _is_watched() -> bool:
    """Return whether standard error is a terminal, or a notebook's."""
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    return hasattr(shell, "kernel") or bool(sys.stderr and sys.stderr.isatty())


_SHOWING = Lock()  # one line at a time: what a call calls itself shows none


@contextmanager
def progress_line(after: float = 0.0) -> Iterator[ProgressReport]:
    """Show progress on standard error, once `after` seconds have passed, unless something shows its own already."""
    if not _SHOWING.acquire(blocking=False):
        yield _no_report
        return
    line = ProgressLine(after)
    try:
        yield line.report
    finally:
        line.close()
        _SHOWING.release()


def _no_report(*_: Any) -> None:
    pass


def progress_context(progress: ProgressReport | bool | None) -> Any:
    """Return a context that provides a progress report: a line, the caller's function, or none.

    None is a line for what takes longer than `SILENT` seconds, where somebody sees it: in a terminal or a notebook, not
    in a process that another one started for its work, and not if the environment variable BAYESNMF_PROGRESS is 0.
    """
    check_progress(progress)
    if callable(progress):
        return nullcontext(progress)
    if progress is None and _is_watched() and parent_process() is None and os.environ.get(VARIABLE) != "0":
        return progress_line(SILENT)
    return progress_line() if progress else nullcontext(_no_report)
