"""Tempering: estimates of the evidence are unbiased up and down the ladder, and the particles are the posterior's."""

from dataclasses import replace

import numpy as np
import pytest
from registry import MODELS_AND_PRIORS, over
from scipy import stats
from suites import mostly_long
from test_marginal_gibbs import EXACT, TINY, exact_moments

import bayesnmf
from bayesnmf import SMC, Dirichlet, Gamma, Priors, ScaledDirichlet
from bayesnmf.data.conversion import as_counts
from bayesnmf.data.exposures import with_exposures
from bayesnmf.inference.tempering.annealing import (
    AIM,
    STAGE,
    TemperedRuns,
    climb_ladder,
    descend_ladder,
    finer_ladder,
    next_power,
    pilot_ladder,
    spread_of,
    systematic,
)
from bayesnmf.inference.tempering.target import Straight, log_p_totals, target_of
from bayesnmf.priors import matrix
from bayesnmf.priors.specification import MODELS

STANDARD_ERRORS = 4
CRUDE = np.array([0.0, 0.05, 0.3, 1.0])
SHORT = np.concatenate([[0.0], np.geomspace(0.02, 1.0, 8)])
FINE = np.concatenate([[0.0], np.geomspace(0.005, 1.0, 18)])


def silent(rung, power):
    """Report nothing."""


def estimates(target, ladder, particles, runs, seed=0):
    """Return p̂ of independent runs."""
    streams = np.random.SeedSequence(seed).spawn(runs)
    found = [climb_ladder(target, ladder, particles, np.random.default_rng(s), 1, silent) for s in streams]
    return np.exp([run.log_estimate for run in found])


def close(values, expected):
    """Return whether the mean of independent values is the expected one, up to four standard errors."""
    return abs(values.mean() - expected) < STANDARD_ERRORS * values.std(ddof=1) / np.sqrt(len(values))


# --- the evidence -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "runs"), mostly_long([("gamma", 150), *((name, 1500) for name in list(EXACT)[1:])]))
def test_estimates_up_a_crude_ladder_are_unbiased(name, runs):
    """Four particles on three rungs are resampled in most runs.

    A factor of 1.5 in p̂ would be found by 150 runs, and one of 1.16 by 1,500.
    """
    priors = EXACT[name]
    model = {"Gamma": "gamma_poisson", "Dirichlet": "dirichlet_poisson", "ScaledDirichlet": "dirichlet_gamma"}[
        type(priors.loadings).__name__
    ]
    exact = np.exp(bayesnmf.log_evidence(TINY, model, 2, "exact", priors=priors).log_evidence)
    ratios = estimates(target_of(as_counts(TINY), priors, 2), CRUDE, 4, runs) / exact
    assert close(ratios, 1.0)
    assert ratios.std() < 0.04 * np.sqrt(1500)
    assert abs(np.log(ratios).mean()) > 0.05  # the mean of logs would be off


def by_draws_from_the_prior(counts, priors, rank, given_totals, draws=30_000):
    """Return the evidence and its standard error by the likelihood at draws from the prior."""
    rng, (n, m) = np.random.default_rng(0), counts.shape
    theta = matrix(priors.loadings.broadcast((n, rank)).draw(rng, (draws,))) * counts.row_factor
    beta = priors.components.broadcast((rank, m)).draw(rng, (draws,)) * counts.feature_factor
    X, means = counts.dense, theta @ beta
    if given_totals:
        means /= means.sum(axis=2, keepdims=True)
        logs = sum(stats.multinomial.logpmf(X[i], X[i].sum(), means[:, i]) for i in range(n))
        logs = logs + stats.poisson.logpmf(X.sum(axis=1), 1.0).sum()
    else:
        logs = stats.poisson.logpmf(X, means).sum(axis=(1, 2))
    p = np.exp(logs)
    return p.mean(), p.std() / np.sqrt(draws)


SPECIAL = {"poisson-gammas", "gamma_poisson", "doubly_gamma", "dirichlet_gamma", "partly_known"}  # of others, below
PROPER = [entry for entry in MODELS_AND_PRIORS if entry.proper and entry.id not in SPECIAL]
ONE_OF_EACH = ("dirichlet_gamma-asymmetric", "hierarchical_poisson-asymmetric", "partly_known-gammas")
RUNS, PARTICLES = 16, 16


@over(PROPER, default=ONE_OF_EACH)
def test_the_evidence_is_the_mean_likelihood_over_the_prior(entry):
    """An error of 0.35 nats is found but in the most sparse case."""
    counts, priors = as_counts([[2, 0, 1], [0, 1, 2]]), entry.priors((2, 3), 2)
    draws = 30_000 if entry.id in ONE_OF_EACH else 400_000
    exact, error = by_draws_from_the_prior(counts, priors, 2, MODELS[entry.model].given_totals, draws)
    ratios = estimates(target_of(counts, priors, 2), SHORT, PARTICLES, RUNS) / exact
    own = ratios.std(ddof=1) / np.sqrt(len(ratios))
    assert own < (0.35 if entry.id == "relevance-sparse" else 0.115)
    assert error / exact < 0.05
    assert abs(ratios.mean() - 1) < STANDARD_ERRORS * np.hypot(own, error / exact)


