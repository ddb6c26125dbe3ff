"""Fits of several matrices: those of their counts side by side, with missing entries where a matrix lacks rows."""

import numpy as np
import pytest
from plain import plain_vi
from scipy.stats import poisson
from smallfits import COUNTS, OPTIONS, K, M, N, every_method, quietly

import bayesnmf
from bayesnmf import DataWarning, Dirichlet, Gamma, Priors
from bayesnmf.data.probabilities import log_likelihood
from bayesnmf.noise.poisson import POISSON
from bayesnmf.studies.selection.masked import make_masks

pytestmark = [quietly, pytest.mark.filterwarnings("ignore::bayesnmf.DataWarning")]
HALVES = {"a": COUNTS.iloc[:, :5], "b": COUNTS.iloc[:, 5:]}
LACKING = {"a": COUNTS.iloc[:, :5], "b": COUNTS.iloc[3:, 5:]}


def fitted(counts, method="vi", model="gamma_poisson", **given):
    return bayesnmf.fit(counts, model, K, method, seed=0, options=OPTIONS[method], **given)


@every_method
def test_two_halves_of_the_features_are_the_whole(method) -> None:
    """To the bit: they are one matrix, and a name changes nothing."""
    one, two = fitted(COUNTS, method), fitted(HALVES, method)
    np.testing.assert_array_equal(two.loadings, one.loadings)
    np.testing.assert_array_equal(two.components, one.components)
    np.testing.assert_array_equal(two.trace, one.trace)
    assert f"× {M} features of {', '.join(map(repr, HALVES))}" in repr(two)


@every_method
def test_rows_that_a_matrix_lacks_are_missing_entries(method) -> None:
    missing = np.zeros((N, M), bool)
    missing[:3, 5:] = True
    one, two = fitted(COUNTS, method, missing=missing), fitted(LACKING, method)
    np.testing.assert_allclose(two.loadings, one.loadings, rtol=1e-10)  # sums over missing entries in another order
    np.testing.assert_allclose(two.components, one.components, rtol=1e-10)


def test_the_log_likelihood_is_the_sum_of_those_of_the_matrices() -> None:
    fit = fitted(LACKING, "map", model="poisson")
    parts = [fit.matrix(name) for name in LACKING]
    of_parts, whole = (
        [log_likelihood(POISSON, each.counts, each.expected_loadings, each.exposed_components, False) for each in fits]
        for fits in (parts, [fit])
    )
    assert sum(of_parts) == pytest.approx(whole[0], rel=1e-12)


def test_new_rows_may_lack_a_matrix() -> None:
    fit, new = fitted(HALVES), {name: each.iloc[:4] for name, each in HALVES.items()}
    np.testing.assert_allclose(fit.transform(new), fitted(COUNTS).transform(COUNTS.iloc[:4]), rtol=1e-12)
    with pytest.warns(DataWarning, match="counts lack 'a' of the matrices of the fit"):
        found = fit.transform({"b": new["b"][["i", "h", "g", "f"]]})
    missing = np.zeros((4, M), bool)
    missing[:, :5] = True
    np.testing.assert_allclose(found, fit.transform(COUNTS.iloc[:4], missing=missing), rtol=1e-10)
    with pytest.warns(DataWarning, match="lack 2 of the 4 features"):
        fit.transform({"a": new["a"], "b": new["b"][["h", "f"]]})


def test_new_matrices_must_be_those_of_the_fit() -> None:
    fit = fitted(HALVES)
    with pytest.raises(ValueError, match="names of the matrices of counts must be one of 'a', 'b': found 'c'"):
        fit.transform({"c": HALVES["b"]})
    with pytest.raises(ValueError, match="counts 'b' must have the 4 features of the fit: found 3"):
        fit.transform({"b": HALVES["b"].to_numpy()[:, :3]})
    with pytest.raises(ValueError, match="counts 'b' must have the 4 features of the fit"):
        fit.transform({"b": HALVES["b"].rename(columns=str.upper)})


def test_new_rows_have_the_weights_of_the_fit() -> None:
    weights = {"a": 1.0, "b": 3.0}
    fit, as_one = fitted(HALVES, weights=weights), fitted(COUNTS * np.repeat([1.0, 3.0], [5, 4]))
    np.testing.assert_array_equal(fit.components, as_one.components)
    new = COUNTS.iloc[:4]
    np.testing.assert_array_equal(
        fit.transform({name: each.iloc[:4] for name, each in HALVES.items()}), fit.transform(new)
    )
    np.testing.assert_array_equal(fit.transform(new), as_one.transform(new * np.repeat([1.0, 3.0], [5, 4])))


@pytest.mark.parametrize("method", ["bld", "nuts", "svi", "smc"])
def test_weights_need_a_method_without_a_distribution_of_the_counts(method) -> None:
    model = "dirichlet_gamma" if method == "bld" else "gamma_poisson"
    with pytest.raises(ValueError, match="weights need method='map', 'vi' or 'gibbs'"):
        bayesnmf.fit(HALVES, model, K, method, weights={"b": 2})


def test_gibbs_draws_whole_counts() -> None:
    with pytest.raises(ValueError, match="weights and method='gibbs' need whole weights"):
        fitted(HALVES, "gibbs", weights={"b": 0.5})
    twice = fitted(HALVES, "gibbs", weights={"b": 2})
    np.testing.assert_array_equal(twice.loadings, fitted(COUNTS * np.repeat([1, 2], [5, 4]), "gibbs").loadings)


