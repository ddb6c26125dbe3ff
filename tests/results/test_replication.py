"""Statistics of drawn counts against their exact distribution, and misfits against dense arithmetic."""

import numpy as np
import pytest
from scipy.sparse import csr_array
from scipy.stats import chi2, poisson

from bayesnmf.kernels.cpu import replication as kernel
from bayesnmf.kernels.cpu.compiling import compiled_on_disk
from bayesnmf.kernels.cpu.draws import poisson as poisson_draw
from bayesnmf.kernels.cpu.replication import misfits, replicated_counts, replicated_statistics

RNG = np.random.default_rng(0)
LOADINGS, COMPONENTS = RNG.gamma(1.0, 1.0, (5, 3)), RNG.gamma(0.5, 1.0, (3, 8))
COMPONENTS[:, 2] = 0.0  # a feature without any rate
DRAWS = 4000


@compiled_on_disk()
def _many_poisson(seed, mean, out):
    state = np.array([seed], dtype=np.uint64)
    for index in range(len(out)):
        out[index] = poisson_draw(state, mean)


@pytest.mark.parametrize("mean", [0.0, 1e-3, 0.3, 4.0, 9.99, 10.01, 37.5, 5000.0])
def test_poisson_draws_have_their_distribution(mean):
    drawn = np.empty(200_000)
    _many_poisson(3, mean, drawn)
    edges = np.unique(poisson.ppf(np.linspace(0, 1, 21)[1:-1], mean)) if mean else np.array([0.0])
    bounds = np.concatenate([[-1.0], edges, [np.inf]])
    shares = np.diff(poisson.cdf(bounds, mean))
    found = np.histogram(drawn, bounds + 0.5)[0]
    assert found.sum() == len(drawn)
    assert np.all(drawn == np.rint(drawn))
    assert np.all(found[shares == 0] == 0)
    expected = shares[shares > 0] * len(drawn)
    statistic = np.sum((found[shares > 0] - expected) ** 2 / expected)
    assert statistic <= chi2.ppf(1 - 1e-5, max(len(expected) - 1, 1))


def test_poisson_draws_of_means_beyond_log_factorials():
    drawn = np.empty(20_000)
    _many_poisson(3, 4e13, drawn)
    assert abs(drawn.mean() - 4e13) < 4.5 * np.sqrt(4e13 / len(drawn))
    assert abs(drawn.var() / 4e13 - 1) < 4.5 * np.sqrt(2 / len(drawn))


@pytest.mark.parametrize("given", [False, True], ids=["Poisson", "given totals"])
@pytest.mark.parametrize("scale", [0.4, 40.0], ids=["count by count", "entry by entry"])
def test_entries_have_their_joint_distribution(given, scale):
    """A matrix of one row: its feature totals are its entries."""
    loadings = LOADINGS[:1] * scale / (LOADINGS[0] @ COMPONENTS.sum(axis=1))
    total = 5 if scale < 1 else 90
    means = (loadings @ COMPONENTS)[0] * (total / scale if given else 10)
    loadings = loadings if given else 10 * loadings
    totals = np.array([float(total)]) if given else None
    drawn = np.array([replicated_statistics(loadings, COMPONENTS, totals, 4, s).feature_totals for s in range(DRAWS)])
    assert (means.sum() < 8) == (scale < 1)  # which way it is drawn
    assert np.all(drawn[:, 2] == 0)
    lively = np.delete(np.arange(8), 2)
    covariance = np.diag(means) - (np.outer(means, means) / total if given else 0)
    se = np.sqrt(np.diag(covariance)[lively] / DRAWS)
    assert np.abs((drawn.mean(axis=0) - means)[lively] / se).max() < 4.5
    found = np.cov(drawn.T)
    np.testing.assert_allclose(np.diag(found)[lively], np.diag(covariance)[lively], rtol=0.2)
    spread = np.sqrt(np.outer(np.diag(covariance), np.diag(covariance)) + covariance**2)[np.ix_(lively, lively)]
    between = ~np.eye(len(lively), dtype=bool)
    z = (found - covariance)[np.ix_(lively, lively)] / spread * np.sqrt(DRAWS)
    assert np.abs(z[between]).max() < 5
    if given:
        assert np.all(drawn.sum(axis=1) == total)


