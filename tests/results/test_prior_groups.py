"""Groups of the prior in trees, log densities against NumPyro's, and sensitivity by power scaling."""

import warnings
from functools import cache

import arviz as az
import jax
import numpy as np
import pytest
from numpyro import handlers
from scipy.integrate import quad
from scipy.special import gammaln
from smallfits import COUNTS, QUICK, K, M, N, fit, parameter_fit, quietly

import bayesnmf
from bayesnmf import Dirichlet, Gamma, Gibbs, HierarchicalGamma, Priors
from bayesnmf.priors.specification import MODELS
from bayesnmf.results.prior import log_priors
from bayesnmf.results.sensitivity import CONFLICT, FINE, STRONG_PRIOR, UNKNOWN

pytestmark = quietly
EVERY = {"prior": True, "prior_predictive": True, "log_prior": True}


@cache
def sampled(model="gamma_poisson", draws=60, shape=1.0, power=1.0):
    """Return chains of the small counts, with a prior to a power."""
    options = Gibbs(start="random", chains=2, draws=draws, warmup=100, threads=1)
    if model == "one":
        prior = Gamma(power * (shape - 1) + 1, power * shape)
        priors = Priors(prior, Dirichlet(np.full((1, 3), power * 29 + 1)))
        options = Gibbs(start="random", chains=2, draws=draws, warmup=100, threads=1, priors=priors)
        return bayesnmf.fit([[9, 0, 1], [8, 2, 1]], "gamma_poisson", 1, "gibbs", seed=0, options=options)
    return bayesnmf.fit(COUNTS, model, K, "gibbs", seed=0, options=options)


@pytest.mark.parametrize("model", [model for model in MODELS if model != "hierarchical_poisson"])
def test_log_priors_are_those_of_the_sites_of_the_program(model):
    fitted = sampled(model)
    tree = fitted.to_datatree(draws=3, log_prior=True)
    program, drawn = fitted.program(), tree["posterior"]
    with jax.enable_x64(True):
        for at in np.ndindex(2, 3):
            values = {name: drawn[name].to_numpy()[at].astype(np.float64) for name in drawn.data_vars}
            own = handlers.substitute(handlers.seed(program.model, 0), values)
            sites = handlers.trace(own).get_trace(**program.arguments)
            densities = {name: float(sites[name]["fn"].log_prob(sites[name]["value"]).sum()) for name in values}
            prior = sum(float(each.to_numpy()[at]) for each in tree["log_prior"].data_vars.values())
            assert prior == pytest.approx(sum(densities.values()), rel=1e-9, abs=1e-9)


def test_rates_that_entries_share_are_summed_out():
    prior = HierarchicalGamma(0.7, Gamma(2.0, 3.0), "all")
    priors = Priors(prior, Dirichlet(1.0))
    options = Gibbs(start="random", chains=1, draws=8, warmup=10, threads=1, priors=priors)
    fitted = bayesnmf.fit(COUNTS.iloc[:2], "gamma_poisson", 1, "gibbs", seed=0, options=options)
    found = log_priors(fitted, fitted.posterior)["loadings"][0, 0]
    x = fitted.posterior.loadings[0, 0].ravel().astype(float)

    def density(rate):
        of_x = 2 * (0.7 * np.log(rate) - gammaln(0.7)) - 0.3 * np.log(x).sum() - rate * x.sum()
        return np.exp(of_x + 2 * np.log(3) - gammaln(2) + np.log(rate) - 3 * rate - found)

    assert quad(density, 0, 20, epsabs=1e-10)[0] == pytest.approx(1, rel=1e-6)


def test_draws_of_the_prior_have_its_moments_and_counts_around_their_means():
    priors = Priors(Gamma(2.0, 0.5), Dirichlet(np.full((1, M), 3.0)))
    options = Gibbs(start="random", chains=2, draws=200, warmup=20, threads=1, priors=priors)
    fitted = bayesnmf.fit(COUNTS, "gamma_poisson", K, "gibbs", seed=0, options=options)
    tree = fitted.to_datatree(rows=["s3", "s1"], features=["c"], prior=True, prior_predictive=True, seed=4)
    prior, counts = tree["prior"], tree["prior_predictive"]["counts"]
    assert dict(prior.sizes) == dict(tree["posterior"].sizes)
    assert prior["row"].to_numpy().tolist() == ["s3", "s1"]
    number = 400 * 2 * K
    assert float(prior["loadings"].mean()) == pytest.approx(4, abs=4 * np.sqrt(8 / number))
    assert float(prior["components"].mean()) == pytest.approx(1 / M, abs=4 * np.sqrt((M - 1) / M**2 / 28 / (400 * K)))
    means = np.einsum("...nk,...km->...nm", prior["loadings"], prior["components"])
    residuals = (counts.to_numpy() - means) / np.sqrt(means)
    assert abs(residuals.mean()) < 4 / np.sqrt(residuals.size)
    assert residuals.var() == pytest.approx(1, abs=0.15)


