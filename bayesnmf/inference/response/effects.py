"""How well the effects of covariates are known: by the prior of the loadings, and by how rows vary.

The log marginal likelihood of effects β is a sum over rows, whose scores and information in the linear predictors η_i
are those of the loadings u_i, by the identities of Fisher and of Louis (1982)::

    s_i = E[∂ log p(u_i | η_i)]        I_i = E[−∂² log p(u_i | η_i)] − Cov(∂ log p(u_i | η_i))

with expectations over u_i given the counts. The posterior of the loadings depends on β, so that the first term alone,
which takes them as known, makes intervals too narrow. With the prior precision P, the information of β is
H = Σ_i x_i x_i' ⊗ I_i + P, and H⁻¹ the covariance of β if loadings vary around their means as the prior says. They do
not in real counts: sizes of rows have heavier tails, components that few rows have lighter ones. The covariance

    H⁻¹ (Σ_i t_i t_i' + P) H⁻¹,    t_i = x_i ⊗ (1 − L_i)^−½ s_i,    L_i = I_i X_i H⁻¹ X_i',    X_i = x_i' ⊗ 1

holds whatever their distribution is (White 1980; the weights are HC2 in blocks of a row, Bell & McCaffrey 2002). The
prior is one more row, whose score has the variance that it says. L_i is the leverage of a row by its own information:
where few rows have a component, their loadings decide its effects, and leave little of a residual, though the design
is even. A row that alone tells a column of the design has its information for the square of its score. Limits are
quantiles of Student's t: a variance v that is a sum of squares c_i² of rows has a variance of Σ_i c_i⁴ at most, and
2 v² / Σ_i c_i⁴ degrees of freedom by Satterthwaite's rule, of which there are at least 3, so that the t has a variance.

Of a mean field, the covariance of the loadings of a row is that of its linear response given the components: with the
allocations of counts that components share, which q alone leaves out. For Gammas whose allocations are known, H is
the information of a negative binomial regression on the counts of a component.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from scipy.special import polygamma

from bayesnmf.inference.problem import Problem, State
from bayesnmf.inference.response.coupled import Coupled
from bayesnmf.priors.gamma import Gamma
from bayesnmf.priors.log_linear import LogLinear
from bayesnmf.types import Array

ALONE = 1e-9  # 1 − leverage of a row whose mean no other row tells
AT_ONCE = 2**24  # numbers in memory
FEWEST, MANY = 3.0, 1e6  # degrees of freedom
MOST_LEVERAGE = 0.99  # that is taken out of a score: information of a row that curves upwards can have more than 1


class RowTerms(NamedTuple):
    """Scores (n, K) and information (n, K, K) of the linear predictors of each row."""

    scores: Array
    information: Array


class Known(NamedTuple):
    """Covariances of effects, component by component, (K p, K p), and degrees of freedom of the second, (K p,).

    `by_prior` is right if loadings vary around their means as by their prior, `by_rows` whatever they vary by.
    """

    by_prior: Array
    by_rows: Array
    freedom: Array


def information_of_effects(prior: LogLinear, terms: RowTerms) -> Array:
    """Return the information of the effects, (K p, K p), component by component, prior included."""
    p, rank = prior.effects.shape
    found = np.einsum("ikl,ip,iq->kplq", terms.information, prior.design, prior.design, optimize=True)
    return np.asarray(found.reshape(rank * p, rank * p)) + np.diag(np.tile(prior.precision[:, 0], rank))


def known_of_effects(prior: LogLinear, terms: RowTerms) -> Known:
    """Return how well effects are known by their prior, and by the rows."""
    design, (p, rank) = prior.design, prior.effects.shape
    precision = np.tile(prior.precision[:, 0], rank)
    values, vectors = np.linalg.eigh(information_of_effects(prior, terms))
    by_prior = (vectors / np.maximum(values, precision.min())) @ vectors.T  # none is known less than by its prior
    inverse = np.linalg.pinv(design.T @ design, hermitian=True)
    alone = 1 - ((design @ inverse) * design).sum(axis=1) < ALONE
    told = design[alone]
    of_alone = np.einsum("ikl,ip,iq->kplq", terms.information[alone], told, told, optimize=True)
    by_rows = by_prior @ (of_alone.reshape(len(by_prior), -1) + np.diag(precision)) @ by_prior
    fourth, step = np.zeros(rank * p), max(AT_ONCE // (rank * p), 1)
    for first in range(0, len(design), step):
        kept = np.flatnonzero(~alone[first : first + step]) + first
        scores = _without_leverage(design[kept], by_prior, RowTerms(*(each[kept] for each in terms)))
        moves = (scores[:, :, None] * design[kept, None, :]).reshape(len(kept), -1) @ by_prior
        by_rows, fourth = by_rows + moves.T @ moves, fourth + (moves**4).sum(axis=0)
    freedom = 2 * by_rows.diagonal() ** 2 / np.maximum(fourth, np.finfo(np.float64).tiny)
    return Known(by_prior, by_rows, np.clip(freedom, FEWEST, MANY))


def _without_leverage(design: Array, covariance: Array, terms: RowTerms) -> Array:
    """Return (1 − L_i)^−½ s_i of rows, (n, K): what a row has moved the effects by is taken out of its score."""
    rank, p = terms.scores.shape[1], design.shape[1]
    of_rows = np.einsum("kplq,ip,iq->ikl", covariance.reshape(rank, p, rank, p), design, design, optimize=True)
    values, vectors = np.linalg.eigh(of_rows)
    values = np.sqrt(np.maximum(values, np.finfo(np.float64).tiny))[:, None, :]
    root, back = (vectors * values) @ vectors.transpose(0, 2, 1), (vectors / values) @ vectors.transpose(0, 2, 1)
    leverage, vectors = np.linalg.eigh(root @ terms.information @ root)
    turned = vectors.transpose(0, 2, 1) @ root @ terms.scores[:, :, None]
    turned *= (1 - np.minimum(leverage, MOST_LEVERAGE))[:, :, None] ** -0.5
    return np.asarray(back @ vectors @ turned)[:, :, 0]


def terms_of_mean_field(problem: Problem, state: State, threads: int | None = None) -> RowTerms:
    """Return the terms of the rows of a mean field, given its components."""
    prior: Any = problem.loadings_prior
    q: Any = state.loadings.conditional
    rows, statistics = Coupled(problem, state, threads).rows, prior.statistics(q)
    spread = rows
    if isinstance(prior.plain, Gamma):
        shape, rate = np.broadcast_arrays(*(np.asarray(each, np.float64) for each in (q.shape, q.rate)))
        trigamma = polygamma(1, shape)
        spread = rows / (trigamma[:, :, None] * trigamma[:, None, :])
        spread[:, *np.diag_indices(shape.shape[1])] += shape - 1 / trigamma
        spread /= rate[:, :, None] * rate[:, None, :]
    slope = prior.slope_of_scores
    return RowTerms(
        prior.scores(statistics), prior.curvature(statistics) - slope[:, :, None] * spread * slope[:, None, :]
    )
