"""The curvature of the log marginal likelihood of effects, by Louis' identity with the covariance of linear response.

The information of effects β is that of complete data less what is missing (Louis 1982)::

    I(β) = E[−∂² log p(u | β)] − Cov(∂ log p(u | β)) + prior precision

The posterior of the loadings u depends on β, so that the first term alone, which takes them as known, makes intervals
too narrow. The covariance of the loadings of a row is that of the linear response of q given the components: with the
allocations of counts that components share, which q alone leaves out. For Gammas whose allocations are known this is
the information of a negative binomial regression on the counts of a component.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.special import digamma, polygamma

from bayesnmf.inference.problem import Problem, State
from bayesnmf.inference.response.coupled import Coupled
from bayesnmf.priors.gamma import Gamma
from bayesnmf.types import Array


def information_of_effects(problem: Problem, state: State, threads: int | None = None) -> Array:
    """Return the information of the effects of a mean field, (K p, K p), component by component, prior included."""
    prior: Any = problem.loadings_prior
    q: Any = state.loadings.conditional
    rows = Coupled(problem, state, threads).rows
    terms = _of_gammas if isinstance(prior.plain, Gamma) else _of_proportions
    of_rows = terms(prior.given, q, rows)
    p, rank = prior.effects.shape
    found = np.einsum("ikl,ip,iq->kplq", of_rows, prior.design, prior.design, optimize=True)
    return np.asarray(found.reshape(rank * p, rank * p)) + np.diag(np.tile(prior.precision[:, 0], rank))


def _of_gammas(given: Any, q: Any, rows: Array) -> Array:
    """Return the information of the linear predictors of each row, (n, K, K), given covariances of log loadings."""
    shape, rate = np.broadcast_arrays(*(np.asarray(each, np.float64) for each in (q.shape, q.rate)))
    a, slope = np.broadcast_to(given.shape, shape.shape), np.asarray(given.rate)  # slope of the score in u
    trigamma = polygamma(1, shape)
    mixed = rows / (trigamma[:, :, None] * trigamma[:, None, :])
    mixed[:, *np.diag_indices(shape.shape[1])] += shape - 1 / trigamma
    scores = (slope / rate)[:, :, None] * mixed * (slope / rate)[:, None, :]
    found = -scores
    found[:, *np.diag_indices(a.shape[1])] += slope * shape / rate
    return found


def _of_proportions(given: Any, q: Any, rows: Array) -> Array:
    """Return the information of the linear predictors of each row, (n, K, K), given covariances of log proportions."""
    alpha = np.asarray(given.concentration, np.float64)
    expected_log = q.proportions.expected_log() if hasattr(q, "proportions") else q.expected_log()
    total = alpha.sum(axis=1, keepdims=True)
    found = -alpha[:, :, None] * (rows + polygamma(1, total)[:, :, None]) * alpha[:, None, :]
    own = alpha**2 * polygamma(1, alpha) - alpha * (digamma(total) - digamma(alpha) + expected_log)
    found[:, *np.diag_indices(alpha.shape[1])] += own
    return found
