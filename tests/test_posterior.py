"""Draws, replicated counts and ArviZ trees: shapes, names, selections, limits, and agreement with q and the fit."""

import warnings
from dataclasses import replace

import arviz as az
import numpy as np
import pandas as pd
import pytest
from scipy.stats import poisson

import bayesnmf
from bayesnmf import MAP, NUTS, VI, Gamma, Gibbs, Priors
from bayesnmf.results import iterate_draws
from bayesnmf.specification import MODELS

pytestmark = pytest.mark.filterwarnings("ignore::bayesnmf.fitting.ConvergenceWarning")

N, M, K = 12, 9, 3
COUNTS = pd.DataFrame(
    np.random.default_rng(0).poisson(3, (N, M)), index=[f"s{i}" for i in range(N)], columns=list("abcdefghi")
)
QUICK = VI(max_iter=60, threads=1)
OPTIONS = {
    "map": MAP(max_iter=60, threads=1),
    "vi": QUICK,
    "gibbs": Gibbs(chains=2, draws=60, warmup=100, threads=1),
}
FITS = {}


def fit(model="gamma_poisson", method="vi"):
    if (model, method) not in FITS:
        FITS[model, method] = bayesnmf.fit(COUNTS, model, K, method, seed=0, options=OPTIONS[method])
    return FITS[model, method]


def parameter_fit(model="gamma_poisson"):
    return bayesnmf.fit(COUNTS, model, K, "vi", seed=0, options=replace(QUICK, priors=Priors(components="parameter")))


every_model = pytest.mark.parametrize("model", MODELS)
every_method = pytest.mark.parametrize("method", OPTIONS)

# --- draws -----------------------------------------------------------------------------------------


@every_model
def test_draws_from_q_have_its_moments_and_depend_on_the_seed_alone(model):
    fitted = fit(model)
    draws = fitted.sample_posterior(2000, chains=2, seed=1)
    assert (draws.chains, draws.draws) == (2, 2000)
    assert draws.loadings.shape == (2, 2000, N, K)
    assert draws.components.shape == (2, 2000, K, M)
    assert (draws.scale is None) == (fitted.scale is None)
    np.testing.assert_allclose(draws.loadings.mean((0, 1)), fitted.loadings, rtol=0.2, atol=0.02)
    np.testing.assert_allclose(draws.components.mean((0, 1)), fitted.components, rtol=0.2, atol=0.01)
    if fitted.scale is not None:
        np.testing.assert_allclose(draws.scale.mean((0, 1)), fitted.scale, rtol=0.05)
    again, other = fitted.sample_posterior(2000, chains=2, seed=1), fitted.sample_posterior(2000, chains=2, seed=2)
    np.testing.assert_array_equal(draws.loadings, again.loadings)
    assert not np.array_equal(draws.loadings, other.loadings)


@every_model
def test_draws_of_a_sampler_are_thinned_evenly(model):
    fitted = fit(model, "gibbs")
    draws = fitted.sample_posterior(20, chains=2)
    np.testing.assert_array_equal(draws.loadings, fitted.posterior.loadings[:, ::3])
    np.testing.assert_array_equal(draws.components, fitted.posterior.components[:, ::3])
    if fitted.scale is not None:
        np.testing.assert_array_equal(draws.scale, fitted.posterior.scale[:, ::3])
    np.testing.assert_array_equal(
        fitted.sample_posterior(7).loadings, fitted.posterior.loadings[:1, [0, 8, 17, 25, 34, 42, 51]]
    )


def test_components_without_a_posterior_are_the_same_in_every_draw():
    fitted = parameter_fit()
    draws = fitted.sample_posterior(5, chains=2)
    assert draws.components.shape == (2, 5, K, M)
    assert (draws.components == fitted.components).all()


def test_what_sample_posterior_refuses():
    with pytest.raises(AttributeError, match="a MAP fit has no posterior; fit with method='vi'"):
        fit(method="map").sample_posterior()
    with pytest.raises(ValueError, match=r"draws must be at most 60, .*: found 1000; ask for draws=60, or fit again"):
        fit(method="gibbs").sample_posterior()
    with pytest.raises(ValueError, match="chains must be at most 2"):
        fit(method="gibbs").sample_posterior(10, chains=3)
    with pytest.raises(ValueError, match=r"the draws would take .* ask for fewer draws"):
        fit().sample_posterior(10_000_000)
    with pytest.raises(ValueError, match="draws must be at least 1"):
        fit().sample_posterior(0)
    with pytest.raises(ValueError, match="seed must be at least 0"):
        fit().sample_posterior(1, seed=-1)


