"""The start from a singular value decomposition: positive, reproducible, and ahead of random ones."""

from dataclasses import replace

import numpy as np
import pytest
from plain import PLAIN, plain_map
from realdata import real_counts
from registry import MODELS_AND_PRIORS, RANK, SIZE
from suites import mostly_long
from turns import DTYPES, in_turn

import bayesnmf
from bayesnmf import MAP, VI
from bayesnmf.data.conversion import as_counts
from bayesnmf.fitting.problems import point_or_mean_field
from bayesnmf.inference.starts import states

quietly = pytest.mark.filterwarnings("ignore::bayesnmf.inference.status.ConvergenceWarning")

COUNTS = np.random.default_rng(0).poisson(2, SIZE)
COUNTS[3] = 0
COUNTS[:, 2] = 0


def state_of(counts, options, rank, seed=0):
    data = as_counts(counts, dtype=options.dtype)
    return states.data_state(point_or_mean_field(data, options), rank, np.random.default_rng(seed))


def decomposed(matrix, rank, rng):
    """The triplets of a matrix, of whose squares counts are made."""
    found = states.decompose(states.flat_problem(as_counts(np.square(matrix))), rank, rng)
    return found.rows.matrix @ found.to_left, found.singular, found.right


def factors_of(matrix, rank, rng):
    loadings, components = states.positive_factors(states.flat_problem(as_counts(np.square(matrix))), rank, rng)
    return loadings.matrix, components


def blocks(rng, rank=4, rows=15, features=12):
    """Counts whose groups of rows and of features belong together, over a background."""
    means = np.kron(np.eye(rank), np.full((rows, features), 5.0)) + 0.5
    return rng.poisson(means)


def test_the_decomposition_is_that_of_numpy():
    """With a clear gap after the asked rank; and exactly, where the subspace is everything."""
    rng = np.random.default_rng(1)
    matrix = np.sqrt(blocks(rng))
    left, singular, right = decomposed(matrix, 4, rng)
    expected = np.linalg.svd(matrix)
    # Errors shrink by the ratio of singular values, here a half, to the power 16 and more.
    np.testing.assert_allclose(singular, expected[1][:4], rtol=1e-6)
    np.testing.assert_allclose(np.abs(np.diagonal(left.T @ expected[0][:, :4])), 1, atol=1e-6)
    small = rng.poisson(3, (5, 8)).astype(float)
    left, singular, right = decomposed(small, 9, rng)
    np.testing.assert_allclose((left * singular) @ right, small, atol=1e-13)


def test_factors_are_the_nndsvd_of_its_definition(monkeypatch):
    """Boutsidis & Gallopoulos: of each singular pair the larger of its two nonnegative parts, and no floor."""
    monkeypatch.setattr(states, "FLOOR", 0.0)
    rng = np.random.default_rng(2)
    matrix = rng.poisson(3, (8, 11)).astype(float)
    loadings, components = factors_of(matrix, 5, rng)
    u, s, v = np.linalg.svd(matrix, full_matrices=False)
    for k in range(5):
        parts = [np.outer(np.maximum(sign * u[:, k], 0), np.maximum(sign * v[k], 0)) for sign in (1, -1)]
        expected = s[k] * max(parts, key=np.linalg.norm)
        np.testing.assert_allclose(np.outer(loadings[:, k], components[k]), expected, atol=1e-12)
        assert np.linalg.norm(loadings[:, k]) == pytest.approx(np.linalg.norm(components[k]))


@pytest.mark.parametrize(("entry", "kind", "dtype"), in_turn(MODELS_AND_PRIORS, {"map": MAP, "vi": VI}, DTYPES))
def test_every_prior_starts_inside_with_empty_rows_and_columns(entry, kind, dtype):
    if kind is VI and not entry.proper:
        pytest.skip("the flat prior has no variational posterior")
    options = kind(priors=entry.priors(), dtype=dtype, threads=1)
    state = state_of(COUNTS, options, RANK)
    for side, empty, axis in ((state.loadings, 3, 0), (state.components, 2, 1)):
        assert side.matrix.dtype == dtype
        assert np.all(np.isfinite(side.matrix) & (side.matrix >= 0))
        counted = np.delete(side.matrix, empty, axis), np.delete(side.geometric, empty, axis)
        assert np.all(counted[0] > 0)
        assert np.all(counted[1] > 0)


