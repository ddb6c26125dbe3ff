"""The dispersion of counts around the means of a fit."""

from itertools import product

import numpy as np
import pytest
from plain import plain_map, plain_vi
from smallfits import quietly
from suites import crossed

import bayesnmf
from bayesnmf.kernels.cpu.pearson import pearson_sums
from bayesnmf.priors.specification import MODELS


def simulated(n, m, rank, total, rng):
    means = rng.gamma(0.5, 1, (n, rank)) @ rng.dirichlet(np.full(m, 0.2), rank)
    return means * total / means.sum(axis=1, keepdims=True)


def linear_noise(means, dispersion, rng):
    """Return counts of variance (1 + dispersion) · mean."""
    return rng.poisson(rng.gamma(means / dispersion, dispersion))


def test_sums_are_those_of_single_entries_and_pools():
    rng = np.random.default_rng(0)
    loadings, components = rng.gamma(0.4, 1, (7, 2)), rng.gamma(0.3, 1, (2, 11))
    counts = rng.poisson(loadings @ components)
    low = 0.4
    rows, columns = pearson_sums(bayesnmf.as_counts(counts).matrix, loadings, components, low)
    for found, x, mean in ((rows, counts, loadings @ components), (columns, counts.T, (loadings @ components).T)):
        for line, x_line, mean_line in zip(found, x, mean, strict=True):
            entries, pool = [(a, b) for a, b in zip(x_line, mean_line, strict=True) if b >= low], np.zeros(2)
            for a, b in zip(x_line, mean_line, strict=True):
                if b < low:
                    pool += a, b
                    if pool[1] >= low:
                        entries.append(tuple(pool))
                        pool[:] = 0
            squares = np.array([(a - b) ** 2 / b for a, b in entries])
            np.testing.assert_allclose(line, [squares.sum(), (squares**2).sum(), len(entries)])


def test_blocks_change_nothing(monkeypatch):
    rng = np.random.default_rng(0)
    loadings, components = rng.gamma(0.4, 1, (50, 2)), rng.gamma(0.3, 1, (2, 11))
    matrix = bayesnmf.as_counts(rng.poisson(loadings @ components)).matrix
    whole = pearson_sums(matrix, loadings, components, 0.3)
    monkeypatch.setattr("bayesnmf.kernels.cpu.pearson.ENTRIES", 40)
    for one, two in zip(whole, pearson_sums(matrix, loadings, components, 0.3), strict=True):
        np.testing.assert_allclose(one, two, rtol=1e-12)


@quietly
@pytest.mark.parametrize(
    ("n", "m", "total", "dispersion", "within"),
    [(200, 60, 2000, 0, 0.05), (200, 60, 2000, 1, 0.05), (200, 60, 2000, 4, 0.1), (300, 400, 150, 0, 0.05),
     (300, 400, 150, 1, 0.1), (300, 400, 150, 4, 0.2)],
)  # fmt: skip
def test_the_dispersion_is_found(n, m, total, dispersion, within):
    """Few counts hide a part of it: components go after single large ones."""
    rng = np.random.default_rng(5)
    means = simulated(n, m, 4, total, rng)
    counts = linear_noise(means, dispersion, rng) if dispersion else rng.poisson(means)
    found = bayesnmf.fit(counts, rank=4, seed=0, options=plain_vi(tol=1e-5)).dispersion()
    assert found.ratio == pytest.approx(1 + dispersion, rel=within)
    assert 0.002 < found.standard_error < 0.1 * found.ratio
    assert list(found.rows.columns) == ["ratio", "standard_error", "unshrunk"]
    assert len(found.features) == m


@quietly
def test_rows_that_vary_more_are_told_apart():
    """Half of the rows have three times the dispersion of the others."""
    rng = np.random.default_rng(6)
    means = simulated(200, 80, 3, 3000, rng)
    counts = np.vstack([linear_noise(means[:100], 1, rng), linear_noise(means[100:], 5, rng)])
    found = bayesnmf.fit(counts, rank=3, seed=0, options=plain_vi(tol=1e-5)).dispersion()
    halves = [np.median(found.rows["ratio"][part]) for part in (slice(0, 100), slice(100, 200))]
    assert halves[0] == pytest.approx(2, rel=0.15)
    assert halves[1] == pytest.approx(6, rel=0.15)
    alike = bayesnmf.fit(rng.poisson(means), rank=3, seed=0, options=plain_vi(tol=1e-5)).dispersion()
    assert alike.rows["ratio"].std() < 0.3 * alike.rows["unshrunk"].std()  # shrunk, since they do not differ


@quietly
def test_given_components_have_no_parameters():
    rng = np.random.default_rng(7)
    components = rng.dirichlet(np.full(12, 0.5), 3)
    counts = rng.poisson(rng.gamma(1, 100, (300, 3)) @ components)
    fit = bayesnmf.fit(counts, rank=3, seed=0, fixed_components=components, options=plain_vi())
    assert fit.dispersion().ratio == pytest.approx(1, abs=0.06)  # 1.3 were components counted as parameters
    assert fit.project(counts).dispersion().ratio == pytest.approx(1, abs=0.06)


