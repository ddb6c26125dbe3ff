"""Linear response as users meet it: tables, refusals, intervals against chains and against the truth."""

from typing import Any

import numpy as np
import pytest
from plain import even_priors, plain_map, plain_vi
from realdata import real_counts
from suites import mostly_long

import bayesnmf
from bayesnmf import VI, ConvergenceWarning, Dirichlet, Gamma, Gibbs, Priors, ScaledDirichlet
from bayesnmf.inference.alignment import match_components
from bayesnmf.inference.response import continuing

COUNTS = np.random.default_rng(1).poisson(
    np.random.default_rng(0).gamma(1, 60, (25, 3)) @ np.random.default_rng(2).dirichlet(np.ones(12), 3)
)
NAMES = [f"s{i}" for i in range(25)], [f"f{j}" for j in range(12)]


@pytest.fixture(scope="module")
def named() -> Any:
    import pandas as pd

    return pd.DataFrame(COUNTS, *NAMES)


@pytest.fixture(scope="module")
def fit(named: Any) -> Any:
    return bayesnmf.fit(named, rank=3, seed=0, options=plain_vi(threads=1))


@pytest.fixture(scope="module")
def response(fit: Any) -> Any:
    return bayesnmf.linear_response(fit)


def test_the_fit_is_continued_and_says_so(fit: Any, response: Any) -> None:
    assert response.gradient <= 1e-8
    assert response.gained > -1e-6
    assert "continued to a gradient" in repr(response)
    assert "Newton" in response.fit.status.reason
    assert response.fit.estimate.kind == "mean field"
    distance = np.abs(response.fit.loadings - fit.loadings) / fit.estimate.sd(fit, "loadings")
    assert distance.max() <= response.moved * 1.2 + 1e-9


def test_summary_has_the_entries_asked_for(response: Any) -> None:
    table = response.summary(rows=["s3"], features=["f0", "f5"])
    assert list(table.index[:3]) == [f"loadings[s3, {k}]" for k in range(3)]
    assert list(table.index[3:5]) == ["components[0, f0]", "components[0, f5]"]
    assert table.attrs["uncertainty"] == "linear response"
    assert (table["sd"] > table["mean_field_sd"]).mean() > 0.7
    assert ((table["lower"] < table["mean"]) & (table["mean"] < table["upper"])).all()
    np.testing.assert_allclose(table["mean"].iloc[:3], response.fit.loadings[3])
    np.testing.assert_allclose(table["mean_field_sd"].iloc[:3], response.fit.estimate.sd(response.fit, "loadings")[3])


def test_summary_names_components_as_that_of_the_fit(fit: Any) -> None:
    renamed = fit.rename(components={0: "T cells"})
    names = bayesnmf.linear_response(renamed).summary(rows=["s3"], features=["f0"]).index
    assert list(names) == list(renamed.summary(rows=["s3"], features=["f0"]).index)
    assert names[0] == "loadings[s3, T cells]"


def test_spread_is_that_of_the_summary(response: Any) -> None:
    found = response.spread("components")
    assert found.draws == 0
    assert not found.error.any()
    np.testing.assert_allclose(found.sd[:, 4], response.summary(features=["f4"])["sd"], rtol=1e-6)
    np.testing.assert_allclose(found.mean_field_sd, response.fit.estimate.sd(response.fit, "components"))
    loadings = response.spread("loadings")
    np.testing.assert_allclose(loadings.sd[7], response.summary(rows=["s7"])["sd"], rtol=1e-6)


def test_covariance_contrast_and_correlation_agree(response: Any) -> None:
    matrix = response.covariance(rows=["s1", "s2"], features=["f3"])
    np.testing.assert_allclose(matrix, matrix.T)
    assert np.linalg.eigvalsh(matrix).min() > 0
    np.testing.assert_allclose(np.sqrt(np.diag(matrix)), response.summary(["s1", "s2"], ["f3"])["sd"], rtol=1e-6)
    weights = {("s1", 0): 1.0, ("s2", 0): -2.0}
    found = response.contrast(weights, {(1, "f3"): 30.0}, name="difference")
    entries = ["loadings[s1, 0]", "loadings[s2, 0]", "components[1, f3]"]
    w = np.array([1.0, -2.0, 30.0])
    np.testing.assert_allclose(found["sd"].iloc[0] ** 2, w @ matrix.loc[entries, entries] @ w, rtol=1e-6)
    assert list(found.index) == ["difference"]
    correlation = response.correlation(rows=["s1"])
    np.testing.assert_allclose(np.diag(correlation), 1)


