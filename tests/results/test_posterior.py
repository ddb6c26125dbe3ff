"""Draws have the moments of q, thin evenly, and predict counts with the fitted means."""

import numpy as np
import pytest
from smallfits import COUNTS, QUICK, K, M, N, every_method, every_model, fit, parameter_fit, quietly

import bayesnmf
from bayesnmf.priors.specification import MODELS
from bayesnmf.results.record import iterate_draws

pytestmark = quietly

# --- draws -----------------------------------------------------------------------------------------


@every_model
def test_draws_from_q_have_its_moments_and_depend_on_the_seed_alone(model):
    fitted = fit(model)
    draws = fitted.sample_posterior(2000, chains=2, seed=1)
    assert (draws.chains, draws.draws) == (2, 2000)
    assert draws.loadings.shape == (2, 2000, N, K)
    assert draws.components.shape == (2, 2000, K, M)
    assert (draws.scale is None) == (fitted.scale is None)
    np.testing.assert_allclose(draws.loadings.mean((0, 1)), fitted.loadings, rtol=0.2, atol=0.02)
    np.testing.assert_allclose(draws.components.mean((0, 1)), fitted.components, rtol=0.2, atol=0.01)
    if fitted.scale is not None:
        np.testing.assert_allclose(draws.scale.mean((0, 1)), fitted.scale, rtol=0.05)
    again, other = fitted.sample_posterior(2000, chains=2, seed=1), fitted.sample_posterior(2000, chains=2, seed=2)
    np.testing.assert_array_equal(draws.loadings, again.loadings)
    assert not np.array_equal(draws.loadings, other.loadings)


@every_model
def test_draws_of_a_sampler_are_thinned_evenly(model):
    fitted = fit(model, "gibbs")
    draws = fitted.sample_posterior(20, chains=2)
    np.testing.assert_array_equal(draws.loadings, fitted.posterior.loadings[:, ::3])
    np.testing.assert_array_equal(draws.components, fitted.posterior.components[:, ::3])
    if fitted.scale is not None:
        np.testing.assert_array_equal(draws.scale, fitted.posterior.scale[:, ::3])
    np.testing.assert_array_equal(
        fitted.sample_posterior(7, chains=1).loadings, fitted.posterior.loadings[:1, [0, 8, 17, 25, 34, 42, 51]]
    )


def test_components_without_a_posterior_are_the_same_in_every_draw():
    fitted = parameter_fit()
    draws = fitted.sample_posterior(5, chains=2)
    assert draws.components.shape == (2, 5, K, M)
    assert (draws.components == fitted.components).all()


def test_what_sample_posterior_refuses():
    without = r"a MAP fit has no posterior; fit with method='vi' .*; for intervals alone, fit.with_intervals\('boot"
    with pytest.raises(AttributeError, match=without):
        fit(method="map").sample_posterior()
    with pytest.raises(ValueError, match=r"draws must be at most 60, .*: found 1000; ask for draws=60, or fit again"):
        fit(method="gibbs").sample_posterior(1000)
    with pytest.raises(ValueError, match="chains must be at most 2"):
        fit(method="gibbs").sample_posterior(10, chains=3)
    with pytest.raises(ValueError, match=r"the draws would take .* ask for fewer draws"):
        fit().sample_posterior(10_000_000)
    with pytest.raises(ValueError, match="draws must be at least 1"):
        fit().sample_posterior(0)
    with pytest.raises(ValueError, match="seed must be at least 0"):
        fit().sample_posterior(1, seed=-1)


# --- replicated counts -----------------------------------------------------------------------------


@every_method
@every_model
def test_replicated_counts_have_the_fitted_means(model, method):
    fitted = fit(model, method)
    draws = 250 if method != "gibbs" else 120
    replicated = fitted.sample_posterior_predictive(draws, seed=1)
    assert replicated.shape == (draws, N, M)
    assert replicated.dtype == np.int64
    means = np.mean([loadings @ components for loadings, components in iterate_draws(fitted, draws, 1)], axis=0)
    error = np.sqrt(means / draws)
    assert (np.abs(replicated.mean(0) - means) < 5 * error).all()
    assert abs(replicated.sum() / draws - means.sum()) < 4.5 * np.sqrt(means.sum() / draws)  # an error of 1 or 2 %
    given = (replicated.sum(2) == COUNTS.sum(axis=1).to_numpy()).all()
    assert given == MODELS[model].given_totals


@every_model
def test_replicated_counts_of_some_rows(model):
    replicated = fit(model, "gibbs").sample_posterior_predictive(120, seed=1, rows=["s7", "s2"])
    assert replicated.shape == (120, 2, M)
    drawn = [loadings @ components for loadings, components in iterate_draws(fit(model, "gibbs"), 120, 1)]
    np.testing.assert_allclose(replicated.mean((0, 2)), np.mean(drawn, axis=0)[[7, 2]].mean(1), rtol=0.1)
    if MODELS[model].given_totals:
        assert (replicated.sum(2) == COUNTS.loc[["s7", "s2"]].sum(axis=1).to_numpy()).all()


def test_rows_without_counts_and_fractional_totals_are_replicated():
    counts = COUNTS.to_numpy() + 0.1234
    counts[3] = 0
    fitted = bayesnmf.fit(counts, "dirichlet_poisson", K, "vi", seed=0, options=QUICK)
    replicated = fitted.sample_posterior_predictive(10)
    assert (replicated.sum(2) == np.rint(counts.sum(1))).all()


def test_what_the_predictive_refuses():
    with pytest.raises(ValueError, match="draws must be at most 120"):
        fit(method="gibbs").sample_posterior_predictive(121)
    with pytest.raises(ValueError, match=r"rows must be names in the fit: there is no 'x'; choose from fit\.row_names"):
        fit().sample_posterior_predictive(1, rows=["s1", "x"])
    with pytest.raises(ValueError, match=r"replicated counts would take .*; choose some with rows=, or fewer draws="):
        fit().sample_posterior_predictive(10_000_000)
