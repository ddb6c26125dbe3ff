"""The best latent decomposition ([K] 10-16): its gradients, its ascent, and the fit that comes of it."""

from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from golden.reference import allocations as dense_allocations
from plain import plain_map, plain_vi
from registry import MODELS_AND_PRIORS, nasty_counts, over, plain_counts
from scipy.special import digamma, gammaln

import bayesnmf
from bayesnmf import BLD, Dirichlet, Priors, ScaledDirichlet, Start
from bayesnmf.data.conversion import as_counts
from bayesnmf.fitting.decomposition import start_method
from bayesnmf.inference.marginal import allocation_model as algorithm
from bayesnmf.inference.marginal.allocation_model import (
    AllocationModel,
    best_decomposition,
    canonical_multipliers,
    evaluate_multipliers,
    log_p_allocation,
)
from bayesnmf.kernels.cpu.allocation import Totals
from bayesnmf.kernels.cpu.decomposition import log_gamma_and_digamma
from bayesnmf.priors.specification import MODELS
from bayesnmf.results.record import AT_THE_END

K = 3
ENTRIES = {entry.id: entry for entry in MODELS_AND_PRIORS if entry.model == "dirichlet_gamma"}
allocation_models = over(list(ENTRIES.values()))
quietly = pytest.mark.filterwarnings("ignore::bayesnmf.inference.status.ConvergenceWarning")


def model_of(counts, priors, threads=1):
    return AllocationModel(as_counts(counts), priors.loadings, priors.components, threads)


def multipliers(seed, n, m, rank=K):
    rng = np.random.default_rng(seed)
    return rng.gamma(1.0, 1.0, (n, rank)), rng.gamma(1.0, 1.0, (rank, m))


def dense_log_p(counts, loadings, components, priors):
    return log_p_allocation(dense_allocations(counts, loadings, components), priors.loadings, priors.components)


def bld(counts, priors=None, seed=0, rank=K, **settings):
    options = BLD(priors=priors or Priors(), threads=1, **settings)
    return bayesnmf.fit(counts, "dirichlet_gamma", rank, "bld", seed=seed, options=options)


def allocation_model_draw(seed, n=10, m=8, rank=2, a=40.0, b=1.0):
    """Counts of the generative story, as in table 1 of [K]: α = η = 1."""
    rng = np.random.default_rng(seed)
    loadings, components = rng.dirichlet(np.ones(rank), n), rng.dirichlet(np.ones(m), rank)
    return rng.poisson(rng.gamma(a, 1 / b, (n, 1)) * (loadings @ components))


def sparseness(values):
    """Hoyer's: 1 where one entry holds everything, 0 where all are equal."""
    root = np.sqrt(values.size)
    return (root - values.sum() / np.sqrt((values**2).sum())) / (root - 1)


# --- the kernel -------------------------------------------------------------------------------------


def test_digamma_and_log_gamma_agree_with_scipy():
    """To 1e-13, relative, or absolute near their zeros; arguments from 1e-8 to 1e8."""
    points = np.concatenate([np.logspace(-8, 8, 1601), np.linspace(1.0, 12.0, 2001)])
    found = np.array([log_gamma_and_digamma(x) for x in points])
    for column, exact in enumerate((gammaln(points), digamma(points))):
        assert np.max(np.abs(found[:, column] - exact) / np.maximum(1.0, np.abs(exact))) < 1e-13


@allocation_models
@pytest.mark.parametrize("fractional", [False, True])
def test_log_p_without_allocations_is_that_of_dense_ones(entry, fractional):
    """[K] 7-9, with empty rows and columns, whole and fractional counts."""
    counts = nasty_counts()
    if fractional:
        counts = counts * np.random.default_rng(0).uniform(0.2, 1.0, counts.shape)
    loadings, components = multipliers(0, *counts.shape)
    components[0, :4] = 0.0
    priors = entry.priors(counts.shape, K)
    found = evaluate_multipliers(model_of(counts, priors), loadings, components)
    assert found.log_p == pytest.approx(dense_log_p(counts, loadings, components, priors), rel=1e-12)


