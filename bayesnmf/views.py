"""Any fit as a multinomial topic model, and a topic model as Poisson factors ([C] lemma 1)."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from bayesnmf import checks, gauge
from bayesnmf.gauge import TopicModel
from bayesnmf.posterior import sample_posterior
from bayesnmf.results import FitRecord
from bayesnmf.specification import MODELS

__all__ = ["TopicModel", "from_topic_model", "to_topic_model"]

Array = NDArray[Any]


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
        checks.check_no_draws(draws, chains)
        return gauge.to_topic_model(*checks.check_factors(source))
    if draws is None and chains is None:
        return _of_factors(source, source.loadings, source.components, source.scale)
    drawn = sample_posterior(source, draws, chains, seed)
    return _of_factors(source, drawn.loadings, drawn.components, drawn.scale)


def _of_factors(fit: FitRecord, loadings: Array, components: Array, scale: Array | None) -> TopicModel:
    """View factors of a fit; proportions come before the scale or the given totals, which may be 0."""
    model = gauge.to_topic_model(np.asarray(loadings, np.float64), np.asarray(components, np.float64))
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
    return gauge.from_topic_model(TopicModel(*checks.check_topic_model(topic_model)))
