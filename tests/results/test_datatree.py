"""Trees for ArviZ: dimensions, names, selections, limits, and what ArviZ makes of them."""

import warnings
from dataclasses import replace

import arviz as az
import numpy as np
import pandas as pd
import pytest
from plain import plain_vi
from scipy.stats import nbinom, poisson
from smallfits import COUNTS, QUICK, K, M, N, every_method, every_model, fit, parameter_fit, quietly
from suites import mostly_long

import bayesnmf
from bayesnmf import NUTS, Gamma, Gibbs, NegativeBinomial, Priors
from bayesnmf.assessment.leave_one_out import relative_efficiency
from bayesnmf.priors.specification import MODELS
from bayesnmf.results import datatree

pytestmark = quietly


@pytest.mark.parametrize(
    ("model", "method"),
    mostly_long(
        [("gamma_poisson", "vi"), ("dirichlet_gamma", "gibbs"), ("poisson", "map"), ("dirichlet_poisson", "gibbs")], 2
    ),
)
def test_a_tree_has_named_dimensions_and_survives_a_file(model, method, tmp_path):
    fitted = fit(model, method)
    tree = fitted.to_datatree(log_likelihood=True, posterior_predictive=True, draws=None if method != "vi" else 50)
    chains, draws = {"map": (1, 1), "vi": (4, 50), "gibbs": (2, 60)}[method]
    group = tree["posterior"]
    assert dict(group.sizes) == {"chain": chains, "draw": draws, "row": N, "k": K, "feature": M}
    assert group["loadings"].dims == ("chain", "draw", "row", "k")
    assert group["components"].dims == ("chain", "draw", "k", "feature")
    assert ("scale" in group) == (fitted.scale is not None)
    assert group["row"].to_numpy().tolist() == list(COUNTS.index)
    assert group["feature"].to_numpy().tolist() == list(COUNTS.columns)
    assert group["k"].to_numpy().tolist() == [0, 1, 2]
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
    if method == "map":
        np.testing.assert_array_equal(tree["optimization"]["kkt_residual"], fitted.residuals)
        assert tree["optimization"]["kkt_residual"].dims == ("iteration",)
    if method == "vi":
        assert "kkt_residual" not in tree["optimization"]
    assert fitted.to_datatree(seed=3).identical(fitted.to_datatree(seed=3))


@pytest.mark.parametrize("method", ["vi", "gibbs"])
def test_a_large_tree_is_thinned_unasked_and_says_so(method, monkeypatch):
    fitted = fit(method=method)
    held = {"vi": 1000, "gibbs": 60}[method]
    one = 8 * K * (N + M)
    monkeypatch.setattr(datatree, "DEFAULT_BYTES", one * 40)
    monkeypatch.setattr(datatree, "FEWEST", 10)
    tree = fitted.to_datatree()
    chains, draws = (tree["posterior"].sizes[name] for name in ("chain", "draw"))
    assert chains * draws == 40
    said = f"{draws} of {held} draws of each chain, evenly spaced; draws='all' converts all"
    assert tree.attrs["thinned"] == tree["posterior"].attrs["thinned"] == said
    if method == "gibbs":
        assert tree["sample_stats"].sizes["draw"] == draws
    for whole in (fitted.to_datatree("all"), fitted.to_datatree(held)):
        assert whole["posterior"].sizes["draw"] == held
        assert "thinned" not in whole.attrs
    assert "thinned" not in fitted.to_datatree(rows=["s1"], features=["a"], draws=held).attrs
    with_more = fitted.to_datatree(log_likelihood=True)  # whose size counts too, down to the least number
    assert with_more["log_likelihood"].sizes["draw"] < draws
    assert np.isfinite(az.summary(tree, var_names="components")["mean"].to_numpy(float)).all()


def test_the_tree_of_many_rows_is_of_moderate_size_unasked():
    many = bayesnmf.fit(
        np.random.default_rng(0).poisson(2, (1797, 64)), rank=10, seed=0, options=plain_vi(max_iter=1, tol=0)
    )
    tree = many.to_datatree()
    assert sum(each.nbytes for group in tree.subtree for each in group.data_vars.values()) < 100e6
    assert tree["posterior"].sizes["draw"] >= 100


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
            rtol, atol = (0.1, 1e-3) if method == "vi" else (1e-12, 0.0)
            np.testing.assert_allclose(values, wanted, rtol=rtol, atol=atol)


@every_model
def test_selected_features_of_q_keep_their_joint_distribution(model):
    """Of a Dirichlet, the others are added up; both ways have the variances and covariances of q."""
    fitted = fit(model)
    part = fitted.to_datatree(5000, features=["c", "f"])["posterior"]["components"].to_numpy().reshape(-1, K, 2)
    whole = fitted.to_datatree(5000)["posterior"]["components"].to_numpy().reshape(-1, K, M)[:, :, [2, 5]]
    for k in range(K):
        np.testing.assert_allclose(np.cov(part[:, k].T), np.cov(whole[:, k].T), atol=0.1 * whole[:, k].var())


