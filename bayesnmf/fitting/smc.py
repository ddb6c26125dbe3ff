"""Sample by sequential Monte Carlo: independent runs from the prior to the posterior, weighted by their evidence."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.special import logsumexp

from bayesnmf.fitting.chains import matched_draws, means_of_draws, statistics_of, with_mean_dispersion
from bayesnmf.fitting.job import Job
from bayesnmf.fitting.problems import draws_problem
from bayesnmf.inference.problem import State
from bayesnmf.inference.sampling.clusters import log_likelihood_at
from bayesnmf.inference.sides import objective
from bayesnmf.inference.status import INTERRUPTED, Status
from bayesnmf.inference.tempering.annealing import Run, agree, log_of_mean, spread_of, systematic, tempered_runs
from bayesnmf.inference.tempering.clusters import tempered_target
from bayesnmf.inference.tempering.target import Target
from bayesnmf.noise.abilities import DISPERSION
from bayesnmf.priors.values import stack_values
from bayesnmf.results.record import FitRecord
from bayesnmf.types import Array

# Effective number of draws from the prior that the draws must descend from: the share of a mode then has a standard
# deviation of at most 1 / (2 √6.25) = 0.2.
FEWEST_ANCESTORS = 6.25


def fit_smc(job: Job) -> FitRecord:
    """Run the samplers and return a fit with draws of all of them."""
    target = tempered_target(job.counts, job.options.priors, job.rank)

    def report(label: str, done: int, total: int, power: float) -> None:
        job.report(f"smc {job.model}, {label}", done, total, power)

    found = tempered_runs(target, job.options, job.seed, report)
    runs, interrupted = found.runs, found.interrupted
    places, particles = _resampled(runs, np.random.default_rng([job.seed, 1]))
    values, log_joint = _values(job, target, runs, places, particles)
    posterior, switching, _ = matched_draws(job, values[0], values[1])
    ambiguous = {name: value for name, value in switching.items() if name == "ambiguous_draws"}  # draws are no chains
    figures, reason, enough = _judged(runs, places, particles)
    status = Status(enough and not interrupted, INTERRUPTED if interrupted else reason, len(found.ladder) - 1)
    dispersions = None
    if job.counts.learned:
        drawn = [
            [{DISPERSION: runs[at].factors.dispersions[state]} for at, state in zip(*each, strict=True)]
            for each in zip(places, particles, strict=True)
        ]
        dispersions = statistics_of(drawn, job.counts)
    fit = job.record(
        means_of_draws(posterior.loadings),
        means_of_draws(posterior.components),
        None if posterior.scale is None else means_of_draws(posterior.scale),
        trace=log_joint,
        status=status,
        diagnostics={**ambiguous, **figures},
        statistics={
            "log_estimate": np.broadcast_to(found.logs[:, None], places.shape).copy(),
            "run": places.astype(np.float64),
            "ancestor": _ancestors(runs, places, particles).astype(np.float64),
            **(dispersions or {}),
        },
        estimate=posterior,
    )
    return with_mean_dispersion(fit, job.counts)


def _resampled(runs: list[Run], rng: np.random.Generator) -> tuple[Array, Array]:
    """Return run and particle of each draw, (runs, particles) each, resampled by evidence and weight.

    Draws are in the order of the runs: where all runs have the same evidence, each chain contains one run.
    """
    logs = np.concatenate([run.log_estimate + run.log_weights for run in runs])
    chosen = systematic(np.exp(logs - logs.max()), len(logs), rng)
    number = len(logs) // len(runs)
    places, particles = np.divmod(chosen, number)
    return places.reshape(len(runs), number), particles.reshape(len(runs), number)


def _values(job: Job, target: Target, runs: list[Run], places: Array, particles: Array) -> tuple[list[Any], Array]:
    """Return the draws of loadings and components, (chains, draws, …), and their log joint, (chains, draws)."""
    problem = draws_problem(job.counts, job.options.priors, np.random.default_rng(0))
    summaries: Any = problem.loadings_summary, problem.components_summary
    priors = problem.loadings_prior, problem.components_prior
    chains, log_joint = [], np.empty(places.shape)
    for chain in range(len(places)):
        drawn = []
        for draw, (place, particle) in enumerate(zip(places[chain], particles[chain], strict=True)):
            value = target.value(runs[place].factors, particle)
            state = State(*(summaries[side].at(priors[side], value[side]) for side in (0, 1)))
            at = target.at(problem, runs[place].factors, particle)
            log_joint[chain, draw] = objective(at, state, log_likelihood_at(at, state, 1))
            drawn.append(value)
        chains.append([stack_values([value[side] for value in drawn]) for side in (0, 1)])
    return [stack_values([chain[side] for chain in chains]) for side in (0, 1)], log_joint


def _ancestors(runs: list[Run], places: Array, particles: Array) -> Array:
    """Return the draw from the prior that each draw descends from, numbered over all runs."""
    number = len(runs[0].ancestors)
    return places * number + np.stack([run.ancestors for run in runs])[places, particles]


def _judged(runs: list[Run], places: Array, particles: Array) -> tuple[dict[str, float], str, bool]:
    """Return diagnostics, a text with the figures, and whether runs and ancestors are many and even enough."""
    logs = np.array([run.log_estimate for run in runs])
    mean, error = log_of_mean(logs)
    spread = spread_of(logs)
    _, counted = np.unique(_ancestors(runs, places, particles), return_counts=True)
    effective = float(counted.sum() ** 2 / np.sum(counted**2))
    weights = np.exp(logs - logsumexp(logs))
    figures = {
        "log_p": mean,
        "log_p_se": error,
        "log_p_spread": spread,
        "effective_runs": float(1.0 / np.sum(weights**2)),
        "ancestors": float(len(counted)),
        "effective_ancestors": effective,
    }
    apart = f"{len(runs)} runs, whose log estimates of p(X) have a standard deviation of {spread:.2f} nats"
    alone = "a single run, which does not show the error of its estimate of p(X)"
    text = f"{apart if len(runs) > 1 else alone}; {len(counted)} distinct ancestors, {effective:.1f} by weight"
    if few := effective < FEWEST_ANCESTORS:
        text = f"{text}, fewer than {FEWEST_ANCESTORS:g}: shares of modes are not known"
    return figures, text, agree(logs) and not few
