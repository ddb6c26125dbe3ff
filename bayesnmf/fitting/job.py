"""A fit as a job: its parts checked, its priors filled in, and the report of its progress."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from math import isfinite
from threading import Lock
from typing import Any

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
    filled = with_defaults(priors, model, max(total, 1.0) / rows, rank, exposure, shapes)
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


@contextmanager
def progress_bar() -> Iterator[ProgressReport]:
    """Show one line for each label: steps done and in all, elapsed and remaining time, and the current objective.

    In a terminal of 80 columns there is no bar and no remaining time: a line that is cut says less.
    """
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    file: Any = sys.stderr and Unread(sys.stderr)  # None without a standard error
    console = Console(file=file, stderr=True)
    narrow, wide = console.width < 60, console.width >= 120
    room = console.width - (22 if narrow else 76 if wide else 36)  # for labels, which are cut instead of numbers
    columns = (
        TextColumn("{task.description:>28}" if wide else "{task.description}"),
        *((BarColumn(bar_width=30),) if wide else ()),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        *((TimeRemainingColumn(),) if wide else ()),
        *(() if narrow else (TextColumn("{task.fields[objective]}"),)),
    )
    with Progress(*columns, console=console) as bar:
        tasks, reached, lock = dict[str, Any](), dict[str, int](), Lock()

        def report(label: str, done: int, total: int, objective: float) -> None:
            with lock:  # chains are threads, and two may be the first to report
                show(label, done, total, objective)

        def show(label: str, done: int, total: int, objective: float) -> None:
            if label not in tasks:
                for other, number in reached.items():  # has ended, mostly before its last step
                    bar.update(tasks[other], completed=number, total=number)
                    bar.stop_task(tasks[other])
                reached.clear()
                shown = label if len(label) <= room else f"{label[: max(room - 1, 1)]}…"
                tasks[label] = bar.add_task(shown, total=total, objective="")
            text = f"{objective:,.1f}" if isfinite(objective) else ""
            bar.update(tasks[label], completed=done, total=total, objective=text)
            reached[label] = done

        yield report


def progress_context(progress: ProgressReport | bool) -> Any:
    """Return a context that provides a progress report: a bar, the caller's function, or none."""
    check_progress(progress)
    if callable(progress):
        return nullcontext(progress)
    if not progress:
        return nullcontext(lambda *_: None)
    return progress_bar()
