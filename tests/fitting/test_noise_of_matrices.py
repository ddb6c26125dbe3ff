"""Noise of several matrices: a dispersion of each, learned or given, beside matrices with Poisson noise."""

from dataclasses import replace

import numpy as np
import pytest
from plain import plain_map, plain_vi
from smallfits import quietly

import bayesnmf
from bayesnmf import Dirichlet, Gamma, Gibbs, NegativeBinomial, Priors, Quasi
from bayesnmf.data.powered import working_counts
from bayesnmf.data.several import noise_of_matrices
from bayesnmf.fitting.problems import build_problem
from bayesnmf.inference.evidence_of_dispersion import evidence_at
from bayesnmf.inference.problem import State
from bayesnmf.inference.side import Mode
from bayesnmf.noise.abilities import FeatureGroups
from bayesnmf.noise.poisson import POISSON

pytestmark = quietly
K, KINDS = 2, ("nb1", "nb2")
MEANS = [
    np.random.default_rng(0).gamma(1, 20, (30, K)) @ np.random.default_rng(m).dirichlet(np.ones(m), K) for m in (6, 4)
]
DRAWN = np.random.default_rng(1)
COUNTS = {"a": DRAWN.poisson(MEANS[0] * DRAWN.gamma(1, 1, (30, 6))), "b": DRAWN.poisson(MEANS[1])}
BOTH = np.hstack(list(COUNTS.values()))
OPTIONS = {
    "map": plain_map(max_iter=30, threads=1),
    "vi": plain_vi(max_iter=30, threads=1),
    "gibbs": Gibbs(start="random", chains=1, draws=20, warmup=20, threads=1),
}
GAMMA, SIMPLEX = Priors(Gamma(1.0, 0.1), Gamma(1.0, 1.0)), Priors(Gamma(1.0, 0.1), Dirichlet(1.0))
every_method = pytest.mark.parametrize("method", OPTIONS)
every_kind = pytest.mark.parametrize("kind", KINDS)
both_priors = pytest.mark.parametrize("priors", [GAMMA, SIMPLEX], ids=["gamma", "simplex"])


def fitted(counts, noise, method="vi", priors=GAMMA, **settings):
    options = replace(OPTIONS[method], priors=priors, **settings)
    return bayesnmf.fit(counts, "gamma_poisson", K, method, seed=0, options=options, noise=noise)


@every_method
@every_kind
@both_priors
def test_given_dispersions_are_those_of_the_features(method, kind, priors) -> None:
    variance = NegativeBinomial("linear" if kind == "nb1" else "quadratic").variance
    given = {"a": NegativeBinomial(variance, 0.8), "b": NegativeBinomial(variance, 0.2)}
    one = fitted(COUNTS, given, method, priors)
    two = fitted(BOTH, NegativeBinomial(variance, np.repeat([0.8, 0.2], [6, 4]), by="feature"), method, priors)
    np.testing.assert_array_equal(one.loadings, two.loadings)
    np.testing.assert_array_equal(one.trace, two.trace)
    assert one.matrix("b").noise == given["b"]


@pytest.mark.parametrize("method", ["map", "vi"])
@every_kind
def test_one_matrix_learns_what_all_entries_learn(method, kind) -> None:
    """But for rounding, as sums are over features first."""
    one = fitted({"a": COUNTS["a"]}, kind, method)
    two = fitted(COUNTS["a"], kind, method)
    np.testing.assert_allclose(one.noise.dispersion, [two.noise.dispersion], rtol=1e-8)
    np.testing.assert_allclose(one.loadings, two.loadings, rtol=1e-8)
    np.testing.assert_allclose(one.trace, two.trace, rtol=1e-9)


@every_method
@every_kind
@both_priors
def test_each_matrix_has_a_dispersion_of_its_own(method, kind, priors) -> None:
    fit = fitted(COUNTS, kind, method, priors)
    high, low = fit.noise.dispersion
    assert high > 2 * low
    assert fit.matrix("a").noise.dispersion == high
    if method == "gibbs":
        assert fit.statistics["dispersion"].shape == (1, 20, 2)
        np.testing.assert_array_equal(fit.matrix("b").statistics["dispersion"], fit.statistics["dispersion"][:, :, 1])
        assert fit.to_datatree()["posterior"]["dispersion"].dims == ("chain", "draw", "matrix")
        assert "dispersion[b]" in fit.summary().index
    if method == "vi" and not (kind == "nb2" and priors is SIMPLEX):  # whose bound changes with the ceilings of rates
        assert np.diff(fit.trace).min() > -1e-9 * abs(fit.trace[-1])