@pytest.mark.parametrize("given", [False, True], ids=["Poisson", "given totals"])
def test_drawn_counts_have_the_statistics_of_the_same_seed(given):
    """Some rows are drawn count by count, others entry by entry; one has no counts."""
    loadings = np.vstack([LOADINGS * 0.05, LOADINGS * 5, np.zeros((1, 3))])
    totals = np.array([*range(10), 0.0]) if given else None
    found = replicated_statistics(loadings, COMPONENTS, totals, 30, 7)
    drawn = [replicated_counts(loadings, COMPONENTS, totals, 7, threads) for threads in (1, 3)]
    for counts in drawn:
        assert counts.has_canonical_format
        assert np.all(counts.data > 0)
        dense = counts.toarray()
        np.testing.assert_array_equal(dense.sum(axis=1), found.row_totals)
        np.testing.assert_array_equal(dense.sum(axis=0), found.feature_totals)
        np.testing.assert_array_equal(np.bincount(dense.astype(int).ravel(), minlength=30)[:30], found.histogram)
        assert (dense**2).sum() == found.squares
    nothing = replicated_counts(np.zeros((2, 3)), COMPONENTS, None, 0)
    assert (nothing.shape, nothing.nnz) == ((2, 8), 0)


def test_statistics_are_those_of_one_matrix():
    """What is summed by rows, by features and by entries agrees, drawn either way."""
    loadings = np.vstack([LOADINGS * 0.05, LOADINGS * 5])
    found = replicated_statistics(loadings, COMPONENTS, None, 10_000, 1)
    values = np.arange(len(found.histogram))
    assert found.histogram.sum() == 80
    assert found.histogram @ values == found.row_totals.sum() == found.feature_totals.sum()
    assert found.histogram @ values**2 == found.squares
    assert found.nonzeros == 80 - found.histogram[0]
    assert found.largest == values[found.histogram > 0].max()
    np.testing.assert_allclose(found.misfits.rows.sum(), found.misfits.features.sum(), rtol=1e-12)
    low = replicated_statistics(loadings, COMPONENTS, None, 3, 1)
    np.testing.assert_array_equal(low.histogram, found.histogram[:3])
    one = replicated_statistics(loadings[-1:], COMPONENTS, None, 3, 1)  # one row, whose entries are its feature totals
    entries = (np.sqrt(one.feature_totals) - np.sqrt(loadings[-1] @ COMPONENTS)) ** 2
    np.testing.assert_allclose(one.misfits.features, entries, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("given", [False, True])
def test_threads_do_not_change_a_statistic(given, monkeypatch):
    monkeypatch.setattr(kernel, "SERIAL_WORK", 0)
    rng = np.random.default_rng(1)
    loadings = rng.gamma(0.5, 1.0, (300, 3))
    totals = np.rint(loadings.sum(axis=1) * 3) if given else None
    one, *others = (replicated_statistics(loadings, COMPONENTS, totals, 5, 9, threads) for threads in (1, 2, 3))
    matrix = csr_array(rng.poisson(loadings @ COMPONENTS).astype(float))
    ours, *theirs = (misfits(matrix, loadings, COMPONENTS, threads) for threads in (1, 2, 3))
    for other, their in zip(others, theirs, strict=True):
        for first, second in zip([*one[:2], *one.misfits, *ours], [*other[:2], *other.misfits, *their], strict=True):
            np.testing.assert_array_equal(first, second)
        np.testing.assert_array_equal(one.histogram, other.histogram)
        assert one[4:] == other[4:]


def test_rows_and_components_without_rates():
    empty = np.zeros((2, 3))
    found = replicated_statistics(empty, COMPONENTS, None, 3, 0)
    assert found.row_totals.sum() == found.largest == found.misfits.rows.sum() == 0
    # of given totals every component is as likely then, and every feature of a component of zeros
    given = replicated_statistics(np.zeros((400, 1)), np.zeros((1, 4)), np.full(400, 3.0), 3, 0)
    np.testing.assert_array_equal(given.row_totals, 3)
    assert np.abs(given.feature_totals - 300).max() < 4.5 * np.sqrt(1200 * 0.25 * 0.75)


def test_misfits_of_sparse_counts_are_those_of_dense_ones():
    rng = np.random.default_rng(1)
    counts, loadings, components = rng.poisson(0.7, (8, 6)), rng.gamma(1, 1, (8, 3)), rng.gamma(1, 1, (3, 6))
    entries = (np.sqrt(counts) - np.sqrt(loadings @ components)) ** 2
    rows, features = misfits(csr_array(counts.astype(float)), loadings, components)
    np.testing.assert_allclose(rows, entries.sum(axis=1), rtol=1e-12)
    np.testing.assert_allclose(features, entries.sum(axis=0), rtol=1e-12)