# --- replicated counts -----------------------------------------------------------------------------


@every_method
@every_model
def test_replicated_counts_have_the_fitted_means(model, method):
    fitted = fit(model, method)
    draws = 1000 if method != "gibbs" else 120
    replicated = fitted.sample_posterior_predictive(draws, seed=1)
    assert replicated.shape == (draws, N, M)
    assert replicated.dtype == np.int64
    means = np.mean([loadings @ components for loadings, components in iterate_draws(fitted, draws, 1)], axis=0)
    error = np.sqrt(means / draws)
    assert (np.abs(replicated.mean(0) - means) < 5 * error).all()
    given = (replicated.sum(2) == COUNTS.sum(axis=1).to_numpy()).all()
    assert given == MODELS[model].given_totals


@every_model
def test_replicated_counts_of_some_rows(model):
    replicated = fit(model, "gibbs").sample_posterior_predictive(120, seed=1, rows=["s7", "s2"])
    assert replicated.shape == (120, 2, M)
    means = fit(model, "gibbs").expected_loadings @ fit(model, "gibbs").components
    np.testing.assert_allclose(replicated.mean((0, 2)), means[[7, 2]].mean(1), rtol=0.1)
    if MODELS[model].given_totals:
        assert (replicated.sum(2) == COUNTS.loc[["s7", "s2"]].sum(axis=1).to_numpy()).all()


def test_rows_without_counts_and_fractional_totals_are_replicated():
    counts = COUNTS.to_numpy() * 1.1
    counts[3] = 0
    fitted = bayesnmf.fit(counts, "dirichlet_poisson", K, "vi", seed=0, options=QUICK)
    replicated = fitted.sample_posterior_predictive(10)
    assert (replicated.sum(2) == np.rint(counts.sum(1))).all()


def test_what_the_predictive_refuses():
    with pytest.raises(ValueError, match="draws must be at most 120"):
        fit(method="gibbs").sample_posterior_predictive(121)
    with pytest.raises(ValueError, match=r"rows must be names in the fit: there is no 'x'; choose from fit\.row_names"):
        fit().sample_posterior_predictive(1, rows=["s1", "x"])
    with pytest.raises(ValueError, match=r"replicated counts would take .*; choose some with rows=, or fewer draws="):
        fit().sample_posterior_predictive(10_000_000)


# --- trees -----------------------------------------------------------------------------------------


@every_method
@every_model
def test_a_tree_has_named_dimensions_and_survives_a_file(model, method, tmp_path):
    fitted = fit(model, method)
    tree = fitted.to_datatree(log_likelihood=True, posterior_predictive=True, draws=None if method != "vi" else 50)
    chains, draws = {"map": (1, 1), "vi": (4, 50), "gibbs": (2, 60)}[method]
    group = tree["posterior"]
    assert dict(group.sizes) == {"chain": chains, "draw": draws, "row": N, "component": K, "feature": M}
    assert group["loadings"].dims == ("chain", "draw", "row", "component")
    assert group["components"].dims == ("chain", "draw", "component", "feature")
    assert ("scale" in group) == (fitted.scale is not None)
    assert group["row"].to_numpy().tolist() == list(COUNTS.index)
    assert group["feature"].to_numpy().tolist() == list(COUNTS.columns)
    assert group["component"].to_numpy().tolist() == [0, 1, 2]
    traced = "sample_stats" if method == "gibbs" else "optimization"
    assert set(tree.children) == {
        "posterior", traced, "observed_data", "log_likelihood", "posterior_predictive"
    }  # fmt: skip
    assert (tree["observed_data"]["counts"].to_numpy() == COUNTS.to_numpy()).all()
    assert tree["posterior_predictive"]["counts"].dtype == np.int64
    tree.to_netcdf(tmp_path / "tree.nc", engine="h5netcdf")
    with az.from_netcdf(tmp_path / "tree.nc") as read:
        assert read.load().identical(tree)