@every_method
@every_kind
def test_a_matrix_with_poisson_noise_keeps_it(method, kind) -> None:
    fit = fitted(COUNTS, {"a": kind}, method)
    assert fit.matrix("b").noise == POISSON
    assert fit.noise.dispersion[1] < 1e-9 < 0.1 < fit.noise.dispersion[0]


@every_kind
@both_priors
def test_evidence_of_a_matrix_is_that_of_its_features(kind, priors) -> None:
    """Of a dispersion that is given, nothing is said."""
    fit = fitted(
        COUNTS, {"a": kind, "b": NegativeBinomial("linear" if kind == "nb1" else "quadratic", 0.2)}, "map", priors
    )
    s, features = np.array([0.5, 0.2]), np.repeat([0.5, 0.2], [6, 4])
    by_feature = NegativeBinomial(fit.noise.variance, features, by="feature")
    side = [Mode().at(getattr(fit.priors, name), getattr(fit, name)) for name in ("loadings", "components")]
    found = []
    for noise in (fit.noise.with_dispersion(s), by_feature):
        counts = working_counts(fit.counts, noise, given_totals=False, learned=True, components=fit.priors.components)
        problem = build_problem(counts, fit.priors, Mode(), Mode())
        found.append(evidence_at(problem, State(*side), 1))
    of_matrix, of_feature = (each.log_likelihood(at) for each, at in zip(found, (s, features), strict=True))
    np.testing.assert_allclose(of_matrix, np.add.reduceat(of_feature, [0, 6]), rtol=1e-10)
    for one, two in zip(found[0].derivatives(s), found[1].derivatives(features), strict=True):
        np.testing.assert_allclose(one, np.add.reduceat(two, [0, 6]), rtol=1e-9)
    assert found[0].slope(s)[1] == 0
    assert found[0].moved(s)[1] == 0.2


@every_kind
def test_replicates_vary_as_each_matrix_does(kind) -> None:
    fit = fitted(COUNTS, {"a": NegativeBinomial("linear" if kind == "nb1" else "quadratic", 3.0)}, "map")
    drawn = fit.sample_posterior_predictive(400, seed=0)
    means = fit.expected_loadings @ fit.exposed_components
    more = 1 + 3.0 if kind == "nb1" else 1 + 3.0 * means[:, :6]
    ratio = drawn.var(axis=0) / means
    np.testing.assert_allclose(np.median(ratio[:, :6] / more), 1, atol=0.1)  # 400 draws
    np.testing.assert_allclose(np.median(ratio[:, 6:]), 1, atol=0.1)


@pytest.mark.parametrize("suffix", ["nc", "zarr"])
def test_dispersions_of_matrices_are_saved(suffix, tmp_path) -> None:
    fit = fitted(COUNTS, {"a": "nb1"})
    fit.save(tmp_path / f"fit.{suffix}")
    again = bayesnmf.load(tmp_path / f"fit.{suffix}")
    assert again.noise == fit.noise
    assert again.matrix("b").noise == POISSON
    assert repr(again) == repr(fit)
    assert "of a, 1e-10 of b" in repr(fit)


REFUSED = {
    "another name": ({"c": "nb1"}, "noise must be one of 'a', 'b': found 'c'"),
    "another word": ({"a": "normal"}, "noise must be one of 'poisson'"),
    "both variances": ({"a": "nb1", "b": "nb2"}, "noise of several matrices must be one of 'nb1' and 'nb2'"),
    "quasi beside others": ({"a": "quasi"}, "noise of several matrices must be one of"),
    "of features": ({"a": NegativeBinomial(dispersion="feature")}, "noise of a matrix must have one dispersion"),
    "too many": (NegativeBinomial(dispersion=[1.0, 2.0, 3.0], by="matrix"), "dispersion must have a number for each"),
}


