"""Chains: where they start, and how their draws are brought into one form, for Gibbs and NUTS alike."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bayesnmf import gauge
from bayesnmf.closed_form import fit_closed_form
from bayesnmf.defaults import resolve_options
from bayesnmf.fitting import Job
from bayesnmf.inference.coordinate_ascent import INTERRUPTED, Status
from bayesnmf.inference.sides import State
from bayesnmf.mixing import UNJUDGED, judged_parts, mixing, verdict
from bayesnmf.options import VI, Priors
from bayesnmf.priors import ScaledProportions
from bayesnmf.problems import draws_problem, start_state
from bayesnmf.results import Draws, FitRecord
from bayesnmf.specification import PARAMETER

Array = NDArray[Any]

SWITCHED, AMBIGUOUS, AMBIGUOUS_LIMIT = 0.5, 0.25, 0.05


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


def stack(draws: list[Any], side: int) -> Any:
    """Stack one side of a list of draws along a new first axis."""
    values = [draw[side] for draw in draws]
    if isinstance(values[0], ScaledProportions):
        return ScaledProportions(*(np.stack(parts) for parts in zip(*values, strict=True)))
    return np.stack(values)


def exchangeable(priors: Priors) -> bool:
    """Whether the priors treat all components alike, so that relabelling them leaves the posterior unchanged."""
    for prior, axis in ((priors.loadings, -1), (priors.components, -2)):
        if prior == PARAMETER:
            continue
        for parameter in vars(prior).values():
            array = np.atleast_2d(np.asarray(parameter))
            if not np.all(array == np.take(array, [0], axis=axis)):
                return False
    return True


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
    loadings: Array = value.proportions if isinstance(value, ScaledProportions) else value
    scale = value.scale[..., 0] if isinstance(value, ScaledProportions) else None
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
    return FitRecord(
        model=job.model,
        method=job.method,
        rank=job.rank,
        loadings=loadings.mean(axis=(0, 1)),
        components=components.mean(axis=(0, 1)),
        scale=None if scale is None else scale.mean(axis=(0, 1)),
        trace=log_joint,
        status=Status(mixed and not interrupted, reason, log_joint.size),
        priors=job.options.priors,
        options=job.options,
        counts=job.counts,
        seed=job.seed,
        seconds=0.0,
        diagnostics={**diagnostics, **switching, **found},
        statistics=statistics,
        _posterior=posterior,
    )


def matched_draws(job: Job, loadings: Array, components: Array) -> tuple[Array, Array, dict[str, float]]:
    """Match the components of all draws, where the priors tell none apart, and say how sure the matching is."""
    if not exchangeable(job.options.priors):
        return loadings, components, {}
    loadings, components, orders = match(loadings, components)
    return loadings, components, label_switching(components, orders)


def match(loadings: Array, components: Array) -> tuple[Array, Array, Array]:
    """Bring the components of all draws into one order: that of a draw, then that of the first chain's mean.

    Also return these orders (chains, draws, K): component k of a draw was component `orders[..., k]`.
    """
    total = np.broadcast_to(np.arange(components.shape[-2]), components.shape[:-1])
    for reference_of in (lambda values: values[0, -1], lambda values: values[0].mean(axis=0)):
        orders = gauge.match_draws(components, reference_of(components))
        components = gauge.reorder(components, orders, axis=-2)
        loadings = gauge.reorder(loadings, orders, axis=-1)
        total = np.take_along_axis(total, orders, axis=-1)
    return loadings, components, total


def label_switching(components: Array, orders: Array) -> dict[str, float]:
    """Tell how often labels switched within chains, and how surely draws can be matched at all.

    The best order of a draw flips to and fro by itself where two components are nearly the same. So a switch counts
    only if the new order has gained, in total cosine, at least half of what it gains where a draw is the mean
    relabelled; and a draw is ambiguous if for some two components the order found gains less than a quarter of that
    over their swap.

    Parameters
    ----------
    components : ndarray (chains, draws, K, m)
        Matched.
    orders : ndarray (chains, draws, K)
        As `match` returns them.
    """
    pairs = np.triu_indices(orders.shape[-1], 1)
    switches = ambiguous = 0
    for chain, chain_orders in zip(components, orders, strict=True):
        reference = chain.mean(axis=0)  # its own: it may be in another mode than the first
        alike = gauge.cosine(reference, reference)
        swapped = 2 - alike - alike.T  # what the swap of two components of the reference loses, (K, K)
        current = chain_orders[0]
        for draw, order in zip(chain, chain_orders, strict=True):
            similar = gauge.cosine(draw, reference)
            kept = np.diag(similar)
            gains = kept[:, None] + kept - similar - similar.T
            ambiguous += bool(np.any(gains[pairs] < AMBIGUOUS * swapped[pairs]))
            if np.array_equal(order, current):
                continue
            before = np.argsort(order)[current]  # of the matched draw, the component that stood for each until now
            gain = kept.sum() - similar[before, np.arange(len(before))].sum()
            if gain >= SWITCHED * (len(before) - alike[before, np.arange(len(before))].sum()):
                switches += 1
                current = order
    draws = orders.shape[0] * orders.shape[1]
    return {"label_switches": float(switches), "ambiguous_draws": ambiguous / draws}
