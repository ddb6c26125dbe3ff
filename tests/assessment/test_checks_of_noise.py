"""Replicates, predictive checks, scores and bounds of fits with negative binomial noise."""

from functools import cache

import numpy as np
import pytest
from plain import even_priors, plain_map, plain_vi
from scipy.stats import dirichlet_multinomial, nbinom, poisson
from smallfits import quietly

import bayesnmf
from bayesnmf import Gamma, Gibbs, NegativeBinomial, Priors, Quasi
from bayesnmf.assessment import bounds
from bayesnmf.assessment.leave_one_out import loo
from bayesnmf.assessment.predictive_statistics import Refitted, measure
from bayesnmf.noise.poisson import POISSON
from bayesnmf.priors.specification import MODELS
from bayesnmf.results.cautions import cure_of
from bayesnmf.studies.comparison import measures
from bayesnmf.studies.comparison.comparing import Settings

pytestmark = quietly
K, S = 3, 2.0
TWO = NegativeBinomial(dispersion=S)
GAMMA = Priors(Gamma(1.0, 0.01), Gamma(0.5, 5.0))


def clustered(n=100, m=40, seed=3):
    """Return counts with dispersion 2 of about 400 counts a row."""
    rng = np.random.default_rng(seed)
    means = rng.gamma(1, 130, (n, K)) @ rng.dirichlet(np.full(m, 0.3), K)
    return rng.poisson(rng.gamma(means / S, S))


COUNTS = clustered()


@cache
def fitted(noise="nb1", model="gamma_poisson", method="vi"):
    """Return a fit of the clustered counts, always the same one."""
    settings = {"tol": 1e-6, "threads": 1, "extrapolate": True, "priors": even_priors(COUNTS, model)}
    options = plain_map(**settings) if method == "map" else plain_vi(**settings)
    return bayesnmf.fit(COUNTS, model, K, method, seed=0, options=options, noise=noise)


def means_of(fit):
    return fit.expected_loadings @ fit.exposed_components


# --- replicated counts ----------------------------------------------------------------------------------


@pytest.mark.parametrize("noise", ["nb1", NegativeBinomial(dispersion=np.linspace(0.2, 4, 100), by="row")], ids=repr)
def test_replicated_counts_vary_as_the_noise_says(noise):
    """Around the one point of a fit by map: means, variances and zeros of all entries together."""
    fit = fitted(noise, method="map")
    drawn, means = fit.sample_posterior_predictive(400, seed=1), means_of(fit)
    s = np.broadcast_to(fit.noise.dispersion, (100,))[:, None]
    law = nbinom(means / s, 1 / (1 + s))
    assert ((drawn - means) ** 2 / law.var()).mean() == pytest.approx(1, abs=0.02)
    assert (drawn == 0).mean() == pytest.approx(law.pmf(0).mean(), abs=0.002)
    some = fit.sample_posterior_predictive(400, seed=1, rows=[3, 90])
    ratio = ((some - means[[3, 90]]) ** 2 / law.var()[[3, 90]]).mean(axis=(0, 2))
    np.testing.assert_allclose(ratio, 1, atol=0.15)


def test_replicated_counts_given_totals_keep_them():
    fit = fitted(TWO, "dirichlet_poisson", "map")
    drawn, means, totals = fit.sample_posterior_predictive(300, seed=1), means_of(fit), COUNTS.sum(axis=1)[:, None]
    assert np.all(drawn.sum(axis=2) == totals[:, 0])
    variance = means * (1 - means / totals) * (totals + totals / S) / (1 + totals / S)
    assert ((drawn - means) ** 2).sum() / 300 / variance.sum() == pytest.approx(1, abs=0.05)


def test_trees_have_log_probabilities_and_replicates_of_the_noise():
    s = np.linspace(0.5, 3, 40)
    options = plain_vi(max_iter=20, threads=1, priors=GAMMA)
    noise = NegativeBinomial(dispersion=s, by="feature")
    fit = bayesnmf.fit(COUNTS, "poisson", K, seed=0, options=options, noise=noise)
    features, rows = [7, 2, 30], np.arange(99, -1, -1)
    tree = fit.to_datatree(60, 1, rows=rows, features=features, log_likelihood=True, posterior_predictive=True)
    posterior = tree["posterior"]
    means = (posterior.loadings.to_numpy() @ posterior.components.to_numpy())[0]
    law = nbinom(means / s[features], 1 / (1 + s[features]))
    found = tree["log_likelihood"].counts.to_numpy()[0]
    np.testing.assert_allclose(found, law.logpmf(COUNTS[np.ix_(rows, features)]), rtol=1e-8)
    drawn = tree["posterior_predictive"].counts.to_numpy()[0]
    ratio = ((drawn - means) ** 2).sum(axis=(0, 1)) / law.var().sum(axis=(0, 1))
    np.testing.assert_allclose(ratio, 1, atol=0.15)


