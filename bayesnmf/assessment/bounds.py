"""The two evidence lower bounds of a closed-form q. No third number is called "ELBO"."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from bayesnmf.assessment.checks import check_draws_of_bound
from bayesnmf.checks import check_count, check_method
from bayesnmf.fitting.problems import point_or_mean_field
from bayesnmf.inference.allocating import allocate
from bayesnmf.inference.sides import Problem, State, objective
from bayesnmf.kernels.cpu.likelihood import poisson_loglik
from bayesnmf.options import VI, methods_with
from bayesnmf.priors import matrix
from bayesnmf.results.checks import check_fit
from bayesnmf.results.estimates import VariationalPosterior
from bayesnmf.results.record import FitRecord


class Estimate(NamedTuple):
    """A Monte Carlo mean and its standard error."""

    mean: float
    se: float


def state_of_fit(fit: FitRecord) -> tuple[Problem, State]:
    """Return the q of a vi or svi fit as a state of coordinate ascent, in float64."""
    check_fit(fit)
    check_method(fit.method, methods_with("mean field"), "an evidence lower bound")
    q: VariationalPosterior = fit.posterior  # type: ignore[assignment]
    doubles = fit.counts.with_matrix(fit.counts.matrix.astype(np.float64))
    problem = point_or_mean_field(doubles, VI(priors=fit.priors))
    loadings = problem.loadings_summary.of(problem.loadings_prior, q.loadings)
    if q.components is None:
        components = problem.components_summary.at(problem.components_prior, fit.components)  # type: ignore[attr-defined]
    else:
        components = problem.components_summary.of(problem.components_prior, q.components)
    return problem, State(loadings, components)


def elbo_augmented(fit: FitRecord) -> float:
    """Return the bound with optimal allocations in q, which closed-form VI maximises: exact, Poisson scale, in nats."""
    problem, state = state_of_fit(fit)
    return objective(problem, state, allocate(problem, state, None).loglik)


def elbo_marginal(fit: FitRecord, draws: int = 200, seed: int = 0) -> Estimate:
    """Estimate the bound with allocations summed out, E_q log p(X|θβ) − KL(q), which is at least `elbo_augmented`.

    The expected log-likelihood is a mean over independent draws of q, at least 2; the other terms are exact.
    """
    draws = check_draws_of_bound(draws)
    rng = np.random.default_rng(check_count(seed, "seed", minimum=0))
    problem, state = state_of_fit(fit)
    counts = problem.counts
    logliks = np.empty(draws)
    for s in range(draws):
        loadings = matrix(state.loadings.conditional.draw(rng))  # type: ignore[union-attr]
        q = state.components.conditional
        components = state.components.matrix if q is None else matrix(q.draw(rng))
        means = counts.exposed_loadings(loadings), counts.exposed_components(components)
        logliks[s] = poisson_loglik(counts.matrix, *means, counts.log_factorial)
    penalty = state.loadings.penalty + state.components.penalty
    return Estimate(float(logliks.mean() + penalty), float(logliks.std(ddof=1) / np.sqrt(draws)))
