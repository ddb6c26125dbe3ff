"""Convert any fit to a multinomial topic model ([C] lemma 1), and that to Poisson factors or to what pyLDAvis draws."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from bayesnmf.priors.specification import MODELS
from bayesnmf.priors.values import component_sums, rows_to_shares
from bayesnmf.results.checks import check_factors, check_fit, check_no_draws, check_topic_model
from bayesnmf.results.draws import sample_posterior
from bayesnmf.results.markers import SMALLEST
from bayesnmf.results.record import FitRecord, expected_totals
from bayesnmf.types import Array


class TopicModel(NamedTuple):
    """Multinomial topic model of Poisson factors, with the totals of its samples ([C] lemma 1).

    Counts are Poisson(θβ) if and only if sample i has a Poisson(s_i) total, and its counts given the total are
    Multinomial((LF)_i). Any leading axes are those of draws.

    Attributes
    ----------
    proportions : ndarray (..., n, K)
        Share of each component in the expected counts of a sample, L; rows sum to 1.
    components : ndarray (..., K, m)
        Share of each feature in a component, F; rows sum to 1.
    totals : ndarray (..., n)
        Expected total of each sample, s, in counts.
    sums : ndarray (..., K)
        Sum over features of each original component, u; 1 for components on the simplex.

    See Also
    --------
    to_topic_model, from_topic_model

    Examples
    --------
    >>> import bayesnmf
    >>> fit = bayesnmf.fit([[3, 0, 1], [0, 2, 4], [5, 1, 0], [0, 3, 6]], rank=2, seed=0)
    >>> bayesnmf.to_topic_model(fit).proportions.shape
    (4, 2)
    """

    proportions: Array
    components: Array
    totals: Array
    sums: Array


def topic_model_of(loadings: Array, components: Array) -> TopicModel:
    """Return the topic model of Poisson factors θ (..., n, K), β (..., K, m) ([C] lemma 1).

    u_k = Σ_j β_kj, s_i = Σ_k θ_ik u_k, F_k = β_k / u_k, L_i = θ_i ∘ u / s_i. A component of zeros and the proportions
    of a sample of zeros become equal shares.
    """
    sums = component_sums(components)
    expected = loadings * sums[..., None, :]
    totals = expected.sum(axis=-1)
    return TopicModel(rows_to_shares(expected, totals), rows_to_shares(components, sums), totals, sums)


def factors_of(model: TopicModel) -> tuple[Array, Array]:
    """Return the Poisson factors β = diag(u) F and θ = diag(s) L diag(u)⁻¹ ([C] lemma 1).

    The loadings of a component with sum 0 are not determined; they are set to 0.
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
    """Return the multinomial topic model of a fit of any model, or of Poisson factors.

    log Poisson(X | θβ) = log Multinomial(X | LF) + Σ_i log Poisson(N_i; s_i), with u_k = Σ_j β_kj, F_k = β_k / u_k,
    s_i = Σ_k θ_ik u_k and L_i = θ_i ∘ u / s_i ([C] lemma 1).

    Parameters
    ----------
    source : Fit or pair of array_like
        Fit, for its point summaries on the scale of the counts; or loadings (..., n, K) and components (..., K, m) with
        the same leading axes.
    draws, chains : int, optional
        Numbers of draws and chains of a fit with a posterior, to convert draws. By default the point summaries are
        converted, also of chains. The draws are ``fit.sample_posterior(draws, chains=chains, seed=seed)``; the axes
        (chains, draws) come first.
    seed : int
        Seed of draws from q.

    Returns
    -------
    TopicModel
        Tuple of ``proportions`` L (n, K), ``components`` F (K, m), ``totals`` s (n,), in counts, and ``sums`` u (K,).
        Of a fit with exposures, it is the model of the expected counts: F has the exposures of features, s those of
        rows. Under dirichlet_poisson the totals are the given row totals. A component of zeros becomes equal shares; so
        do the proportions of a sample of zeros, except under dirichlet_poisson and dirichlet_gamma, which have their
        own.

    Raises
    ------
    TypeError, ValueError
        Arrays that are negative or have shapes that do not match; draws requested from arrays.
    AttributeError
        Draws requested from a point estimate, which has no posterior.

    See Also
    --------
    from_topic_model : the way back.
    TopicModel : what it returns.

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
        return _topic_model_of_fit(source, source.loadings, source.components, source.scale)
    drawn = sample_posterior(source, draws, chains, seed)
    return _topic_model_of_fit(source, drawn.loadings, drawn.components, drawn.scale)


def _topic_model_of_fit(fit: FitRecord, loadings: Array, components: Array, scale: Array | None) -> TopicModel:
    """Return the topic model of a fit's expected counts; proportions are computed without scale or totals.

    Exposures of features are part of the components, those of rows of the totals.
    """
    exposed = fit.counts.exposed_components(np.asarray(components, np.float64))
    model = topic_model_of(np.asarray(loadings, np.float64), exposed)
    if scale is None and MODELS[fit.model].given_totals:
        scale = expected_totals(fit.counts, np.asarray(loadings), np.asarray(components))
    if fit.counts.row_weights is not None:
        scale = fit.counts.row_weights * (1.0 if scale is None else scale)
    return model if scale is None else model._replace(totals=model.totals * scale)


def from_topic_model(topic_model: TopicModel) -> tuple[Array, Array]:
    """Return the Poisson factors of a topic model, β = diag(u) F and θ = diag(s) L diag(u)⁻¹ ([C] lemma 1).

    Parameters
    ----------
    topic_model : TopicModel
        Topic model, or a tuple (proportions, components, totals, sums) with any leading axes. With sums of 1 the
        components stay on the simplex.

    Returns
    -------
    loadings : ndarray (..., n, K)
        Loadings θ, in counts per unit of a component; 0 for components with sum 0, which do not determine them.
    components : ndarray (..., K, m)
        Components β, with the given sums.

    Raises
    ------
    TypeError, ValueError
        An argument that is not a topic model, or arrays with shapes that do not match.

    See Also
    --------
    to_topic_model : the way there.

    Examples
    --------
    >>> import numpy as np
    >>> import bayesnmf
    >>> loadings, components = bayesnmf.from_topic_model(([[0.4, 0.6]], [[0.5, 0.5], [0.1, 0.9]], [10.0], [1.0, 1.0]))
    >>> np.round(loadings, 6).tolist()
    [[4.0, 6.0]]
    """
    return factors_of(TopicModel(*check_topic_model(topic_model)))


def to_pyldavis(fit: FitRecord) -> dict[str, Any]:
    """Return the arguments of ``pyLDAvis.prepare`` for a fit of any model: ``pyLDAvis.prepare(**to_pyldavis(fit))``.

    They are those of the topic model of the fit (`to_topic_model`), which the package pyLDAvis (Sievert & Shirley 2014,
    *LDAvis: A Method for Visualizing and Interpreting Topics*) draws. It takes logarithms of shares and of frequencies:
    rows and features without counts are left out, and shares below 10⁻¹² count as 10⁻¹². If its `save_html` meets
    complex numbers, as pyLDAvis 3.4 may where components are alike, ``prepare(..., mds="mmds")`` makes none.

    Parameters
    ----------
    fit : Fit

    Returns
    -------
    dict
        ``topic_term_dists`` (K, m) and ``doc_topic_dists`` (n, K), whose rows sum to 1, ``doc_lengths`` (n,),
        ``vocab``, a list of m names, and ``term_frequency`` (m,), of the n rows and m features with counts; and
        ``sort_topics=False``, ``start_index=0``, so that its topics have the numbers of the components.

    Raises
    ------
    TypeError
        Not a fit.

    See Also
    --------
    to_topic_model : The topic model itself.

    Examples
    --------
    >>> import bayesnmf
    >>> fit = bayesnmf.fit([[3, 0, 1], [0, 0, 4], [5, 0, 0], [0, 0, 0]], rank=2, seed=0)
    >>> given = bayesnmf.to_pyldavis(fit)
    >>> given["vocab"], given["doc_topic_dists"].shape
    (['0', '2'], (3, 2))
    """
    check_fit(fit)
    model, counts = to_topic_model(fit), fit.counts
    rows, features = counts.row_totals > 0, counts.feature_totals > 0
    return {
        "topic_term_dists": _positive(model.components[:, features]),
        "doc_topic_dists": _positive(model.proportions[rows]),
        "doc_lengths": counts.row_totals[rows],
        "vocab": [str(name) for name in fit.feature_names[features]],
        "term_frequency": counts.feature_totals[features],
        "sort_topics": False,
        "start_index": 0,
    }


def _positive(shares: Array) -> Array:
    """Return shares that are all positive; rows sum to 1."""
    raised = np.maximum(shares, SMALLEST)
    return rows_to_shares(raised, raised.sum(axis=-1))