@allocation_models
def test_gradients_are_those_of_dense_log_p(entry):
    """Rising minus falling part = ∂ log p(S) in the logarithms; central differences of 1e-5 err by about 1e-9."""
    counts = plain_counts(3, (6, 5))
    counts[2], counts[:, 1] = 0, 0
    loadings, components = multipliers(1, 6, 5)
    priors = entry.priors((6, 5), K)
    found = evaluate_multipliers(model_of(counts, priors), loadings, components).gradients
    h = 1e-5
    parts = ((found.loadings_up, found.loadings_down), (found.components_up, found.components_down))
    for side, (up, down) in enumerate(parts):
        assert min(up.min(), down.min()) >= 0
        for at in np.ndindex(up.shape):
            ends = []
            for sign in (1, -1):
                moved = [loadings.copy(), components.copy()]
                moved[side][at] *= np.exp(sign * h)
                ends.append(dense_log_p(counts, *moved, priors))
            assert (up - down)[at] == pytest.approx((ends[0] - ends[1]) / (2 * h), rel=1e-6, abs=1e-6)


def test_gradients_do_not_depend_on_threads():
    counts = plain_counts(0, (40, 12))
    priors = Priors(ScaledDirichlet(0.7, 2.0, 0.2), Dirichlet(0.4))
    start = multipliers(0, 40, 12)
    one, two = (evaluate_multipliers(model_of(counts, priors, threads), *start) for threads in (1, 2))
    assert one.log_p == pytest.approx(two.log_p, rel=1e-13)
    for left, right in zip(one.gradients[:4], two.gradients[:4], strict=True):
        np.testing.assert_allclose(left, right, rtol=1e-12, atol=1e-12)


def test_allocations_survive_products_that_underflow():
    counts = np.array([[5.0, 0.0, 2.0], [1.0, 3.0, 0.0]])
    loadings = np.array([[1.0, 1e-200], [1e-200, 1.0]])
    components = np.array([[1e-200, 1.0, 1.0], [1e-260, 1.0, 1e-200]])
    priors = Priors(ScaledDirichlet(0.5, 2.0, 1.0), Dirichlet(0.5))
    found = evaluate_multipliers(model_of(counts, priors), loadings, components)
    np.testing.assert_allclose(found.totals.loadings.sum(axis=1), counts.sum(axis=1))
    S = np.zeros((2, 2, 3))  # in row 1, column 0 both products are 1e-400 and 1e-260
    S[0, 0], S[1, 1] = counts[0], counts[1]
    assert found.log_p == pytest.approx(log_p_allocation(S, priors.loadings, priors.components), rel=1e-12)


# --- the ascent -------------------------------------------------------------------------------------


def test_the_canonical_gauge_leaves_the_allocations():
    """Rows sum to 1 on both sides; dead components and empty rows too."""
    counts = nasty_counts()
    loadings, components = multipliers(2, *counts.shape)
    components[1], loadings[1] = 0.0, 0.0  # row 1 has no counts
    found = canonical_multipliers(loadings * 1e3, components * np.logspace(-3, 3, components.shape[1]))
    for side in found:
        np.testing.assert_allclose(side.sum(axis=1), 1)
    np.testing.assert_allclose(
        dense_allocations(counts, *found), dense_allocations(counts, loadings, components), atol=1e-9
    )


@pytest.mark.parametrize(
    ("name", "start"),
    [
        ("dirichlet_gamma", "fit"),
        ("dirichlet_gamma-asymmetric", "map"),
        ("dirichlet_gamma-sparse", "vi"),
        ("dirichlet_gamma-asymmetric", "random"),
    ],
)
def test_log_p_never_falls(name, start):
    counts = plain_counts(5, (15, 10))
    fit = bld(counts, ENTRIES[name].priors(counts.shape, K), start=start, tol=1e-6)
    assert fit.status.converged
    assert len(fit.trace) > 3
    assert np.all(np.diff(fit.trace) >= 0)
    S = fit.allocations()
    assert fit.trace[-1] == pytest.approx(log_p_allocation(S, fit.priors.loadings, fit.priors.components), rel=1e-12)


def test_an_update_that_would_lower_log_p_is_cut_and_never_taken(monkeypatch):
    """[K] 16 with a first power of 1 falls on these counts; the safeguard halves it."""
    counts = plain_counts(5, (15, 10))
    model = model_of(counts, Priors(ScaledDirichlet(5.0, 2.0, 0.2), Dirichlet(5.0)))
    values = []
    visited = algorithm.evaluate_multipliers
    monkeypatch.setattr(algorithm, "evaluate_multipliers", lambda *args: values.append(visited(*args)) or values[-1])
    found = best_decomposition(model, multipliers(0, 15, 10), 200, 0.0)
    proposed = np.array([point.log_p for point in values])
    assert np.any(proposed < np.maximum.accumulate(proposed))
    assert np.all(np.diff(found.trace) >= 0)
    assert found.point.log_p == proposed.max() == found.trace[-1]