@pytest.mark.filterwarnings("ignore:Number of tail draws")
def test_a_tree_of_the_prior_of_every_model_goes_through_arviz():
    for model in ("dirichlet_gamma", "dirichlet_poisson", "hierarchical_poisson"):
        tree = sampled(model).to_datatree(log_likelihood=True, entries=True, **EVERY)
        if model != "dirichlet_poisson":  # whose prior is flat, which ArviZ refuses
            assert np.isfinite(az.psense_summary(tree)[["prior", "likelihood"]].to_numpy()).all()
        assert tree["prior_predictive"]["counts"].dims == ("chain", "draw", "entry")
        assert ("scale" in tree["prior"]) == (model == "dirichlet_gamma")
    assert (sampled("dirichlet_poisson").sensitivity()["prior"] == 0).all()
    totals = sampled("dirichlet_poisson").to_datatree(draws=5, prior_predictive=True)["prior_predictive"]["counts"]
    assert (totals.sum("feature").to_numpy() == COUNTS.sum(axis=1).to_numpy()).all()


def test_what_has_no_such_prior_is_refused_with_what_was_found():
    batches = bayesnmf.fit(COUNTS, "gamma_poisson", K, seed=0, options=QUICK, batch=list("ab") * 6)
    covariates = bayesnmf.fit(
        COUNTS, "gamma_poisson", K, seed=0, options=QUICK, covariates=COUNTS[[]].assign(x=range(N))
    )
    for fitted, found in ((batches, "batch"), (covariates, "covariates")):
        for name in EVERY:
            with pytest.raises(ValueError, match=f"loadings and components alone: found one with {found}"):
                fitted.to_datatree(draws=2, **{name: True})
    with pytest.raises(
        ValueError, match=r"prior needs a proper prior of the loadings: found Gamma\(shape=1.0, rate=0.0\); give"
    ):
        fit("poisson", "map").to_datatree(prior=True)
    with pytest.raises(ValueError, match="prior needs a proper prior of the components: found 'parameter'"):
        parameter_fit().to_datatree(draws=2, prior=True)
    assert [*parameter_fit().to_datatree(draws=2, log_prior=True)["log_prior"]] == ["loadings"]
    with pytest.raises(ValueError, match="log_prior needs all rows and features: found some; leave out rows= and"):
        fit().to_datatree(draws=2, rows=["s1"], log_prior=True)
    with pytest.raises(ValueError, match="the tree of draws would take"):
        fit().to_datatree(draws=100, chains=4, rows=["s1"], prior=True, limit=8 * 400 * (1 + M) * K)


def test_shifts_are_covariances_and_sensitivities_those_of_arviz():
    fitted = sampled()
    table = fitted.sensitivity(rows=["s3"], features=["c", "a"])
    assert table.index.tolist()[:K] == [f"share[{k}]" for k in range(K)]
    tree = fitted.to_datatree(draws="all", log_likelihood=True, log_prior=True)
    own = az.psense_summary(tree, round_to=12)
    chosen, columns = ["loadings[s3, 1]", "components[2, c]", "components[0, a]"], ["prior", "likelihood"]
    np.testing.assert_allclose(table.loc[chosen, columns], own.loc[chosen, columns].astype(float), rtol=1e-6)
    x, shares = tree["posterior"]["components"].to_numpy()[..., 2, 2].ravel(), table["mean"][:K]
    for name in ("prior", "likelihood"):
        logs = sum(each.sum([*{*each.dims} - {"chain", "draw"}]) for each in tree[f"log_{name}"].data_vars.values())
        shift = np.cov(x, logs.to_numpy().ravel(), ddof=0)[0, 1] / x.std() * np.log(1.25)
        assert table.loc["components[2, c]", f"{name}_shift"] == pytest.approx(shift, rel=1e-6)
    assert shares.sum() == pytest.approx(1)


@pytest.mark.long
def test_a_strong_prior_is_found_and_a_refit_moves_as_far():
    fitted = sampled("one", 2000, 40.0)
    table = fitted.sensitivity(rows=[0], features=[0])
    weak = sampled("one", 2000, 40.0, 0.8)
    for name, of in (("loadings[0, 0]", "loadings"), ("components[0, 0]", "components")):
        moved = (getattr(weak, of)[0, 0] - getattr(fitted, of)[0, 0]) / table.loc[name, "sd"]
        error = 4 * table.loc[name, "prior_shift_mcse"] + 0.1  # of the derivative, and of means of 4,000 draws
        assert moved == pytest.approx(-table.loc[name, "prior_shift"], abs=error)
        assert abs(moved) > 0.2
        assert table.loc[name, "diagnosis"] in (CONFLICT, STRONG_PRIOR)
    assert fitted.sensitivity(rows=[0], features=[0], threshold=50)["diagnosis"].eq(FINE).all()
    few = sampled("one", 8, 40.0).sensitivity(rows=[0], features=[0])
    assert UNKNOWN in few["diagnosis"].tolist()


def test_sensitivity_needs_chains():
    with pytest.raises(ValueError, match=r"sensitivity needs draws of chains: .* by vi.*; call fit.with_intervals"):
        fit().sensitivity()
    with pytest.raises(ValueError, match=r"sensitivity needs draws of chains: .* fit by method='gibbs'"):
        fit(method="map").sensitivity()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        table = fit().with_intervals("sampled", warmup=50, draws=100).sensitivity(rows=["s1"])
    assert np.isfinite(table[["prior", "prior_shift", "likelihood"]].to_numpy()).all()