# --- predictive checks ----------------------------------------------------------------------------------


def test_clustered_counts_pass_with_their_noise_alone():
    """Zeros and misfit speak against Poisson noise, and nothing against the noise that made the counts."""
    found = {noise: bayesnmf.predictive_checks(fitted(noise), 20, refits=12) for noise in ("poisson", "nb1")}
    assert {"share of zeros", "misfit"} <= set(found["poisson"].failed)
    assert found["nb1"].p_value > 0.05
    assert np.mean(found["nb1"].features["p_value"] < 0.05) < 0.2
    assert np.mean(found["poisson"].features["p_value"] < 0.05) > 0.9
    ratio = found["nb1"].features["misfit_ratio"].mean()
    assert ratio == pytest.approx(1, abs=0.1)


@pytest.mark.parametrize("model", ["dirichlet_poisson", "hierarchical_poisson"])
def test_refits_have_the_noise_of_the_fit(model):
    """A replicate that is fitted again is as far from its means as the counts are from theirs."""
    fit = fitted(TWO, model)
    first = Refitted.of(fit)
    assert first.counts.noise == TWO
    assert np.matmul(*first.factors()).sum() == pytest.approx(COUNTS.sum(), rel=0.01)
    for each in first.replicates(2, 0):
        assert each.counts.noise == TWO
        found = measure(each.counts.matrix, *each.factors(), 1, TWO)
        wanted = measure(first.counts.matrix, *first.factors(), 1, TWO)
        assert found.values["misfit"] == pytest.approx(wanted.values["misfit"], rel=0.1)
        assert found.values["share of zeros"] == pytest.approx(found.expected["share of zeros"], abs=0.02)
        assert found.values["dispersion"] == pytest.approx(found.expected["dispersion"], rel=0.1)


@pytest.mark.parametrize("by", ["row", "feature"])
def test_refits_of_rows_and_features_with_dispersions_of_their_own(by):
    noise = NegativeBinomial(dispersion=np.linspace(0.1, 4, 100 if by == "row" else 40), by=by)
    options = plain_vi(max_iter=30, threads=1, priors=GAMMA)
    fit = bayesnmf.fit(COUNTS, "poisson", K, seed=0, options=options, noise=noise)
    first = Refitted.of(fit)
    np.testing.assert_allclose(np.matmul(*first.factors()).sum(), COUNTS.sum(), rtol=0.02)
    each = next(first.replicates(1, 0))
    np.testing.assert_allclose(np.matmul(*each.factors()).sum(), each.counts.total, rtol=0.02)


# --- scores and bounds ----------------------------------------------------------------------------------


@cache
def sampled(noise):
    options = Gibbs(chains=1, warmup=30, draws=60, threads=1, start="random")
    return bayesnmf.fit(COUNTS, rank=K, method="gibbs", seed=0, options=options, noise=noise)


def test_leave_one_out_prefers_the_noise_of_the_counts():
    """By more than four standard errors of the difference; a sample of entries agrees with all of them."""
    poisson, own = sampled("poisson"), sampled(TWO)
    scores = [loo(fit, features=range(0, 40, 10), seed=0) for fit in (poisson, own)]
    gain = scores[1].pointwise["elpd"] - scores[0].pointwise["elpd"]
    assert gain.sum() > 4 * gain.std() * np.sqrt(len(gain))
    some = loo(own, features=range(0, 40, 10), most=150, seed=0)
    assert abs(some.elpd - scores[1].elpd) < 4 * some.sampling_se


def test_without_dispersion_scores_are_those_of_poisson_counts():
    """Draws are the same to the last bits, as next to no dispersion changes next to nothing."""
    fit = sampled("poisson")
    none = bayesnmf.Fit.of(fit)
    object.__setattr__(none, "noise", NegativeBinomial(dispersion=0))
    one, two = (loo(each, features=[0, 1], seed=0) for each in (fit, none))
    np.testing.assert_allclose(one.pointwise["elpd"], two.pointwise["elpd"], rtol=1e-6)


