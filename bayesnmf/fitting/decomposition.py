"""Run bld: make starts, and return the fit of the best latent decomposition."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from bayesnmf.fitting.closed_form import best_of_restarts
from bayesnmf.fitting.job import Job
from bayesnmf.fitting.problems import point_or_mean_field, start_state
from bayesnmf.inference.ascent.coordinate_ascent import ascend
from bayesnmf.inference.ascent.course import Schedule
from bayesnmf.inference.marginal.allocation_model import (
    AllocationModel,
    Decomposition,
    best_decomposition,
    conditional_modes,
)
from bayesnmf.inference.status import INTERRUPTED
from bayesnmf.options import BLD, MAP, VI
from bayesnmf.priors import Dirichlet, ScaledDirichlet
from bayesnmf.priors.values import separate_scale
from bayesnmf.results.record import FitRecord
from bayesnmf.types import Array

START_ITER, START_TOL = 500, 1e-6


def fit_decomposition(job: Job) -> FitRecord:
    """Run bld from one or several starts, and return the best fit."""
    options: BLD = job.options
    loadings: ScaledDirichlet = options.priors.loadings  # type: ignore[assignment]
    components: Dirichlet = options.priors.components  # type: ignore[assignment]
    model = AllocationModel(job.counts, loadings, components, options.threads)
    best, diagnostics = best_of_restarts(job, partial(_run_from_start, job, model))
    return _fit_of_decomposition(job, model, best, diagnostics)


def _run_from_start(
    job: Job, model: AllocationModel, start: Any, rng: np.random.Generator, label: str
) -> Decomposition:
    """Return the decomposition found from one start."""
    options: BLD = job.options
    multipliers, interrupted = _starting_multipliers(job, start, rng)
    most = 0 if interrupted else options.max_iter
    found = best_decomposition(
        model, multipliers, most, options.tol, lambda done, value: job.report(label, done, options.max_iter, value)
    )
    if interrupted:
        found = found._replace(status=found.status._replace(converged=False, reason=INTERRUPTED))
    return found


def start_method(options: BLD) -> str:
    """Return the method that start="fit" stands for: vi if every concentration is at least 1, else map."""
    loadings: Any = options.priors.loadings
    components: Any = options.priors.components
    flat = min(loadings.proportions.smallest_shape, components.smallest_shape) >= 1
    return "vi" if flat else "map"


def _starting_multipliers(job: Job, start: Any, rng: np.random.Generator) -> tuple[tuple[Array, Array], bool]:
    """Return the multipliers to start from, and whether Ctrl-C was pressed while they were computed."""
    options: BLD = job.options
    method = start_method(options) if start == "fit" else start
    of_start: MAP | VI = (VI if method == "vi" else MAP)(priors=options.priors)
    problem = point_or_mean_field(job.counts, of_start)
    interrupted = False
    if method in ("map", "vi"):
        state = start_state(problem, "random", job.rank, rng)
        schedule = Schedule(max_iter=START_ITER, tol=START_TOL, threads=options.threads)
        ascent = ascend(problem, state, schedule)
        state, interrupted = ascent.state, ascent.status.reason == INTERRUPTED
    else:
        state = start_state(problem, start, job.rank, rng)
    proportions, _ = separate_scale(state.loadings.value)
    return (proportions, state.components.matrix), interrupted


def _fit_of_decomposition(
    job: Job, model: AllocationModel, found: Decomposition, diagnostics: dict[str, float]
) -> FitRecord:
    """Return the fit of a decomposition: the modes given S*, and the multipliers."""
    loadings, components = conditional_modes(model, found.point.totals)
    return job.record(
        loadings.proportions,
        components,
        loadings.scale[:, 0],
        trace=np.asarray(found.trace),
        status=found.status,
        diagnostics=diagnostics,
        multipliers=(found.point.loadings, found.point.components),
    )