def test_it_stops_where_the_gradient_vanishes():
    """At the end a multiplier has gradient 0 or has gone to 0: S (G − Ḡ) is small beside the counts it shares out."""
    counts = plain_counts(6, (12, 9), mean=20.0)
    priors = Priors(ScaledDirichlet(4.0, 2.0, 0.01), Dirichlet(4.0))
    found = best_decomposition(model_of(counts, priors), multipliers(0, 12, 9), 20_000, 1e-13)
    assert found.status.converged
    up, down = found.point.gradients.loadings_up, found.point.gradients.loadings_down
    first = evaluate_multipliers(model_of(counts, priors), *multipliers(0, 12, 9)).gradients
    assert np.abs(up - down).max() < 1e-4 * np.abs(first.loadings_up - first.loadings_down).max()


def test_it_raises_log_p_and_sparseness_over_kl_nmf():
    """Table 1 of [K], its direction: log p(S) on every matrix, the sparseness of S on average."""
    priors = Priors(ScaledDirichlet(1.0, 40.0, 1.0), Dirichlet(1.0))
    gains = []
    for seed in range(6):
        counts = allocation_model_draw(seed)
        kl = bayesnmf.fit(counts, "poisson", 2, "map", seed=seed, options=plain_map(threads=1))
        fit = bld(counts, priors, rank=2, start=kl, tol=1e-6)
        before = kl.allocations()
        log_p = log_p_allocation(before, fit.priors.loadings, fit.priors.components)
        assert fit.trace[0] == pytest.approx(log_p, rel=1e-9)
        assert fit.trace[-1] > log_p
        gains.append(sparseness(fit.allocations()) - sparseness(before))
    standard_error = np.std(gains) / np.sqrt(len(gains))
    assert np.mean(gains) > 3 * standard_error


@pytest.mark.parametrize(
    ("name", "start"), [("dirichlet_gamma-asymmetric", "fit"), ("dirichlet_gamma-sparse", "random")]
)
def test_empty_rows_and_columns_and_dead_components(name, start):
    counts = nasty_counts()
    fit = bld(counts, ENTRIES[name].priors(counts.shape, 5), rank=5, start=start, tol=1e-6)
    assert np.all(np.isfinite(fit.trace))
    for array in (fit.loadings, fit.components, fit.scale, *fit.multipliers):
        assert np.all(np.isfinite(array))
        assert np.all(array >= 0)
    np.testing.assert_allclose(fit.loadings.sum(axis=1), 1)
    np.testing.assert_allclose(fit.components.sum(axis=1), 1)


def test_a_zero_stays_zero_and_a_dead_component_dead():
    counts = plain_counts(1, (8, 6))
    loadings, components = canonical_multipliers(*multipliers(0, 8, 6))
    loadings[2, 0], loadings[:, 2] = 0.0, 0.0
    loadings /= loadings.sum(axis=1, keepdims=True)
    fit = bld(counts, start=Start(loadings, components))
    S = fit.allocations()
    assert np.all(S[:, 2] == 0)
    assert np.all(S[2, 0] == 0)
    assert np.all(np.isfinite(fit.trace))
    np.testing.assert_allclose(S.sum(axis=1), counts, atol=1e-12)


def test_counts_of_zero_are_decomposed():
    fit = bld(np.zeros((4, 3)))
    assert np.all(np.isfinite(fit.trace))
    np.testing.assert_allclose(fit.allocations(), 0)


# --- the modes given S ------------------------------------------------------------------------------


