"""Make the starts of chains, and the fit of their draws, for both Gibbs and NUTS."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from bayesnmf.data.batched import SHAPE
from bayesnmf.data.counts import Counts
from bayesnmf.data.probabilities import log_likelihood, log_likelihood_of_shares
from bayesnmf.fitting.closed_form import fit_closed_form
from bayesnmf.fitting.job import Job
from bayesnmf.fitting.problems import draws_problem, start_state
from bayesnmf.inference import alignment
from bayesnmf.inference.problem import State
from bayesnmf.inference.sampling.running_moments import DrawsOnDisk
from bayesnmf.inference.starts.states import given_state
from bayesnmf.inference.status import INTERRUPTED, Status
from bayesnmf.noise.abilities import Distributed
from bayesnmf.noise.poisson import POISSON
from bayesnmf.options import VI
from bayesnmf.options.methods import resolve_options
from bayesnmf.priors import Priors, matrix
from bayesnmf.priors.log_linear import EFFECTS, SHAPES
from bayesnmf.priors.pair import movable_components, replace_sides
from bayesnmf.priors.values import Value, attach_scale, separate_scale
from bayesnmf.results.batches import FittedBatches, factors_at
from bayesnmf.results.estimates import Draws
from bayesnmf.results.mixing import UNJUDGED, judged_parts, mixing, mixing_verdict
from bayesnmf.results.record import DISPERSION, SITE, FitRecord, component_axis
from bayesnmf.results.relabelling import label_switching, match_all_draws
from bayesnmf.types import Array


def closed_form_fit(job: Job) -> FitRecord:
    """Return the closed-form variational fit that chains and SVI start from."""

    def report(label: str, *progress: Any) -> None:
        job.report(f"start by {label}", *progress)

    start = fit_closed_form(replace(job, method="vi", options=vi_options_of(job), report=report))
    if start.status.reason == INTERRUPTED:  # an unfinished start is not kept
        raise KeyboardInterrupt
    return start


def vi_options_of(job: Job) -> Any:
    """Return the options of the variational fit that chains start from; it may not converge."""
    masked = job.counts.mask is not None
    return resolve_options(VI(priors=job.options.priors, max_iter=500), bool(job.counts.rows_held), masked)


def resolve_start(job: Job) -> Any:
    """Return the closed-form fit if start="fit", and any other start unchanged."""
    start = job.options.start
    return closed_form_fit(job) if isinstance(start, str) and start == "fit" else start


def chain_starts(job: Job) -> tuple[list[State], list[np.random.Generator]]:
    """Return one start and one random generator for each chain; starts from a q are independent draws."""
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
    """Return the fit of draws of loadings and components (chains, draws, …), with matched components.

    The list `draws` is emptied. `statistics` are the sampler's statistics of every draw, (chains, draws) each, and
    dispersions, whose means are those of the fit's noise. Ctrl-C while chains are judged ends the fit with all of its
    draws, with the status not converged.
    """
    value, components, *factors = draws
    draws.clear()  # matched draws are copies, so the memory of these can be freed
    try:
        matched = matched_draws(job, value, components, statistics)
    except KeyboardInterrupt:  # try again, since averages of unmatched draws would mix components
        interrupted, matched = True, matched_draws(job, value, components, statistics)
    del components
    posterior, switching, statistics = matched
    means = value.means if isinstance(value, DrawsOnDisk) else means_of_draws
    del value
    found = UNJUDGED
    try:
        parts = judged_parts(posterior, job.seed, statistics)
        found = mixing(parts, log_joint, getattr(job.options, "threads", None))
    except KeyboardInterrupt:
        interrupted = True
    mixed, figures = mixing_verdict(found)
    reason = INTERRUPTED if interrupted else f"{log_joint.size} draws; {figures}"
    fit = job.record(
        means(posterior.loadings),
        means_of_draws(posterior.components),
        None if posterior.scale is None else means(posterior.scale),
        trace=log_joint,
        status=Status(mixed and not interrupted, reason, log_joint.size),
        diagnostics={**diagnostics, **switching, **found},
        statistics=statistics,
        estimate=replace(posterior, factors=factors[0]) if factors else posterior,
    )
    fit = with_mean_effects(with_mean_dispersion(fit, job.counts))
    return replace(fit, batch=batches_of_draws(fit, job.counts)) if factors else fit


def log_joints(counts: Counts, priors: Priors, loadings: Any, components: Array, noise: Distributed = POISSON) -> Array:
    """Return the log joint of every draw, (chains, draws), without the Jacobians of the sampler's space."""
    counts = counts.plain
    prior: Any = priors.loadings
    other: Any = priors.components
    shares, scale = separate_scale(loadings)
    chains, draws = components.shape[:2]
    out = np.empty((chains, draws))
    for at in np.ndindex(chains, draws):
        value = attach_scale(shares[at], None if scale is None else scale[at])
        factors = counts.exposed_loadings(matrix(value)), counts.exposed_components(components[at])
        if prior.support == "simplex":
            out[at] = log_likelihood_of_shares(noise, counts, *factors)
        else:
            out[at] = log_likelihood(noise, counts, *factors, False)
        out[at] += prior.log_density(value) + other.log_density(components[at])
    return out


