"""What the likelihood does not fix: components are matched, and a relabelled fit is the same fit."""

from dataclasses import replace
from functools import cache
from types import SimpleNamespace

import numpy as np
import pytest
from plain import plain_map, plain_vi
from registry import MODELS_AND_PRIORS, over

import bayesnmf
from bayesnmf import Dirichlet, Gamma, Gibbs, Priors, ScaledDirichlet, Start
from bayesnmf.assessment.bounds import elbo_augmented
from bayesnmf.assessment.scoring import background, score
from bayesnmf.data.conversion import as_counts
from bayesnmf.inference import alignment
from bayesnmf.plots.agreement import mean_cosines
from bayesnmf.plots.summaries import match_fits
from bayesnmf.priors.values import component_sums
from bayesnmf.results.relabelling import relabel
from bayesnmf.studies.comparison.measures import agreement

brief = pytest.mark.filterwarnings(
    "ignore::bayesnmf.inference.status.ConvergenceWarning"
)  # nothing here needs a converged fit

ORDER = np.array([2, 0, 3, 1])  # not its own inverse: a mistaken inverse shows
K, M = 4, 9


def distinct_components(rng):
    return rng.dirichlet(np.full(M, 0.3), K)


# --- matching ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(5))
def test_a_known_permutation_is_recovered_under_noise_and_scaling(seed):
    rng = np.random.default_rng(seed)
    reference = distinct_components(rng)
    noisy = reference[ORDER] * rng.uniform(0.1, 50, (K, 1)) * rng.uniform(0.8, 1.2, (K, M))
    order = alignment.match_components(noisy, reference)
    np.testing.assert_array_equal(ORDER[order], np.arange(K))
    assert np.diag(alignment.cosine(noisy[order], reference)).min() > 0.95


def test_components_already_in_order_stay():
    reference = distinct_components(np.random.default_rng(0))
    np.testing.assert_array_equal(alignment.match_components(reference, reference), np.arange(K))


def test_the_assignment_is_the_best_in_total_and_not_greedy():
    """Component 0 is reference 0 itself; yet component 1 is so far from reference 1 that they had better swap."""
    reference = np.array([[1.0, 0.0], [0.9, np.sqrt(0.19)]])
    components = np.array([[1.0, 0.0], [0.95, -np.sqrt(1 - 0.95**2)]])
    np.testing.assert_allclose(alignment.cosine(components, reference), [[1, 0.9], [0.95, 0.719]], atol=1e-3)
    np.testing.assert_array_equal(alignment.match_components(components, reference), [1, 0])


def test_cosines_are_those_of_the_definition():
    rng = np.random.default_rng(1)
    one, two = rng.gamma(1.0, 1.0, (2, 3, M)), rng.gamma(1.0, 1.0, (K, M))
    one[0, 1] = 0  # a dead component
    found = alignment.cosine(one, two)
    assert found.shape == (2, 3, K)
    for c, k, r in np.ndindex(2, 3, K):
        length = np.linalg.norm(one[c, k]) * np.linalg.norm(two[r])
        expected = one[c, k] @ two[r] / length if length > 0 else 0.0
        np.testing.assert_allclose(found[c, k, r], expected, atol=1e-15)


def test_draws_are_matched_one_by_one_and_reordered():
    rng = np.random.default_rng(2)
    reference = distinct_components(rng)
    orders = np.array([[rng.permutation(K) for _ in range(3)] for _ in range(2)])
    loadings = rng.gamma(1.0, 1.0, (5, K))
    shuffled = np.stack([[reference[order] for order in chain] for chain in orders])
    moved = np.stack([[loadings[:, order] for order in chain] for chain in orders])
    found = alignment.match_draws(shuffled * rng.uniform(0.9, 1.1, shuffled.shape), reference)
    assert found.shape == (2, 3, K)
    np.testing.assert_array_equal(
        alignment.reorder(shuffled, found, axis=-2), np.broadcast_to(reference, shuffled.shape)
    )
    np.testing.assert_array_equal(alignment.reorder(moved, found, axis=-1), np.broadcast_to(loadings, moved.shape))


def test_component_sums_are_those_over_features():
    components = np.arange(24.0).reshape(2, 3, 4)
    np.testing.assert_array_equal(component_sums(components), components.sum(axis=2))


# --- the same fit, relabelled -------------------------------------------------------------------------

