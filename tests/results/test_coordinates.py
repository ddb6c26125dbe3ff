"""Coordinates of rows, against distances between expected profiles, feature by feature."""

from dataclasses import replace

import numpy as np
import pytest
import smallfits
from scipy.spatial.distance import pdist

import bayesnmf
from bayesnmf.results.coordinates import DISPERSION

pytestmark = smallfits.quietly


def in_units(fit):
    """Return how expected profiles differ from the mean one, in standard deviations of shares of features, (n, m)."""
    expected = fit.expected_loadings @ fit.components
    profiles = expected / expected.sum(axis=1, keepdims=True)
    mean = profiles.mean(axis=0)
    return (profiles - mean) / np.sqrt(mean / np.median(fit.counts.row_totals) + DISPERSION * mean**2)


def with_factors(fit, loadings, components):
    return replace(fit, loadings=loadings, components=components, rank=len(components))


def point():
    return smallfits.fit("gamma_poisson", "map")


def test_distances_are_those_of_expected_profiles_and_axes_are_principal():
    fit = point()
    found, z = fit.coordinates().to_numpy(), in_units(fit)
    assert found.shape == (smallfits.N, fit.rank - 1)
    np.testing.assert_allclose(pdist(found), pdist(z), rtol=1e-10)
    np.testing.assert_allclose(found.mean(axis=0), 0, atol=1e-10 * np.abs(found).max())
    spread = np.linalg.svd(z, compute_uv=False)[: fit.rank - 1]
    np.testing.assert_allclose(np.sqrt((found**2).sum(axis=0)), spread, rtol=1e-8)
    np.testing.assert_allclose(np.corrcoef(found.T), np.eye(fit.rank - 1), atol=1e-8)


def test_two_components_of_one_profile_are_one():
    """However a row divides its counts between them; by shares, this alone would set rows apart."""
    fit = point()
    part = np.random.default_rng(0).random(len(fit.loadings))
    loadings = np.column_stack([fit.loadings[:, 0] * part, fit.loadings[:, 0] * (1 - part), fit.loadings[:, 1:]])
    two = with_factors(fit, loadings, fit.components[[0, *range(fit.rank)]])
    found, whole = two.coordinates().to_numpy(), fit.coordinates().to_numpy()
    np.testing.assert_allclose(np.abs(found[:, :-1]), np.abs(whole), atol=1e-8 * np.abs(whole).max())
    np.testing.assert_allclose(found[:, -1], 0, atol=1e-6 * np.abs(whole).max())


def test_new_rows_lie_along_the_axes_of_the_reference():
    fit = smallfits.fit()
    shares = bayesnmf.to_topic_model(fit).proportions
    new = fit.project(fit.counts.rows([3, 1, 5]))
    axes = np.linalg.lstsq(shares - shares.mean(axis=0), fit.coordinates().to_numpy(), rcond=None)[0]
    expected = (bayesnmf.to_topic_model(new).proportions - shares.mean(axis=0)) @ axes
    np.testing.assert_allclose(new.coordinates(), expected, rtol=1e-8)
    assert new.coordinates().index.tolist() == ["s3", "s1", "s5"]


def test_rows_without_counts_lie_nowhere_and_one_component_has_no_axis():
    counts = bayesnmf.as_counts([[30, 0, 9], [0, 21, 14], [0, 0, 0], [5, 9, 1]])
    found = bayesnmf.fit(counts, rank=2, seed=0).coordinates()
    assert np.isnan(found.to_numpy()[:, 0]).tolist() == [False, False, True, False]
    assert bayesnmf.fit(counts, rank=1, seed=0).coordinates().shape == (4, 0)


@pytest.mark.parametrize("scale", [1.0, 7.0])
def test_they_know_the_profile_and_not_the_size_of_a_row(scale):
    fit = point()
    sizes = np.linspace(1, scale, len(fit.loadings))[:, None]
    other = with_factors(fit, fit.loadings * sizes, fit.components)
    np.testing.assert_allclose(other.coordinates(), fit.coordinates(), rtol=1e-8)


@smallfits.every_model
@smallfits.every_method
def test_every_fit_has_coordinates(model, method):
    fit = smallfits.fit(model, method)
    assert np.isfinite(fit.coordinates().to_numpy()).all()


def test_rows_of_counts_that_are_all_zero_have_none():
    found = bayesnmf.fit(np.zeros((4, 5), int), rank=3, seed=0).coordinates()
    assert found.shape == (4, 2)
    assert found.isna().all(axis=None)
