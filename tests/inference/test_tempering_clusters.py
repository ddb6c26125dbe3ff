"""Tempering of counts that cluster: the path ends at the density of scipy, and its integral is unbiased."""

import numpy as np
import pytest
from scipy.special import gammaln
from scipy.stats import nbinom
from smallfits import quietly
from test_tempering import CRUDE, STANDARD_ERRORS, silent

import bayesnmf
from bayesnmf import SMC, Dirichlet, Gamma, NegativeBinomial, Priors
from bayesnmf.data.conversion import as_counts
from bayesnmf.data.powered import working_counts
from bayesnmf.inference.tempering.annealing import climb_ladder
from bayesnmf.inference.tempering.clusters import Curved, tempered_target

X = np.array([[2, 0, 1], [0, 1, 4]])
S = {None: 1.5, "row": np.array([1.5, 0.4]), "feature": np.array([1.5, 0.4, 0.1])}
SIMPLEX, GAMMAS = Priors(Gamma(0.8, 0.4), Dirichlet(0.7)), Priors(Gamma(0.8, 0.4), Gamma(1.5, 4.0))
SHARES = Priors(Dirichlet(0.8), Dirichlet(0.7))
CASES = [  # priors, whose the dispersions are, and whether they are drawn
    ("one", SIMPLEX, None, False), ("rows", SIMPLEX, "row", False), ("features", GAMMAS, "feature", False),
    ("drawn", SIMPLEX, None, True), ("drawn of features", GAMMAS, "feature", True),
    ("given totals", SHARES, None, False), ("given totals, rows drawn", SHARES, "row", True),
]  # fmt: skip


def target_of_case(priors, by, learned):
    noise, totals = NegativeBinomial(dispersion=S[by], by=by), priors is SHARES
    return tempered_target(working_counts(as_counts(X), noise, given_totals=totals, learned=learned), priors, 2)


def likelihoods(theta, beta, s, given_totals):
    """Return p(X) at draws, with s (draws, 1 or n, 1 or m), on the Poisson scale where totals are given."""
    means = theta @ beta
    if not given_totals:
        return np.exp(nbinom.logpmf(X, means / s, 1 / (1 + s)).sum(axis=(1, 2)))
    totals = X.sum(axis=1)
    a, whole = means * totals[:, None] / s, (totals[:, None] / s)[:, :, 0]
    entries = (gammaln(X + a) - gammaln(a) - gammaln(X + 1)).sum(axis=2)
    return np.exp((entries + gammaln(whole) - gammaln(totals + whole) - 1).sum(axis=1))


def by_draws_from_the_prior(priors, by, learned, draws):
    """Return the evidence and its standard error by the likelihood at draws from the prior."""
    rng, size = np.random.default_rng(0), {None: (1, 1), "row": (2, 1), "feature": (1, 3)}[by]
    theta, beta = priors.loadings.broadcast((2, 2)), priors.components.broadcast((2, 3))
    s = np.broadcast_to(np.reshape(S[by], size), (draws, *size))
    if learned:
        s = np.exp(np.log(0.3) + 2 * rng.standard_normal((draws, *size)))
    p = likelihoods(theta.draw(rng, (draws,)), beta.draw(rng, (draws,)), s, priors is SHARES)
    return p.mean(), p.std() / np.sqrt(draws)


@pytest.mark.parametrize(("name", "priors", "by", "learned"), CASES)
def test_the_path_begins_at_a_constant_and_ends_at_the_density(name, priors, by, learned):
    target = target_of_case(priors, by, learned)
    factors = target.draw(20, np.random.default_rng(0))
    theta, beta = factors.theta / (factors.theta.sum(axis=2, keepdims=True) if priors is SHARES else 1), factors.beta
    s = factors.dispersions[:, :, None] if by == "row" else factors.dispersions[:, None, :]
    begun = Curved(factors, 0.0)
    np.testing.assert_allclose(begun.now, begun.now[0], rtol=1e-12)
    exact = np.log(likelihoods(theta, np.swapaxes(beta, 1, 2), s, priors is SHARES))
    np.testing.assert_allclose(begun.by(1.0) + target.constant, exact, rtol=1e-9)


def ratio_of_estimates(case, runs, draws):
    """Return the mean of estimates with four particles on three rungs, over the exact value, and its error."""
    _, priors, by, learned = case
    target, streams = target_of_case(priors, by, learned), np.random.SeedSequence(5).spawn(runs)
    found = [climb_ladder(target, CRUDE, 4, np.random.default_rng(each), 1, silent) for each in streams]
    exact, error = by_draws_from_the_prior(priors, by, learned, draws)
    ratios = np.exp([run.log_estimate for run in found]) / exact
    return ratios.mean(), np.hypot(ratios.std(ddof=1) / np.sqrt(runs), error / exact)


def test_estimates_up_a_crude_ladder_are_unbiased():
    mean, error = ratio_of_estimates(CASES[1], 60, 40_000)
    assert error < 0.12
    assert abs(mean - 1) < STANDARD_ERRORS * error


@pytest.mark.long
def test_estimates_of_every_case_are_unbiased():
    """Clusters drawn with λ / s in place of its power would be 8 % off, in the mean of all cases by four errors."""
    ratios, errors = np.array([ratio_of_estimates(case, 300, 100_000) for case in CASES]).T
    assert (np.abs(ratios - 1) < STANDARD_ERRORS * errors).all()
    mean, error = ratios.mean() - 1, np.sqrt((errors**2).sum()) / len(CASES)
    assert error < 0.02
    assert abs(mean) < STANDARD_ERRORS * error