@every_method
def test_a_tree_says_what_it_is(method):
    fitted = fit("dirichlet_gamma", method)
    tree = fitted.to_datatree()
    for attributes in (tree.attrs, tree["posterior"].attrs):
        assert attributes["inference_library"] == "bayesnmf"
        assert attributes["inference_library_version"] == bayesnmf.__version__
        assert (attributes["model"], attributes["method"]) == ("dirichlet_gamma", method)
        assert ("point_estimate" in attributes) == (method == "map")
        assert ("independent_draws" in attributes) == (method == "vi")
    if method == "map":
        np.testing.assert_array_equal(tree["posterior"]["scale"][0, 0], fitted.scale)
    if method == "gibbs":
        np.testing.assert_array_equal(tree["sample_stats"]["lp"], fitted.trace)
    else:
        np.testing.assert_array_equal(tree["optimization"]["objective"], fitted.trace)
    assert fitted.to_datatree(seed=3).identical(fitted.to_datatree(seed=3))


def test_nuts_gives_the_tree_of_a_sampler():
    gibbs = fit(method="gibbs")
    tree = replace(gibbs, method="nuts", options=NUTS(priors=gibbs.priors)).to_datatree(draws=30, chains=1)
    assert tree.attrs["method"] == "nuts"
    np.testing.assert_array_equal(tree["posterior"]["loadings"], gibbs.posterior.loadings[:1, ::2])
    np.testing.assert_array_equal(tree["sample_stats"]["lp"], gibbs.trace[:1, ::2])
    without = replace(gibbs, trace=gibbs.trace[:, :10]).to_datatree()
    assert "sample_stats" not in without.children


def test_log_likelihoods_are_poisson_at_the_means_of_the_draws():
    for model in MODELS:
        fitted = fit(model, "gibbs")
        tree = fitted.to_datatree(log_likelihood=True)
        group = tree["posterior"]
        loadings = group["loadings"].to_numpy()
        if "scale" in group:
            loadings = loadings * group["scale"].to_numpy()[..., None]
        if MODELS[model].given_totals:
            loadings = loadings * COUNTS.sum(axis=1).to_numpy()[:, None]
            assert "row totals are given" in tree["log_likelihood"].attrs["note"]
        expected = poisson.logpmf(COUNTS.to_numpy(), loadings @ group["components"].to_numpy())
        np.testing.assert_allclose(tree["log_likelihood"]["counts"], expected, rtol=1e-9)


@every_method
def test_a_selection_takes_rows_and_features_in_the_order_asked(method):
    fitted = fit("dirichlet_gamma", method)
    everything = {"log_likelihood": True, "posterior_predictive": True}
    tree = fitted.to_datatree(rows=["s7", "s2"], features=iter("hab"), **everything)
    whole = fitted.to_datatree(**everything)
    assert tree["posterior"]["row"].to_numpy().tolist() == ["s7", "s2"]
    assert tree["posterior"]["feature"].to_numpy().tolist() == ["h", "a", "b"]
    assert (tree["observed_data"]["counts"].to_numpy() == COUNTS.loc[["s7", "s2"], ["h", "a", "b"]].to_numpy()).all()
    chosen = {"row": ["s7", "s2"], "feature": ["h", "a", "b"]}
    for name in ("posterior", "log_likelihood"):
        for variable, values in tree[name].data_vars.items():
            wanted = whole[name][variable].sel({d: labels for d, labels in chosen.items() if d in values.dims})
            if method == "vi":  # other draws of the same distribution
                values, wanted = values.mean(("chain", "draw")), wanted.mean(("chain", "draw"))
            np.testing.assert_allclose(values, wanted, rtol=1e-12 if method != "vi" else 0.1)


@every_model
def test_selected_features_of_q_keep_their_joint_distribution(model):
    """Of a Dirichlet, the others are added up; both ways have the variances and covariances of q."""
    fitted = fit(model)
    part = fitted.to_datatree(5000, features=["c", "f"])["posterior"]["components"].to_numpy().reshape(-1, K, 2)
    whole = fitted.to_datatree(5000)["posterior"]["components"].to_numpy().reshape(-1, K, M)[:, :, [2, 5]]
    for k in range(K):
        np.testing.assert_allclose(np.cov(part[:, k].T), np.cov(whole[:, k].T), atol=0.1 * whole[:, k].var())


