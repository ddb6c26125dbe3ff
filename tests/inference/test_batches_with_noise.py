"""Factors of batches around counts with noise: objectives and densities against SciPy, draws against brute force."""

from dataclasses import replace
from functools import cache
from itertools import product

import numpy as np
import pytest
from plain import PLAIN
from scipy.special import digamma, gammaln, xlogy
from scipy.stats import gamma, nbinom
from smallfits import quietly
from suites import mostly_long

import bayesnmf
from bayesnmf import Batch, Dirichlet, Gamma, Gibbs, NegativeBinomial, Priors, Quasi, ZeroInflated
from bayesnmf.data.batched import BatchedCounts
from bayesnmf.data.batches import Batches
from bayesnmf.data.conversion import as_counts
from bayesnmf.data.powered import working_counts
from bayesnmf.fitting.problems import draws_problem
from bayesnmf.inference.evidence_of_dispersion import ShapeEvidence, evidence_at
from bayesnmf.inference.sampling.clusters import DrawnBeside
from bayesnmf.inference.starts.states import given_state
from bayesnmf.noise.negative_binomial import log_rising

pytestmark = quietly
N, M, K, B, SHAPE = 40, 24, 2, 2, 8.0
RNG = np.random.default_rng(0)
CODES = RNG.integers(0, B, N)
MEANS = RNG.gamma(6, 1 / 6, (B, M))[CODES] * (5 * RNG.gamma(0.7, 20, (N, K)) @ RNG.dirichlet(np.full(M, 0.5), K))
COUNTS = RNG.poisson(MEANS * RNG.gamma(4, 1 / 4, MEANS.shape))
LABELS = np.array(["first", "second"])[CODES]
HIDDEN = RNG.random((N, M)) < 0.2
PRIORS = Priors(Gamma(0.8, 0.02), Gamma(1.2, 20.0))
DIRICHLET = Priors(Gamma(0.8, 0.02), Dirichlet(1.2))
NOISES = {
    "nb1": NegativeBinomial("linear", 1.5),
    "nb2": NegativeBinomial("quadratic", 0.2),
    "zip": ZeroInflated(0.15),
    "quasi": Quasi(1.5),
}
ROWS, FEATURES = np.geomspace(0.3, 3, N), np.geomspace(0.3, 3, M)
BY = {
    "rows, linear": NegativeBinomial("linear", ROWS, by="row"),
    "features, linear": NegativeBinomial("linear", FEATURES, by="feature"),
    "rows, quadratic": NegativeBinomial("quadratic", 0.1 * ROWS, by="row"),
    "features, quadratic": NegativeBinomial("quadratic", 0.1 * FEATURES, by="feature"),
}
masked = pytest.mark.parametrize("mask", [False, True])
every_noise = pytest.mark.parametrize("noise", NOISES)


@cache
def fitted(noise, method="vi", mask=False, shape=SHAPE, **settings):
    given = {"max_iter": 40} if method != "gibbs" else {}
    options = {**PLAIN, "gibbs": Gibbs}[method](**{"priors": PRIORS, **given, **settings})
    lost = {"missing": HIDDEN} if mask else {}
    own = {"noise": NOISES.get(noise, noise), "batch": Batch(LABELS, shape)}
    return bayesnmf.fit(COUNTS, "poisson", K, method, seed=1, options=options, **own, **lost)


def seen_of(mask):
    return ~HIDDEN if mask else np.ones((N, M), bool)


def log_pmf(noise, x, means, log_means=None):
    """Return log p of counts; a bound of E log p where the geometric means are others."""
    logs, s = np.log(means) if log_means is None else log_means, noise.dispersion
    if noise.word == "quasi":
        power = 1 / (1 + s)
        return power * (x * logs - means - gammaln(x + 1.0))
    if noise.word == "zip":
        zeros = np.logaddexp(np.log(s), np.log1p(-s) - means)
        return np.where(x > 0, np.log1p(-s) + x * logs - means - gammaln(x + 1.0), zeros)
    s = np.asarray(s)[:, None] if noise.by == "row" else s
    if noise.word == "nb1":
        ratio = np.exp(logs) / s
        rising = np.where(x > 0, gammaln(x + ratio) - gammaln(ratio), 0.0)
        return rising + x * np.log(s / (1 + s)) - means * np.log1p(s) / s - gammaln(x + 1.0)
    a = 1 / s
    return gammaln(x + a) - gammaln(a) + xlogy(x, s) + x * logs - (x + a) * np.log1p(s * means) - gammaln(x + 1.0)


