"""The two evidence lower bounds of a closed-form q. No third number is called "ELBO"."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from bayesnmf.assessment.checks import check_draws_of_bound
from bayesnmf.checks import check_count, check_method
from bayesnmf.data.probabilities import log_likelihood, log_likelihood_of_shares
from bayesnmf.fitting.problems import mean_field_of_fit
from bayesnmf.inference.batch_factors import sums_of_means
from bayesnmf.inference.blocked.passes import Pass, pass_over_rows
from bayesnmf.inference.problem import Problem, State
from bayesnmf.inference.side import twin_of
from bayesnmf.inference.sides import Where, allocate, objective
from bayesnmf.noise.poisson import POISSON
from bayesnmf.options import methods_with
from bayesnmf.priors import Gamma, matrix
from bayesnmf.priors.specification import MODELS
from bayesnmf.results.batches import widened
from bayesnmf.results.checks import check_fit, check_knows_priors
from bayesnmf.results.record import FitRecord


class Estimate(NamedTuple):
    """A Monte Carlo mean and its standard error."""

    mean: float
    se: float


def state_of_fit(fit: FitRecord) -> tuple[Problem, State]:
    """Return the q of a vi or svi fit as a state of coordinate ascent, in float64; loadings on disk stay in files."""
    check_fit(fit)
    if fit.by.posterior != "mean field":
        check_method(fit.method, methods_with("mean field"), "an evidence lower bound")
    check_knows_priors(fit, "an evidence lower bound")
    return mean_field_of_fit(fit)


def elbo_augmented(fit: FitRecord) -> float:
    """Return the bound with optimal allocations in q, which closed-form VI maximises: exact, Poisson scale, in nats.

    Of a fit with quasi-Poisson noise, both bounds are those of the likelihood to its power.

    See Also
    --------
    elbo_marginal : with allocations summed out, which is at least this.

    Examples
    --------
    >>> import bayesnmf
    >>> fit = bayesnmf.fit([[3, 0, 1], [0, 2, 4], [5, 1, 0], [0, 3, 6]], rank=2, seed=0)
    >>> bool(bayesnmf.elbo_augmented(fit) <= 0)
    True
    """
    problem, state = state_of_fit(fit)
    return objective(problem, state, allocate(problem, state, None).loglik)


def elbo_marginal(fit: FitRecord, draws: int = 200, seed: int = 0) -> Estimate:
    """Estimate the bound with allocations summed out, E_q log p(X|θβ) − KL(q), which is at least `elbo_augmented`.

    The expected log-likelihood is a mean over independent draws of q, at least 2; the other terms are exact. Factors of
    batches are integrated out where counts are Poisson, and else drawn from q, too. Counts on disk are read once for
    each draw, and the draws are those in memory.

    See Also
    --------
    elbo_augmented, log_evidence

    Examples
    --------
    >>> import bayesnmf
    >>> fit = bayesnmf.fit([[3, 0, 1], [0, 2, 4], [5, 1, 0], [0, 3, 6]], rank=2, seed=0)
    >>> bayesnmf.elbo_marginal(fit).mean > bayesnmf.elbo_augmented(fit)
    True
    """
    draws = check_draws_of_bound(draws)
    check_fit(fit)
    rng = np.random.default_rng(check_count(seed, "seed", minimum=0))
    problem, state = state_of_fit(fit)
    logliks = np.array([_loglik_of_draw(fit, problem, state, rng) for _ in range(draws)])
    penalty, counts = state.loadings.penalty + state.components.penalty, problem.counts
    if counts.has_factors and not counts.summed_out:  # type: ignore[attr-defined]
        penalty -= _factors_of(fit).kl(_prior_of_factors(fit))
    return Estimate(float(logliks.mean() + penalty), float(logliks.std(ddof=1) / np.sqrt(draws)))


def _factors_of(fit: FitRecord) -> Gamma:
    """Return q of the factors of batches."""
    assert fit.batch is not None
    assert fit.batch.q is not None
    return fit.batch.q


def _prior_of_factors(fit: FitRecord) -> Gamma:
    """Return the prior of each of them."""
    assert fit.batch is not None
    return Gamma(fit.batch.shape, fit.batch.shape).broadcast(fit.batch.mean.shape)


def _loglik_of_draw(fit: FitRecord, problem: Problem, state: State, rng: np.random.Generator) -> float:
    """Return log p(X|θβ) at a draw of loadings and components, drawn in this order; loadings belong to their rows."""
    at_rows, given_totals = twin_of(rng), MODELS[fit.model].given_totals
    first: Any = state.loadings.block(0).conditional
    first.rows(slice(0, 1)).draw(rng)  # takes from `rng` what all rows together take
    q: Any = state.components.conditional
    components = state.components.matrix if q is None else matrix(q.draw(rng))
    whole: Any = problem.counts
    factors = _factors_of(fit).draw(rng) if whole.has_factors and not whole.summed_out else None

    def add(part: Problem, here: State, at: Where) -> tuple[None, None, Any]:
        q: Any = here.loadings.conditional
        loadings = matrix(q.draw_rows(twin_of(at_rows), at.rows.start))
        counts, noise = part.counts.plain, part.counts.noise  # that of these rows
        means = counts.exposed_loadings(loadings), counts.exposed_components(components)
        if factors is not None:
            means = widened(counts.batch.codes, *means, factors)
        elif part.counts.has_factors:
            found = log_likelihood(POISSON, counts, *means, given_totals=False)
            return None, None, np.append(sums_of_means(part.counts, *means), found)
        if given_totals:
            return None, None, log_likelihood_of_shares(noise, counts, *means)
        return None, None, log_likelihood(noise, counts, *means, given_totals=False)

    found = pass_over_rows(problem, state, add, Pass(writes=False))[0].more
    if whole.has_factors and factors is None:
        return float(whole.log_of_means(found[:-1].reshape(whole.of_batches.shape)) + float(found[-1]))
    return float(found)
