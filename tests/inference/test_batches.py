"""Factors of batches: objectives against formulas and SciPy, sums over shares against dense ones, Gibbs sampling."""

from dataclasses import replace

import numpy as np
import pytest
from plain import PLAIN
from scipy.special import digamma, gammaln
from scipy.stats import gamma, nbinom, poisson
from smallfits import quietly

import bayesnmf
from bayesnmf import Batch, Dirichlet, Gamma, Gibbs, NegativeBinomial, Priors, ScaledDirichlet
from bayesnmf.data.batched import BatchedCounts
from bayesnmf.data.batches import Batches
from bayesnmf.data.conversion import as_counts
from bayesnmf.data.mask import GroupMask, Mask, as_pattern
from bayesnmf.data.powered import working_counts
from bayesnmf.data.unexposed import UnexposedGroups, missing_in_groups
from bayesnmf.fitting.problems import draws_problem
from bayesnmf.inference.sampling.gibbs import Allocating, Entries
from bayesnmf.inference.sampling.marginal_gibbs import state_of
from bayesnmf.inference.starts.states import given_state
from bayesnmf.noise.poisson import POISSON
from bayesnmf.priors import matrix

N, M, K, B = 40, 24, 2, 2
RNG = np.random.default_rng(0)
CODES = RNG.integers(0, B, N)
FACTORS = RNG.gamma(6, 1 / 6, (B, M))
MEANS = 5 * RNG.gamma(0.7, 20, (N, K)) @ RNG.dirichlet(np.full(M, 0.5), K)
COUNTS = RNG.poisson(FACTORS[CODES] * MEANS)
LABELS = np.array(["first", "second"])[CODES]
HIDDEN = RNG.random((N, M)) < 0.2
PRIORS = {"gamma": Priors(Gamma(0.8, 0.02), Gamma(1.2, 20.0)), "dirichlet": Priors(Gamma(0.8, 0.02), Dirichlet(1.2))}
both_kinds = pytest.mark.parametrize("kind", PRIORS)
masked = pytest.mark.parametrize("mask", [False, True])


def fitted(kind="gamma", method="vi", mask=False, shape=8.0, **settings):
    options = PLAIN[method](priors=PRIORS[kind], **{"tol": 1e-9, "max_iter": 400, **settings})
    given = {"missing": HIDDEN} if mask else {}
    return bayesnmf.fit(COUNTS, "poisson", K, method, seed=1, options=options, batch=Batch(LABELS, shape), **given)


def kl(q, shape, rate):
    a, b = q.shape, q.rate
    own = (
        (a - shape) * digamma(a) - gammaln(a) + gammaln(shape) + shape * (np.log(b) - np.log(rate)) + a * (rate - b) / b
    )
    return own.sum()


@masked
def test_elbo_is_that_of_a_sum_over_entries(mask):
    fit = fitted(mask=mask)
    q, of_batches = fit.posterior, fit.batch.q
    logs = [digamma(each.shape) - np.log(each.rate) for each in (q.loadings, q.components, of_batches)]
    seen = ~HIDDEN if mask else np.ones((N, M), bool)
    x = np.where(seen, COUNTS, 0)
    expected = of_batches.mean()[CODES] * (q.loadings.mean() @ q.components.mean())
    found = x * (np.log(np.exp(logs[0]) @ np.exp(logs[1])) + logs[2][CODES]) - seen * expected - gammaln(x + 1.0)
    divergence = kl(q.loadings, 0.8, 0.02) + kl(q.components, 1.2, 20.0) + kl(of_batches, 8.0, 8.0)
    assert fit.trace[-1] == pytest.approx(found.sum() - divergence, rel=1e-9)


@masked
def test_log_joint_has_the_factors_integrated_out(mask):
    fit = fitted("gamma", "map", mask, basis="log")
    seen = ~HIDDEN if mask else np.ones((N, M), bool)
    x, means = np.where(seen, COUNTS, 0), fit.loadings @ fit.components
    logs = (seen * poisson.logpmf(x, means)).sum()
    for batch in range(B):  # counts of a batch are negative binomial, not Poisson, and shared out among its rows
        total, mean = x[batch == CODES].sum(axis=0), (seen * means)[batch == CODES].sum(axis=0)
        logs += (nbinom.logpmf(total, 8.0, 8.0 / (8.0 + mean)) - poisson.logpmf(total, mean)).sum()
    prior = gamma.logpdf(fit.loadings, 0.8, scale=50).sum() + gamma.logpdf(fit.components, 1.2, scale=1 / 20).sum()
    jacobian = np.log(fit.loadings).sum() + np.log(fit.components).sum()
    assert fit.trace[-1] == pytest.approx(logs + prior + jacobian, rel=1e-9)