def test_modes_and_where_there_is_none_means():
    """[K] 11: natural in rows without a negative entry, else the conditional mean, row by row."""
    A = np.array([[5.0, 1.0], [7.0, 0.2], [0.0, 0.0]])
    B = np.array([[4.0, 8.0, 0.0], [0.3, 0.5, 0.5]])
    model = model_of(np.ones((3, 3)), Priors(ScaledDirichlet(0.4, 0.5, 0.1), Dirichlet(1.7)))
    loadings, components = algorithm.conditional_modes(model, Totals(A, B, 0.0))
    np.testing.assert_allclose(components, (B + 0.7) / (B + 0.7).sum(axis=1, keepdims=True))
    np.testing.assert_allclose(loadings.proportions, [[4.4 / 4.8, 0.4 / 4.8], [7.4 / 8.0, 0.6 / 8.0], [0.5, 0.5]])
    np.testing.assert_allclose(loadings.scale[:, 0], np.array([5.5, 6.7, 0.5]) / 1.1)
    # At concentration 1 the mode without counts is not unique: even shares. Below 1 the rows of B differ in basis.
    _, even = algorithm.conditional_modes(replace(model, components_prior=Dirichlet(1.0)), Totals(A, 0 * B, 0.0))
    np.testing.assert_allclose(even, 1 / 3)
    _, sparse = algorithm.conditional_modes(replace(model, components_prior=Dirichlet(0.8)), Totals(A, B, 0.0))
    np.testing.assert_allclose(sparse[0], (B[0] + 0.8) / (B[0] + 0.8).sum())
    np.testing.assert_allclose(sparse[1], np.array([0.1, 0.3, 0.3]) / 0.7)


# --- the fit ----------------------------------------------------------------------------------------


def test_it_is_reproducible_and_restarts_keep_the_best():
    counts = plain_counts(4, (12, 8))
    one, same = bld(counts, seed=3, start="random"), bld(counts, seed=3, start="random")
    np.testing.assert_array_equal(one.components, same.components)
    several = bld(counts, seed=3, start="random", restarts=5)
    assert several.trace[-1] > one.trace[-1]
    assert several.diagnostics["restarts"] == 5
    assert several.diagnostics["worst_restart"] <= one.trace[-1]
    other = bld(counts, seed=4, start="random")
    assert not np.array_equal(one.components, other.components)


def test_it_starts_from_any_fit_and_goes_on_from_its_own():
    counts = plain_counts(4, (12, 8))
    vi = bayesnmf.fit(counts, "dirichlet_gamma", K, "vi", seed=0, options=plain_vi(threads=1))
    nmf = bayesnmf.fit(counts, "gamma_poisson", K, "map", seed=0, options=plain_map(threads=1))
    for start in (vi, nmf):
        fit = bld(counts, start=start)
        S = dense_allocations(counts, start.loadings, start.components)
        log_p = log_p_allocation(S, fit.priors.loadings, fit.priors.components)
        assert fit.trace[0] == pytest.approx(log_p, rel=1e-9)
        further = bld(counts, start=fit, max_iter=3, tol=0.0)
        assert further.trace[0] == pytest.approx(fit.trace[-1], rel=1e-12)


@quietly
def test_it_is_saved_and_loaded(tmp_path):
    first = bld(plain_counts(4, (12, 8)), start="random", max_iter=10)
    for fit in (first, bld(plain_counts(4, (12, 8)), start=first, max_iter=10)):
        fit.save(tmp_path / "fit.nc")
        loaded = bayesnmf.load(tmp_path / "fit.nc")
        for saved, read in zip(fit.multipliers, loaded.multipliers, strict=True):
            np.testing.assert_array_equal(saved, read)
        np.testing.assert_array_equal(fit.trace, loaded.trace)
        assert (loaded.method, loaded.status) == ("bld", fit.status)
        np.testing.assert_array_equal(fit.allocations(), loaded.allocations())
    other = bayesnmf.fit(plain_counts(4, (12, 8)), rank=2, seed=0, options=plain_vi(threads=1, max_iter=5))
    other.save(tmp_path / "other.nc")
    assert bayesnmf.load(tmp_path / "other.nc").multipliers is None


@pytest.mark.parametrize("concentration", [1.0, 0.3])
def test_new_rows_get_the_map_given_the_components(concentration):
    counts = plain_counts(4, (12, 8))
    priors = Priors(ScaledDirichlet(concentration, 2.0, 0.1), Dirichlet(concentration))
    fit = bld(counts, priors)
    as_map = replace(fit, method="map", options=plain_map(priors=fit.priors), multipliers=None)
    new = fit.project(counts[:5])
    assert new.method == "bld"
    assert "log joint" in repr(new)
    assert new.multipliers is None
    np.testing.assert_array_equal(fit.transform(counts[:5]), as_map.transform(counts[:5]))
    np.testing.assert_allclose(new.loadings.sum(axis=1), 1)


