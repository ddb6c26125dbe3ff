"""Poisson factors and multinomial topic models are one thing in two forms ([C] lemma 1)."""

from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import multinomial, poisson
from smallfits import COUNTS, OPTIONS, QUICK, K, M, N, every_method, every_model, fit, quietly

import bayesnmf
from bayesnmf import Gamma, Priors, TopicModel, from_topic_model, to_topic_model

# Sums of about 20 terms, and their quotients: some tens of units in the last place.
ROUNDING = {"rtol": 1e-13, "atol": 1e-14}


def random_factors(rng, leading=()):
    """Loadings and components of very different sizes: the components do not sum to 1."""
    loadings = rng.gamma(0.5, 10.0, (*leading, N, K))
    components = rng.gamma(0.5, 1.0, (*leading, K, M)) * 10.0 ** rng.uniform(-3, 3, (*leading, K, 1))
    return loadings, components


@pytest.mark.parametrize("seed", range(5))
def test_a_poisson_is_a_multinomial_and_its_total(seed):
    """Lemma 1, with SciPy's own mass functions on both sides."""
    rng = np.random.default_rng(seed)
    loadings, components = random_factors(rng)
    counts = rng.poisson(np.minimum(loadings @ components, 1e4))
    model = to_topic_model((loadings, components))
    shares = model.proportions @ model.components
    totals = counts.sum(axis=1)
    of_poisson = poisson.logpmf(counts, loadings @ components).sum(axis=1)
    of_multinomial = [multinomial.logpmf(row, row.sum(), p / p.sum()) for row, p in zip(counts, shares, strict=True)]
    # Log masses are sums of log factorials of up to 1e5 counts, some 1e6 nats: 1e-9 is their rounding.
    np.testing.assert_allclose(of_multinomial + poisson.logpmf(totals, model.totals), of_poisson, rtol=1e-9, atol=1e-9)


def test_the_parts_are_those_of_the_definition():
    loadings, components = random_factors(np.random.default_rng(5), (2, 3))
    model = to_topic_model((loadings, components))
    assert [part.shape for part in model] == [(2, 3, N, K), (2, 3, K, M), (2, 3, N), (2, 3, K)]
    for at in np.ndindex(2, 3):
        u = [sum(components[at][k, j] for j in range(M)) for k in range(K)]
        np.testing.assert_allclose(model.sums[at], u, **ROUNDING)
        for i in range(N):
            s = sum(loadings[at][i, k] * u[k] for k in range(K))
            np.testing.assert_allclose(model.totals[at][i], s, **ROUNDING)
            np.testing.assert_allclose(model.proportions[at][i], loadings[at][i] * u / s, **ROUNDING)
        np.testing.assert_allclose(model.components[at], components[at] / np.array(u)[:, None], **ROUNDING)


@pytest.mark.parametrize("leading", [(), (2, 3)])
def test_there_and_back_is_the_identity_both_ways(leading):
    rng = np.random.default_rng(6)
    factors = random_factors(rng, leading)
    for before, after in zip(factors, from_topic_model(to_topic_model(factors)), strict=True):
        np.testing.assert_allclose(after, before, **ROUNDING)
    model = TopicModel(
        rng.dirichlet(np.ones(K), (*leading, N)),
        rng.dirichlet(np.ones(M), (*leading, K)),
        rng.gamma(1.0, 100.0, (*leading, N)),
        rng.gamma(1.0, 5.0, (*leading, K)),
    )
    for before, after in zip(model, to_topic_model(from_topic_model(model)), strict=True):
        np.testing.assert_allclose(after, before, **ROUNDING)


def test_zeros_become_even_shares_and_keep_the_rates():
    loadings, components = random_factors(np.random.default_rng(7))
    loadings[3] = 0
    components[1] = 0
    before = loadings.copy(), components.copy()
    model = to_topic_model((loadings, components))
    np.testing.assert_array_equal(model.proportions[3], np.full(K, 1 / K))
    np.testing.assert_array_equal(model.components[1], np.full(M, 1 / M))
    assert np.all(np.delete(model.proportions, 3, axis=0)[:, 1] == 0)
    assert model.totals[3] == 0
    assert model.sums[1] == 0
    back = from_topic_model(model)
    np.testing.assert_allclose(back[0] @ back[1], loadings @ components, **ROUNDING)
    np.testing.assert_array_equal(back[0][:, 1], 0)
    np.testing.assert_array_equal((loadings, components)[0], before[0])
    np.testing.assert_array_equal(components, before[1])