COUNTS = np.random.default_rng(3).poisson(4, (8, M))
OPTIONS = {
    "map": plain_map(max_iter=30, threads=1),
    "vi": plain_vi(max_iter=30, threads=1),
    "gibbs": Gibbs(start="random", chains=2, warmup=20, draws=15, threads=1),
}


@cache
def fit(entry, method):
    options = replace(OPTIONS[method], priors=entry.priors(COUNTS.shape, K))
    return bayesnmf.fit(COUNTS, entry.model, K, method, seed=4, options=options)


def parameters(distribution, size):
    """All parameters of a prior or a q, at the size of the factor."""
    if isinstance(distribution, ScaledDirichlet):
        scale = [np.broadcast_to(value, (size[0], 1)) for value in (distribution.shape, distribution.rate)]
        return [np.broadcast_to(distribution.concentration, size)], scale
    found = list(distribution.broadcast(size).parameters.values())
    axis = 1 if size[1] == K else 0
    return [each for each in found if each.shape[axis] == K], [each for each in found if each.shape[axis] != K]


# What is the same for all components says nothing of their order.
DIFFERENT = [entry.id for entry in MODELS_AND_PRIORS if "asymmetric" in entry.id or "partly_known" in entry.id]


@brief
@pytest.mark.parametrize("method", OPTIONS)
@over(MODELS_AND_PRIORS, default=DIFFERENT)
def test_relabelling_permutes_everything_and_changes_nothing(entry, method):
    old = fit(entry, method)
    new = relabel(old, ORDER)
    np.testing.assert_array_equal(new.loadings, old.loadings[:, ORDER])
    np.testing.assert_array_equal(new.components, old.components[ORDER])
    np.testing.assert_allclose(
        new.expected_loadings @ new.components, old.expected_loadings @ old.components, rtol=1e-12
    )
    for side, size, axis in (("loadings", (8, K), 1), ("components", (K, M), 0)):
        pairs = [(getattr(fit.priors, side), getattr(fit.options.priors, side)) for fit in (old, new)]
        for before, after in zip(*pairs, strict=True):
            both = [parameters(prior, size) for prior in (before, after)]
            for one, two in zip(both[0][0], both[1][0], strict=True):
                np.testing.assert_array_equal(two, np.take(one, ORDER, axis=axis))
            for one, two in zip(both[0][1], both[1][1], strict=True):  # the scale has no components
                np.testing.assert_array_equal(two, one)
    if method == "gibbs":
        np.testing.assert_array_equal(new.posterior.loadings, old.posterior.loadings[..., ORDER])
        np.testing.assert_array_equal(new.posterior.components, old.posterior.components[..., ORDER, :])
        if old.scale is not None:
            np.testing.assert_array_equal(new.posterior.scale, old.posterior.scale)
    if method == "vi":
        # The bound of a q whose parts were permuted against one another, or against the priors, would be another.
        np.testing.assert_allclose(elbo_augmented(new), old.trace[-1], rtol=1e-10)


@brief
@pytest.mark.parametrize("method", ["map", "gibbs"])
@pytest.mark.parametrize("entry", MODELS_AND_PRIORS[2:8:2], ids=lambda entry: entry.id)
def test_a_relabelled_fit_has_the_same_score(entry, method):
    held_out = as_counts(np.random.default_rng(5).poisson(1, COUNTS.shape))
    old = fit(entry, method)
    scores = [score(f, held_out, background(f.counts), 20, 0).per_count for f in (old, relabel(old, ORDER))]
    np.testing.assert_allclose(scores[1], scores[0], rtol=1e-12)


@brief
def test_coordinate_ascent_goes_on_from_a_relabelled_fit_with_its_priors():
    """Asymmetric priors follow their components: refitting from there does not lower the bound, nor swap anything."""
    entry = next(entry for entry in MODELS_AND_PRIORS if entry.id == "gamma_poisson-asymmetric")
    new = relabel(fit(entry, "vi"), ORDER)
    again = bayesnmf.fit(COUNTS, entry.model, K, "vi", options=replace(new.options, start=new, max_iter=1))
    np.testing.assert_allclose(again.trace[0], new.trace[-1], rtol=1e-10)


