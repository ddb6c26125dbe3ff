"""Factors of batches through every door: what asks for means has them, and what cannot serve them refuses."""

import warnings
from dataclasses import replace
from functools import cache

import numpy as np
import pandas as pd
import pytest
from plain import plain_vi
from smallfits import quietly

import bayesnmf
from bayesnmf import MAP, VI, Batch, Gibbs

LABELS = ["b", "a"] * 20
DRAWN = bayesnmf.simulate("gamma_poisson", (40, 15), rank=2, totals=300, batch=Batch(LABELS, shape=5), seed=1)
COUNTS = DRAWN.counts.matrix.toarray()
OPTIONS = {
    "vi": plain_vi(),
    "map": MAP(),
    "gibbs": Gibbs(draws=15, warmup=40, chains=2),
    "vi, nb1": plain_vi(max_iter=100),
    "map, nb2": MAP(),
    "gibbs, nb2": Gibbs(draws=15, warmup=40, chains=2),
}


@cache
def fitted(kind):
    method, _, noise = kind.partition(", ")
    given = {"method": method, "noise": noise or "poisson"}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return bayesnmf.fit(COUNTS, rank=2, seed=0, options=OPTIONS[kind], batch=LABELS, **given)


every_fit = pytest.mark.parametrize("method", OPTIONS)


def means_of(fit):
    return fit.batch.mean[fit.counts.batch.codes] * (fit.expected_loadings @ fit.exposed_components)


def test_a_simulation_has_factors_and_its_counts_carry_the_batches():
    assert DRAWN.batch_factors.shape == (2, 15)
    assert DRAWN.counts.batch.names.tolist() == ["a", "b"]
    assert DRAWN.counts.rows([0, 1, 2]).batch.codes.tolist() == [1, 0, 1]
    np.testing.assert_allclose(
        DRAWN.means, DRAWN.loadings @ DRAWN.components * DRAWN.batch_factors[DRAWN.counts.batch.codes]
    )


@quietly
def test_covariates_that_are_those_of_batches_are_told():
    """Columns with one value in each batch; others vary within batches, and nothing is told of them."""
    frame = pd.DataFrame({"arm": LABELS, "age": np.arange(40.0)})
    given = {"rank": 2, "seed": 0, "options": plain_vi(max_iter=5)}
    with pytest.warns(bayesnmf.DataWarning, match=r"confounded with batch: 'arm\[T.b\]', with one value in each"):
        bayesnmf.fit(COUNTS, batch=LABELS, formula="~ arm + age", covariates=frame, **given)
    few = {"batch": LABELS, "formula": "~ arm", "covariates": frame, "options": plain_vi(max_iter=5)}
    for study in (
        lambda: bayesnmf.modes(COUNTS, rank=2, starts=2, scored=0, jobs=1, **few),
        lambda: bayesnmf.select(COUNTS, ranks=2, splits=1, check=False, **few),
    ):
        with pytest.warns(bayesnmf.DataWarning, match="covariates are confounded with batch"):
            study()
    with warnings.catch_warnings():
        warnings.simplefilter("error", bayesnmf.DataWarning)
        bayesnmf.fit(COUNTS, batch=LABELS, formula="~ age", covariates=frame, **given)
        bayesnmf.fit(COUNTS, formula="~ arm", covariates=frame, **given)


@quietly
@pytest.mark.parametrize("algorithm", ["marginal", "allocations"])
@pytest.mark.parametrize("components", [bayesnmf.Dirichlet(1.0), bayesnmf.Gamma(1.0, 1.0)])
def test_drawn_factors_are_those_of_the_drawn_sides(algorithm, components):
    """Means of draws add up to the counts of each batch and feature but for their posterior, after moves of scales."""
    options = replace(OPTIONS["gibbs"], algorithm=algorithm, priors=bayesnmf.Priors(components=components))
    drawn = bayesnmf.fit(COUNTS, rank=2, method="gibbs", seed=0, options=options, batch=LABELS).posterior
    members = np.array([[label == name for label in LABELS] for name in "ab"], float)
    means = np.einsum("bn,cdnk,cdkm->cdbm", members, drawn.loadings, drawn.components) * drawn.factors
    counts = members @ COUNTS
    assert ((means - counts) / np.sqrt(counts + 1)).std() == pytest.approx(1, abs=0.15)


@every_fit
def test_factors_are_recovered(method):
    table, true = fitted(method).batch_factors(), np.log(DRAWN.batch_factors)
    assert table.index.names == ["batch", "feature"]
    logs = np.log(table["mean"].to_numpy().reshape(2, 15))
    assert np.corrcoef(logs[0] - logs[1], true[0] - true[1])[0, 1] > 0.8
    assert (table["lower"] < table["upper"]).all()