@pytest.mark.long
@pytest.mark.parametrize(("name", "priors", "by", "learned"), CASES)
def test_sweeps_leave_the_tempered_posterior_as_it_is(name, priors, by, learned):
    """Means of draws that are weighted by the likelihood, resampled, and moved."""
    target, rng, power = target_of_case(priors, by, learned), np.random.default_rng(2), 0.4
    factors = target.draw(4_000, rng)
    logs = Curved(factors, 0.0).by(power)
    weights = np.exp(logs - logs.max())

    def features():
        theta = factors.theta / (factors.theta.sum(axis=2, keepdims=True) if priors is SHARES else 1)
        sizes = theta.max(axis=2), (factors.beta**2).sum(axis=(1, 2))[:, None], np.log(factors.dispersions)
        return np.concatenate(sizes, axis=1)

    before = features()
    expected = weights @ before / weights.sum()
    error = np.sqrt((weights[:, None] ** 2 * (before - expected) ** 2).sum(axis=0)) / weights.sum()
    factors.take(rng.choice(4_000, 4_000, p=weights / weights.sum()))
    factors.raise_to(power)
    for _ in range(3):
        factors.sweep(1)
    after = features()
    own = after.std(axis=0) / np.sqrt(4_000)
    assert np.all(np.abs(after.mean(axis=0) - expected) <= STANDARD_ERRORS * np.hypot(error, own) + 1e-9)


@quietly
def test_a_fit_has_drawn_dispersions_and_resumes(tmp_path):
    options = SMC(particles=8, runs=2, efficiency=0.3, refinement=1, threads=1, priors=GAMMAS)
    given = {"counts": X, "model": "poisson", "rank": 2, "method": "smc", "options": options, "seed": 0, "noise": "nb1"}
    fit, again = bayesnmf.fit(**given), bayesnmf.fit(**given, checkpoint=tmp_path)
    resumed = bayesnmf.fit(**given, checkpoint=tmp_path)
    for other in (again, resumed):
        np.testing.assert_array_equal(fit.statistics["dispersion"], other.statistics["dispersion"])
        np.testing.assert_array_equal(fit.components, other.components)
        np.testing.assert_array_equal(fit.trace, other.trace)
    assert fit.statistics["dispersion"].shape == (2, 8)
    assert fit.noise.dispersion == pytest.approx(fit.statistics["dispersion"].mean())
    assert fit.to_datatree()["posterior"]["dispersion"].shape == (2, 8)
    path = tmp_path / "fit.nc"
    fit.save(path)
    assert bayesnmf.load(path).noise == fit.noise
    place = int(np.argmax(fit.trace[0]))  # a draw's log joint has its own dispersion
    s, theta, beta = (
        fit.statistics["dispersion"][0, place], fit.posterior.loadings[0, place], fit.posterior.components[0, place]
    )  # fmt: skip
    density = np.log(likelihoods(theta[None], beta[None], s, False)[0]) - (np.log(s / 0.3)) ** 2 / 8
    density += GAMMAS.loadings.log_density(theta) + GAMMAS.components.log_density(beta)
    assert fit.trace[0, place] == pytest.approx(density, rel=1e-6)


@quietly
def test_the_evidence_of_a_simulation_is_between_its_bounds():
    sim = bayesnmf.simulate("gamma_poisson", (4, 3), 1, noise=NegativeBinomial(dispersion=1.0), priors=SIMPLEX, seed=0)
    given = {
        "counts": sim.counts,
        "rank": 1,
        "priors": SIMPLEX,
        "seed": 0,
        "particles": 8,
        "runs": 4,
        "efficiency": 0.5,
    }
    found = bayesnmf.log_evidence(**given, noise=sim.noise, truth=sim)
    assert found.method == "tempered"
    assert found.bound - 1 < found.log_evidence < found.upper + 1
    drawn = bayesnmf.log_evidence(**given, noise="nb1")
    assert drawn.bound == -np.inf
    assert abs(drawn.log_evidence - found.log_evidence) < 3


@pytest.mark.parametrize(
    ("message", "given"),
    [
        ("noise needs method='tempered': found method='exact'", {"method": "exact", "rank": 1}),
        ("noise needs method='tempered': found method='tokens'", {"method": "tokens"}),
        ("noise='nb2' needs method='map', 'vi', 'nuts', 'svi' or 'gibbs': found 'smc'", {"noise": "nb2"}),
        ("noise='quasi' needs method='map', 'vi' or 'gibbs'", {"noise": "quasi"}),
        ("need loadings without a scale of their own", {"model": "dirichlet_gamma"}),
        (
            "components on the simplex need .* which does not temper them",
            {"noise": NegativeBinomial(dispersion="feature")},
        ),
    ],
)
def test_what_cannot_be_tempered_is_refused(message, given):
    with pytest.raises(ValueError, match=message):
        bayesnmf.log_evidence(**({"counts": X, "rank": 2, "noise": "nb1", "seed": 0} | given))


def test_a_truth_needs_the_noise_of_the_counts():
    sim = bayesnmf.simulate("gamma_poisson", (4, 3), 2, noise=NegativeBinomial(dispersion=1.0), seed=0)
    for noise in ("poisson", "nb1", NegativeBinomial(dispersion=2.0)):
        with pytest.raises(ValueError, match="truth needs noise=truth"):
            bayesnmf.log_evidence(sim.counts, rank=2, method="tempered", priors=sim.priors, truth=sim, noise=noise)