@quietly
def test_dispersion_is_told_where_it_is_large():
    rng = np.random.default_rng(8)
    means = simulated(100, 50, 3, 1000, rng)
    calm, wild = (
        bayesnmf.fit(counts, rank=3, seed=0, options=plain_vi(tol=1e-5))
        for counts in (rng.poisson(means), linear_noise(means, 3, rng))
    )
    assert "vary" not in repr(calm)
    assert (
        "times as much as Poisson counts would: components are missing, or intervals are too narrow; noise='nb1' "
        "(likelier than 'nb2' around these means) or noise='quasi' widens them" in " ".join(repr(wild).split())
    )
    assert any("Poisson counts" in each for each in wild.summary(rows=[0]).attrs["cautions"])


@quietly
def test_empty_rows_and_columns_count_for_nothing():
    rng = np.random.default_rng(9)
    counts = np.zeros((150, 60))
    counts[:100, :40] = rng.poisson(simulated(100, 40, 3, 1000, rng))
    fit = bayesnmf.fit(counts, rank=3, method="map", seed=0, options=plain_map(max_iter=300))
    found = fit.dispersion()
    assert found.ratio == pytest.approx(1, abs=0.1)
    assert np.isnan(found.rows["unshrunk"].iloc[-1])
    assert found.rows["ratio"].iloc[-1] == pytest.approx(found.ratio)


@quietly
def test_a_dispersion_needs_degrees_of_freedom():
    fit = bayesnmf.fit([[3, 1, 2], [4, 0, 1]], rank=2, seed=0)
    with pytest.raises(ValueError, match="a dispersion needs more entries than parameters"):
        fit.dispersion()


@quietly
@pytest.mark.parametrize("method", ["vi", "map"])
@pytest.mark.parametrize(("n", "known", "needed", "features"), [(100, 60, 0.05, 96), (600, 4, 0.3, 12)])
def test_what_given_components_take_up_is_known(n, known, needed, features, method):
    """Were all loadings of 60 signatures parameters, ratios would double; were only those in use, of 4 too small."""
    rng = np.random.default_rng(11)
    catalogue = rng.dirichlet(np.full(features, 0.15), known)
    means = 20 * features * rng.dirichlet(np.full(known, needed), n) @ catalogue
    options = plain_vi() if method == "vi" else plain_map()
    calm, wild = (
        bayesnmf.fit(counts, method=method, fixed_components=catalogue, seed=0, options=options).dispersion().ratio
        for counts in (rng.poisson(means), linear_noise(means, 1, rng))
    )
    assert calm == pytest.approx(1, abs=0.12)
    assert wild == pytest.approx(2, rel=0.12)


MISSING = np.random.default_rng(1).random((30, 12)) < 0.9


EVERY = [{}, {"method": "map"}, {"method": "gibbs", "options": bayesnmf.Gibbs(draws=20, warmup=20)},
         {"observed": MISSING}, {"rank": 4}, {"noise": "quasi"}]  # fmt: skip
SOME = [{"row_exposure": np.linspace(0.5, 2, 30)}, {"batch": ["a", "b"] * 15},
        {"covariates": {"age": np.linspace(-1, 1, 30)}, "formula": "age"}]  # fmt: skip


@quietly
@pytest.mark.parametrize(
    ("model", "more"),
    [*crossed(MODELS, EVERY), *product(("gamma_poisson", "dirichlet_gamma"), SOME)],
    ids=lambda value: value if isinstance(value, str) else "-".join(value) or "plain",
)
def test_dispersions_given_components_are_those_of_any_fit(model, more):
    rng = np.random.default_rng(12)
    catalogue = rng.dirichlet(np.full(12, 0.5), 3)
    counts = rng.poisson(rng.gamma(1, 60, (30, 3)) @ catalogue)
    counts[-1] = 0
    fit = bayesnmf.fit(counts, model, fixed_components=catalogue, seed=0, **more)
    assert 0.75 < fit.dispersion().ratio < 1.35


@quietly
@pytest.mark.parametrize("model", ["gamma_poisson", "hierarchical_poisson"])
def test_rows_of_few_observed_counts_take_up_less_than_their_loadings(model):
    """Three counts a row are left of ten: with all loadings counted, and means too small, Poisson counts had 1.2."""
    rng = np.random.default_rng(0)
    means = rng.gamma(1, 1, (300, 3)) @ rng.dirichlet(np.ones(40), 3)
    means *= 10 / means.sum(axis=1).mean()
    observed = rng.random(means.shape) > 0.7
    fit = bayesnmf.fit(rng.poisson(means), model, 3, seed=0, observed=observed)
    found = fit.dispersion()
    assert abs(found.ratio - 1) < 2 * found.standard_error
