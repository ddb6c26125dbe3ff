"""How much a reference explains of new rows: sums by hand, false alarms, and power against other kinds."""

import warnings
from dataclasses import replace
from functools import cache

import numpy as np
import pandas as pd
import pytest
from plain import plain_vi
from scipy.sparse import csr_array

import bayesnmf
from bayesnmf import DataWarning
from bayesnmf.results.explained import _settled, excess_of, scale_of

N, M, K = 400, 80, 3
RNG = np.random.default_rng(0)
PROGRAMS = RNG.dirichlet(np.full(M, 0.3), K + 1)  # the last one is not in the reference
NB1 = bayesnmf.NegativeBinomial(dispersion=1.0)  # given, so that less is compiled
NAMES = [f"g{j}" for j in range(M)]


def drawn(n, seed, depth=300, other=0.0, noise=None):
    """Return counts of mixtures of the programs, with a share of the other one, as a frame."""
    rng = np.random.default_rng(seed)
    shares = np.hstack([(1 - other) * rng.dirichlet(np.full(K, 0.3), n), np.full((n, 1), other)])
    means = rng.gamma(5, depth / 5, (n, 1)) * shares @ PROGRAMS
    counts = rng.poisson(means) if noise is None else rng.negative_binomial(means / noise, 1 / (1 + noise))
    return pd.DataFrame(counts, [f"r{i}" for i in range(n)], NAMES)


@cache
def reference(noise="poisson"):
    given = {"options": plain_vi(start="svd", threads=1), "noise": NB1 if noise == "nb1" else noise}
    return bayesnmf.fit(drawn(N, 1, noise=None if noise == "poisson" else 1.0), rank=K, seed=0, **given)


def quietly_explained(fit):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DataWarning)
        return fit.explained()


@pytest.mark.parametrize("entries", ["all", "some missing"])
def test_sums_are_those_of_all_entries(entries):
    rng = np.random.default_rng(3)
    X, loadings, components = rng.poisson(2, (6, 9)), rng.gamma(1, 1, (6, 2)), rng.gamma(1, 1, (2, 9))
    weights, seen = rng.uniform(0.1, 1, 9), np.ones((6, 9), bool) if entries == "all" else rng.random((6, 9)) < 0.7
    seen[:, 0] = True
    counts = bayesnmf.fit(X, rank=1, seed=0, observed=seen, options=plain_vi(max_iter=1, threads=1, tol=0)).counts
    means = loadings @ components
    found = excess_of(counts, loadings, components, weights)
    wanted = {
        "excess": weights * ((X - means) ** 2 - means),
        "linear": weights * means,
        "quadratic": weights * means**2,
        "linear_of_squares": weights**2 * means,
        "quadratic_of_squares": weights**2 * means**2,
    }
    for name, value in wanted.items():
        np.testing.assert_allclose(getattr(found, name), np.where(seen, value, 0).sum(axis=1), rtol=1e-10)


@pytest.mark.parametrize("ratio", [1.0, 2.5])
def test_the_variance_of_the_excess_is_that_of_drawn_counts(ratio):
    """Of 400,000 drawn counts, to 3 %."""
    mean, rng = 1.5, np.random.default_rng(0)
    chance = (mean / (ratio - 1), 1 / ratio) if ratio > 1 else None
    drawn = rng.poisson(mean, 400_000) if chance is None else rng.negative_binomial(*chance, 400_000)
    found = excess_of(bayesnmf.as_counts([[1.0]]), np.ones((1, 1)), np.full((1, 1), mean), np.full(1, 0.7))
    assert found.variance(ratio)[0] == pytest.approx(np.var(0.7 * (drawn - mean) ** 2), rel=0.03)


@pytest.mark.parametrize("noise", ["poisson", "nb1"])
@pytest.mark.parametrize("depth", [300, 100])
def test_rows_of_the_same_kind_are_seldom_told(noise, depth):
    """Of 400 rows 5 % by chance: 20 ± 4.4, and ± 4.4 more for the quantile of 400 rows of the reference."""
    found = quietly_explained(reference(noise).project(drawn(400, 2, depth, noise=None if noise == "poisson" else 1.0)))
    assert (~found["of_kind"]).mean() < 0.05 + 3 * np.sqrt(2 * 0.05 * 0.95 / 400)
    assert found["explained"].median() > 0.9
    assert (found["in_reference"] == 1).all()


def test_rows_of_another_kind_are_told_by_the_share_that_is_not_explained():
    half, whole = (quietly_explained(reference().project(drawn(100, 4, other=share))) for share in (0.5, 1.0))
    assert (~half["of_kind"]).mean() > 0.9
    assert (~whole["of_kind"]).all()
    assert whole["explained"].median() < half["explained"].median() < 0.95
    assert whole["z"].median() > half["z"].median() > 5


def test_permuted_features_are_told_with_a_warning():
    new = drawn(100, 5)
    mixed = pd.DataFrame(new.to_numpy()[:, np.random.default_rng(0).permutation(M)], new.index, NAMES)
    with pytest.warns(DataWarning, match=r"\d+ of 100 rows differ from what the reference explains .* 5 would by"):
        table = reference().project(mixed).explained()
    assert (~table["of_kind"]).mean() > 0.95
    assert table["explained"].median() < 0.3