def test_loadings_of_the_poisson_model_are_allocated_counts():
    """The state carries totals: each row's loadings add up to its count, components are shares, all positive."""
    options = bayesnmf.fit(
        COUNTS, "poisson", RANK, "map", seed=0, options=plain_map(max_iter=1, tol=0, threads=1)
    ).options
    state = state_of(COUNTS, options, RANK)
    np.testing.assert_allclose(state.loadings.matrix.sum(axis=1), COUNTS.sum(axis=1), rtol=1e-13, atol=1e-13)
    np.testing.assert_allclose(state.components.matrix.sum(axis=1), 1, rtol=1e-13)
    assert np.all(np.delete(state.components.matrix, 2, axis=1) > 0)


@pytest.mark.parametrize("counts", [COUNTS, np.zeros((4, 3)), np.outer([1, 2, 3, 4], [5, 0, 1]), np.eye(4), [[7.0]]],
                         ids=["small", "zero", "rank one", "identity", "one entry"])  # fmt: skip
@pytest.mark.parametrize("rank", [1, 3, 12])
def test_components_beyond_the_rank_of_the_counts_are_random_and_positive(counts, rank):
    matrix = np.asarray(counts, dtype=float)
    factors = factors_of(matrix, rank, np.random.default_rng(3))
    for factor, size in zip(factors, matrix.shape, strict=True):
        assert sorted(factor.shape) == sorted((rank, size))
        assert np.all((factor > 0) & np.isfinite(factor))
    if rank > 1 and matrix.shape[0] > 1:
        alike = np.corrcoef(np.hstack([factors[0].T, factors[1]]))[np.triu_indices(rank, 1)]
        assert np.all(alike < 1 - 1e-6)  # components that start alike stay alike


@quietly
@pytest.mark.parametrize("method", ["map", "vi"])
def test_a_seed_makes_it_reproducible_whatever_the_threads(method):
    counts = blocks(np.random.default_rng(4))
    model, kind = ("poisson", MAP) if method == "map" else ("gamma_poisson", VI)
    runs = [
        bayesnmf.fit(counts, model, 6, method, seed=5, options=kind(start="svd", max_iter=0, threads=threads))
        for threads in (1, 2)
    ]
    np.testing.assert_array_equal(runs[0].loadings, runs[1].loadings)
    np.testing.assert_array_equal(runs[0].components, runs[1].components)
    other = bayesnmf.fit(counts, model, 6, method, seed=5, options=kind(start="random", max_iter=0))
    assert not np.allclose(runs[0].components, other.components)


def objectives(counts, model, method, rank, iterations):
    """Objective after some iterations from the data, and from each of five random starts."""
    kind = PLAIN[method]
    options = kind(max_iter=iterations, tol=0, threads=1)
    random = [bayesnmf.fit(counts, model, rank, method, seed=s, options=options).trace[-1] for s in range(5)]
    return bayesnmf.fit(counts, model, rank, method, seed=0, options=replace(options, start="svd")).trace[-1], random


@pytest.mark.parametrize("method", ["map", "vi"])
@pytest.mark.parametrize("iterations", [0, 5])
def test_groups_are_found_before_random_starts_find_them(method, iterations):
    counts = blocks(np.random.default_rng(6))
    ours, random = objectives(counts, "poisson" if method == "map" else "dirichlet_gamma", method, 4, iterations)
    assert ours > max(random)


@pytest.mark.parametrize(("iterations", "rank"), mostly_long([(0, 5), (20, 5), (200, 10)], 2))
def test_real_counts_are_fitted_better_than_from_a_random_start_on_average(iterations, rank):
    ours, random = objectives(real_counts("pbmc_small"), "poisson", "map", rank, iterations)
    assert ours > np.mean(random)


def test_it_is_refused_where_chains_need_a_start_of_their_own():
    with pytest.raises(ValueError, match="start must be one of 'fit', 'random': found 'svd'"):
        bayesnmf.Gibbs(start="svd")