@pytest.mark.parametrize("model", ["poisson", "gamma_poisson", "hierarchical_poisson", "dirichlet_gamma"])
@pytest.mark.parametrize("method", ["map", "vi"])
def test_factors_are_about_one(method, model):
    """The counts do not say of which scale they are; the mode of loadings would have them at three and more."""
    if (method, model) == ("vi", "poisson"):
        return  # its priors are flat
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        fit = bayesnmf.fit(COUNTS, model, 2, method, seed=0, batch=LABELS)
    assert fit.batch.mean.mean(axis=1) == pytest.approx(1.0, abs=0.15)
    if method == "map":
        other = {"natural": "log", "log": "natural"}[fit.options.basis]
        with pytest.raises(ValueError, match=f"basis='{fit.options.basis}'"):
            bayesnmf.fit(COUNTS, model, 2, "map", seed=0, options=MAP(basis=other), batch=LABELS)


@quietly
def test_labels_may_be_a_column():
    batches = [
        bayesnmf.fit(COUNTS, rank=2, seed=0, batch=each, options=plain_vi(max_iter=2)).batch.mean
        for each in (LABELS, pd.DataFrame({"donor": LABELS}))
    ]
    np.testing.assert_array_equal(*batches)


def test_factors_print_as_one_line():
    shape = fitted("vi").batch.shape
    assert repr(fitted("vi").batch) == f"FittedBatches('a', 'b': 15 factors each, shape {shape:.4g}, learned)"


@every_fit
def test_means_of_entries_have_factors_everywhere(method):
    fit = fitted(method)
    left, right = fit.mean_factors
    np.testing.assert_allclose(left @ right, means_of(fit))
    table = fit.expected(rows=[3, 0], features=[2, 7])
    np.testing.assert_allclose(table["mean"], means_of(fit)[[3, 0]][:, [2, 7]].ravel(), rtol=0.25)
    replicated = fit.sample_posterior_predictive(30, seed=1)
    totals = np.array([COUNTS[np.array(LABELS) == name].sum(axis=0) for name in "ab"])
    made = np.array([replicated[:, np.array(LABELS) == name].sum(axis=1).mean(axis=0) for name in "ab"])
    assert np.abs(made - totals).max() < 0.12 * totals.max()
    assert fit.dispersion().ratio == pytest.approx(1, abs=0.2)


@every_fit
def test_saved_and_loaded_fits_are_the_same(method, tmp_path):
    fit = fitted(method)
    fit.save(tmp_path / "fit.nc")
    found = bayesnmf.load(tmp_path / "fit.nc")
    np.testing.assert_array_equal(found.batch.mean, fit.batch.mean)
    assert found.counts.batch.names.tolist() == ["a", "b"]
    assert found.batch.learned is True
    new = {"counts": COUNTS[:3], "batch": LABELS[:3], "seed": 1}
    np.testing.assert_array_equal(found.transform(**new), fit.transform(**new))


@every_fit
def test_new_rows_of_known_and_of_new_batches(method):
    fit = fitted(method)
    known = fit.project(COUNTS[:4], batch=["b", "a", "b", "a"], seed=1)
    np.testing.assert_allclose(known.mean_factors[0] @ known.mean_factors[1], means_of(known))
    with pytest.warns(bayesnmf.DataWarning, match="1 labels that the fit does not have: 'c'"):
        new = fit.project(COUNTS[:2], batch=["c", "a"], seed=1)
    assert new.batch.mean[2].tolist() == [1.0] * 15
    with pytest.raises(ValueError, match="batch must be given for new rows of a fit with batches"):
        fit.transform(COUNTS[:2])
    with pytest.raises(ValueError, match="batch needs a fit with batches"):
        bayesnmf.fit(COUNTS, rank=2, seed=0, options=plain_vi()).transform(COUNTS[:2], batch=["a", "b"])


def test_bounds_of_a_fit_with_batches():
    fit = bayesnmf.fit(COUNTS, rank=2, seed=0, options=plain_vi(), batch=Batch(LABELS, 5))
    assert bayesnmf.elbo_augmented(fit) == pytest.approx(fit.trace[-1], rel=1e-9)
    marginal = bayesnmf.elbo_marginal(fit, draws=50)
    assert marginal.mean > fit.trace[-1] - 3 * marginal.se


