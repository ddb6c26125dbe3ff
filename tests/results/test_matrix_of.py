"""The fit of one of several matrices."""

from dataclasses import replace
from pathlib import Path

import arviz as az
import numpy as np
import pandas as pd
import pytest
from smallfits import COUNTS, OPTIONS, K, every_method, quietly
from suites import crossed

import bayesnmf
from bayesnmf import Gamma, Priors
from bayesnmf.priors.specification import MODELS

pytestmark = [quietly, pytest.mark.filterwarnings("ignore::bayesnmf.DataWarning")]
MATRICES = {"a": COUNTS.iloc[:, :5], "b": COUNTS.iloc[3:, 5:]}
GAMMA = Priors(components=Gamma(1.0, 1.0))


def fitted(method="vi", model="gamma_poisson", priors=None, **given):
    options = OPTIONS[method]
    if model == "poisson" and method != "map":
        priors = Priors(loadings=Gamma(1.0, 0.1))
    options = options if priors is None else replace(options, priors=priors)
    return bayesnmf.fit(MATRICES, model, K, method, seed=0, options=options, **given)


@pytest.mark.parametrize(("model", "method"), crossed(MODELS, OPTIONS))
def test_draws_and_points_of_one_matrix_have_the_means_of_all(model, method) -> None:
    """Where the totals of rows are given, those of a matrix are its own, and what is the same are the shares."""
    fit = fitted(method, model)
    own = fit.matrix("b")
    drawn = [each.estimate.take(each, each.estimate.held or (1, 1), 0, None) for each in (fit, own)]
    if method == "vi":  # whose loadings are independent of the components
        drawn = [bayesnmf.results.estimates.Point().take(each, (1, 1), 0, None) for each in (fit, own)]
    means = [
        (each.loadings if each.scale is None else each.loadings * each.scale[..., None]) @ each.components
        for each in drawn
    ]
    wanted = means[0][:, :, 3:, 5:]
    if MODELS[model].given_totals:
        wanted = wanted / wanted.sum(axis=-1, keepdims=True)
    rough = MODELS[model].loadings == "simplex" and method == "vi"
    np.testing.assert_allclose(means[1], wanted, rtol=0.2 if rough else 1e-10)
    assert own.counts.shape == (9, 4)
    assert list(own.feature_names) == list("fghi")
    if method != "map":
        assert own.estimate.sd(own, "components").shape == (K, 4)


@pytest.mark.parametrize("model", ["gamma_poisson", "dirichlet_gamma", "dirichlet_poisson"])
def test_q_of_one_matrix_has_the_moments_of_loadings_times_shares(model) -> None:
    fit = fitted(model=model)
    own, rng = fit.matrix("b"), np.random.default_rng(0)
    q, size = fit.estimate, 20_000
    loadings = q.loadings.rows(slice(3, 5)).draw(rng, (size,))
    shares = q.components.draw(rng, (size,))[:, :, 5:].sum(axis=-1)[:, None, :]
    scale = None
    if model == "dirichlet_gamma":
        loadings, scale = loadings.proportions, loadings.scale[..., 0]
    found = loadings * shares
    if model != "gamma_poisson":
        sums = found.sum(axis=-1, keepdims=True)
        found, scale = found / sums, None if scale is None else scale * sums[..., 0]
    # 20,000 draws leave standard errors of 1 %; a Dirichlet has but one number for all variances of a row.
    exact = model == "gamma_poisson"
    np.testing.assert_allclose(own.loadings[:2], found.mean(axis=0), rtol=0.03 if exact else 0.15)
    np.testing.assert_allclose(own.estimate.sd(own, "loadings")[:2], found.std(axis=0), rtol=0.05 if exact else 0.4)
    if scale is not None:
        np.testing.assert_allclose(own.scale[:2], scale.mean(axis=0), rtol=0.03)
        np.testing.assert_allclose(own.estimate.sd(own, "scale")[:2], scale.std(axis=0), rtol=0.05)


def test_components_without_a_sum_are_cut_beside_the_same_loadings() -> None:
    fit = fitted(priors=GAMMA)
    own = fit.matrix("b")
    np.testing.assert_array_equal(own.loadings, fit.loadings[3:])
    np.testing.assert_array_equal(own.components, fit.components[:, 5:])
    np.testing.assert_array_equal(own.estimate.sd(own, "components"), fit.estimate.sd(fit, "components")[:, 5:])