@quietly
@pytest.mark.parametrize("model", ["gamma_poisson", "poisson", "dirichlet_gamma", "hierarchical_poisson"])
@pytest.mark.parametrize("method", ["map", "vi"])
def test_the_objective_never_falls_while_the_shape_is_learned(model, method):
    priors = {"priors": Priors(loadings=Gamma(1.0, 0.02))} if model == "poisson" else {}
    options = PLAIN[method](max_iter=60, **priors)
    trace = bayesnmf.fit(COUNTS, model, K, method, seed=1, options=options, batch=LABELS).trace
    assert np.all(np.diff(trace) > -1e-10 * np.abs(trace[1:]))


def test_learned_shape_maximises_the_bound():
    settings = {"max_iter": 1000, "tol": 1e-9}
    a = fitted(shape=None, **settings).batch.shape * np.array([0.8, 1.0, 1.25])
    there, s = [fitted(shape=each, **settings).trace[-1] for each in a], 1 / a
    with_prior = there - (np.log(s) - np.log(0.3)) ** 2 / 8
    assert with_prior[1] > max(with_prior[0], with_prior[2])


@both_kinds
def test_scales_are_stationary_at_the_end(kind):
    """At an optimum of the bound no scale of a feature or of a batch's rows is left to gain from."""
    fit = fitted(kind, max_iter=2000, tol=1e-12)
    q, a = fit.posterior, 8.0
    if kind == "gamma":
        slope = B * a - K * 1.2 - a * fit.batch.mean.sum(axis=0) + 20.0 * q.components.mean().sum(axis=0)
        assert np.abs(slope).max() < 0.02
    rows = np.array([np.sum(0.02 * q.loadings.mean()[batch == CODES]) for batch in range(B)])
    slope = M * a - 0.8 * K * np.bincount(CODES) - a * fit.batch.mean.sum(axis=1) + rows
    assert np.abs(slope).max() < 0.05


def test_known_factors_are_exposures_of_features():
    fit = fitted("gamma", "map", basis="log")
    for batch, name in enumerate(("first", "second")):
        rows = batch == CODES
        options = PLAIN["map"](priors=PRIORS["gamma"], basis="log", max_iter=3000, tol=1e-14)
        known = {"fixed_components": fit.components, "feature_exposure": fit.batch.mean[batch]}
        alone = bayesnmf.fit(COUNTS[rows], "poisson", K, "map", seed=0, options=options, **known)
        np.testing.assert_allclose(fit.transform(COUNTS[rows], batch=[name] * rows.sum()), alone.loadings, rtol=1e-4)


@pytest.mark.parametrize("whole", [None, "missing", "observed", "groups"])
def test_sums_over_shares_are_those_of_all_entries(whole):
    rng = np.random.default_rng(3)
    lost, batches = rng.random((B, M)), Batches(np.array(["a", "b"]), CODES)
    mask = {
        None: None,
        "missing": Mask.of(as_pattern(HIDDEN)),
        "observed": Mask(as_pattern(~HIDDEN), of_missing=False),
        "groups": GroupMask.of_groups(np.arange(N) % 3, np.arange(M) % 3, 3),
    }[whole]
    dense = lost[CODES]
    if mask is not None:
        dense = np.where(mask.hidden(slice(None)), 1.0, dense)
    shares = UnexposedGroups.of_groups(lost, batches, mask, missing_in_groups(mask, batches))
    u, v = rng.random((N, K)), rng.random((M, K))
    np.testing.assert_allclose(shares.sums_by_row(v), dense @ v)
    np.testing.assert_allclose(shares.sums_by_feature(u), dense.T @ u)
    np.testing.assert_allclose(shares.rows(slice(3, 9)).sums_by_row(v), dense[3:9] @ v)


@quietly
@both_kinds
def test_draws_of_factors_have_their_conditional_mean_and_variance(kind):
    options = Gibbs(draws=100, warmup=50, chains=1, priors=PRIORS[kind], algorithm="allocations")
    fit = bayesnmf.fit(COUNTS, "poisson", K, "gibbs", seed=2, options=options, batch=Batch(LABELS, 8.0))
    drawn, x = fit.posterior, np.stack([COUNTS[batch == CODES].sum(axis=0) for batch in range(B)])
    means = drawn.loadings[0] @ drawn.components[0]
    R = np.stack([means[:, batch == CODES].sum(axis=1) for batch in range(B)], axis=1)
    z = (drawn.factors[0] - (8 + x) / (8 + R)) / (np.sqrt(8 + x) / (8 + R))
    assert abs(z.mean()) < 4 / np.sqrt(z.size)
    assert z.var() == pytest.approx(1, abs=0.08)  # of 4,800 draws: four standard errors


def drawn_again(state, factors, counts, priors, sampler, rng):
    """Return a state after a sweep over new counts, and factors drawn given it."""
    problem = draws_problem(counts, priors, rng)
    sweeps = sampler(problem, given_state(problem, state[0], np.asfortranarray(state[1])), rng, 1)
    sweeps.dispersion.factors = factors
    for _ in range(1 if sampler is Allocating else 2):
        sweeps(True)
    after = sweeps.state if sampler is Allocating else state_of(sweeps.factors, problem)
    sweeps.dispersion.draw(after)
    return (after.loadings.value, np.asarray(after.components.matrix)), sweeps.dispersion.factors