def test_log_likelihoods_of_draws_have_factors_and_noise():
    fit = fitted("gibbs, nb2")
    drawn, alpha = fit.posterior, fit.statistics["dispersion"][1, 2]
    means = drawn.factors[1, 2][fit.counts.batch.codes] * (drawn.loadings[1, 2] @ drawn.components[1, 2])
    found = fit.to_datatree(log_likelihood=True)["log_likelihood"]["counts"][1, 2].to_numpy()
    from scipy.stats import nbinom

    np.testing.assert_allclose(found, nbinom.logpmf(COUNTS, 1 / alpha, 1 / (1 + alpha * means)), rtol=1e-6)


def test_trees_have_factors_by_batch_and_feature():
    tree = fitted("gibbs").to_datatree(log_likelihood=True, posterior_predictive=True)
    factors = tree["posterior"]["batch_factors"]
    assert factors.dims == ("chain", "draw", "batch", "feature")
    assert factors["batch"].to_numpy().tolist() == ["a", "b"]
    means = fitted("gibbs").posterior
    at = means.loadings[0, 3] @ means.components[0, 3] * means.factors[0, 3][fitted("gibbs").counts.batch.codes]
    found = tree["log_likelihood"]["counts"][0, 3].to_numpy()
    from scipy.stats import poisson

    np.testing.assert_allclose(found, poisson.logpmf(COUNTS, at))


@pytest.mark.long
def test_scores_of_left_out_entries_are_those_of_all_draws():
    found = bayesnmf.loo(fitted("gibbs"))
    some = bayesnmf.loo(fitted("gibbs"), most=200)
    assert found.elpd == pytest.approx(some.elpd, abs=5 * some.sampling_se)


@quietly
@pytest.mark.long
def test_checks_refit_with_factors():
    found = bayesnmf.predictive_checks(fitted("vi"), draws=20, refits=12)
    assert found.table.loc["misfit", "p_value"] > 0.05
    assert bayesnmf.predictive_checks(fitted("vi, nb1"), draws=20, refits=12).table.loc["misfit", "p_value"] > 0.05
    plain = bayesnmf.predictive_checks(bayesnmf.fit(COUNTS, rank=2, seed=0, options=plain_vi()), draws=20, refits=12)
    assert plain.table.loc["misfit", "p_value"] < 0.01


@pytest.mark.long
def test_ranks_and_modes_take_batches():
    table = bayesnmf.select(COUNTS, ranks=(1, 2), batch=LABELS, splits=1, check=False, options=VI(max_iter=40)).table
    assert table.loc[("gamma_poisson", 2), "mean"] > table.loc[("gamma_poisson", 1), "mean"]
    found = bayesnmf.modes(COUNTS, rank=2, starts=2, batch=LABELS, options=VI(max_iter=200), scored=0)
    assert found.best.batch.names.tolist() == ["a", "b"]


def test_estimators_take_batches():
    estimator = bayesnmf.BayesNMF(2, options=plain_vi(), random_state=0).fit(COUNTS, batch=LABELS)
    assert estimator.transform(COUNTS[:4], batch=LABELS[:4]).shape == (4, 2)
    assert "batch" in estimator.get_metadata_routing().fit.requests


def test_a_column_of_obs_names_batches():
    anndata = pytest.importorskip("anndata")
    obs = pd.DataFrame({"donor": LABELS}, index=[f"cell {i}" for i in range(40)])
    adata = anndata.AnnData(COUNTS.astype(np.float32), obs=obs)
    found = bayesnmf.tl.fit(adata, rank=2, seed=0, options=plain_vi(), batch="donor")
    np.testing.assert_allclose(found.batch.mean, fitted("vi").batch.mean, rtol=1e-6)
    with pytest.raises(ValueError, match="batch must be a column of obs: found 'who'"):
        bayesnmf.fit(adata, rank=2, batch="who")


def test_labels_by_name_are_put_in_order():
    frame = pd.DataFrame(COUNTS, index=[f"s{i}" for i in range(40)])
    given = {f"s{i}": LABELS[i] for i in reversed(range(40))} | {"other": "c"}
    found = bayesnmf.fit(frame, rank=2, seed=0, options=plain_vi(), batch=given)
    np.testing.assert_array_equal(found.counts.batch.codes, fitted("vi").counts.batch.codes)


@pytest.mark.long
def test_the_command_line_reads_batches(tmp_path, monkeypatch):
    from bayesnmf.cli import main

    monkeypatch.chdir(tmp_path)
    names = [f"s{i}" for i in range(40)]
    pd.DataFrame(COUNTS, index=names).rename_axis("sample").to_csv("counts.csv")
    pd.DataFrame({"sample": names, "batch": LABELS}).to_csv("batches.csv", index=False)
    assert main(["fit", "counts.csv", "--rank", "2", "--batch", "batches.csv", "--quiet", "--set", "max_iter=20"]) == 0
    fit = bayesnmf.load("fit.nc")
    assert fit.counts.batch.names.tolist() == ["a", "b"]
    assert main(["transform", "fit.nc", "counts.csv", "--batch", "batches.csv", "--quiet"]) == 0
    assert main(["fit", "counts.csv", "--rank", "2", "--batch", "donor", "--quiet"]) != 0