def test_rates_and_proportions_of_a_row_are_consistent(response: Any) -> None:
    fit = response.fit
    rates = response.rates(["s0"], None)
    np.testing.assert_allclose(rates["mean"], (fit.expected_loadings @ fit.components)[0])
    shares = response.proportions(["s0"])
    np.testing.assert_allclose(shares["mean"], fit.loadings[0] / fit.loadings[0].sum())
    assert ((shares["lower"] > 0) & (shares["upper"] < 1)).all()
    # A rate is known far better than its parts: their errors cancel. Mean field does not know that.
    total = bayesnmf.linear_response(fit).contrast({("s0", k): 1.0 for k in range(3)})
    assert abs(total["sd"].iloc[0] ** 2 / COUNTS[0].sum() - 1) < 0.2


def test_draws_have_the_moments_of_the_table(response: Any) -> None:
    table, matrix = response.summary(rows=["s4"]), response.correlation(rows=["s4"])
    drawn = response.draws(rows=["s4"], draws=4000, seed=1)
    assert "copula" in drawn.attrs["note"]
    np.testing.assert_allclose(drawn.mean(), table["mean"], rtol=0.05)
    np.testing.assert_allclose(drawn.std(), table["sd"], rtol=0.08)
    np.testing.assert_allclose(drawn.corr(), matrix, atol=0.12)
    assert (drawn > 0).all(axis=None)


@pytest.mark.filterwarnings("ignore:gibbs did not converge")  # a few loadings, by an R-hat of 1.06
@pytest.mark.parametrize("case", mostly_long(["gamma", "topics", "scaled", "gamma, missing", "topics, missing"]))
def test_sds_are_those_of_chains(case: str) -> None:
    """Where the posterior is well determined: a factor of 1.25 in the median sd of a side would be found."""
    rng = np.random.default_rng(4)
    components = np.array([[8, 6, 4, 2, 0, 0, 2, 0], [0, 0, 2, 0, 6, 8, 4, 0], [0, 2, 0, 8, 2, 0, 0, 6]], float)
    components /= components.sum(axis=1, keepdims=True)
    counts = rng.poisson(rng.gamma(2, 100, (30, 3)) @ components)
    kind, missing = case.split(", ")[0], case.endswith("missing")
    model = {"gamma": "gamma_poisson", "topics": "dirichlet_poisson", "scaled": "dirichlet_gamma"}[kind]
    given: Any = {"seed": 0, "observed": rng.random(counts.shape) > 0.2 * missing}
    options = plain_vi(threads=1, priors=even_priors(counts, model))
    response = bayesnmf.linear_response(bayesnmf.fit(counts, model, 3, "vi", options=options, **given))
    algorithm, draws = ("allocations" if case == "topics, missing" else "marginal"), 4000 if missing else 500
    options = Gibbs(
        priors=options.priors, algorithm=algorithm, chains=2, warmup=50, draws=draws, start=response.fit, threads=1
    )
    chains = bayesnmf.fit(counts, model, 3, "gibbs", options=options, **given)
    order = match_components(chains.components, response.fit.components)
    found = {side: response.spread(side) for side in ("loadings", "components")}
    posterior: Any = chains.posterior
    theirs = {
        "loadings": posterior.loadings.std(axis=(0, 1))[:, order],
        "components": posterior.components.std(axis=(0, 1))[order],
    }
    for side, spread in found.items():
        assert 0.8 < np.median(spread.sd / theirs[side]) < 1.25
        assert np.median(spread.mean_field_sd / theirs[side]) < 0.8


