"""Structure in residuals: found where a component is missing, not where entries vary by themselves."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from anndata import AnnData
from scipy.sparse import csr_array, csr_matrix

import bayesnmf
from bayesnmf.data.mask import Mask
from bayesnmf.results.cautions import cautions_of_model
from bayesnmf.results.residuals import LEVEL, RIDGE, TakenUp, structure, structures, structures_of

SHAPE, RANK = (80, 40), 3


def truth(seed, rank=RANK):
    """Return loadings and components, of which the last one has 8 % of the counts."""
    rng = np.random.default_rng(seed)
    loadings = rng.gamma(0.7, 400.0, (SHAPE[0], rank))
    loadings[:, -1] *= 0.25
    return loadings, rng.dirichlet(np.full(SHAPE[1], 0.3), rank)


def drawn(seed, spread, law="gamma", rank=RANK):
    loadings, components = truth(seed, rank)
    rng, means = np.random.default_rng([seed, 1]), loadings @ components
    if spread:
        wide = np.log1p(spread**2)
        gamma = law == "gamma"
        means = means * (
            rng.gamma(spread**-2, spread**2, means.shape)
            if gamma
            else rng.lognormal(-wide / 2, np.sqrt(wide), means.shape)
        )
    return csr_array(rng.poisson(means).astype(np.float64)), loadings, components


@pytest.mark.parametrize(("spread", "law"), [(0.0, "gamma"), (0.4, "gamma"), (0.4, "lognormal")])
def test_p_values_of_true_means_are_uniform(spread, law):
    """Of 40 sets, at most 6 are below 0.05 (a chance of 1 %) and half below 0.5."""
    found = [structure(*drawn(seed, spread, law)).p_value for seed in range(40)]
    assert np.sum(np.array(found) < 0.05) <= 6
    assert 0.25 < np.mean(np.array(found) < 0.5) < 0.75


@pytest.mark.parametrize("spread", [0.0, 0.4])
def test_p_values_of_each_of_several_matrices_are_uniform(spread):
    """Of 40 sets with half the features in each of two: bounds as above."""
    names = np.repeat(["one", "two"], SHAPE[1] // 2)
    sets = [structures(*drawn(seed, spread), names) for seed in range(40)]
    for name in ("one", "two"):
        found = np.array([each[name].p_value for each in sets])
        assert np.sum(found < 0.05) <= 6
        assert 0.25 < np.mean(found < 0.5) < 0.75


def test_a_component_that_is_missing_is_found_and_named():
    for seed in range(5):
        counts, loadings, components = drawn(seed, 0.3)
        found = structure(counts, loadings[:, :2], components[:2])
        assert found.p_value < LEVEL
        leading = np.argsort(-components[2] / np.sqrt(components[:2].sum(axis=0)))[:8]
        assert found.features[0] in leading


def test_size_alone_is_no_structure():
    """Rows and features of ten times the variance, and single large counts."""
    counts, loadings, components = drawn(3, 0.0)
    means, rng = loadings @ components, np.random.default_rng(3)
    wild = np.where(np.arange(SHAPE[0])[:, None] < 10, 10.0, 0.1) * np.where(np.arange(SHAPE[1]) < 5, 10.0, 1.0)
    uneven = csr_array(rng.poisson(rng.gamma(means / wild, wild)).astype(np.float64))
    assert structure(uneven, loadings, components).p_value > LEVEL
    single = counts.toarray()
    single[rng.random(SHAPE) < 0.02] *= 5
    assert structure(csr_array(single), loadings, components).p_value > LEVEL


def test_what_a_fit_takes_up_is_taken_off():
    """To first order: residuals of that form vanish, and the rest is orthogonal to it."""
    rng = np.random.default_rng(0)
    loadings, components = truth(0)
    weights = 1 / np.sqrt(loadings @ components + 1.0)
    own = TakenUp.of(weights, loadings, components)
    inside = weights * (rng.normal(size=loadings.shape) @ components + loadings @ rng.normal(size=components.shape))
    assert np.linalg.norm(own.off(inside)) < 0.02 * np.linalg.norm(inside)
    rest = own.off(rng.normal(size=SHAPE))
    change = weights * (loadings @ rng.normal(size=components.shape))
    assert abs(np.sum(rest * change)) < 100 * RIDGE * np.linalg.norm(rest) * np.linalg.norm(change)


def test_missing_entries_are_in_no_residual():
    counts, loadings, components = drawn(1, 0.0)
    hidden = np.random.default_rng(0).random(SHAPE) < 0.2
    mask, other = Mask.of(csr_array(hidden.astype(np.float64))), counts.toarray()
    other[hidden] = 10_000
    one = structure(counts, loadings, components, mask)
    two = structure(csr_array(other), loadings, components, mask)
    assert one.ratio == pytest.approx(two.ratio)
    assert one.p_value > LEVEL


def test_a_printed_fit_tells_it_with_features_and_the_next_rank():
    counts, *_ = drawn(2, 0.0)
    table = pd.DataFrame(counts.toarray().astype(int), columns=[f"gene {j}" for j in range(SHAPE[1])])
    lacking = bayesnmf.fit(table, rank=2, seed=0)
    told = [text for text in cautions_of_model(lacking) if "residuals share a pattern" in text]
    assert len(told) == 1
    assert "(p < 0.001), most of all in 'gene " in told[0]
    assert "try rank=3 or more" in told[0]
    assert "residuals share a" in str(lacking)
    whole = bayesnmf.fit(table, rank=3, seed=0)
    assert structures_of(whole)[""].p_value > LEVEL
    assert "residuals share" not in str(whole)
    assert structures_of(whole.project(table)) == {}  # of loadings alone


def test_checks_say_that_it_is_more_than_that_of_refitted_replicates():
    counts, *_ = drawn(2, 0.0)
    fit = bayesnmf.fit(counts, rank=2, seed=0)
    found = bayesnmf.predictive_checks(fit, 5, refits=10)
    row = found.table.loc["structure"]
    assert row["p_value"] < 1e-3
    assert row["low"] < 1 < row["high"]
    assert np.isnan(row["p_adjusted"])  # judged by itself
    assert row["p_value"] == structures_of(fit)[""].p_value
    assert any(note.startswith("residuals share a pattern") for note in found.notes)


def test_checks_say_that_a_whole_fit_has_none():
    counts, *_ = drawn(2, 0.0)
    right = bayesnmf.predictive_checks(bayesnmf.fit(counts, rank=3, seed=0), 5, refits=10)
    assert right.table.loc["structure", "p_value"] > LEVEL


@pytest.mark.filterwarnings("ignore:The 'future.infer_string' option:Warning")  # of anndata
def test_counts_on_disk_have_that_of_the_same_counts_in_memory(tmp_path):
    counts = drawn(2, 0.0)[0]
    path = tmp_path / "counts.h5ad"
    AnnData(csr_matrix(counts, dtype=np.float32)).write_h5ad(path)
    on_disk = bayesnmf.fit(bayesnmf.Blocks(path, scratch=tmp_path), rank=2, seed=0)
    one, two = (structures_of(fit)[""] for fit in (bayesnmf.fit(counts, rank=2, seed=0), on_disk))
    assert two.ratio == pytest.approx(one.ratio, rel=0.01)
    assert "residuals share a" in str(on_disk)


def test_few_rows_or_features_have_no_structure():
    fit = bayesnmf.fit(np.random.default_rng(0).poisson(5.0, (30, 6)), rank=3, seed=0)
    assert structures_of(fit) == {}
    assert "structure" not in bayesnmf.predictive_checks(fit, 5, refits=10).table.index