@pytest.mark.parametrize(
    "priors",
    [Priors(Gamma(0.8, 0.4), Dirichlet(0.7)), Priors(Gamma([0.8, 1.2], [0.4, 0.6]), Gamma(1.5, 4.0))],
    ids=["one rate", "Poisson"],
)
def test_the_evidence_with_exposures(priors):
    positive = isinstance(priors.components, Gamma)
    exposed = with_exposures(as_counts([[4, 1, 2], [0, 3, 1]]), [2.0, 0.5], [1.0, 3.0, 0.5] if positive else None)
    target = target_of(exposed, priors, 2)
    assert target.of_shares != positive
    exact, error = by_draws_from_the_prior(exposed, priors, 2, given_totals=False)
    ratios = estimates(target, SHORT, 24, 40) / exact
    own = ratios.std(ddof=1) / np.sqrt(len(ratios))
    assert abs(ratios.mean() - 1) < STANDARD_ERRORS * np.hypot(own, error / exact) < 0.25


def test_one_multinomial_serves_three_models():
    """What is tempered is the same to the bit; the models differ by log p(N), which sums to 1 over totals."""
    counts, alpha, rate = as_counts(TINY), np.array([0.5, 1.5]), 0.3
    dirichlet = Dirichlet(1.2)
    sides = Dirichlet(alpha), ScaledDirichlet(alpha, alpha.sum(), rate), Gamma(alpha, rate)
    targets = [target_of(counts, Priors(side, dirichlet), 2) for side in sides]
    rng = np.random.default_rng(1)
    at = rng.dirichlet([1.0, 1.0], (4, 2)), rng.dirichlet([1.0, 1.0, 1.0], (4, 2))
    logs = [target.log_likelihoods(target.factors(*at, rng)) for target in targets]
    np.testing.assert_array_equal(logs[0], logs[1])
    np.testing.assert_array_equal(logs[0], logs[2])
    own = [climb_ladder(target, CRUDE, 4, np.random.default_rng(1), 1, silent) for target in targets[1:]]
    assert own[0].log_estimate == own[1].log_estimate
    assert targets[1].constant == targets[2].constant != targets[0].constant
    totals = as_counts(np.arange(400)[:, None])
    scaled = targets[1].loadings
    for i in range(2):
        row = ScaledDirichlet(alpha, scaled.shape[i], scaled.rate[i])
        every = [log_p_totals(totals.rows(slice(at, at + 1)), row) for at in range(400)]
        assert np.exp(every).sum() == pytest.approx(1.0, abs=1e-6)


@pytest.mark.parametrize(("ladder", "simulations"), mostly_long([(FINE, 50), (CRUDE, 800)]), ids=["fine", "crude"])
def test_reciprocals_down_the_ladder_are_unbiased(ladder, simulations):
    """Over simulations, the mean of p(X) / p̂ is 1. Each upper estimate is from the true parameters alone."""
    priors, rng = Priors(Gamma(0.8, 0.4), Dirichlet(0.7)), np.random.default_rng(3)
    ratios = []
    for seed in range(simulations):
        drawn = bayesnmf.simulate("gamma_poisson", (2, 3), 2, priors=priors, seed=seed)
        if drawn.counts.total > 12:
            continue  # too many allocations; the condition is on the counts alone, so that the mean stays 1
        target = target_of(drawn.counts, priors, 2)
        upper = descend_ladder(target, ladder, drawn.loadings, drawn.components, 2, rng, silent)
        exact = bayesnmf.log_evidence(drawn.counts, "gamma_poisson", 2, "exact", priors=priors).log_evidence
        ratios.append(np.exp(exact - upper))
    ratios = np.array(ratios)
    assert len(ratios) > 0.75 * simulations
    assert close(ratios, 1.0)
    assert ratios.std() / np.sqrt(len(ratios)) < 0.07
    assert ladder is not CRUDE or np.log(ratios).mean() < -0.1  # too high on average


