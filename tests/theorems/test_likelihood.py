"""The product likelihood is the Poisson of the product, whatever holds the counts."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from bayesnmf.models.entries import Triplets, as_triplets
from bayesnmf.models.likelihood import PoissonProduct, as_observation
from scipy import sparse, stats

N, K, M = 7, 3, 5
DRAWS = 3000


@pytest.fixture(autouse=True)
def _double():
    with jax.enable_x64(True):
        yield


@pytest.fixture
def problem():
    """Factors and counts with an empty row, an empty column and a row and a column with one nonzero."""
    rng = np.random.default_rng(1)
    loadings, components = rng.gamma(1.0, size=(N, K)), rng.gamma(1.0, size=(K, M))
    counts = rng.poisson(loadings @ components)
    counts[2], counts[:, 3] = 0, 0
    counts[4], counts[:, 1] = 0, 0
    counts[4, 1] = 3
    return counts, jnp.asarray(loadings), jnp.asarray(components)


@partial(jax.jit, static_argnums=2)
def drawn(model, key, shape):
    return model.sample(key, shape)


def reference(loadings, components, counts):
    return dist.Poisson(loadings @ components).to_event(2).log_prob(counts)


FORMS = {
    "dense": np.asarray,
    "csr": sparse.csr_array,
    "csc matrix": sparse.csc_matrix,
    "triplets": lambda counts: as_observation(sparse.csr_array(counts)),
}


@pytest.mark.parametrize("form", FORMS)
def test_equals_the_poisson_of_the_product_in_value_and_gradient(problem, form):
    counts, *factors = problem
    observed = FORMS[form](counts)

    def log_prob(loadings, components):
        return PoissonProduct(loadings, components).log_prob(observed)

    value, gradient = jax.jit(jax.value_and_grad(log_prob, (0, 1)))(*factors)
    expected, expected_gradient = jax.jit(jax.value_and_grad(reference, (0, 1)))(*factors, counts)
    np.testing.assert_allclose(value, expected, rtol=1e-12)
    for found, wanted in zip(gradient, expected_gradient, strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("form", ["dense", "triplets"])
def test_zero_rates_under_zero_counts_are_harmless(problem, form):
    counts, loadings, components = problem
    loadings, components = loadings.at[2].set(0), components.at[:, 3].set(0)
    observed = FORMS[form](counts)

    def log_prob(loadings, components):
        return PoissonProduct(loadings, components).log_prob(observed)

    value, gradient = jax.jit(jax.value_and_grad(log_prob, (0, 1)))(loadings, components)
    np.testing.assert_allclose(value, reference(loadings, components, counts), rtol=1e-12)
    assert all(np.isfinite(side).all() for side in gradient)
    # at an empty entry only the total rate has a gradient
    np.testing.assert_allclose(gradient[0][2], -components.sum(1))


@pytest.mark.parametrize("form", ["dense", "triplets"])
def test_a_count_where_the_rate_is_zero_is_impossible(problem, form):
    counts, loadings, components = problem
    impossible = PoissonProduct(loadings.at[4].set(0), components)
    assert impossible.log_prob(FORMS[form](counts)) == -np.inf


def test_fractions_are_tolerated(problem):
    counts, loadings, components = problem
    dense = PoissonProduct(loadings, components).log_prob(counts / 4)
    entries = PoissonProduct(loadings, components).log_prob(as_triplets(counts / 4))
    np.testing.assert_allclose(dense, entries, rtol=1e-12)
    assert np.isfinite(dense)


def test_repeated_and_stored_zero_entries():
    counts = sparse.csr_array(([2, 3, 0, 4], [1, 1, 0, 1], [0, 2, 4]), shape=(2, 2))
    entries = as_triplets(counts)
    assert counts.nnz == 4, "the caller's matrix is left alone"
    assert [part.tolist() for part in entries] == [[0, 1], [1, 1], [5, 4]]
    factors = jnp.ones((2, 1)), jnp.ones((1, 2))
    padded = Triplets(*(jnp.append(part, 0) for part in entries))
    np.testing.assert_allclose(*(PoissonProduct(*factors).log_prob(x) for x in (entries, padded)))


@pytest.mark.parametrize("form", ["dense", "triplets"])
def test_batches_of_factors_have_their_own_densities_and_draws(problem, form):
    counts, loadings, components = problem
    scales = jnp.array([[0.5], [1.0], [2.0]])
    many = PoissonProduct(scales[..., None, None] * loadings, jnp.stack([components, 2 * components]))
    assert (many.batch_shape, many.event_shape) == ((3, 2), (N, M))
    expected = [[reference(s * loadings, c * components, counts) for c in (1, 2)] for s in np.asarray(scales).ravel()]
    np.testing.assert_allclose(many.log_prob(FORMS[form](counts)), expected, rtol=1e-12)
    drawn = jax.eval_shape(lambda key: many.sample(key, (4,)), jax.random.key(0))
    assert drawn.shape == many.shape((4,)) == (4, 3, 2, N, M)


def test_passes_through_jit_and_vmap(problem):
    counts, loadings, components = problem
    entries = as_triplets(counts)
    one = PoissonProduct(loadings, components, totals=np.arange(N))
    expected = one.log_prob(counts)
    np.testing.assert_allclose(jax.jit(lambda d, x: d.log_prob(x))(one, entries), expected, rtol=1e-12)
    twice = jax.tree.map(lambda leaf: jnp.stack([leaf, leaf]), (one, entries))
    np.testing.assert_allclose(jax.vmap(lambda d, x: d.log_prob(x))(*twice), [expected] * 2, rtol=1e-12)
    draws = drawn(one, jax.random.key(0), (DRAWS,))
    np.testing.assert_array_equal(draws.sum(2), np.tile(np.arange(N), (DRAWS, 1)))


def test_draws_have_the_moments_of_the_poisson(problem):
    _, loadings, components = problem
    model = PoissonProduct(loadings, components)
    draws = np.asarray(drawn(model, jax.random.key(1), (4000,)))
    rate = np.asarray(loadings @ components)
    error = np.sqrt(rate / 4000)
    assert np.abs((draws.mean(0) - rate) / error).max() < 4.5
    np.testing.assert_allclose(draws.var(0).sum(), rate.sum(), rtol=0.05)
    np.testing.assert_array_equal(model.mean, model.variance)


def test_draws_given_totals_are_multinomial(problem):
    _, loadings, components = problem
    totals = np.array([0, 1, 2, 5, 40, 1000, 7])
    loadings = loadings.at[0].set(0)  # no rate at all, but no counts to place either
    draws = np.asarray(drawn(PoissonProduct(loadings, components, totals), jax.random.key(2), (DRAWS,)))
    assert draws.dtype.kind == "i"
    np.testing.assert_array_equal(draws.sum(-1), np.broadcast_to(totals, (DRAWS, N)))
    rate = np.asarray(loadings @ components)[1:]
    chances = rate / rate.sum(1, keepdims=True)
    for i, (total, chance) in enumerate(zip(totals[1:], chances, strict=True), start=1):
        covariance = stats.multinomial(total, chance).cov()
        error = np.sqrt(np.diag(covariance) / DRAWS)
        assert np.abs((draws[:, i].mean(0) - total * chance) / error).max() < 4.5
        np.testing.assert_allclose(np.cov(draws[:, i].T), covariance, atol=0.12 * np.abs(covariance).max())


def test_refuses_factors_that_do_not_fit():
    with pytest.raises(ValueError, match="share K"):
        PoissonProduct(jnp.ones((3, 2)), jnp.ones((3, 2)))
    with pytest.raises(ValueError, match="loadings"):
        PoissonProduct(-jnp.ones((3, 2)), jnp.ones((2, 4)), validate_args=True)