def test_fits_say_that_they_have_batches():
    from bayesnmf.pages.of_fit import settings

    assert "40 rows × 15 features, 2 batches" in repr(fitted("vi"))
    assert any("'a', 'b'; factors of shape" in row[1] for row in settings(fitted("vi")).tables[0].rows)


def test_groups_that_are_confounded_with_batches_are_told():
    contrasts, fit = bayesnmf.group_contrasts, fitted("vi")
    with pytest.warns(bayesnmf.DataWarning, match="groups are confounded with batch: 'x' in 'b'; 'y' in 'a'"):
        contrasts(fit, ["x", "y"] * 20)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        contrasts(fit, ["x", "x", "y", "y"] * 10)


REFUSED = [
    ({"batch": ["a"] * 40}, "batch must have at least two different labels: found 'a' alone"),
    ({"batch": ["a", "b"]}, "batch must have one label for each of 40 rows: found 2"),
    ({"batch": [None, "a"] * 20}, "batch must have a label for each row: 20 are missing values"),
    ({"batch": 5}, "batch must be a list, a mapping or a Series of labels: found 5"),
    ({"batch": "donor"}, "batch='donor' names a column of an AnnData object"),
    ({"batch": [["a"], ["b"]] * 20}, "batch must have one label for each of 40 rows"),
    ({"method": "nuts"}, "batch needs method='map', 'vi' or 'gibbs': found 'nuts'"),
    ({"model": "dirichlet_poisson"}, "batch needs a model of the totals of rows"),
    ({"options": VI(algorithm="minibatch")}, "batch needs algorithm='coordinate' or 'settled' or 'gradient'"),
    ({"counts": {"one": COUNTS, "two": COUNTS}}, "batch needs counts of one matrix"),
    ({"model": "poisson"}, "need a proper prior of the loadings: found Gamma(shape=1.0, rate=0.0), with which factors"),
    ({"method": "gibbs", "options": Gibbs(collapsed=True)}, "batch needs bayesnmf.Gibbs(collapsed=False)"),
    ({"method": "map", "options": MAP(algorithm="scd"), "model": "hierarchical_poisson"}, "algorithm='em'"),
    ({"options": VI(intervals="response")}, "its counts are in batches, whose factors linear response leaves out"),
    ({"options": VI(priors=bayesnmf.Priors(components="parameter"))}, "batch needs a prior of the components"),
]


@pytest.mark.parametrize(("given", "said"), REFUSED, ids=lambda each: str(each)[:40])
def test_what_cannot_be_fitted_is_refused_by_name(given, said):
    import re

    with pytest.raises((TypeError, ValueError), match=re.escape(said)):
        bayesnmf.fit(**{"counts": COUNTS, "rank": 2, "seed": 0, "batch": LABELS, **given})


def test_what_has_no_factors_is_refused_by_name():
    with pytest.raises(ValueError, match="found factors of batches"):
        bayesnmf.linear_response(fitted("vi"))
    with pytest.raises(ValueError, match="factors of batches need a fit with batches"):
        bayesnmf.fit(COUNTS, rank=2, seed=0, options=plain_vi()).batch_factors()
    with pytest.raises(ValueError, match="batch needs criterion='masked'"):
        bayesnmf.select(COUNTS, ranks=(1, 2), batch=LABELS, criterion="stability")
    with pytest.raises(ValueError, match="log_evidence needs counts without batches"):
        bayesnmf.log_evidence(DRAWN.counts, rank=2)
    with pytest.raises(ValueError, match="a stream needs counts without batches"):
        bayesnmf.MinibatchVI(rank=2).partial_fit(DRAWN.counts)
    with pytest.raises(ValueError, match="shape must be"):
        Batch(LABELS, shape=0)


def test_a_fit_goes_on_from_a_checkpoint_to_the_same_numbers(tmp_path):
    given = {"rank": 2, "seed": 0, "options": plain_vi(), "batch": LABELS}
    first = bayesnmf.fit(COUNTS, **given, checkpoint=tmp_path / "kept")
    again = bayesnmf.fit(COUNTS, **given, checkpoint=tmp_path / "kept")
    np.testing.assert_array_equal(first.batch.mean, again.batch.mean)
    with pytest.raises(ValueError, match="counts"):
        bayesnmf.fit(COUNTS, **{**given, "batch": LABELS[::-1]}, checkpoint=tmp_path / "kept")