# --- particles --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["gamma", "scaled dirichlet"])
def test_particles_are_draws_from_the_posterior(name):
    """1,000 states at once, from the prior up a ladder and 10 more sweeps, against the sum over all allocations."""
    priors = EXACT[name]
    target = target_of(as_counts(TINY), priors, 2)
    run = climb_ladder(target, CRUDE, 1000, np.random.default_rng(0), None, silent)
    for _ in range(10):
        run.factors.sweep(None)
    weights = np.exp(run.log_weights)
    drawn = [target.value(run.factors, place) for place in range(1000)]
    loadings = np.array([getattr(value, "proportions", value) for value, _ in drawn])
    components = np.array([value for _, value in drawn])
    for values, expected in zip((loadings, components), exact_moments(priors), strict=True):
        mean = np.tensordot(weights, values, 1)
        error = np.sqrt(np.tensordot(weights**2, (values - mean) ** 2, 1))
        assert np.all(np.abs(mean - expected) < STANDARD_ERRORS * error)
        assert error.max() < 0.05 * values.max()


def test_nothing_depends_on_threads():
    drawn = bayesnmf.simulate("gamma_poisson", (40, 30), 3, seed=0)
    target = target_of(drawn.counts, drawn.priors, 3)
    runs = [climb_ladder(target, CRUDE, 6, np.random.default_rng(0), threads, silent) for threads in (1, 2, 5)]
    for other in runs[1:]:
        np.testing.assert_array_equal(runs[0].factors.theta, other.factors.theta)
        np.testing.assert_array_equal(runs[0].factors.beta, other.factors.beta)
        assert runs[0].log_estimate == other.log_estimate


def test_systematic_draws_are_in_proportion_and_in_order():
    weights = np.array([0.1, 0.4, 0.0, 0.5])
    chosen = systematic(weights, 20, np.random.default_rng(0))
    np.testing.assert_array_equal(np.bincount(chosen, minlength=4), [2, 8, 0, 10])
    assert np.all(np.diff(chosen) >= 0)


def test_the_next_power_keeps_the_share_effective():
    rng = np.random.default_rng(0)
    logs, weights = rng.normal(0, 300, 40), np.full(40, -np.log(40))
    step = next_power(0.2, Straight(logs), weights, 0.9) - 0.2
    ratios = np.exp(step * (logs - logs.max()))
    assert ratios.mean() ** 2 / np.mean(ratios**2) == pytest.approx(0.9, abs=3e-4)
    assert next_power(0.2, Straight(np.zeros(40)), weights, 0.9) == 1.0
    assert next_power(0.2, Straight(1e18 * logs), weights, 0.9) > 0.2


def test_a_finer_ladder_divides_every_step():
    ladder = np.array([0.0, 0.01, 0.1, 0.7, 1.0])
    finer = finer_ladder(ladder, 3)
    np.testing.assert_allclose(finer[::3], ladder, atol=1e-16)
    np.testing.assert_allclose(np.diff(finer), np.repeat(np.diff(ladder), 3) / 3, rtol=1e-12)
    assert finer[0] == 0.0
    assert finer[-1] == 1.0


DISAGREEING = SMC(particles=4, runs=6, efficiency=0.7, refinement=64)


def coarse_runs(**settings):
    drawn = bayesnmf.simulate("dirichlet_poisson", (8, 5), 2, totals=60, seed=1)
    target = target_of(drawn.counts, drawn.priors, 2)
    return TemperedRuns(target, replace(DISAGREEING, **settings), 1, lambda *_: None)


def test_runs_that_disagree_are_made_again_on_a_finer_ladder():
    first = coarse_runs()
    spread, steps, logs = spread_of(first.logs), len(first.ladder) - 1, first.logs
    assert spread > 1
    assert first.refine()
    assert first.refined == min(np.ceil((spread / AIM) ** 2), STAGE)
    assert len(first.ladder) - 1 == first.refined * steps
    assert spread_of(first.logs) < 0.7 * spread
    assert not np.isin(first.logs, logs).any()  # other draws
    while first.refine():
        assert first.refined <= 64
    assert spread_of(first.logs) <= 1
    assert not first.refine()  # they agree


def test_the_limit_of_refinement_holds():
    first = coarse_runs(refinement=2)
    ladder = first.ladder
    assert not first.refine()
    assert first.ladder is ladder
    assert not coarse_runs(runs=1).refine()  # a single run has no spread


def test_ctrl_c_during_a_finer_ladder_keeps_the_first_runs():
    first = coarse_runs()
    logs = first.logs

    def report(label, done, *_):
        if done > 5:
            raise KeyboardInterrupt

    first.report = report
    assert not first.refine()
    assert first.interrupted
    np.testing.assert_array_equal(first.logs, logs)
    assert not first.refine()


def test_a_higher_efficiency_makes_a_longer_ladder():
    drawn = bayesnmf.simulate("dirichlet_poisson", (8, 5), 2, totals=60, seed=0)
    target = target_of(drawn.counts, drawn.priors, 2)
    few, many = (
        len(pilot_ladder(target, SMC(particles=16, efficiency=share, threads=1), np.random.default_rng(0), silent))
        for share in (0.9, 0.99)
    )
    assert 2 * few < many < 5 * few  # as the root of 1 − share: 3.2
