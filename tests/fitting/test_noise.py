"""Quasi-Poisson noise: the Poisson likelihood to a power, in every method that has it; everything else refuses it."""

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
import pytest
from plain import PLAIN, even_priors, plain_vi
from smallfits import quietly

import bayesnmf
from bayesnmf import VI, Gibbs, Quasi
from bayesnmf.assessment.bounds import state_of_fit
from bayesnmf.inference.sides import allocate, objective
from bayesnmf.priors.specification import MODELS

K = 3
every_model = pytest.mark.parametrize("model", MODELS)


def noisy(n=30, m=20, noise=0.3, seed=3):
    """Return counts whose rates have Gamma noise of this coefficient of variation."""
    rng = np.random.default_rng(seed)
    means = rng.gamma(1, 1, (n, K)) @ rng.dirichlet(np.full(m, 0.3), K) * 200
    return rng.poisson(means * rng.gamma(1 / noise**2, noise**2, means.shape) if noise else means)


COUNTS = noisy()
QUICK = plain_vi(threads=1, tol=1e-6)


def short_chains():
    return Gibbs(chains=2, draws=20, warmup=10, start="random", algorithm="marginal", threads=1)


@quietly
@every_model
def test_the_bound_is_that_of_the_likelihood_to_a_power(model):
    """A power that misses one term of the log-likelihood moves the bound by at least a nat here."""
    fit = bayesnmf.fit(COUNTS, model, K, seed=0, options=QUICK, noise="quasi")
    assert fit.noise.power < 0.8
    problem, state = state_of_fit(fit)
    assert objective(problem, state, allocate(problem, state, 1).loglik) == pytest.approx(fit.trace[-1], abs=1e-6)
    plain = replace(problem, counts=fit.counts)
    penalty = state.loadings.penalty + state.components.penalty
    bound = objective(plain, state, allocate(plain, state, 1).loglik)
    assert (bound - penalty) * fit.noise.power + penalty == pytest.approx(fit.trace[-1], rel=1e-11)
    marginal = bayesnmf.elbo_marginal(fit, 50)
    assert -4 * marginal.se < marginal.mean - fit.trace[-1] < 0.2 * abs(fit.trace[-1]) + 4 * marginal.se


@quietly
@pytest.mark.parametrize("method", ["map", "vi", "gibbs"])
@pytest.mark.parametrize("model", ["gamma_poisson", "poisson", "hierarchical_poisson", "dirichlet_gamma"])
def test_half_the_likelihood_of_twice_the_counts_is_that_of_the_counts(model, method):
    """With twice the exposure, to the last bit; halving is exact in binary numbers."""
    n = len(COUNTS)
    options = short_chains() if method == "gibbs" else PLAIN[method](max_iter=30, threads=1)
    options = replace(options, priors=even_priors(COUNTS, model))
    one = bayesnmf.fit(COUNTS, model, K, method, seed=0, options=options)
    two = bayesnmf.fit(
        2 * COUNTS, model, K, method, seed=0, options=options, noise=Quasi(1), row_exposure=np.full(n, 2.0)
    )
    np.testing.assert_array_equal(one.loadings, two.loadings)
    np.testing.assert_array_equal(one.components, two.components)


@quietly
@pytest.mark.parametrize("method", ["map", "vi", "gibbs"])
def test_no_dispersion_is_poisson(method):
    options = short_chains() if method == "gibbs" else PLAIN[method](max_iter=30, threads=1)
    one, two = (bayesnmf.fit(COUNTS, rank=K, method=method, seed=0, options=options, noise=noise)
                for noise in ("poisson", Quasi(0)))  # fmt: skip
    np.testing.assert_array_equal(one.loadings, two.loadings)
    assert two.noise == Quasi(0)


@quietly
def test_the_dispersion_is_that_of_a_poisson_fit_of_the_same_call():
    options = plain_vi(threads=1)
    plain = bayesnmf.fit(COUNTS, rank=K, seed=0, options=options)
    fit = bayesnmf.fit(COUNTS, rank=K, seed=0, options=options, noise="quasi")
    assert fit.noise.dispersion == pytest.approx(plain.dispersion().ratio - 1, rel=1e-12)
    again = bayesnmf.fit(COUNTS, rank=K, seed=0, options=VI(restarts=2, start="svd", threads=1), noise="quasi").options
    assert (fit.options.start, again.start, again.restarts) == ("random", "svd", 2)  # not those of the second fit
    assert "quasi-Poisson noise: variance" in " ".join(repr(fit).split())
    calm = bayesnmf.fit(np.full((9, 7), 4), rank=1, seed=0, options=options, noise="quasi")
    assert calm.noise.dispersion == 0  # counts that vary less than Poisson counts get no narrower intervals


@quietly
@pytest.mark.parametrize("noise", ["quasi", "nb1"])
def test_intervals_widen_as_the_counts_vary(noise):
    """By the root of the dispersion where priors say little; without it, the ratio would be 1."""
    fits = [
        bayesnmf.fit(COUNTS, rank=K, seed=0, options=plain_vi(threads=1), noise=each) for each in ("poisson", noise)
    ]
    sds = [fit.with_intervals("sampled", draws=100).intervals.draws.components.std(axis=(0, 1)) for fit in fits]
    large = fits[0].components > 0.03
    ratio = np.median(sds[1][large] / sds[0][large])
    assert ratio == pytest.approx(np.sqrt(1 + fits[1].noise.dispersion), rel=0.2)