@pytest.mark.filterwarnings("ignore:vi did not converge")
def test_what_missing_entries_leave_unknown_is_refused() -> None:
    observed = np.random.default_rng(0).random(COUNTS.shape) > 0.2
    given: Any = {"rank": 2, "seed": 0, "observed": observed, "options": plain_vi(threads=1)}
    with pytest.raises(ValueError, match="linear response of a scaled Dirichlet needs counts without missing entries"):
        bayesnmf.linear_response(bayesnmf.fit(COUNTS, "dirichlet_gamma", **given))
    response = bayesnmf.linear_response(bayesnmf.fit(COUNTS, "dirichlet_poisson", **given))
    with pytest.raises(ValueError, match="rates of linear response given row totals needs counts without missing"):
        response.rates(rows=[0], features=[0])
    fit = bayesnmf.fit(COUNTS, "gamma_poisson", **given, method="vi")
    table = bayesnmf.linear_response(fit).rates(rows=[0, 1], features=None)
    assert (table["sd"] > table["mean_field_sd"]).mean() > 0.7
    assert fit.with_intervals("response", draws=20).intervals.kind == "linear response"


def test_what_has_no_linear_response_is_refused(fit: Any, response: Any) -> None:
    with pytest.raises(ValueError, match="needs a fit by method='vi'"):
        bayesnmf.linear_response(bayesnmf.fit(COUNTS, rank=2, method="map", seed=0, options=plain_map(threads=1)))
    with pytest.raises(TypeError, match="must be a result of"):
        bayesnmf.linear_response("fit")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="new rows needs given_components=True"):
        bayesnmf.linear_response(fit.project(COUNTS[:4]))
    with pytest.raises(ValueError, match="finite weights"):
        response.contrast({("s1", 0): np.nan})
    with pytest.raises((TypeError, ValueError), match="threads"):
        bayesnmf.linear_response(fit, threads=0)
    with pytest.raises(ValueError, match="give rows or features"):
        response.summary()
    with pytest.raises(ValueError, match="no 'nobody'"):
        response.summary(rows=["nobody"])
    with pytest.raises(ValueError, match="single rows, components or features"):
        response.contrast({("s1", 9): 1.0})
    with pytest.raises(TypeError, match="must map pairs to weights"):
        response.contrast([1, 2])


def test_components_without_a_posterior_are_taken_as_given() -> None:
    fit = bayesnmf.fit(COUNTS, rank=3, seed=0, options=plain_vi(priors=Priors(components="parameter")))
    with pytest.raises(ValueError, match="given_components=True"):
        bayesnmf.linear_response(fit)
    found = bayesnmf.linear_response(fit, given_components=True)
    np.testing.assert_allclose(found.fit.components, fit.components)
    assert "given the components" in repr(found)
    table = found.summary(rows=[0])
    assert "given the components" in table.attrs["note"]
    assert (table["sd"] > table["mean_field_sd"]).all()


def test_rows_given_the_components_do_not_wait_for_each_other(monkeypatch: pytest.MonkeyPatch) -> None:
    """A few rows of sparse counts settle very slowly; updates of all rows until they had took minutes."""
    drawn = bayesnmf.simulate("gamma_poisson", (60, 12), 4, seed=0)
    fit = bayesnmf.fit(drawn.counts, rank=4, seed=0, options=plain_vi(threads=1, tol=1e-4))
    monkeypatch.setattr(continuing, "_updated", lambda *_: pytest.fail("all rows were updated"))
    response = bayesnmf.linear_response(fit, given_components=True)
    assert response.gradient < 1e-8
    assert response.steps <= 2


def test_learned_values_are_taken_as_given() -> None:
    fit = bayesnmf.fit(COUNTS, rank=3, seed=0, options=plain_vi(learn=("loadings",)))
    assert "given the learned values" in bayesnmf.linear_response(fit).given


def test_known_components_have_no_uncertainty() -> None:
    known = np.random.default_rng(2).dirichlet(np.ones(12), 3)[:1]
    fit = bayesnmf.fit(COUNTS, rank=3, seed=0, options=plain_vi(), fixed_components=known)
    response = bayesnmf.linear_response(fit)
    spread = response.spread("components")
    assert not spread.sd[0].any()
    assert (spread.sd[1:] > 0).all()
    table = response.summary(features=[0])
    assert table["lower"].iloc[0] == table["upper"].iloc[0] == pytest.approx(known[0, 0])


def test_float32_fits_are_continued_in_float64() -> None:
    fit = bayesnmf.fit(COUNTS, rank=3, seed=0, options=plain_vi(dtype="float32"))
    response = bayesnmf.linear_response(fit)
    assert response.gradient <= 1e-8
    assert response.fit.loadings.dtype == np.float64