@pytest.mark.parametrize("model", MODELS)
def test_the_marginal_bound_is_above_the_augmented_one(model):
    """By less than a tenth, as allocations lose little; Poisson's likelihood would be 30 % lower."""
    fit = fitted(TWO, model)
    marginal, augmented = bayesnmf.elbo_marginal(fit, 30), bayesnmf.elbo_augmented(fit)
    assert augmented - 4 * marginal.se < marginal.mean < augmented + 0.1 * abs(augmented)


@pytest.mark.parametrize("model", ["gamma_poisson", "dirichlet_poisson"])
def test_the_marginal_bound_is_that_of_known_probabilities(model):
    """At a single draw from q."""
    fit = fitted(TWO, model)
    problem, state = bounds.state_of_fit(fit)
    found = bounds._loglik_of_draw(fit, problem, state, np.random.default_rng(0))
    rng = np.random.default_rng(0)
    loadings = state.loadings.conditional.draw(rng)
    means = np.asarray(loadings) @ state.components.conditional.draw(rng)
    if model == "gamma_poisson":
        wanted = nbinom(means / S, 1 / (1 + S)).logpmf(COUNTS).sum()
    else:
        totals = COUNTS.sum(axis=1)
        wanted = dirichlet_multinomial.logpmf(COUNTS, totals[:, None] * means / S, totals).sum()
        wanted += poisson.logpmf(totals, 1).sum()
    assert found == pytest.approx(wanted, rel=1e-9)


# --- comparisons, cautions and refusals -----------------------------------------------------------------


def test_comparisons_have_the_noise_in_every_fit(monkeypatch):
    """Counts are thinned to eight tenths, and a dispersion of linear variance with them."""
    monkeypatch.setattr(measures, "MOST_SCORE_DRAWS", 200)
    options = {"map": plain_map(max_iter=20, threads=1), "vi": plain_vi(max_iter=20, threads=1)}
    settings = Settings(options=options, dispersed=False)
    found = bayesnmf.compare(COUNTS, rank=K, methods=("map", "vi"), noise=TWO, settings=settings)
    assert all(fit.noise == NegativeBinomial(dispersion=0.8 * S) for fit in found.fits.values())
    assert "coverage90" not in found.table
    means, train = means_of(found.fits["vi"]), found.split.train.matrix.toarray()
    wanted = nbinom(means / 1.6, 1 / 2.6).logpmf(train).sum()
    assert found.table.loc["vi", "loglik"] == pytest.approx(wanted, rel=1e-9)


def test_comparisons_thin_the_dispersion_of_each_row(monkeypatch):
    """Those of the rows that are not withheld, in their order."""
    monkeypatch.setattr(measures, "MOST_SCORE_DRAWS", 200)
    rows = NegativeBinomial(dispersion=np.arange(100) / 10, by="row")
    settings = Settings(options={"map": plain_map(max_iter=20, threads=1)}, dispersed=False)
    found = bayesnmf.compare(COUNTS, rank=K, methods=["map"], noise=rows, settings=settings)
    np.testing.assert_allclose(found.fits["map"].noise.dispersion, 0.08 * found.split.rows)


@pytest.mark.parametrize(
    ("refused", "words"),
    [
        (lambda: bayesnmf.compare(COUNTS, rank=2, noise="quasi"), "comparisons need a distribution of the counts"),
        (lambda: bayesnmf.compare(COUNTS, rank=2, methods=["vi", "smc"], noise="nb2"), "found 'smc'"),
        (
            lambda: bayesnmf.compare(COUNTS, rank=2, noise=NegativeBinomial(dispersion=[1.0], by="row")),
            "dispersion must have one number for each row",
        ),
        (lambda: fitted(Quasi(2)).sample_posterior_predictive(), "replicated counts need a distribution"),
        (lambda: bayesnmf.predictive_checks(fitted(Quasi(2))), "predictive checks need a distribution"),
    ],
)
def test_what_a_noise_has_not_is_refused_by_name(refused, words):
    with pytest.raises(ValueError, match=words):
        refused()


def test_advice_is_legal_with_the_noise():
    """Coordinate descent is for Poisson counts."""
    found = ["algorithm='scd'" in cure_of(fitted(noise, method="map")) for noise in ("poisson", TWO)]
    assert found == [True, False]


def test_a_caution_names_the_noises_that_widen_intervals():
    assert "likelier than 'nb2' around these means) or noise='quasi' widens them" in " ".join(
        repr(fitted("poisson")).split()
    )
    assert fitted("poisson").noise == POISSON
    parts = bayesnmf.fit(COUNTS + 0.5, rank=K, seed=0, options=plain_vi(tol=1e-5, threads=1))
    assert "noise='quasi' widens them" in " ".join(repr(parts).split())