def test_selected_rows_and_features_have_their_means_under_every_posterior():
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
    with pytest.warns(bayesnmf.DataWarning, match="names of rows repeat"):
        doubled = bayesnmf.fit(COUNTS.set_axis(["u"] * 6 + ["v"] * 6, axis=0), rank=K, seed=0, options=QUICK)
    assert doubled.to_datatree(5, rows=["v"])["posterior"].sizes["row"] == 6


def test_large_counts_are_given_as_triplets():
    tree = fit(method="map").to_datatree(limit=700, rows=COUNTS.index[::-1][:11], features=None)
    group = tree["observed_data"]
    dense = np.zeros((group.sizes["row"], group.sizes["feature"]), int)
    dense[group["count_row"], group["count_feature"]] = group["count_value"]
    assert (dense == COUNTS.to_numpy()[::-1][:11]).all()
    assert group["count_value"].dims == ("nonzero",)


def test_trees_too_large_and_draws_too_many_are_refused():
    size = 8 * 4000 * ((N + M) * K + N * M)
    with pytest.raises(ValueError, match=r"the tree of draws would take .* choose some with rows= or features=, ask"):
        fit().to_datatree(log_likelihood=True, limit=size - 1)
    assert fit().to_datatree(log_likelihood=True, limit=size)
    refused = {
        "draws must be at most 60": ("gibbs", {"draws": 61}),
        "chains must be at most 2": ("gibbs", {"chains": 3}),
        "draws must be at most 1": ("map", {"draws": 2}),
        "features must be names in the fit: there is no 'z'": ("vi", {"features": ["z"]}),
        "rows must not repeat a name: found 's1' twice": ("vi", {"rows": ["s1", "s1"]}),
        "rows must name at least one": ("vi", {"rows": []}),
        "limit must be positive": ("vi", {"limit": 0}),
        "seed must be at least 0": ("vi", {"seed": -1}),
    }
    for message, (method, keywords) in refused.items():
        with pytest.raises(ValueError, match=message):
            fit(method=method).to_datatree(**keywords)
    with pytest.raises(TypeError, match="rows must be a list of names, not 's1'"):
        fit().to_datatree(rows="s1")
    with pytest.raises(TypeError, match="found 'row'; did you mean 'rows'"):
        fit().to_datatree(row=["s1"])


def test_arviz_takes_the_tree_of_q_without_a_warning():
    tree = fit("dirichlet_gamma").to_datatree(draws=60, log_likelihood=True)
    table = az.summary(tree, var_names=["components"])
    assert "components[0, a]" in table.index
    assert np.isfinite(az.rhat(tree)["loadings"]).all()
    assert (az.ess(tree)["scale"] > 0).all()
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Estimated shape parameter of Pareto")  # few draws
        assert np.isfinite(az.loo(tree).elpd)


NOISES = [
    ("nb1", None), ("nb2", None), (NegativeBinomial("quadratic", "row"), None),
    (NegativeBinomial("linear", "feature"), None), ("nb2", {"one": COUNTS.iloc[:, :4], "two": COUNTS.iloc[:, 4:]}),
]  # fmt: skip


@pytest.mark.parametrize(("noise", "several"), mostly_long(NOISES, (1, 4)))
def test_log_likelihoods_are_of_the_dispersion_of_each_draw(noise, several):
    options = Gibbs(start="random", chains=2, draws=30, warmup=30, threads=1)
    counts = COUNTS if several is None else several
    fit = bayesnmf.fit(counts, rank=2, method="gibbs", seed=0, noise=noise, options=options)
    rows, features = fit.row_names[[4, 1]], fit.feature_names[[7, 2, 3]]
    tree = fit.to_datatree(log_likelihood=True, rows=rows, features=features)
    drawn, x = tree["posterior"], fit.counts.matrix.toarray()[[4, 1]][:, [7, 2, 3]]
    s = drawn["dispersion"].to_numpy()
    match fit.noise.by:
        case None:
            s = s[..., None, None]
        case "row":
            s = s[..., None]
        case "feature":
            s = s[..., None, :]
        case "matrix":
            s = s[..., fit.noise.groups.codes[[7, 2, 3]]][..., None, :]
    means = drawn["loadings"].to_numpy() @ drawn["components"].to_numpy()
    size = means / s if fit.noise.variance == "linear" else np.broadcast_to(1 / s, means.shape)
    expected = nbinom.logpmf(x, size, size / (size + means))
    np.testing.assert_allclose(tree["log_likelihood"]["counts"], expected, rtol=1e-9)
    whole = fit.to_datatree(log_likelihood=True, entries=True)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Estimated shape parameter of Pareto")  # few draws
        found = az.loo(whole, reff=relative_efficiency(fit, fit.posterior))
    assert found.elpd == pytest.approx(bayesnmf.loo(fit).elpd, rel=1e-9)