def test_selections_under_other_posteriors():
    gamma = replace(QUICK, priors=Priors(Gamma(1.0, 1.0), Gamma(0.5, np.full((1, M), 0.5))))
    for fitted in (bayesnmf.fit(COUNTS, "gamma_poisson", K, seed=0, options=gamma), parameter_fit("dirichlet_gamma")):
        tree = fitted.to_datatree(2000, rows=["s3"], features=list("cba"))
        components = tree["posterior"]["components"]
        np.testing.assert_allclose(components.mean(("chain", "draw")), fitted.components[:, [2, 1, 0]], rtol=0.1)
    assert components.attrs["point_estimate"] == 1
    whole = fit("dirichlet_poisson").to_datatree(10, features=list("ihgfedcba"), posterior_predictive=True)
    replicated = whole["posterior_predictive"]["counts"]
    assert (replicated.sum("feature").to_numpy() == COUNTS.sum(axis=1).to_numpy()).all()
    some = fit("dirichlet_poisson").to_datatree(500, features=list("ab"), posterior_predictive=True)
    expected = (fit("dirichlet_poisson").expected_loadings @ fit("dirichlet_poisson").components)[:, :2]
    means = some["posterior_predictive"]["counts"].mean(("chain", "draw"))
    np.testing.assert_allclose(means, expected, rtol=0.1)


def test_default_names_are_selected_by_number():
    fitted = bayesnmf.fit(COUNTS.to_numpy(), rank=K, seed=0, options=QUICK)
    tree = fitted.to_datatree(5, rows=range(2, 4), features=np.array([8]))
    assert tree["posterior"]["row"].to_numpy().tolist() == [2, 3]
    assert tree["posterior"]["feature"].to_numpy().tolist() == [8]


def test_names_of_any_kind_become_coordinates(tmp_path):
    frame = COUNTS.set_axis(pd.MultiIndex.from_product([["a", "b"], range(6)]), axis=0)
    tree = bayesnmf.fit(frame, rank=K, seed=0, options=QUICK).to_datatree(5, rows=[("b", 2)])
    assert tree["posterior"]["row"].to_numpy().tolist() == ["('b', 2)"]
    tree.to_netcdf(tmp_path / "tree.nc", engine="h5netcdf")
    doubled = bayesnmf.fit(COUNTS.set_axis(["u"] * 6 + ["v"] * 6, axis=0), rank=K, seed=0, options=QUICK)
    assert doubled.to_datatree(5, rows=["v"])["posterior"].sizes["row"] == 6


def test_large_counts_are_given_as_triplets():
    tree = fit(method="map").to_datatree(limit=700, rows=COUNTS.index[::-1][:11], features=None)
    group = tree["observed_data"]
    dense = np.zeros((group.sizes["row"], group.sizes["feature"]), int)
    dense[group["count_row"], group["count_feature"]] = group["count_value"]
    assert (dense == COUNTS.to_numpy()[::-1][:11]).all()
    assert group["count_value"].dims == ("nonzero",)


def test_what_a_tree_refuses():
    size = 8 * 4000 * ((N + M) * K + N * M)
    with pytest.raises(ValueError, match=r"the tree of draws would take .* choose some with rows= or features=, ask"):
        fit().to_datatree(log_likelihood=True, limit=size - 1)
    assert fit().to_datatree(log_likelihood=True, limit=size)
    refused = {
        "draws must be at most 60": ("gibbs", {"draws": 61}),
        "chains must be at most 2": ("gibbs", {"chains": 3}),
        "draws must be at most 1": ("map", {"draws": 2}),
        "features must be names in the fit: there is no 'z'": ("vi", {"features": ["z"]}),
        "rows must name each one once: found 's1' twice": ("vi", {"rows": ["s1", "s1"]}),
        "rows must name at least one": ("vi", {"rows": []}),
        "limit must be positive": ("vi", {"limit": 0}),
        "seed must be at least 0": ("vi", {"seed": -1}),
    }
    for message, (method, keywords) in refused.items():
        with pytest.raises(ValueError, match=message):
            fit(method=method).to_datatree(**keywords)
    with pytest.raises(TypeError, match="rows must be a list of names, not 's1'"):
        fit().to_datatree(rows="s1")
    with pytest.raises(TypeError, match="unexpected keyword argument 'row'"):
        fit().to_datatree(row=["s1"])


@pytest.mark.parametrize("method", ["vi", "gibbs"])
def test_arviz_takes_the_tree_without_a_warning(method):
    import matplotlib as mpl

    mpl.use("Agg")
    tree = fit("dirichlet_gamma", method).to_datatree(draws=60, log_likelihood=True)
    table = az.summary(tree, var_names=["components"])
    assert "components[0, a]" in table.index
    assert np.isfinite(az.rhat(tree)["loadings"]).all()
    assert (az.ess(tree)["scale"] > 0).all()
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Estimated shape parameter of Pareto")  # few draws
        assert np.isfinite(az.loo(tree).elpd)
    az.plot_trace_dist(tree, var_names=["components"], coords={"feature": ["a"]})
    mpl.pyplot.close("all")