@cache
def compared():
    options = {"bld": BLD(start="random", max_iter=10, threads=1), "vi": plain_vi(max_iter=5, threads=1)}
    settings = bayesnmf.Settings(options=options, dispersed=False)
    return bayesnmf.compare(plain_counts(4, (12, 6)), "dirichlet_gamma", 2, tuple(options), settings=settings)


@quietly
def test_the_best_decomposition_is_compared_with_other_methods():
    result = compared()
    assert list(result.table.index) == ["bld", "vi"]
    assert np.isfinite(result.table.loc["bld", ["loglik", "heldout_thinned", "heldout_withheld", "cosine"]]).all()
    fit = result.fits["bld"]
    S = fit.allocations()  # relabelled with the components
    np.testing.assert_allclose(S.sum(axis=0).argmax(axis=1), fit.components.argmax(axis=1))


@quietly
@pytest.mark.long
def test_a_comparison_with_the_best_decomposition_has_figures(tmp_path):
    assert {"objectives.png", "components.png"} <= {path.name for path in compared().save(tmp_path)}


@pytest.mark.parametrize("model", [model for model in MODELS if model != "dirichlet_gamma"])
def test_other_models_are_refused(model):
    with pytest.raises(ValueError, match=r"^method='bld' needs model='dirichlet_gamma'.* use model="):
        bayesnmf.fit(plain_counts(), model, 2, "bld")


def test_options_are_checked():
    for settings, rule in (
        ({"restarts": 0}, "restarts must be at least 1"),
        ({"max_iter": -1}, "max_iter must be at least 0"),
        ({"tol": -1.0}, "tol must be at least 0"),
        ({"threads": 0}, "threads must be at least 1"),
        ({"start": "svd"}, "start must be one of 'fit', 'map', 'vi', 'random'"),
        ({"start": Start(*multipliers(0, 4, 3)), "restarts": 2}, "restarts=2 needs a start by name"),
    ):
        with pytest.raises(ValueError, match=f"^{rule}"):
            BLD(**settings)
    bad = BLD(start=Start(np.full((12, K), 0.5), np.full((K, 8), 0.5)))
    with pytest.raises(ValueError, match=r"^start\.components must have rows that sum to 1"):
        bayesnmf.fit(plain_counts(4, (12, 8)), "dirichlet_gamma", K, "bld", options=bad)


def test_it_has_no_posterior_and_says_what_it_climbs():
    fit = bld(plain_counts(4, (12, 8)))
    assert "log p(S)" in repr(fit)
    with pytest.raises(AttributeError, match="a BLD fit has no posterior"):
        _ = fit.posterior
    assert fit.to_datatree().attrs["point_estimate"] == 1


def test_too_few_updates_warn_with_the_cure():
    with pytest.warns(bayesnmf.ConvergenceWarning, match=r"raise max_iter or tol in bayesnmf\.BLD"):
        bld(plain_counts(4, (12, 8)), max_iter=1)


@quietly
@pytest.mark.parametrize("stage", ["bld", "start"])
def test_ctrl_c_returns_what_there_is(monkeypatch, stage):
    calls = 0

    def press(*args):
        nonlocal calls
        calls += 1
        if calls == 4:
            raise KeyboardInterrupt
        return original(*args)

    if stage == "bld":
        original = algorithm.evaluate_multipliers
        monkeypatch.setattr(algorithm, "evaluate_multipliers", press)
    else:
        from bayesnmf.inference.ascent import coordinate_ascent

        original = coordinate_ascent.allocate
        monkeypatch.setattr(coordinate_ascent, "allocate", press)
    fit = bld(plain_counts(4, (12, 8)), restarts=3)
    assert fit.status.reason == "interrupted"
    assert not fit.status.converged
    assert np.all(np.isfinite(fit.trace))
    assert fit.diagnostics.keys() == {*AT_THE_END, "restarts"}
    assert fit.diagnostics["restarts"] == 0  # finished ones


@pytest.mark.parametrize("shapes", [(0.5, 1.0), (1.0, 0.5), (0.5, 0.5), (1.0, 1.0)])
def test_it_starts_from_vi_where_no_concentration_is_below_1(shapes):
    """Below 1 on one side, vi spreads what the decomposition gathers."""
    priors = Priors(ScaledDirichlet(shapes[0], 1.0, 0.1), Dirichlet(shapes[1]))
    assert start_method(BLD(priors=priors)) == ("vi" if min(shapes) == 1 else "map")