@pytest.mark.parametrize("priors", [None, GAMMA], ids=["simplex", "gamma"])
def test_one_matrix_is_read_without_its_weight(priors) -> None:
    fit = fitted(priors=priors, weights={"b": 4})
    own = fit.matrix("b")
    np.testing.assert_array_equal(own.counts.matrix.toarray(), MATRICES["b"])
    means = (fit.loadings @ fit.components)[3:, 5:] / 4
    np.testing.assert_allclose(own.expected_loadings @ own.exposed_components, means, rtol=1e-12)
    whole, part = fit.estimate.components, own.estimate.components
    wanted = whole.mean()[:, 5:] / (4 if priors else whole.mean()[:, 5:].sum(axis=1, keepdims=True))
    np.testing.assert_allclose(part.mean(), wanted, rtol=1e-12)


def test_known_components_are_cut_too() -> None:
    known = np.random.default_rng(0).dirichlet(np.ones(9), 2)
    fit = fitted(fixed_components=known)
    own = fit.matrix("a")
    np.testing.assert_allclose(own.components[:2], known[:, :5] / known[:, :5].sum(axis=1, keepdims=True), rtol=1e-12)
    means = (fit.loadings @ fit.components)[:, :5]
    np.testing.assert_allclose(own.loadings @ own.components, means, rtol=1e-10)


def test_shares_of_matrices() -> None:
    fit = fitted()
    table = fit.matrices()
    np.testing.assert_allclose(table["share"].unstack().sum(axis=1), 1)
    wanted = fit.components[:, :5].sum(axis=1)
    np.testing.assert_allclose(table["share"].unstack()["a"], wanted, atol=0.03)  # 200 draws
    assert ((table["lower"] < table["share"]) & (table["share"] < table["upper"])).all()


@every_method
def test_views_work_on_one_matrix(method, tmp_path) -> None:
    fit = fitted(method)
    own = fit.matrix("b")
    own.save(tmp_path / "own.nc")
    assert bayesnmf.load(tmp_path / "own.nc").components.shape == (K, 4)
    assert own.top_features(2).shape == (2, K)
    assert own.transform(MATRICES["b"]).shape == (9, K)
    assert own.dispersion().ratio > 0
    assert own.expected().shape[0] == 36
    assert bayesnmf.match(own, fit.matrix("b")).table["cosine"].min() > 0.99
    assert len(bayesnmf.markers(own)) > 0


@pytest.mark.parametrize("suffix", [".nc", ".zarr"])
def test_rows_that_a_matrix_has_stay_though_all_their_entries_are_missing(suffix, tmp_path) -> None:
    """Row s4 of b is in its table, and masked whole; the first three rows are not in it."""
    away = MATRICES["b"] < 0
    away.loc["s4"] = True
    fit = fitted(missing={"b": away})
    fit.save(tmp_path / f"fit{suffix}")
    for each in (fit, bayesnmf.load(tmp_path / f"fit{suffix}")):
        assert each.matrix("b").row_names.tolist() == MATRICES["b"].index.tolist()
        assert each.matrix("a").row_names.tolist() == MATRICES["a"].index.tolist()
        assert each.matrix("b").counts.mask.seen_rows.tolist() == [True, False] + [True] * 7
    own, few = fit.matrix("b"), fit.counts.rows([0, 4, 7])
    assert few.of("b").row_names.tolist() == ["s4", "s7"]
    assert own.shares().shape[0] == len(MATRICES["b"]) * K
    own.expected(rows=["s4"])
    repr(own)
    new = fit.project({"b": MATRICES["b"].iloc[:3], "a": MATRICES["a"].iloc[:5]})
    assert new.matrix("b").row_names.tolist() == ["s3", "s4", "s5"]


def test_only_a_fit_of_several_matrices_has_them() -> None:
    with pytest.raises(ValueError, match="fit must be of several matrices for this"):
        bayesnmf.fit(COUNTS, rank=K, seed=0, options=OPTIONS["map"], method="map").matrix("a")
    with pytest.raises(ValueError, match="name must be one of 'a', 'b': found 'c'"):
        fitted("map").matrix("c")


@pytest.mark.parametrize("suffix", ["nc", "zarr"])
def test_matrices_are_saved(suffix, tmp_path) -> None:
    fit = fitted(weights={"a": 0.5})
    fit.save(tmp_path / f"fit.{suffix}")
    again = bayesnmf.load(tmp_path / f"fit.{suffix}")
    assert again.counts.matrices.names == ("a", "b")
    for name in MATRICES:
        one, two = fit.matrix(name), again.matrix(name)
        np.testing.assert_array_equal(two.loadings, one.loadings)
        np.testing.assert_array_equal(two.components, one.components)
        np.testing.assert_array_equal(two.counts.matrix.toarray(), one.counts.matrix.toarray())
        assert list(two.feature_names) == list(one.feature_names)


def test_what_would_fit_one_matrix_alone_is_refused() -> None:
    own = fitted().matrix("b")
    for ask in (bayesnmf.predictive_checks, bayesnmf.linear_response):
        with pytest.raises(ValueError, match="need the fit of all matrices, as loadings come from all of them"):
            ask(own)
    with pytest.raises(ValueError, match="it is of one of several matrices"):
        own.with_intervals("sampled")