@quietly
def test_views_and_files_keep_the_noise(tmp_path):
    options = replace(QUICK, priors=even_priors(COUNTS), tol=1e-11)
    fit = bayesnmf.fit(COUNTS, rank=K, seed=0, options=options, noise="quasi")
    fit.save(tmp_path / "fit.nc")
    loaded = bayesnmf.load(tmp_path / "fit.nc")
    views = [loaded, fit.rename(components=list("abc")), fit.project(COUNTS[:4]), fit.with_intervals("mean_field")]
    assert all(view.noise == fit.noise for view in views)
    np.testing.assert_allclose(fit.transform(COUNTS), fit.loadings, rtol=1e-3)
    assert "quasi" in " ".join(repr(loaded).split())
    assert bayesnmf.linear_response(fit).fit.noise == fit.noise


@quietly
def test_new_rows_of_chains_are_drawn_at_the_power():
    """Means and sds of the loadings of new rows agree with the mean field of the same components."""
    fit = bayesnmf.fit(COUNTS, rank=1, method="gibbs", seed=0, options=short_chains(), noise=Quasi(3))
    found = fit.project(COUNTS[:6], seed=0)
    draws = found.posterior.loadings[0, :, :, 0]
    exact = 0.25 * COUNTS[:6].sum(axis=1)  # Gamma(1 + κN, rate + κ Σ components) for components on the simplex
    rate = float(np.ravel(fit.priors.loadings.rate)[0]) + 0.25
    np.testing.assert_allclose(draws.mean(axis=0), (1 + exact) / rate, rtol=0.05)
    np.testing.assert_allclose(draws.std(axis=0), np.sqrt(1 + exact) / rate, rtol=0.35)


@quietly
@pytest.mark.parametrize(
    ("refused", "words"),
    [
        (lambda fit: fit.sample_posterior_predictive(), "replicated counts need a distribution"),
        (lambda fit: bayesnmf.predictive_checks(fit), "predictive checks need a distribution"),
        (lambda fit: fit.to_datatree(log_likelihood=True), "log_likelihood and posterior_predictive need"),
        (lambda fit: bayesnmf.fit(COUNTS, rank=2, method="nuts", noise="quasi"), "noise='quasi' needs method='map'"),
        (lambda fit: bayesnmf.fit(COUNTS, rank=2, method="smc", noise="quasi"), "noise='quasi' needs method='map'"),
        (lambda fit: bayesnmf.fit(COUNTS, rank=2, noise="nb"), "noise must be one of 'poisson', 'nb1', 'nb2', 'quasi'"),
        (
            lambda fit: bayesnmf.fit(
                COUNTS, rank=2, method="gibbs", options=Gibbs(algorithm="allocations"), noise="quasi"
            ),
            "need bayesnmf.Gibbs\\(algorithm='marginal'\\)",
        ),
        (lambda fit: bayesnmf.fit(COUNTS[:2, :3], rank=2, noise="quasi"), "a dispersion needs more entries"),
        (lambda fit: Quasi(-1), "dispersion must be at least 0"),
    ],
)
def test_what_quasi_noise_is_not_is_refused_by_name(refused, words):
    fit = bayesnmf.fit(COUNTS, rank=K, seed=0, options=QUICK, noise=Quasi(2))
    with pytest.raises(ValueError, match=words):
        refused(fit)


@dataclass(frozen=True)
class Spread(Quasi):
    """A noise of another name with the same abilities."""

    word: ClassVar[str] = "spread"


def test_what_fits_another_noise_is_read_off_its_abilities():
    assert bayesnmf.fit(COUNTS, rank=2, noise=Spread(2.0), seed=0, options=QUICK).noise == Spread(2.0)
    with pytest.raises(ValueError, match="noise='spread' needs method='map', 'vi' or 'gibbs': found 'nuts'"):
        bayesnmf.fit(COUNTS, rank=2, method="nuts", noise=Spread(2.0))


def test_a_noise_of_another_kind_is_refused():
    with pytest.raises(TypeError, match="noise must be a word"):
        bayesnmf.fit(COUNTS, rank=2, noise=3)


@quietly
def test_estimators_take_the_noise():
    found = bayesnmf.BayesNMF(K, options=QUICK, noise=Quasi(2), random_state=0).fit(COUNTS)
    assert found.fit_.noise == Quasi(2)
    stream = found.partial_fit(COUNTS)
    assert stream.fit_.noise == Quasi(2)


@quietly
def test_a_checkpoint_of_another_noise_is_refused(tmp_path):
    given = {"rank": K, "seed": 0, "options": QUICK, "checkpoint": tmp_path / "kept"}
    one = bayesnmf.fit(COUNTS, noise="quasi", **given)
    again = bayesnmf.fit(COUNTS, noise="quasi", **given)
    assert again.noise == one.noise
    with pytest.raises(ValueError, match="noise"):
        bayesnmf.fit(COUNTS, **given)


@pytest.mark.usefixtures("without_pictures")
@quietly
def test_a_report_says_what_it_cannot_check(tmp_path):
    fit = bayesnmf.fit(COUNTS, rank=K, seed=0, options=VI(intervals="mean_field", threads=1), noise=Quasi(2))
    page = bayesnmf.report(fit, tmp_path / "page.html").read_text(encoding="utf-8")
    assert "has no distribution to draw replicated counts from" in page
    assert "Quasi(dispersion=2.0)" in page
