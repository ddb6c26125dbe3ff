"""Rates of entries in blocks of rows, against their formulas one entry at a time, and sums of them over blocks."""

from dataclasses import replace

import numpy as np
import pytest
from plain import PLAIN
from scipy.sparse import csr_array
from scipy.special import polygamma, xlogy
from scipy.stats import nbinom, poisson

from bayesnmf import Dirichlet, Gamma, NegativeBinomial, Priors, ZeroInflated
from bayesnmf.data.conversion import as_counts
from bayesnmf.data.missing import with_missing
from bayesnmf.data.powered import working_counts
from bayesnmf.fitting.problems import point_or_mean_field
from bayesnmf.inference import rates as module
from bayesnmf.inference.sides import with_rates_at
from bayesnmf.inference.starts.states import given_state
from bayesnmf.kernels.cpu import threads
from bayesnmf.kernels.cpu.entry_rates import STEP, WIDTH, dense_rows, gamma_rates, gamma_slopes, rates_of_zeros
from bayesnmf.kernels.cpu.mean_field import trigamma

N, M, K = 23, 37, 3  # no whole number of vectors
SHAPES = {"one": (1, 1), "row": (N, 1), "feature": (1, M)}
each_shape = pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)


def block(shape, least, most):
    """Return counts, means from 1e-9 to 1e6, and dispersions."""
    rng = np.random.default_rng(3)
    rho = 10 ** rng.uniform(-9, 6, (N, M))
    return rng.poisson(rho * rng.gamma(1, 1, rho.shape)).astype(float), rho, np.exp(rng.uniform(least, most, shape))


@each_shape
@pytest.mark.parametrize(
    "matrix", [csr_array, lambda x: csr_array(x.astype(np.uint16)), lambda x: csr_array(x, dtype="f4")]
)
def test_rows_of_counts_are_those_of_the_matrix(shape, matrix):
    x = np.minimum(block(shape, -5, 0)[0], 60_000)
    given = matrix(x)
    for rows in (slice(None), slice(4, 9), slice(20, 99)):
        np.testing.assert_array_equal(dense_rows(given, rows), given.toarray()[rows])


@each_shape
@pytest.mark.parametrize("sizes", [(-23, -15), (-6, 1), (2, 13)])
def test_rates_are_the_means_of_their_distributions_and_gains_what_is_left_of_the_log_likelihood(shape, sizes):
    """Rates of Gamma(x + 1/α, ρ + 1/α); with x log λ and ΣL the gain less Σ ερ is log p of SciPy."""
    x, rho, s = block(shape, *sizes)
    rates, gain = gamma_rates(x, rho, s)
    np.testing.assert_allclose(rates, (x + 1 / s) / (rho + 1 / s), rtol=1e-13)
    terms = rates * rho - (x + 1 / s) * np.log1p(s * rho)
    assert gain == pytest.approx(terms.sum(), abs=1e-13 * np.abs(terms).sum())
    alone, nothing = gamma_rates(x, rho, s, gains=False)
    np.testing.assert_array_equal(alone, rates)
    assert nothing == 0