def test_weights_leave_no_distribution_of_the_counts() -> None:
    fit = fitted(HALVES, weights={"b": 2})
    for ask in (fit.sample_posterior_predictive, fit.dispersion, lambda: bayesnmf.predictive_checks(fit)):
        with pytest.raises(ValueError, match="which weights of matrices leave none: fit without weights"):
            ask()
    assert fit.matrix("b").dispersion().ratio == pytest.approx(fitted(HALVES).matrix("b").dispersion().ratio, rel=0.2)
    assert "as much as Poisson" not in repr(bayesnmf.fit(HALVES, rank=1, seed=0, weights={"a": 9, "b": 9}))


@pytest.mark.parametrize(
    "ask",
    [
        bayesnmf.as_counts,
        lambda counts: bayesnmf.log_evidence(counts, rank=2),
        lambda counts: bayesnmf.MinibatchVI(rank=2).partial_fit(counts),
        lambda counts: bayesnmf.coherence(fitted(COUNTS), counts),
    ],
    ids=["as_counts", "log_evidence", "stream", "coherence"],
)
def test_what_takes_one_matrix_says_so(ask) -> None:
    with pytest.raises(TypeError, match="counts must be one matrix here: found several by name"):
        ask(HALVES)


def test_estimators_take_one_matrix() -> None:
    with pytest.raises(TypeError, match="X must be one matrix, as scikit-learn takes rows of it"):
        bayesnmf.BayesNMF(2).fit(HALVES)


def test_several_matrices_are_simulated() -> None:
    """The same numbers as one matrix of all features, with the noise of each."""
    size = (20, {"a": 5, "b": 4})
    one, two = (bayesnmf.simulate(size=each, rank=2, seed=0) for each in ((20, 9), size))
    np.testing.assert_array_equal(two.counts.matrix.toarray(), one.counts.matrix.toarray())
    assert list(two.counts.of("b").feature_names) == [0, 1, 2, 3]
    noise = {"a": bayesnmf.NegativeBinomial(dispersion=30.0)}
    noisy = bayesnmf.simulate(size=(400, size[1]), rank=2, seed=0, noise=noise)
    spread = ((noisy.counts.matrix.toarray() - noisy.means) ** 2 / noisy.means).mean(axis=0)
    assert spread[:5].min() > 5  # 31 is expected, with heavy tails
    np.testing.assert_allclose(spread[5:], 1, rtol=0.3)
    with pytest.raises(ValueError, match="needs a known dispersion"):
        bayesnmf.simulate(size=size, rank=2, noise={"a": "nb1"})
    with pytest.raises(ValueError, match=r"size of 'a'\[1\] must be"):
        bayesnmf.simulate(size=(20, {"a": 0}), rank=2)


def test_select_modes_and_compare_take_matrices() -> None:
    found = bayesnmf.modes(HALVES, rank=2, seed=0, starts=2, options=OPTIONS["vi"])
    assert found.fits[0].matrix("b").components.shape == (2, 4)
    settings = bayesnmf.Settings(options={"map": OPTIONS["map"]})
    compared = bayesnmf.compare(HALVES, rank=2, methods=("map",), seed=0, settings=settings)
    assert compared.fits["map"].matrix("b").components.shape == (2, 4)
    chosen = bayesnmf.select(HALVES, ranks=(1, 2), seed=0, options=OPTIONS["vi"])
    assert len(chosen.table) == 2


def test_select_weighs_the_scores_of_matrices() -> None:
    """By hand: each held-out entry, as it was counted, adds its log-probability as often as its matrix counts."""
    weights, options = {"b": 2.5}, plain_vi(max_iter=60, threads=1, priors=Priors(Gamma(1.0, 0.1), Dirichlet(1.0)))
    found = bayesnmf.select(HALVES, ranks=(2,), splits=1, seed=0, options=options, weights=weights)
    assert found.checks is None  # weighted counts have no distribution to be checked
    whole = fitted(HALVES).counts
    hidden = make_masks(whole, 1, 0)[0].hidden(slice(None))
    missing = {"a": hidden[:, :5], "b": hidden[:, 5:]}
    fit = bayesnmf.fit(HALVES, rank=2, seed=0, options=options, weights=weights, missing=missing)
    often = np.repeat([1.0, 2.5], [5, 4])
    logs = poisson.logpmf(COUNTS.to_numpy(), fit.expected_loadings @ fit.exposed_components / often)
    score = np.sum((logs * often)[hidden]) / np.sum((COUNTS.to_numpy() * often)[hidden])
    assert found.table["mean"].iloc[0] == pytest.approx(score, rel=1e-9)


def test_select_takes_a_noise_of_each_matrix_and_says_what_weights_need() -> None:
    settings = {"ranks": (1, 2), "splits": 1, "seed": 0, "options": OPTIONS["vi"], "check": False}
    found = bayesnmf.select(HALVES, noise=("poisson", {"b": "nb2"}), **settings)
    assert len(found.table) == 4
    again = bayesnmf.fit(HALVES, *found.best, seed=0, options=OPTIONS["vi"], noise=found.noise)
    assert again.noise.word == found.noise.word
    for given in ({"check": True}, {"criterion": "stability", "splits": None}):
        with pytest.raises(
            ValueError, match=r"need criterion='masked'.*: found criterion=.*; use criterion='masked', check=False"
        ):
            bayesnmf.select(HALVES, weights={"b": 2}, **{**settings, **given})
    with pytest.raises(TypeError, match="weights must be those of several matrices"):
        bayesnmf.select(COUNTS, weights={"b": 2}, **settings)
