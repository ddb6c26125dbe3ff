"""`Fit.allocations`: how many of every count each component produced."""

import numpy as np
import pytest
from golden.reference import allocations as dense_allocations
from plain import plain_map
from smallfits import COUNTS, K, every_method, every_model, fit, parameter_fit, quietly

import bayesnmf
from bayesnmf import BLD, Start
from bayesnmf.results.record import iterate_draws

X = COUNTS.to_numpy(float)


@quietly
@every_model
@every_method
def test_they_add_up_to_the_counts(model, method):
    found = fit(model, method).allocations()
    assert found.shape == (X.shape[0], K, X.shape[1])
    assert np.all(found >= 0)
    np.testing.assert_allclose(found.sum(axis=1), X, rtol=1e-12)


@quietly
@every_model
def test_allocations_at_modes_are_expected_ones(model):
    fitted = fit(model, "map")
    np.testing.assert_allclose(
        fitted.allocations(), dense_allocations(X, fitted.loadings, fitted.components), rtol=1e-10, atol=1e-14
    )


@quietly
@every_model
def test_at_the_optimum_of_q(model):
    """At exp E log of both sides; a scale cancels from the shares."""
    q = fit(model).posterior
    expected = dense_allocations(X, *(np.exp(side.expected_log()) for side in (q.loadings, q.components)))
    np.testing.assert_allclose(fit(model).allocations(), expected, rtol=1e-10)
    q = parameter_fit()
    expected = dense_allocations(X, np.exp(q.posterior.loadings.expected_log()), q.components)
    np.testing.assert_allclose(q.allocations(), expected, rtol=1e-10)


@quietly
def test_allocations_of_draws_are_their_mean():
    fitted = fit("dirichlet_gamma", "gibbs")
    each = [dense_allocations(X, *pair) for pair in iterate_draws(fitted, 200, 0)]
    assert len(each) == 120
    np.testing.assert_allclose(fitted.allocations(), np.mean(each, axis=0), rtol=1e-10)


@quietly
def test_allocations_at_multipliers_are_those_of_the_decomposition():
    fitted = bayesnmf.fit(COUNTS, "dirichlet_gamma", K, "bld", seed=0, options=BLD(max_iter=5, threads=1))
    np.testing.assert_allclose(fitted.allocations(), dense_allocations(X, *fitted.multipliers), rtol=1e-9, atol=1e-13)
    np.testing.assert_array_equal(fitted.allocations(["s3", "s0"]), fitted.allocations()[[3, 0]])


@quietly
@every_method
def test_allocations_of_some_rows_are_those_of_all(method):
    fitted = fit(method=method)
    np.testing.assert_array_equal(fitted.allocations(["s7", "s2"]), fitted.allocations()[[7, 2]])
    with pytest.raises(ValueError, match="rows must be names in the fit: there is no 's99'"):
        fitted.allocations(["s99"])


@quietly
def test_counts_of_a_rate_of_zero_are_shared_out_too():
    start = Start(np.array([[1.0, 0.0], [0.0, 1.0]]), np.array([[1.0, 0.0], [0.5, 0.5]]))
    options = plain_map(start=start, max_iter=0)
    fitted = bayesnmf.fit([[1, 4], [2, 2]], "poisson", 2, "map", options=options)
    np.testing.assert_allclose(fitted.allocations().sum(axis=1), [[1, 4], [2, 2]])


@quietly
def test_more_than_memory_bears_is_refused(monkeypatch):
    monkeypatch.setattr("bayesnmf.results.expected.LIMIT", 100)
    with pytest.raises(ValueError, match=r"the allocations would take .* GiB, .* choose some rows with rows="):
        fit().allocations()
