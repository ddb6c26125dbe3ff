"""Chains: where they start, and how their draws are brought into one form, for Gibbs and NUTS alike."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bayesnmf.fitting.closed_form import fit_closed_form
from bayesnmf.fitting.job import Job
from bayesnmf.fitting.problems import draws_problem, start_state
from bayesnmf.inference.sides import State
from bayesnmf.inference.status import INTERRUPTED, Status
from bayesnmf.options import VI
from bayesnmf.options.defaults import resolve_options
from bayesnmf.priors.pair import components_exchangeable
from bayesnmf.priors.values import separate_scale
from bayesnmf.results.estimates import Draws
from bayesnmf.results.label_switching import label_switching
from bayesnmf.results.mixing import UNJUDGED, judged_parts, mixing, verdict
from bayesnmf.results.record import FitRecord
from bayesnmf.results.relabelling import match

Array = NDArray[Any]


def closed_form_fit(job: Job) -> FitRecord:
    """Fit the closed-form variational posterior that chains and SVI start from."""
    options = resolve_options(VI(priors=job.options.priors, max_iter=500))  # a start need not have converged
    start = fit_closed_form(replace(job, method="vi", options=options, report=lambda *_: None))
    if start.status.reason == INTERRUPTED:  # of the start there is nothing to keep
        raise KeyboardInterrupt
    return start


def resolve_start(job: Job) -> Any:
    """Turn start="fit" into that fit; leave every other start as it is."""
    start = job.options.start
    return closed_form_fit(job) if isinstance(start, str) and start == "fit" else start


def chain_starts(job: Job) -> tuple[list[State], list[np.random.Generator]]:
    """One start and one random generator for each chain; from a q, each start is a draw of its own."""
    streams = [np.random.default_rng(s) for s in np.random.SeedSequence(job.seed).spawn(job.options.chains)]
    start, priors = resolve_start(job), job.options.priors
    states = [start_state(draws_problem(job.counts, priors, rng), start, job.rank, rng) for rng in streams]
    return states, streams


def fit_of_draws(
    job: Job,
    draws: list[Any],
    log_joint: Array,
    diagnostics: dict[str, float],
    interrupted: bool,
    statistics: dict[str, Array] | None = None,
) -> FitRecord:
    """Make a `Fit` of loadings and components (chains, draws, …): match components, average, judge the chains.

    The list of both is emptied. `statistics` are what the sampler says of every draw, (chains, draws) each. Ctrl-C
    while chains are judged ends the fit with all of its draws, which then count as not mixed.
    """
    value, components = draws
    draws.clear()  # matched draws are copies, and nobody else holds these
    loadings, scale = separate_scale(value)
    del value
    try:
        matched = matched_draws(job, loadings, components)
    except KeyboardInterrupt:  # unmatched draws would be averaged over labels: once more
        interrupted, matched = True, matched_draws(job, loadings, components)
    loadings, components, switching = matched
    posterior = Draws(loadings, components, scale)
    found = UNJUDGED
    try:
        found = mixing(judged_parts(posterior, job.seed), log_joint, getattr(job.options, "threads", None))
    except KeyboardInterrupt:
        interrupted = True
    mixed, figures = verdict(found)
    reason = INTERRUPTED if interrupted else f"{log_joint.size} draws; {figures}"
    return job.record(
        loadings.mean(axis=(0, 1)),
        components.mean(axis=(0, 1)),
        None if scale is None else scale.mean(axis=(0, 1)),
        trace=log_joint,
        status=Status(mixed and not interrupted, reason, log_joint.size),
        diagnostics={**diagnostics, **switching, **found},
        statistics=statistics,
        estimate=posterior,
    )


def matched_draws(job: Job, loadings: Array, components: Array) -> tuple[Array, Array, dict[str, float]]:
    """Match the components of all draws, where the priors tell none apart, and say how sure the matching is."""
    if not components_exchangeable(job.options.priors):
        return loadings, components, {}
    loadings, components, orders = match(loadings, components)
    return loadings, components, label_switching(components, orders)