@quietly
@every_method
@every_model
def test_every_fit_is_a_topic_model_with_the_same_fitted_means(model, method):
    fitted = fit(model, method)
    view = to_topic_model(fitted)
    np.testing.assert_allclose(view.proportions.sum(axis=1), 1, **ROUNDING)
    np.testing.assert_allclose(view.components.sum(axis=1), 1, **ROUNDING)
    means = view.totals[:, None] * (view.proportions @ view.components)
    np.testing.assert_allclose(means, fitted.expected_loadings @ fitted.components, **ROUNDING)


@quietly
def test_gamma_components_enter_the_proportions_by_their_sums():
    priors = Priors(Gamma(1.0, 0.1), Gamma(0.5, 2.0))
    fitted = bayesnmf.fit(COUNTS, rank=K, seed=0, options=replace(QUICK, priors=priors))
    expected = fitted.loadings * fitted.components.sum(axis=1)
    view = to_topic_model(fitted)
    np.testing.assert_allclose(view.proportions, expected / expected.sum(axis=1, keepdims=True), **ROUNDING)
    assert not np.allclose(fitted.components.sum(axis=1), 1)


@quietly
@pytest.mark.parametrize("method", ["vi", "gibbs"])
@every_model
def test_draws_are_those_of_the_posterior_one_by_one(model, method):
    fitted = fit(model, method)
    view = to_topic_model(fitted, draws=5, chains=2, seed=3)
    drawn = fitted.sample_posterior(5, chains=2, seed=3)
    assert view.proportions.shape == (2, 5, N, K)
    for at in np.ndindex(2, 5):
        loadings = drawn.loadings[at]
        if model == "dirichlet_gamma":
            loadings = loadings * drawn.scale[at][:, None]
        if model == "dirichlet_poisson":
            loadings = loadings * COUNTS.to_numpy().sum(axis=1)[:, None]
        one = to_topic_model((loadings, drawn.components[at]))
        for found, expected in zip(view, one, strict=True):
            np.testing.assert_allclose(found[at], expected, **ROUNDING)


@quietly
@pytest.mark.parametrize("model", ["dirichlet_poisson", "dirichlet_gamma"])
def test_an_empty_sample_keeps_the_proportions_its_model_gives_it(model):
    counts = COUNTS.to_numpy().copy()
    counts[2] = 0
    prior = {"dirichlet_poisson": bayesnmf.Dirichlet, "dirichlet_gamma": bayesnmf.ScaledDirichlet}[model]
    priors = Priors(loadings=prior([1.0, 2.0, 5.0]) if model == "dirichlet_poisson" else prior([1.0, 2.0, 5.0], 1, 1))
    fitted = bayesnmf.fit(counts, model, K, "vi", seed=0, options=replace(QUICK, priors=priors))
    view = to_topic_model(fitted)
    np.testing.assert_allclose(view.proportions[2], [1 / 8, 2 / 8, 5 / 8], **ROUNDING)  # the mean of the prior
    np.testing.assert_allclose(view.totals, fitted.expected_loadings.sum(axis=1), **ROUNDING)


@quietly
def test_a_fit_in_float32_is_viewed_in_float64():
    options = replace(OPTIONS["map"], dtype="float32")
    view = to_topic_model(bayesnmf.fit(COUNTS, "poisson", K, "map", seed=0, options=options))
    assert {part.dtype for part in view} == {np.dtype(np.float64)}
    np.testing.assert_allclose(view.components.sum(axis=1), 1, **ROUNDING)


@quietly
def test_senseless_views_are_refused():
    loadings, components = np.ones((4, 2)), np.ones((2, 3))
    with pytest.raises(ValueError, match=r"same K: found shapes \(4, 2\) and \(3, 2\)"):
        to_topic_model((loadings, components.T))
    with pytest.raises(ValueError, match="loadings must be nonnegative"):
        to_topic_model((-loadings, components))
    with pytest.raises(ValueError, match="components must have at least 2 axes"):
        to_topic_model((loadings, np.ones(3)))
    with pytest.raises(TypeError, match="components must be an array of numbers"):
        to_topic_model((loadings, "components"))
    with pytest.raises(TypeError, match="made from a Fit or"):
        to_topic_model(loadings[0])
    with pytest.raises(ValueError, match="draws and chains need a Fit"):
        to_topic_model((loadings, components), draws=3)
    with pytest.raises(AttributeError, match="no posterior"):
        to_topic_model(fit("poisson", "map"), draws=3)
    with pytest.raises(TypeError, match="topic_model must be a result of to_topic_model"):
        from_topic_model((loadings, components))
    with pytest.raises(ValueError, match=r"totals must have shape \(4,\)"):
        from_topic_model((loadings, components, np.ones(3), np.ones(2)))
