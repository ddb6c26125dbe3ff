"""A fit as a job: its parts checked, its priors filled in, and the report of its progress."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from math import isfinite
from threading import Lock
from typing import Any

import numpy as np

from bayesnmf.checks import check_instance, check_progress, check_size
from bayesnmf.data.blocks.checks import check_on_disk, check_room_for_rows
from bayesnmf.data.conversion import check_integer_counts
from bayesnmf.data.counts import Counts
from bayesnmf.data.covariates.checks import check_covariates_served
from bayesnmf.data.covariates.design import with_covariates
from bayesnmf.data.several import SeveralCounts, check_weights_served
from bayesnmf.fitting.checks import (
    check_families,
    check_learnable,
    check_possible,
    check_posterior_exists,
    check_ranges,
    check_regression,
    check_served,
    check_total,
    check_unexposed,
)
from bayesnmf.fitting.keeping import keeps_moments, size_kept, size_written
from bayesnmf.fitting.known import NOTHING, Beforehand, with_known_components, with_seeds
from bayesnmf.inference.starts.states import means_of_rank_one
from bayesnmf.inference.status import NOT_A_NUMBER, NOT_FINITE, Status
from bayesnmf.noise.abilities import Noise
from bayesnmf.noise.poisson import POISSON
from bayesnmf.options import METHODS
from bayesnmf.options.checks import check_mask_served
from bayesnmf.priors import Priors
from bayesnmf.priors.checks import (
    check_exposures,
    check_family,
    check_integrable,
    check_integrates_out,
    check_natural_basis,
    check_proper_components,
    check_proper_loadings,
    check_unseen,
)
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
        filled = with_known_components(filled, given.known, counts, rank)
    if given.seeds is not None:
        filled = with_seeds(filled, given.seeds, counts, rank)
    return filled if given.covariates is None else with_covariates(filled, given.covariates, rank)


def _rows_and_total_of_all_entries(counts: Counts) -> tuple[float, float]:
    """Return the exposure of rows with an observed entry, and what all their entries have by means of rank one."""
    seen = counts.mask.seen_rows  # type: ignore[union-attr]
    rows, features = means_of_rank_one(counts)
    exposure = np.broadcast_to(counts.row_factor[:, 0], counts.shape[:1])
    return float(exposure[seen].sum()) or 1.0, float(rows[seen].sum() * features.sum())


def check_combination(model: str, method: str, rank: int, counts: Counts, options: Any) -> None:
    """Refuse what cannot be fitted: a model, method, rank, counts and options together, or without a library."""
    METHODS[method].load(method)
    n, m = counts.shape
    priors = options.priors
    if isinstance(counts, SeveralCounts):
        check_weights_served(counts, method)
    check_size(
        8 * rank * (m + counts.rows_held), LARGEST_FACTORS, f"loadings and components of rank {rank}", "lower rank"
    )
    if not counts.rows_held:
        check_on_disk(method, options)
        check_room_for_rows(counts, rank, size_written(options, rank, counts))
    if counts.mask is not None:
        check_mask_served(options, method)
        if METHODS[method].posterior != "point":
            check_integrable(priors, rank, METHODS[method].posterior)
            check_unseen(counts.mask, priors)
    if priors.loadings.has_effects:
        thinned = METHODS[method].posterior == "draws" and keeps_moments(options, rank, counts.shape)
        check_covariates_served(options, method, thinned)
    check_ranges(options, getattr(options, "dtype", "float64"))
    check_family(model, "loadings", priors.loadings, (n, rank))
    check_family(model, "components", priors.components, (rank, m))
    check_possible(counts, rank, priors.components)
    check_exposures(counts, model, priors.components)
    check_posterior_exists(options, model, method)
    check_served(method, model)
    check_families(options, method)
    if getattr(options, "basis", None) == "natural":
        check_natural_basis(priors.loadings, priors.components)
    check_regression(options)
    check_learnable(getattr(options, "learn", ()), priors.loadings, priors.components)
    if METHODS[method].proper:
        check_proper_loadings(priors.loadings, f"method={method!r}")
        check_proper_components(priors.components, f"method={method!r}")
    if METHODS[method].whole_counts:
        check_integer_counts(counts, f"method={method!r}", "round them or use method='vi'")
    if "marginal" in METHODS[method].needs:
        check_unexposed(counts, f"method={method!r}", "method='map' or 'vi'")
    if getattr(options, "collapsed", False):
        check_unexposed(counts, "collapsed Gibbs", "bayesnmf.Gibbs(collapsed=False)")
        check_integrates_out(priors.components, "collapsed Gibbs", "use bayesnmf.Gibbs(collapsed=False)")
        size_of_tokens = np.min_scalar_type(rank - 1).itemsize * options.chains * int(counts.total)
        check_size(
            size_of_tokens, LARGEST_TOKENS, "every single count in every chain", "use bayesnmf.Gibbs(collapsed=False)"
        )
    if METHODS[method].posterior == "draws":
        all_draws = getattr(options, "keep", "auto") == "draws"
        cure = (
            "ask for bayesnmf.Gibbs(keep='moments')" if all_draws else "ask for fewer draws or chains, fit fewer rows"
        )
        size = size_kept(options, rank, counts.shape) if counts.rows_held else 0
        check_size(size, LARGEST_DRAWS, f"the draws of {method}", f"{cure}, or leave {method} out")


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