def kl(q, shape, rate):
    a, b = q.shape, q.rate
    divergence = (a - shape) * digamma(a) - gammaln(a) + gammaln(shape)
    return (divergence + shape * (np.log(b) - np.log(rate)) + a * (rate - b) / b).sum()


@masked
@every_noise
def test_elbo_is_that_of_a_sum_over_entries(noise, mask):
    fit = fitted(noise, mask=mask)
    q, of_batches = fit.posterior, fit.batch.q
    logs = [digamma(each.shape) - np.log(each.rate) for each in (q.loadings, q.components, of_batches)]
    seen, log_means = seen_of(mask), np.log(np.exp(logs[0]) @ np.exp(logs[1])) + logs[2][CODES]
    means = of_batches.mean()[CODES] * (q.loadings.mean() @ q.components.mean())
    found = (seen * log_pmf(NOISES[noise], COUNTS, means, log_means)).sum()
    divergence = kl(q.loadings, 0.8, 0.02) + kl(q.components, 1.2, 20.0) + kl(of_batches, SHAPE, SHAPE)
    assert fit.trace[-1] == pytest.approx(found - divergence, rel=1e-9)


@masked
@every_noise
def test_the_objective_of_map_is_that_of_a_sum_over_entries(noise, mask):
    fit = fitted(noise, "map", mask, basis="log")
    q, sides = fit.batch.q, fit.loadings @ fit.components
    log_means = np.log(sides) + (digamma(q.shape) - np.log(q.rate))[CODES]
    found = (seen_of(mask) * log_pmf(NOISES[noise], COUNTS, q.mean()[CODES] * sides, log_means)).sum()
    prior = gamma.logpdf(fit.loadings, 0.8, scale=50).sum() + gamma.logpdf(fit.components, 1.2, scale=1 / 20).sum()
    jacobian = np.log(fit.loadings).sum() + np.log(fit.components).sum()
    assert fit.trace[-1] == pytest.approx(found - kl(q, SHAPE, SHAPE) + prior + jacobian, rel=1e-9)


@pytest.mark.parametrize("algorithm", ["allocations", "marginal"])
@pytest.mark.parametrize("noise", ["nb1", "nb2", "zip"])
def test_the_log_joint_of_draws_is_that_of_all_that_is_drawn(noise, algorithm):
    fit = fitted(noise, "gibbs", algorithm == "marginal", draws=5, warmup=5, chains=1, algorithm=algorithm)
    for drawn, loadings, components, factors in zip(
        fit.trace[0],
        *(each[0] for each in (fit.posterior.loadings, fit.posterior.components, fit.posterior.factors)),
        strict=True,
    ):
        means = factors[CODES] * (loadings @ components)
        found = (seen_of(algorithm == "marginal") * log_pmf(NOISES[noise], COUNTS, means)).sum()
        found += gamma.logpdf(loadings, 0.8, scale=50).sum() + gamma.logpdf(components, 1.2, scale=1 / 20).sum()
        assert drawn == pytest.approx(found + gamma.logpdf(factors, SHAPE, scale=1 / SHAPE).sum(), rel=1e-9)