@brief
def test_learned_priors_and_those_given_are_permuted_each_for_itself():
    given = Priors(Gamma(np.arange(1.0, K + 1), np.full(K, 0.1)), Dirichlet(np.full((K, 1), 0.5)))
    old = bayesnmf.fit(
        COUNTS, rank=K, method="vi", seed=0, options=plain_vi(priors=given, learn=("loadings",), max_iter=20)
    )
    new = relabel(old, ORDER)
    assert np.abs(old.priors.loadings.shape - given.loadings.shape).min() > 1e-3  # learned
    np.testing.assert_array_equal(new.priors.loadings.shape, old.priors.loadings.shape[ORDER])
    np.testing.assert_array_equal(new.options.priors.loadings.shape, given.loadings.shape[ORDER])
    plain = relabel(
        bayesnmf.fit(COUNTS, rank=K, method="vi", seed=0, options=plain_vi(priors=given, max_iter=2)), ORDER
    )
    assert plain.options.priors is plain.priors


@brief
def test_components_without_a_prior_are_relabelled():
    options = plain_vi(priors=Priors(components="parameter"), max_iter=20)
    old = bayesnmf.fit(COUNTS, rank=K, method="vi", seed=0, options=options)
    new = relabel(old, ORDER)
    assert new.priors.components == "parameter"
    assert new.posterior.components is None
    np.testing.assert_array_equal(new.components, old.components[ORDER])
    np.testing.assert_allclose(elbo_augmented(new), old.trace[-1], rtol=1e-10)


@brief
def test_parameters_of_rows_or_features_are_not_taken_for_those_of_components():
    """With as many rows and features as components, only the place of an axis tells which is which."""
    counts = COUNTS[:K, :K]
    ramp = np.arange(1.0, K + 1)
    priors = Priors(Gamma(ramp[:, None], ramp), Gamma(ramp, ramp[:, None]))
    start = Start(np.ones((K, K)), np.ones((K, K)))
    old = bayesnmf.fit(counts, rank=K, method="map", options=plain_map(priors=priors, start=start, max_iter=0))
    new = relabel(old, ORDER)
    np.testing.assert_array_equal(new.priors.loadings.shape, ramp[:, None])
    np.testing.assert_array_equal(new.priors.loadings.rate, ramp[ORDER])
    np.testing.assert_array_equal(new.priors.components.shape, ramp)
    np.testing.assert_array_equal(new.priors.components.rate, ramp[ORDER][:, None])
    both = Dirichlet(ramp)  # (m,): of the features, although there are as many components
    plain = bayesnmf.fit(counts, rank=K, method="map", options=plain_map(priors=Priors(components=both), max_iter=1))
    np.testing.assert_array_equal(relabel(plain, ORDER).priors.components.concentration, ramp)


def test_fits_are_matched_by_the_counts_they_predict_whatever_the_units_of_features():
    """A feature with a huge exposure has tiny components, which a cosine of components would not see."""
    rng = np.random.default_rng(3)
    reference, other = rng.gamma(0.3, size=(2, 6, 30))
    found = []
    for unit in (1.0, np.exp(rng.normal(0, 4, 30))):
        counts = SimpleNamespace(exposed_components=lambda components, unit=unit: components * unit)
        fits = [SimpleNamespace(components=each / unit, counts=counts) for each in (other, reference)]
        order = alignment.match_fits(*fits)
        found.append((order.tolist(), alignment.fit_cosines(*fits, order)))
    (plain, cosines), (scaled, of_scaled) = found
    assert scaled == plain == alignment.match_components(other, reference).tolist()
    np.testing.assert_allclose(of_scaled, cosines, rtol=1e-12)
    assert alignment.match_components(fits[0].components, fits[1].components).tolist() != plain


@brief
def test_functions_that_compare_fits_do_not_depend_on_the_units_of_features():
    rng = np.random.default_rng(3)
    profiles, unit = rng.gamma(0.3, size=(2, 6, 30)), np.exp(rng.normal(0, 4, 30))
    options = plain_map(priors=Priors(Gamma(1.0, 1.0), Gamma(1.0, 1.0)), max_iter=2, tol=0)
    found = []
    for exposure in (None, unit):
        fit = bayesnmf.fit(
            rng.poisson(3.0, (8, 30)), rank=6, method="map", feature_exposure=exposure, options=options, seed=0
        )
        fits = {name: replace(fit, components=each / (1.0 if exposure is None else unit), loadings=np.ones((8, 6)))
                for name, each in zip("ab", profiles, strict=True)}  # fmt: skip
        cosines = [agreement(fits["b"], fits["a"])[each] for each in ("cosine", "cosine_min")]
        order = match_fits(fits, "a")[1]["b"]
        found.append([*cosines, *mean_cosines(fits).ravel(), *order])
    np.testing.assert_allclose(*found, rtol=1e-12)
