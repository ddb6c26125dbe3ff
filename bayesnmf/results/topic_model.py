"""Any fit as a multinomial topic model, and a topic model as Poisson factors ([C] lemma 1)."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from bayesnmf.priors.simplex import component_sums, rows_to_shares
from bayesnmf.priors.specification import MODELS
from bayesnmf.results.checks import check_factors, check_no_draws, check_topic_model
from bayesnmf.results.draws import sample_posterior
from bayesnmf.results.record import FitRecord

Array = NDArray[Any]


class TopicModel(NamedTuple):
    """Poisson factors as a multinomial topic model and the totals of its samples ([C] lemma 1).

    Counts are Poisson(θβ) if and only if sample i has Poisson(s_i) counts in all, shared out among the features by
    Multinomial((LF)_i). Any leading axes, of draws, come before those named here.

    Attributes
    ----------
    proportions : ndarray (..., n, K)
        L, the share of each component in the expected counts of a sample; rows sum to 1.
    components : ndarray (..., K, m)
        F, the share of each feature in a component; rows sum to 1.
    totals : ndarray (..., n)
        s, the expected total of each sample, in counts.
    sums : ndarray (..., K)
        u, the sum over features of each component as it was before: 1 for components on the simplex.
    """

    proportions: Array
    components: Array
    totals: Array
    sums: Array


def topic_model_of(loadings: Array, components: Array) -> TopicModel:
    """Split Poisson factors θ (..., n, K), β (..., K, m) into proportions and totals ([C] lemma 1).

    u_k = Σ_j β_kj, s_i = Σ_k θ_ik u_k, F_k = β_k / u_k, L_i = θ_i ∘ u / s_i. A component of zeros and the proportions
    of a sample of zeros become even shares.
    """
    sums = component_sums(components)
    expected = loadings * sums[..., None, :]
    totals = expected.sum(axis=-1)
    return TopicModel(rows_to_shares(expected, totals), rows_to_shares(components, sums), totals, sums)


def factors_of(model: TopicModel) -> tuple[Array, Array]:
    """Return the Poisson factors: β = diag(u) F and θ = diag(s) L diag(u)⁻¹ ([C] lemma 1).

    The loadings of a component whose sum is 0 are not determined, and 0.
    """
    expected = model.totals[..., None] * model.proportions
    sums = model.sums[..., None, :]
    loadings = np.divide(expected, sums, out=np.zeros_like(expected), where=sums > 0)
    return loadings, model.sums[..., None] * model.components


def to_topic_model(
    source: FitRecord | tuple[ArrayLike, ArrayLike],
    draws: int | None = None,
    *,
    chains: int | None = None,
    seed: int = 0,
) -> TopicModel:
    """Split a fit of any model, or Poisson factors, into topic proportions and totals.

    log Poisson(X | θβ) = log Multinomial(X | LF) + Σ_i log Poisson(N_i; s_i), with u_k = Σ_j β_kj, F_k = β_k / u_k,
    s_i = Σ_k θ_ik u_k and L_i = θ_i ∘ u / s_i ([C] lemma 1).

    Parameters
    ----------
    source : Fit or pair of array_like
        A fit: its point summaries, on the scale of the counts. Or loadings (..., n, K) and components (..., K, m),
        with the same leading axes.
    draws, chains : int, optional
        Of a fit with a posterior: transform draws instead, those of ``fit.sample_posterior(draws, chains=chains,
        seed=seed)``; the axes (chains, draws) then come first.
    seed : int
        Of draws from q.

    Returns
    -------
    TopicModel
        ``proportions`` L (n, K), ``components`` F (K, m), ``totals`` s (n,) and ``sums`` u (K,). Under
        dirichlet_poisson the totals are the given ones. A component of zeros becomes even shares; so do the
        proportions of a sample of zeros, save where the model has some (dirichlet_poisson, dirichlet_gamma).

    Raises
    ------
    TypeError, ValueError
        Arrays that are negative or do not fit together; draws of arrays.
    AttributeError
        Draws of a MAP, which has no posterior.

    Examples
    --------
    >>> import bayesnmf
    >>> model = bayesnmf.to_topic_model(([[3, 1], [0, 2]], [[1, 1], [0, 4]]))
    >>> model.proportions
    array([[0.6, 0.4],
           [0. , 1. ]])
    >>> model.totals, model.sums
    (array([10.,  8.]), array([2., 4.]))
    """
    if not isinstance(source, FitRecord):
        check_no_draws(draws, chains)
        return topic_model_of(*check_factors(source))
    if draws is None and chains is None:
        return _of_factors(source, source.loadings, source.components, source.scale)
    drawn = sample_posterior(source, draws, chains, seed)
    return _of_factors(source, drawn.loadings, drawn.components, drawn.scale)


def _of_factors(fit: FitRecord, loadings: Array, components: Array, scale: Array | None) -> TopicModel:
    """View factors of a fit; proportions come before the scale or the given totals, which may be 0."""
    model = topic_model_of(np.asarray(loadings, np.float64), np.asarray(components, np.float64))
    if scale is None and MODELS[fit.model].given_totals:
        scale = fit.counts.row_totals
    return model if scale is None else model._replace(totals=model.totals * scale)


def from_topic_model(topic_model: TopicModel) -> tuple[Array, Array]:
    """Return the Poisson factors of a topic model: β = diag(u) F and θ = diag(s) L diag(u)⁻¹ ([C] lemma 1).

    Parameters
    ----------
    topic_model : TopicModel
        Or a tuple (proportions, components, totals, sums) with any leading axes; sums of 1 leave the components on
        the simplex.

    Returns
    -------
    loadings : ndarray (..., n, K)
        0 for components whose sum is 0, whose loadings nothing determines.
    components : ndarray (..., K, m)

    Raises
    ------
    TypeError, ValueError
        Not a topic model, or arrays that do not fit together.
    """
    return factors_of(TopicModel(*check_topic_model(topic_model)))