@pytest.mark.parametrize(("noise", "message"), REFUSED.values(), ids=REFUSED)
def test_refused(noise, message) -> None:
    with pytest.raises(ValueError, match=message):
        fitted(COUNTS, noise)


@pytest.mark.long
def test_dispersions_are_tempered() -> None:
    """One matrix has the particles of one dispersion; a dispersion that is given stays."""
    options = bayesnmf.SMC(priors=GAMMA, particles=8, runs=1)
    few = {name: each[:6] for name, each in COUNTS.items()}
    given = {"rank": K, "method": "smc", "seed": 0, "options": options}
    one = bayesnmf.fit({"a": few["a"]}, noise="nb1", **given)
    two = bayesnmf.fit(few["a"], noise="nb1", **given)
    np.testing.assert_allclose(one.trace, two.trace, rtol=1e-9)
    both = bayesnmf.fit(few, noise={"a": "nb1", "b": NegativeBinomial(dispersion=0.3)}, **given)
    drawn = both.statistics["dispersion"]
    np.testing.assert_allclose(drawn[..., 1], 0.3)
    assert drawn[..., 0].std() > 0


@pytest.mark.parametrize("method", ["map", "vi"])
def test_powers_and_weights_multiply(method) -> None:
    """Weighted counts to a power are those of one matrix, and a dispersion is that of counts without their weights."""
    weighted = bayesnmf.fit(COUNTS, rank=K, method=method, seed=0, weights={"b": 3.0}, noise=Quasi(2.0))
    as_one = BOTH * np.repeat([1.0, 3.0], [6, 4])
    one = bayesnmf.fit(as_one, rank=K, method=method, seed=0, noise=Quasi(2.0))
    np.testing.assert_allclose(weighted.trace, one.trace, rtol=1e-12)
    np.testing.assert_allclose(weighted.components, one.components, rtol=1e-9)
    found = [
        bayesnmf.fit(COUNTS, rank=K, method=method, seed=0, weights=each, noise="quasi").noise.dispersion
        for each in ({}, {"a": 0.2, "b": 0.2}, {"a": 5.0, "b": 5.0})
    ]
    np.testing.assert_allclose(found, found[0], rtol=0.25)


def test_refused_by_other_counts_and_methods() -> None:
    with pytest.raises(TypeError, match="noise must be one noise for counts of one matrix"):
        fitted(BOTH, {"a": "nb1"})
    with pytest.raises(TypeError, match="noise must be one noise for counts of one matrix"):
        fitted(BOTH, NegativeBinomial(dispersion="matrix"))
    with pytest.raises(TypeError, match="noise must be one noise for counts of one matrix"):
        bayesnmf.simulate(size=(20, 6), rank=2, noise=NegativeBinomial("linear", [1.0, 2.0], by="matrix"))
    with pytest.raises(ValueError, match="dispersion='matrix' needs counts of several matrices"):
        bayesnmf.modes(BOTH, rank=K, starts=2, noise=NegativeBinomial(dispersion="matrix"))
    with pytest.raises(ValueError, match="weights need noise='poisson' or 'quasi'"):
        bayesnmf.fit(COUNTS, rank=K, weights={"a": 2}, noise="nb1")
    with pytest.raises(
        ValueError, match="given totals need a dispersion of all entries or of each row: found those of each matrix"
    ):
        bayesnmf.fit(COUNTS, "dirichlet_poisson", K, noise="nb1")


def test_noise_of_matrices() -> None:
    counts = fitted(COUNTS, "poisson").counts
    assert noise_of_matrices(POISSON, counts) == POISSON
    assert noise_of_matrices({"a": "poisson"}, counts) == POISSON
    assert noise_of_matrices(Quasi(), counts) == Quasi()
    assert noise_of_matrices(NegativeBinomial(dispersion=0.3), counts).by is None
    found = noise_of_matrices({"b": NegativeBinomial("quadratic", 0.3)}, counts)
    groups = FeatureGroups(counts.matrices.codes, np.array([0.0, 0.3]))
    assert found == NegativeBinomial("quadratic", [0.0, 0.3], "matrix", groups)