ALL = [*product(NOISES, ["gamma_poisson", "dirichlet_gamma", "hierarchical_poisson"], ["map", "vi"])]
HALF = [at for at in range(len(ALL)) if (at // 6 + at % 6 // 2 + at % 2) % 2 == 0]  # every pair of values


@pytest.mark.parametrize(("noise", "model", "method"), mostly_long(ALL, HALF))
def test_the_objective_never_falls_while_all_is_learned(noise, method, model):
    given = {"noise": NOISES[noise] if noise == "quasi" else noise, "batch": LABELS}
    trace = bayesnmf.fit(COUNTS, model, K, method, seed=1, options=PLAIN[method](max_iter=30), **given).trace
    assert np.all(np.diff(trace) > -1e-10 * np.abs(trace[1:]))


@pytest.mark.long
@pytest.mark.parametrize("noise", ["nb1", "nb2"])
def test_learned_shapes_and_dispersions_maximise_the_bound(noise):
    given = {"max_iter": 1000, "tol": 1e-10}
    word = NegativeBinomial(NOISES[noise].variance)
    fit = fitted(word, shape=None, **given)
    a, s = fit.batch.shape, fit.noise.dispersion
    kept = [fitted(replace(word, dispersion=s * times), shape=a, **given) for times in (0.9, 1.0, 1.1)]
    other = [fitted(replace(word, dispersion=s), shape=a * times, **given) for times in (0.85, 1.15)]

    def value(each):
        values = np.array([each.noise.dispersion, 1 / each.batch.shape])
        return each.trace[-1] - ((np.log(values) - np.log(0.3)) ** 2 / 8).sum()

    assert fit.trace[-1] == pytest.approx(value(kept[1]), rel=1e-7)
    assert value(kept[1]) > max(map(value, (kept[0], kept[2], *other)))


@pytest.mark.long
@pytest.mark.parametrize("noise", ["nb1", "nb2"])
@pytest.mark.parametrize("algorithm", ["settled", "gradient"])
def test_algorithms_of_vi_share_their_optimum(noise, algorithm):
    word = NegativeBinomial(NOISES[noise].variance)
    most = {"max_iter": 1000, "tol": 1e-10}
    one, two = fitted(word, shape=None, **most), fitted(word, shape=None, algorithm=algorithm, **most)
    assert two.trace[-1] == pytest.approx(one.trace[-1], rel=1e-5)
    assert two.batch.shape == pytest.approx(one.batch.shape, rel=0.1)


def at_draws(noise, rng, counts=COUNTS, codes=CODES, hidden=None):
    """Return a problem of draws, with noise in batches, and a state of it."""
    plain = replace(as_counts(counts.astype(float)), batch=Batches(np.array(["a", "b"]), codes, SHAPE))
    noisy = working_counts(plain, noise, given_totals=False, learned=True, components=PRIORS.components)
    problem = draws_problem(BatchedCounts.in_batches(noisy, SHAPE), PRIORS, rng)
    n, m = counts.shape
    return problem, given_state(problem, rng.gamma(2, 20, (n, K)), np.asfortranarray(rng.gamma(2, 0.1, (K, m))))


@pytest.mark.parametrize("name", ["nb1", "nb2", *BY])
def test_a_dispersion_is_drawn_from_its_density_given_the_factors(name):
    noise, rng = {**NOISES, **BY}[name], np.random.default_rng(1)
    problem, state = at_draws(noise, rng)
    beside = DrawnBeside(problem, rng, 1)
    beside.factors = rng.gamma(SHAPE, 1 / SHAPE, (B, M))
    evidence = evidence_at(beside.given, state, 1)
    means = beside.factors[CODES] * (state.loadings.matrix @ state.components.matrix)
    axis = {None: (0, 1), "row": 1, "feature": 0}[noise.by]

    def density(s):
        x, by = COUNTS, s[:, None] if noise.by == "row" else s
        size, p = (means / by, 1 / (1 + by)) if noise.in_clusters else (1 / by, 1 / (1 + by * means))
        return nbinom.logpmf(x, size, p).sum(axis=axis)

    one, two = evidence.values, evidence.values * 1.7
    np.testing.assert_allclose(
        evidence.log_likelihood(two) - evidence.log_likelihood(one), density(two) - density(one), rtol=1e-9, atol=1e-9
    )


def test_a_shape_is_learned_from_its_density():
    rng = np.random.default_rng(2)
    problem, _ = at_draws(NOISES["nb1"], rng)
    x, means = rng.poisson(20, (B, M)).astype(float), rng.gamma(20, 1, (B, M))
    evidence = ShapeEvidence(problem.counts, x, means)

    def density(a):
        return nbinom.logpmf(x, a, a / (a + means)).sum()

    found = evidence.log_likelihood(np.array([0.3])) - evidence.log_likelihood(np.array([0.02]))
    assert found == pytest.approx(density(1 / 0.3) - density(50), rel=1e-9)
    step = 1e-5
    for s in (0.3, 0.02):
        ends = [evidence.log_likelihood(np.array([s * np.exp(each)]))[0] for each in (-step, step)]
        assert evidence.derivatives(np.array([s]))[0] == pytest.approx((ends[1] - ends[0]) / (2 * step), rel=1e-5)
        ends = [evidence.derivatives(np.array([s * np.exp(each)]))[0][0] for each in (-step, step)]
        assert evidence.derivatives(np.array([s]))[1] == pytest.approx((ends[1] - ends[0]) / (2 * step), rel=1e-5)


@pytest.mark.parametrize("s", [1e-8, 0.01, 0.049, 0.051, 3.0])
def test_rising_factorials_of_whole_numbers_are_sums_of_logarithms(s):
    x = np.array([0.0, 1.0, 2.0, 7.0, 400.0])
    wanted = [np.log1p(s * np.arange(int(each))).sum() for each in x]
    np.testing.assert_allclose(log_rising(x, s)[0], wanted, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("noise", ["nb1", "nb2", "zip"])
def test_draws_of_factors_are_those_of_brute_force(noise):
    """Loadings and components stay as they are, and so do dispersions: then factors are independent of one another."""
    rng, codes = np.random.default_rng(3), np.array([0, 1, 0, 1])
    x = np.array([[9, 0], [1, 3], [4, 2], [0, 7]])
    problem, state = at_draws(NOISES[noise], rng, x, codes)
    problem = replace(problem, counts=replace(problem.counts, noisy=replace(problem.counts.noisy, learned=False)))
    beside, kept = DrawnBeside(problem, rng, 1), []
    for _ in range(800):
        beside.draw(state)
        kept.append(beside.factors)
    grid, means = np.linspace(1e-3, 6, 3000), state.loadings.matrix @ state.components.matrix
    for batch in range(2):
        for feature in range(2):
            own = codes == batch
            pair = x[own, feature][:, None], means[own, feature][:, None] * grid
            logs = gamma.logpdf(grid, SHAPE, scale=1 / SHAPE) + log_pmf(NOISES[noise], *pair).sum(axis=0)
            below = np.cumsum(np.exp(logs - logs.max()))
            places = np.interp([each[batch, feature] for each in kept], grid, below / below[-1])
            assert places.mean() == pytest.approx(0.5, abs=4 * 0.29 / np.sqrt(400))
            assert places.std() == pytest.approx(np.sqrt(1 / 12), abs=0.04)


@pytest.mark.long
@pytest.mark.parametrize("noise", ["nb1", "nb2"])
def test_known_factors_are_exposures_of_features(noise):
    fit = fitted(noise, "map", basis="log")
    options = PLAIN["map"](priors=PRIORS, basis="log", max_iter=3000, tol=1e-14)
    for batch, name in enumerate(("first", "second")):
        rows = batch == CODES
        known = {"fixed_components": fit.components, "feature_exposure": fit.batch.mean[batch], "noise": NOISES[noise]}
        alone = bayesnmf.fit(COUNTS[rows], "poisson", K, "map", seed=0, options=options, **known)
        np.testing.assert_allclose(fit.transform(COUNTS[rows], batch=[name] * rows.sum()), alone.loadings, rtol=1e-3)


@pytest.mark.parametrize("noise", ["nb1", "nb2", "quasi"])
def test_bounds_of_a_fit(noise):
    fit = fitted(noise)
    assert bayesnmf.elbo_augmented(fit) == pytest.approx(fit.trace[-1], rel=1e-9)
    marginal = bayesnmf.elbo_marginal(fit, draws=50)
    assert 0 < marginal.mean - fit.trace[-1] < 0.05 * abs(fit.trace[-1])


@pytest.mark.long
def test_without_dispersion_fits_are_those_of_poisson_counts():
    plain = fitted("poisson")
    for noise in (NegativeBinomial("linear", 1e-9), NegativeBinomial("quadratic", 1e-9), Quasi(0.0)):
        fit = fitted(noise)
        assert fit.trace[-1] == pytest.approx(plain.trace[-1], rel=1e-6)
        np.testing.assert_allclose(fit.batch.mean, plain.batch.mean, rtol=1e-3)