def test_intervals_are_those_of_all_matrices() -> None:
    fit = fitted().with_intervals("sampled", draws=20)
    own = fit.matrix("b")
    drawn = fit.intervals.draws
    shares = drawn.components[..., 5:].sum(axis=-1)
    np.testing.assert_allclose(own.intervals.draws.loadings, drawn.loadings[:, :, 3:] * shares[:, :, None], rtol=1e-5)
    table = own.summary(rows=["s3"], features=["f"])
    assert table.loc["loadings[s3, 0]", "median"] == pytest.approx(
        np.median(own.intervals.draws.loadings[0, :, 0, 0]), rel=0.01
    )


def test_dispersion_of_one_matrix_counts_its_part_of_the_loadings() -> None:
    """Two halves of Poisson counts vary as Poisson counts do, each and together."""
    drawn = bayesnmf.simulate("gamma_poisson", (200, 40), 3, totals=400, seed=0)
    matrices = {"a": drawn.counts.matrix[:, :10], "b": drawn.counts.matrix[:, 10:]}
    fit = bayesnmf.fit(matrices, rank=3, seed=0, method="map")
    ratios = [each.dispersion().ratio for each in (fit, fit.matrix("a"), fit.matrix("b"))]
    np.testing.assert_allclose(ratios, 1, atol=0.06)


def test_coordinates_say_which_matrix_a_feature_is_of() -> None:
    tree = fitted().to_datatree(draws=2, chains=1, features=["b", "g"])
    assert tree["observed_data"]["feature_matrix"].values.tolist() == ["a", "b"]
    assert tree["posterior"].feature.equals(tree["observed_data"].feature.drop_vars("feature_matrix"))


@pytest.mark.filterwarnings("ignore::UserWarning:arviz_stats")  # of two draws
@pytest.mark.parametrize("noise", ["poisson", {"a": "nb2", "b": "poisson"}])
def test_arviz_summarises_the_tree_of_several_matrices(noise) -> None:
    """A second coordinate of the features of draws made it fail."""
    fit = fitted(noise=noise)
    table = az.summary(fit.to_datatree(draws=20, chains=2))
    assert len(table) >= fit.loadings.size + fit.components.size
    assert table.index.is_unique


def test_rows_of_one_matrix_keep_their_priors(tmp_path) -> None:
    """Priors of single rows, and the covariates that priors depend on."""
    rates = np.linspace(0.1, 0.5, 12)[:, None]
    fit = fitted(priors=Priors(loadings=Gamma(1.0, rates)))
    shares = fit.components[:, 5:].sum(axis=1)
    np.testing.assert_allclose(fit.matrix("b").priors.loadings.rate, rates[3:] / shares, rtol=1e-12)
    age = np.linspace(-1, 1, 12)
    fit = bayesnmf.fit(
        MATRICES, rank=K, seed=0, options=OPTIONS["vi"], covariates=pd.DataFrame({"age": age}, COUNTS.index)
    )
    part = fit.matrix("b")
    part.save(tmp_path / "part.nc")
    assert len(bayesnmf.load(tmp_path / "part.nc").priors.loadings.design) == 9


@pytest.mark.usefixtures("without_pictures")
@quietly
def test_effects_are_those_of_all_matrices(tmp_path) -> None:
    """Those that chains have drawn; others would be read from the rows and counts of one matrix again."""
    age = pd.DataFrame({"age": np.linspace(-1, 1, 12)}, COUNTS.index)
    fits = {method: bayesnmf.fit(MATRICES, "gamma_poisson", K, method, seed=0, options=OPTIONS[method], covariates=age)
            for method in ("vi", "gibbs")}  # fmt: skip
    part, rows = fits["vi"].matrix("b"), pd.DataFrame({"age": [0.0]})
    asked = (part.effects, lambda: part.predicted_shares(rows), lambda: bayesnmf.group_contrasts(part, "age"))
    for ask in asked:
        with pytest.raises(ValueError, match=r"effects of covariates, .* need the fit of all matrices"):
            ask()
    shown = ["What the loadings depend on" in Path(bayesnmf.report(each, tmp_path / "of.html")).read_text("utf-8")
             for each in (part, fits["gibbs"].matrix("b"))]  # fmt: skip
    assert shown == [False, True]
    whole, drawn = fits["gibbs"].effects(variation="prior"), fits["gibbs"].matrix("b").effects()
    assert drawn.attrs["intervals"].endswith("variation between rows as the prior says")
    np.testing.assert_allclose(drawn.xs("age", level="term"), whole.xs("age", level="term"), rtol=1e-12)
    assert np.all(drawn.xs("Intercept", level="term").effect < whole.xs("Intercept", level="term").effect)