@pytest.mark.long
@pytest.mark.filterwarnings("ignore:counts have a row that is the sum:bayesnmf.DataWarning")  # by chance
@pytest.mark.parametrize(
    ("sampler", "kind", "mask", "noise"),
    [
        (Allocating, "gamma", True, POISSON),
        (Allocating, "dirichlet", False, POISSON),
        (Entries, "gamma", False, POISSON),
        (Entries, "dirichlet", True, POISSON),
        (Allocating, "gamma", True, NegativeBinomial("linear", 1.5)),
        (Entries, "dirichlet", False, NegativeBinomial("linear", 1.5)),
        (Allocating, "dirichlet", False, NegativeBinomial("quadratic", 0.3)),
        (Entries, "gamma", True, NegativeBinomial("quadratic", 0.3)),
        (Allocating, "scaled", False, NegativeBinomial("linear", 1.5)),
    ],
)
def test_sweeps_and_new_counts_leave_the_prior_as_it_is(sampler, kind, mask, noise):
    """Draws of all parameters, counts given these, and so on, have the prior as their distribution (Geweke 2004).

    Some of the combinations, with every pair of sampler, kind and mask, and of sampler and noise, among them.
    """
    rng, codes, steps = np.random.default_rng(7), np.array([0, 0, 1, 1, 0]), 6000 if noise == POISSON else 3000
    priors = {
        "gamma": Priors(Gamma(1.2, 0.3), Gamma(1.5, 2.0)),
        "dirichlet": Priors(Gamma(1.2, 0.1), Dirichlet(1.0)),
        "scaled": Priors(ScaledDirichlet(1.2, 2.4, 0.1), Dirichlet(1.0)),
    }[kind]
    sides = priors.loadings.broadcast((5, 2)), priors.components.broadcast((2, 4))
    hidden = np.zeros((5, 4), bool)
    hidden[0, 1] = hidden[3, 2] = mask

    def prior():
        return tuple(side.draw(rng) for side in sides), rng.gamma(10, 0.1, (2, 4))

    def measured(state, b):
        theta = matrix(state[0])
        means = b[codes] * (theta @ state[1])
        values = [b[0, 0], np.log(b[0, 1] / b[1, 1]), theta[0, 0], theta[2].sum(), state[1][1, 2], means[2, 1]]
        return [*values, np.log(b).mean(), np.log(means).mean(), b[0, 0] * state[1][0, 0]]

    wanted, (state, b), found = np.array([measured(*prior()) for _ in range(steps)]), prior(), []
    for _ in range(steps):
        x = noise.draw(b[codes] * (matrix(state[0]) @ state[1]), rng).astype(float)
        plain = replace(as_counts(np.where(hidden, 0, x)), batch=Batches(np.array(["a", "b"]), codes, 10.0))
        plain = plain.with_mask(Mask.of(as_pattern(hidden))) if mask else plain
        noisy = working_counts(plain, noise, given_totals=False, components=priors.components)
        state, b = drawn_again(state, b, BatchedCounts.in_batches(noisy, 10.0), priors, sampler, rng)
        found.append(measured(state, b))
    for of_both in (np.asarray, lambda each: np.abs(each - np.median(wanted, axis=0))):  # levels, and spreads
        own, theirs = of_both(np.array(found)), of_both(wanted)
        batches = own.reshape(30, -1, own.shape[1]).mean(axis=1)
        error = np.sqrt(batches.var(axis=0, ddof=1) / len(batches) + theirs.var(axis=0) / steps)
        assert np.abs((own.mean(axis=0) - theirs.mean(axis=0)) / error).max() < 4.5


@pytest.mark.parametrize("shape", [1e-300, 1e-9, 9e-4])
def test_a_shape_with_which_factors_have_no_scale_is_refused(shape):
    with pytest.raises(ValueError, match=r"shape must be at least 0\.001, .*leave shape out, to learn it"):
        bayesnmf.Batch(list("ab") * 6, shape=shape)


def test_the_smallest_shape_and_large_ones_have_a_finite_trace():
    counts = np.random.default_rng(0).poisson(3, (12, 5))
    for shape in (1e-3, 1e12):
        batch, options = bayesnmf.Batch(list("ab") * 6, shape=shape), bayesnmf.VI(intervals="mean_field")
        fit = bayesnmf.fit(counts, rank=2, seed=0, batch=batch, options=options)
        assert np.isfinite(fit.trace).all()
        assert np.isfinite(fit.batch_factors().to_numpy()).all()


@pytest.mark.parametrize(("labels", "alone"), [("abcdef", 6), ("aabcde", 4)])
def test_a_label_for_every_row_or_most_is_told(labels, alone):
    counts = np.random.default_rng(0).poisson(3, (6, 5))
    with pytest.warns(bayesnmf.DataWarning, match=f"batch has another label for each of {alone} of 6 rows"):
        bayesnmf.fit(counts, rank=2, seed=0, batch=list(labels))