def test_an_empty_row_and_an_empty_feature_have_the_spread_of_their_prior() -> None:
    counts = COUNTS.copy()
    counts[3], counts[:, 5] = 0, 0
    response = bayesnmf.linear_response(
        bayesnmf.fit(counts, rank=2, seed=0, options=plain_vi(priors=Priors(Gamma(2.0, 0.5), Dirichlet(1.0))))
    )
    table = response.summary(rows=[3])
    np.testing.assert_allclose(table["mean"], 2 / 1.5)
    np.testing.assert_allclose(table["sd"], np.sqrt(2) / 1.5, rtol=1e-6)


def test_new_rows_have_intervals_given_the_components(fit: Any) -> None:
    new = fit.project(COUNTS[:4])
    response = bayesnmf.linear_response(new, given_components=True)
    np.testing.assert_allclose(response.fit.components, fit.components)
    assert not response.spread("components").sd.any()
    alone, together = response.spread("loadings").sd, bayesnmf.linear_response(fit).spread("loadings").sd[:4]
    assert np.median(alone / together) < 0.98
    assert np.all(alone > 0)


@pytest.mark.parametrize("model", ["dirichlet_poisson", "dirichlet_gamma", "hierarchical_poisson"])
def test_fits_of_other_models_are_continued_to_the_optimum(model: str) -> None:
    is_continued(bayesnmf.fit(COUNTS, model, 3, seed=0, options=plain_vi(threads=1, extrapolate=True)))


def is_continued(fit: Any) -> None:
    """Assert that the response is at the optimum, where every sd is at least that of the mean field."""
    response = bayesnmf.linear_response(fit)
    assert response.gradient <= 1e-8
    assert response.gained > -1e-6
    for side in ("loadings", "components"):
        found = response.spread(side)
        assert np.all(found.sd > 0.999 * found.mean_field_sd)


@pytest.mark.long
@pytest.mark.filterwarnings("ignore:vi did not converge")
@pytest.mark.parametrize("model", ["gamma_poisson", "hierarchical_poisson"])
def test_all_counts_of_a_real_matrix_are_continued_to_the_optimum(model: str) -> None:
    """Default fits stop up to a hundred standard deviations away."""
    is_continued(bayesnmf.fit(real_counts("pcawg_breast_sbs96"), model, 5, "vi", seed=0))


def test_shares_that_vary_more_than_shares_can_give_nan_and_a_warning() -> None:
    """A row whose counts two components explain equally well, under sparse priors."""
    priors = Priors(ScaledDirichlet(0.3, 2.0, 0.02), Dirichlet(0.3))
    counts = bayesnmf.simulate("dirichlet_gamma", (20, 15), 3, priors=priors, seed=7).counts
    fit = bayesnmf.fit(counts, "dirichlet_gamma", 3, options=VI(priors=priors, start="svd"))
    response = bayesnmf.linear_response(fit)
    with pytest.warns(ConvergenceWarning, match="variance of a share is larger") as caught:
        table = response.summary(rows=[5])
    assert caught[0].filename == __file__
    impossible = table["sd"] ** 2 >= table["mean"] * (1 - table["mean"])
    assert impossible.tolist() == table["upper"].isna().tolist() == [True, False, True]
    with pytest.warns(ConvergenceWarning, match="variance of a share is larger"):
        drawn = response.draws(rows=[5], draws=2)
    assert drawn.isna().all().tolist() == impossible.tolist()


def test_plots_name_the_kind_of_interval(fit: Any, response: Any) -> None:
    from matplotlib import pyplot as plt

    axes = bayesnmf.plots.loadings_intervals({"q": fit, "wide": response}, ["s0", "s1"])
    texts = [text.get_text() for text in axes[0].figure.legends[0].get_texts()]
    assert texts == ["q (mean field)", "wide (linear response)"]
    single = bayesnmf.plots.loadings_intervals(response, ["s0"])
    assert len(single) == 1
    (shares,) = bayesnmf.plots.loadings_intervals(response, ["s0"], values="shares")
    ends = [line[:, 1] for line in shares.collections[0].get_segments()]
    np.testing.assert_allclose(ends, response.proportions(["s0"])[["lower", "upper"]])
    plt.close("all")