def test_features_that_the_reference_lacks_are_counted_and_those_that_rows_lack_are_missing():
    new = drawn(200, 6)
    renamed = new.rename(columns={name: f"other {name}" for name in NAMES[::4]})
    with pytest.warns(DataWarning, match=r"lack 20 of the 80|20 left out"):
        projected = reference().project(renamed)
    table = quietly_explained(projected)
    inside = new.drop(columns=NAMES[::4]).sum(axis=1)
    np.testing.assert_allclose(table["in_reference"], inside / new.sum(axis=1))
    np.testing.assert_array_equal(table["counts"], new.sum(axis=1))
    assert (~table["of_kind"]).mean() < 0.1
    assert table["explained"].median() > 0.9


def test_a_reference_from_a_file_says_the_same(tmp_path):
    fit, new = reference(), drawn(30, 7)
    fit.save(tmp_path / "reference.nc")
    projected = bayesnmf.load(tmp_path / "reference.nc").project(new)
    table = quietly_explained(projected)
    pd.testing.assert_frame_equal(table, quietly_explained(fit.project(new)))
    projected.save(tmp_path / "new.nc")
    for other in (fit, bayesnmf.load(tmp_path / "new.nc")):
        with pytest.raises(ValueError, match=r"must be a projection onto a reference.*use reference.project"):
            other.explained()


def test_rows_without_counts_say_nothing():
    new = drawn(3, 8)
    new.iloc[1] = 0
    table = quietly_explained(reference().project(new))
    assert table["of_kind"].iloc[1]
    assert table.iloc[1][["in_reference", "explained", "z", "p"]].isna().all()
    with pytest.raises(ValueError, match="level"):
        reference().project(new).explained(0)


def test_leading_components_of_a_projection_are_against_the_rows_of_the_reference():
    """A single new row is its own mean: nothing would lead in it."""
    row = drawn(1, 9)
    table = reference().project(row).leading_components()
    shares = bayesnmf.to_topic_model(reference().project(row)).proportions[0]
    means = bayesnmf.to_topic_model(reference()).proportions.mean(axis=0)
    assert table["component"].iloc[0] == np.argmax(shares * np.log(shares / means))
    np.testing.assert_allclose(table["lift"], (shares / means)[table["component"].iloc[0]])


def test_a_projection_onto_a_projection_is_onto_the_same_reference(tmp_path):
    """The components of a projection are not from its rows, so no counts of these are taken out of them."""
    fit, new = reference(), drawn(30, 10)
    first = fit.project(drawn(5, 9))
    pd.testing.assert_frame_equal(quietly_explained(first.project(new)), quietly_explained(fit.project(new)))
    pd.testing.assert_frame_equal(first.project(new).leading_components(), fit.project(new).leading_components())
    first.save(tmp_path / "first.nc")
    loaded = bayesnmf.load(tmp_path / "first.nc")
    with pytest.raises(ValueError, match="must be a projection onto a reference"):
        loaded.project(new).explained()
    with pytest.warns(DataWarning, match="lifts are against the rows of this projection.*reference.project"):
        loaded.leading_components()


def test_counts_on_disk_and_in_single_precision_are_explained_alike(tmp_path):
    new, fit = drawn(60, 11).to_numpy(), reference()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DataWarning)  # of names that blocks do not have
        on_disk = fit.project(bayesnmf.Blocks(csr_array(new), scratch=tmp_path, nonzeros=900)).explained()
        pd.testing.assert_frame_equal(on_disk, fit.project(new).explained())
    found = fit.project(new)
    single = replace(found, counts=found.counts.with_matrix(found.counts.matrix.astype(np.float32)))
    pd.testing.assert_frame_equal(single.explained(), found.explained())


def test_rows_without_counts_are_no_rows_of_the_reference():
    counts = drawn(100, 1)
    empty = pd.DataFrame(0, [f"e{i}" for i in range(200)], NAMES)
    fit = bayesnmf.fit(pd.concat([counts, empty]), rank=K, seed=0, options=plain_vi(start="svd", threads=1))
    table = quietly_explained(fit.project(drawn(100, 2)))
    assert abs(table["p"].median() - 0.5) < 3 * np.sqrt(2 * 0.25 / 100)  # two medians of 100 rows; 0.8 with empty ones


def test_one_matrix_of_a_projection_has_no_reference():
    halves = {"a": NAMES[:40], "b": NAMES[40:]}
    X, new = drawn(50, 1), drawn(5, 2)
    fit = bayesnmf.fit(
        {name: X[own] for name, own in halves.items()}, rank=2, seed=0, options=plain_vi(max_iter=9, tol=0.1)
    )
    one = fit.project({name: new[own] for name, own in halves.items()}).matrix("a")
    with pytest.raises(ValueError, match="which files and single matrices do not keep"):
        one.explained()
    with pytest.warns(DataWarning, match="lifts are against the rows of this projection"):
        one.leading_components()


def test_counts_are_not_taken_out_of_known_components():
    fit = bayesnmf.fit(drawn(20, 1), fixed_components=PROGRAMS[:K], seed=0, options=plain_vi(start="random", threads=1))
    loadings, components = fit.mean_factors
    weights = np.full(M, 0.2)
    scale = scale_of(fit, weights)
    found = excess_of(fit.counts, _settled(fit.counts, loadings, components), components, weights)
    np.testing.assert_allclose(scale.scores, np.sort(scale.score(found)), rtol=1e-6)