def batches_of_draws(fit: FitRecord, counts: Any) -> FittedBatches:
    """Return the factors of batches given the means of drawn loadings, components, dispersions and shapes."""
    if counts.learns_shape:
        assert fit.statistics is not None
        counts = counts.with_shape(float(fit.statistics[SHAPE].mean()))
    if counts.learned:
        counts = counts.with_dispersions(np.atleast_1d(fit.noise.dispersion))  # type: ignore[attr-defined]
    problem = draws_problem(counts, fit.priors, np.random.default_rng(0))
    state = given_state(problem, attach_scale(fit.loadings, fit.scale), np.asfortranarray(fit.components))
    return replace(factors_at(problem, state), q=None)


def with_mean_dispersion(fit: FitRecord, counts: Counts) -> FitRecord:
    """Return a fit whose noise has the means of drawn dispersions, if there are any."""
    if fit.statistics is None or DISPERSION not in fit.statistics:
        return fit
    dispersed: Any = counts
    mean = np.atleast_1d(means_of_draws(fit.statistics[DISPERSION]))
    return replace(fit, noise=dispersed.with_dispersions(mean).noise)


def statistics_of(chains: list[list[dict[str, Array]]], counts: Counts) -> dict[str, Array] | None:
    """Return what is drawn beside both sides as statistics, (chains, draws, …)."""
    found = {name: np.array([[draw[name] for draw in draws] for draws in chains]) for name in chains[0][0]}
    dispersed: Any = counts
    if DISPERSION in found and dispersed.noise.by is None:
        found[DISPERSION] = found[DISPERSION][:, :, 0]
    if SHAPE in found:
        found[SHAPE] = found[SHAPE][:, :, 0]
    return found or None


def means_of_draws(draws: Array) -> Array:
    """Return means over chains and draws of values (chains, draws, …)."""
    return np.asarray(draws.mean(axis=(0, 1)))


def matched_draws(
    job: Job, value: Value | DrawsOnDisk, components: Array, statistics: dict[str, Array] | None = None
) -> tuple[Draws, dict[str, float], dict[str, Array] | None]:
    """Return draws with components matched that have the same priors, diagnostics of the matching, and the statistics.

    Known components keep their places. Effects of covariates are in the order of the components.
    """
    orders, diagnostics = None, {}
    movable = movable_components(job.options.priors, job.rank)
    if len(movable) > 1:
        components, orders = match_all_draws(components, movable)
        diagnostics = label_switching(components, orders)
    if isinstance(value, DrawsOnDisk):
        loadings, scale = value.in_order(orders)
    else:
        loadings, scale = separate_scale(value)
        loadings = loadings if orders is None else alignment.reorder(loadings, orders, axis=-1)
    if statistics is not None and orders is not None:
        statistics = {name: _matched(name, values, orders) for name, values in statistics.items()}
    # In one order in memory, as files give them back: sums depend on it in their last digit.
    return Draws(loadings, np.ascontiguousarray(components), scale), diagnostics, statistics


def _matched(name: str, values: Array, orders: Array) -> Array:
    """Return statistics of draws in the order of the components, if they belong to these."""
    if name.startswith(SITE):
        axis = component_axis(values.shape[2:], orders.shape[-1])
        if axis is None:
            return values
        along = [*orders.shape[:2], *(1 for _ in values.shape[2:])]
        along[axis + 2] = -1
        return np.take_along_axis(values, orders.reshape(along), axis=axis + 2)
    if name == SHAPES:
        return np.take_along_axis(values, orders, axis=-1)
    return alignment.reorder(values, orders, axis=-1) if name == EFFECTS else values


def with_mean_effects(fit: FitRecord) -> FitRecord:
    """Return a fit whose prior of loadings has the means of drawn effects and shapes, if there are any."""
    prior: Any = fit.priors.loadings
    if fit.statistics is None or EFFECTS not in fit.statistics:
        return fit
    shapes = fit.statistics.get(SHAPES)
    mean = None if shapes is None else np.exp(means_of_draws(np.log(shapes)))[None]
    return replace(
        fit,
        priors=replace_sides(fit.priors, loadings=prior.with_effects(means_of_draws(fit.statistics[EFFECTS]), mean)),
    )