@each_shape
def test_rates_of_wide_rows_are_those_of_their_parts(shape):
    """Which are worked on one after another; the rest of the last part is not read."""
    x, rho, s = (np.tile(each, (1, WIDTH // 20 if each.shape[1] > 1 else 1)) for each in block(shape, -6, 1))
    rates, gain = gamma_rates(x, rho, s)
    assert rates.shape[1] > WIDTH + STEP
    np.testing.assert_array_equal(rates, (1 + s * x) / (1 + s * rho))
    parts = [
        gamma_rates(*(np.ascontiguousarray(each[:, j : j + 1] if each.shape[1] > 1 else each) for each in (x, rho, s)))
        for j in range(rates.shape[1])
    ]
    assert gain == pytest.approx(sum(part for _, part in parts), rel=1e-12)
    np.testing.assert_array_equal(rates, np.concatenate([part for part, _ in parts], axis=1))


@each_shape
def test_a_gain_completes_the_log_likelihood(shape):
    x, rho, s = block(shape, -3, 1)
    x[rho > 50], rho[rho > 50] = 7, 50
    rates, gain = gamma_rates(x, rho, s)
    rising = np.array([np.log1p(a * np.arange(count)).sum() for a, count in zip(
        np.broadcast_to(s, x.shape).ravel(), x.ravel(), strict=True)])  # fmt: skip
    factorials = poisson.logpmf(x, 1) + 1  # −log x!
    found = gain - (rates * rho).sum() + (rising + (xlogy(x, rho) + factorials).ravel()).sum()
    assert found == pytest.approx(nbinom.logpmf(x, 1 / s, 1 / (1 + s * rho)).sum(), rel=1e-10)


@each_shape
@pytest.mark.parametrize("scale", [1e-9, 1e-3, 1.0, 1e3])
def test_slopes_are_those_of_the_terms(shape, scale):
    """By differences of halves and doubles in long doubles, whose errors of third order cancel."""
    x, rho, s = block(shape, -1, 1)
    s *= scale
    wide = [each.astype(np.longdouble) for each in (x, rho, s)]

    def terms(log_step):
        own = wide[2] * np.exp(np.longdouble(log_step))
        return -(wide[0] + 1 / own) * np.log1p(own * wide[1])

    h = np.longdouble(1e-3)
    near, far = (terms(h) - terms(-h)) / (2 * h), (terms(2 * h) - terms(-2 * h)) / (4 * h)
    bent, wider = (
        (terms(h) - 2 * terms(0) + terms(-h)) / h**2,
        (terms(2 * h) - 2 * terms(0) + terms(-2 * h)) / (2 * h) ** 2,
    )
    size = x + rho
    once, twice = gamma_slopes(x, rho, s)
    np.testing.assert_allclose((once / size).astype(float), ((4 * near - far) / 3 / size).astype(float), atol=1e-10)
    np.testing.assert_allclose((twice / size).astype(float), ((4 * bent - wider) / 3 / size).astype(float), atol=1e-7)


@each_shape
def test_zeros_are_poisson_with_their_probability(shape):
    x, rho, _ = block(shape, -1, 0)
    x[::2] = 0
    s = np.random.default_rng(0).uniform(0.01, 0.9, shape)
    rates, gain = rates_of_zeros(x, rho, s)
    logs = np.logaddexp(np.log(s), np.log1p(-s) - rho)
    expected = np.where(x > 0, 1, np.exp(np.log1p(-s) - rho - logs))
    np.testing.assert_allclose(rates, expected, rtol=1e-12, atol=1e-300)
    assert gain == pytest.approx(np.where(x > 0, np.log1p(-s), expected * rho + logs).sum(), rel=1e-12)


def test_trigamma_is_that_of_scipy():
    x = 10 ** np.random.default_rng(0).uniform(-100, 30, (40, 50))
    np.testing.assert_allclose(trigamma(x), polygamma(1, x), rtol=3e-15)
    np.testing.assert_array_equal(trigamma(x.T), trigamma(x).T)


NOISES = {
    "nb2": NegativeBinomial("quadratic", 0.2),
    "nb2 by feature": NegativeBinomial("quadratic", np.linspace(0.01, 1, M), "feature"),
    "nb2 by row": NegativeBinomial("quadratic", np.linspace(0.01, 1, N), "row"),
    "zip": ZeroInflated(0.3),
}


def rated(noise, dtype="float64", mask=True, method="vi"):
    """Return a problem at a state, the rates there one entry at a time, and both factors with exposures."""
    rng = np.random.default_rng(7)
    x, seen, rows = rng.poisson(rng.gamma(1, 5, (N, M))), rng.random((N, M)) > 0.2, np.linspace(0.5, 2, N)
    counts = as_counts(x).as_type(np.dtype(dtype)).with_exposure(rows, None)
    counts = with_missing(counts, None, seen) if mask else counts
    priors = Priors(Gamma(1.5, 0.05), Dirichlet(1.4))
    working = working_counts(counts, noise, given_totals=False, learned=False)
    problem = point_or_mean_field(working, PLAIN[method](priors=priors, dtype=dtype))
    state = given_state(problem, rng.gamma(2, 20, (N, K)).astype(dtype), rng.dirichlet(np.ones(M), K).astype(dtype))
    U, V = rows[:, None] * state.loadings.matrix.astype(float), state.components.matrix.astype(float)
    s, rho = noise.entry_dispersions, U @ V
    if noise.word == "nb2":
        rates = (x + 1 / s) / (rho + 1 / s)
    else:
        rates = np.where(x > 0, 1, (1 - s) * np.exp(-rho) / (s + (1 - s) * np.exp(-rho)))
    return problem, state, np.where(seen | (not mask), rates, 0), (U, V)


@pytest.mark.parametrize("noise", NOISES.values(), ids=NOISES)
@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("entries", [2**15, 4 * M])
def test_sums_over_blocks_are_those_of_all_entries(noise, dtype, entries, monkeypatch):
    monkeypatch.setattr(module, "ENTRIES", entries)
    monkeypatch.setattr(module, "ROWS", 4)
    problem, state, rates, (U, V) = rated(noise, dtype)
    counts = with_rates_at(problem, state).counts
    assert (counts.mask.kept is None) == (entries < N * M)
    np.testing.assert_allclose(counts.rates.ceilings, rates.max(axis=1), rtol=1e-12)
    lost = 1 - rates / rates.max(axis=1, keepdims=True)
    np.testing.assert_allclose(counts.mask.lost, lost, atol=1e-12)
    other = np.random.default_rng(1).random((M, 2))
    for factor in (V.T, other):  # of the means, and another one
        np.testing.assert_allclose(counts.mask.sums_by_row(factor), lost @ factor, rtol=1e-10, atol=1e-12)
    np.testing.assert_allclose(counts.mask.sums_by_feature(U), lost.T @ U, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("noise", NOISES.values(), ids=NOISES)
def test_threads_change_no_bit(noise, monkeypatch):
    monkeypatch.setattr(module, "ENTRIES", 4 * M)
    monkeypatch.setattr(module, "ROWS", 4)
    monkeypatch.setattr(threads.config, "NUMBA_NUM_THREADS", 4)
    problem, state, *_ = rated(noise)
    one, two = (with_rates_at(problem, state, each).counts for each in (1, 4))
    assert one.gain_of_rates == two.gain_of_rates
    factor = np.random.default_rng(1).random((N, 2))
    np.testing.assert_array_equal(one.rates.ceilings, two.rates.ceilings)
    np.testing.assert_array_equal(one.mask.sums_by_feature(factor), two.mask.sums_by_feature(factor))
    for other in (np.asarray(state.components.matrix).T, np.ones((M, 2))):
        np.testing.assert_array_equal(one.mask.sums_by_row(other), two.mask.sums_by_row(other))


def test_rows_that_do_not_move_keep_their_rates():
    """In blocks of all sizes: where a row has settled, its rates are those of its own last loadings."""
    problem, state, *_ = rated(NOISES["nb2"], method="map")
    before = with_rates_at(problem, state)
    moved = state._replace(loadings=problem.loadings_summary.at(problem.loadings_prior, 3 * state.loadings.matrix))
    moving = np.arange(N) % 3 == 0
    found, whole = with_rates_at(before, moved, None, moving).counts, with_rates_at(problem, moved).counts
    lost = np.where(moving[:, None], whole.mask.lost, before.counts.mask.lost)
    np.testing.assert_array_equal(found.mask.lost, lost)
    assert found.waits_for(moved, None)


def test_no_state_keeps_those_before_it():
    """Rates refer to the counts without any, so that an ascent does not hold all of its states."""
    problem, state, *_ = rated(NOISES["nb2"])
    for _ in range(3):
        problem = with_rates_at(problem, state)
        state = replace_loadings(problem, state)
    counts = problem.counts.mask.means.counts
    assert counts.mask is counts.plain.mask
    assert counts.state is None


def replace_loadings(problem, state):
    """Return another state with the same numbers."""
    return state._replace(
        loadings=problem.loadings_summary.of(problem.loadings_prior, replace(state.loadings.conditional))
    )
