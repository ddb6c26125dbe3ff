"""The formulas that evaluate the factors of all tools, whatever their own objectives are."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import xlogy

from bayesnmf import Dirichlet, Gamma, Priors
from bayesnmf.assessment.scoring import MIXED, background, entry_probabilities
from bayesnmf.fitting.job import resolve_priors
from bayesnmf.inference.ascent.coordinate_ascent import evaluate_state
from bayesnmf.inference.ascent.settled_loadings import settle_loadings
from bayesnmf.inference.problem import State
from bayesnmf.inference.side import MeanField
from bayesnmf.inference.sides import Problem as Bound
from bayesnmf.kernels.cpu.likelihood import entry_rates
from benchmarks.data import Problem

Array = NDArray[Any]

MOST_UPDATES, SETTLED = 500, 1e-4


def evaluate(problem: Problem, task: str, factors: dict[str, Array]) -> float:
    """Return the value of a task's objective, in nats; larger is better."""
    doubles = {side: np.asarray(value, np.float64) for side, value in factors.items()}
    if task == "lda":
        gamma = Dirichlet(problem.start["gamma"])
        return bound(problem, Dirichlet(problem.alpha), Dirichlet(problem.eta), gamma, doubles["nu"])
    if task == "gamma_poisson":
        priors: Any = resolve_priors(task, problem.counts, problem.rank, Priors())
        return bound(
            problem, priors.loadings, priors.components, Gamma(doubles["shape"], doubles["rate"]), doubles["nu"]
        )
    if task == "likelihood":
        return loglik_at_best_scales(problem, doubles["loadings"], doubles["components"])
    return held_out_loglik(problem, doubles["loadings"], doubles["components"])


def loglik_at_best_scales(problem: Problem, loadings: Array, components: Array) -> float:
    """Return the Poisson log-likelihood with each row of loadings at its best scale, Σ_j λ_ij = Σ_j X_ij.

    So rates and proportions are comparable: it is the multinomial log-likelihood plus Σ_i log Poisson(N_i; N_i).
    """
    counts = problem.counts
    sums = loadings @ components.sum(axis=1)
    scale = np.divide(counts.row_totals, sums, out=np.zeros_like(sums), where=sums > 0)
    rates = entry_rates(counts.matrix, loadings * scale[:, None], np.asfortranarray(components))
    with np.errstate(divide="ignore"):
        return float(xlogy(counts.matrix.data, rates).sum()) - counts.total - counts.log_factorial


def bound(
    problem: Problem, loadings_prior: Any, components_prior: Dirichlet, of_loadings: Dirichlet | Gamma, nu: Array
) -> float:
    """Return the ELBO with fixed q(components) = Dirichlet(nu), on the Poisson scale.

    q(loadings) is optimised from `of_loadings`, until every row has settled to 1e-4 of its largest loading, or for 500
    updates. For lda this start is the same for all tools, so the value depends on the topics only; with small
    concentrations rows have local optima, and each tool's own q(loadings) is in a different one.
    """
    rows, columns = MeanField(component_axis=1), MeanField(component_axis=0)
    given = Bound(problem.counts, loadings_prior, components_prior, rows, columns, fixed_components=True)
    sides = rows.of(loadings_prior, of_loadings), columns.of(components_prior, Dirichlet(np.asfortranarray(nu)))
    settled = settle_loadings(given, State(*sides), SETTLED, MOST_UPDATES, None).state
    return evaluate_state(given, settled, None).value


def held_out_loglik(problem: Problem, loadings: Array, components: Array) -> float:
    """Return the held-out log-likelihood per count, given row totals, as in `bayesnmf.assessment.scoring`.

    The point estimate (for samplers the state, for q its mean) is used, mixed with 1e-6 of the background.
    """
    assert problem.held_out is not None
    matrix = problem.held_out.matrix
    rows = np.repeat(np.arange(matrix.shape[0]), np.diff(matrix.indptr))
    probability = entry_probabilities(matrix, rows, loadings, components)
    mixed = (1 - MIXED) * probability + MIXED * background(problem.counts)[matrix.indices]
    return float(matrix.data @ np.log(mixed)) / problem.held_out.total
