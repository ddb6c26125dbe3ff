"""P-values of refitted replicates: their distribution under a right model, and what wrong ones get."""

from functools import cache

import numpy as np
import pytest
from plain import even_priors, plain_map, plain_vi
from scipy.stats import gamma, kstest, t
from smallfits import quietly

import bayesnmf
from bayesnmf import Gibbs
from bayesnmf.assessment import predictive_statistics
from bayesnmf.assessment.predictive_statistics import measure, tail_probabilities, tails_of_all, upper_tails

pytestmark = quietly
RNG = np.random.default_rng(1)
OPTIONS = plain_vi(tol=1e-6, extrapolate=True, threads=1)
GIBBS = Gibbs(start="random", chains=1, warmup=60, draws=60, threads=1)


# --- p-values of given replicates --------------------------------------------------------------------


def test_tail_probabilities_are_those_of_a_further_replicate():
    """Student's t with a standard error; the spread is not believed below `least`."""
    replicated = RNG.normal(3, 2, (24, 3))
    mean, sd = replicated.mean(axis=0), replicated.std(axis=0, ddof=1)
    observed, least = mean + np.array([1.0, -1.0, 8.0]), np.array([0.0, 0.0, 100.0])
    both = np.array([False, True, False])
    off = (observed - mean) / (np.maximum(sd, least) * np.sqrt(25 / 24))
    upper = t.sf(off, 23)
    found = tail_probabilities(observed, replicated, least, both)
    np.testing.assert_allclose(found, [upper[0], 2 * (1 - upper[1]), upper[2]], rtol=1e-10)
    same = tail_probabilities(np.ones(1), np.ones((24, 1)), np.zeros(1), np.array([False]))
    assert same == 0.5


@pytest.mark.parametrize(("shared", "number"), [(0.0, 4), (1.0, 1)], ids=["independent", "one statistic four times"])
def test_the_smallest_of_all_is_uniform_whatever_they_share(shared, number):
    """Of 250 sets, the share below 0.05 is within four standard errors of 0.05."""
    sets = RNG.normal(size=(250, 25, 4)) * (1 - shared) + shared * RNG.normal(size=(250, 25, 1))
    found = [tails_of_all(each[0], each[1:], np.zeros(4), np.zeros(4, bool)) for each in sets]
    smallest = np.array([adjusted.min() for _, adjusted in found])
    assert abs(np.mean(smallest < 0.05) - 0.05) < 4 * np.sqrt(0.05 * 0.95 / 250)
    single, adjusted = found[0]
    guessed = np.log1p(-adjusted) / np.log1p(-single)
    assert guessed.max() == pytest.approx(guessed.min())
    assert guessed[0] == pytest.approx(number, rel=0.5)


def test_upper_tails_of_sums_of_squares():
    replicated = RNG.gamma(3.0, 2.0, (20_000, 1))
    found = upper_tails(np.array([14.0, 0.0]), np.hstack([replicated, np.zeros_like(replicated)]))
    assert found[0] == pytest.approx(gamma.sf(14.0, 3.0, scale=2.0), rel=0.1)
    assert found[1] == 1.0


def test_what_is_measured_is_what_dense_arithmetic_says():
    loadings, components = RNG.gamma(1.0, 2.0, (7, 2)), RNG.gamma(0.3, 1.0, (2, 5))
    means = loadings @ components
    counts = bayesnmf.fit(RNG.poisson(means), rank=1, seed=0, options=plain_vi(max_iter=1)).counts
    dense = counts.dense
    found = measure(counts.matrix, loadings, components, 1)
    expected_squares = (means**2 + means).mean()
    np.testing.assert_allclose(
        list(found.expected.values()),
        [
            means.sum(),
            np.exp(-means).mean(),
            means.ravel()[dense.argmax()],
            (expected_squares - means.mean() ** 2) / means.mean(),
            0.0,
        ],
    )
    misfit = np.sum((np.sqrt(dense) - np.sqrt(means)) ** 2)
    wanted = [dense.sum(), np.mean(dense == 0), dense.max(), dense.var() / dense.mean(), misfit]
    np.testing.assert_allclose(list(found.values.values()), wanted)


# --- refits ------------------------------------------------------------------------------------------


@cache
def three_components(seed=0, rank=3):
    """A fit of 40 × 20 counts of three components, 400 in a row."""
    rng = np.random.default_rng(seed)
    counts = rng.poisson(rng.gamma(1.0, 400 / 3, (40, 3)) @ rng.dirichlet(np.full(20, 0.5), 3))
    return bayesnmf.fit(counts, rank=rank, seed=0, options=plain_vi(tol=1e-9, extrapolate=True, threads=1))


def test_a_converged_fit_is_where_the_refits_start():
    fit = three_components()
    first = predictive_statistics.Refitted.of(fit)
    np.testing.assert_allclose(np.matmul(*first.factors()), fit.expected_loadings @ fit.components, rtol=1e-3)
    one, two = (list(first.replicates(2, 5)) for _ in range(2))
    for a, b in zip(one, two, strict=True):
        np.testing.assert_array_equal(a.counts.dense, b.counts.dense)
        np.testing.assert_array_equal(a.factors()[0], b.factors()[0])
    assert not np.array_equal(one[0].counts.dense, one[1].counts.dense)


def test_twelve_steps_reach_the_misfit_of_many(monkeypatch):
    """Within a tenth of its standard deviation, while no step at all is far off."""
    first = predictive_statistics.Refitted.of(three_components())

    def misfits_after(steps):
        monkeypatch.setattr(predictive_statistics, "STEPS", steps)
        found = first.replicates(8, 0)
        return np.array([measure(each.counts.matrix, *each.factors(), 1).values["misfit"] for each in found])

    none, twelve, many = (misfits_after(steps) for steps in (0, 12, 80))
    assert abs(twelve.mean() - many.mean()) < 0.1 * many.std()
    assert none.mean() - many.mean() > 2 * many.std()


def test_rows_stand_for_all_where_counts_are_many(monkeypatch):
    fit = three_components()
    monkeypatch.setattr(predictive_statistics, "MOST", fit.counts.nnz * 3 // 2)
    found = bayesnmf.predictive_checks(fit, 5)
    assert found.rows["p_value"].notna().to_numpy().nonzero()[0].tolist() == list(range(0, 40, 2))
    assert found.table.loc["total", "observed"] == fit.counts.matrix[::2].sum()
    assert "those of 20 of 40 rows" in repr(found)
    assert found.failed == []


def test_counts_nearer_to_their_means_than_poisson_numbers_are_no_misfit():
    """Rounded means: the misfit is far too small, and its p-value near 1."""
    fit = three_components()
    rounded = np.rint(fit.expected_loadings @ fit.components)
    close = bayesnmf.fit(rounded, rank=3, seed=0, options=OPTIONS)
    found = bayesnmf.predictive_checks(close, 5)
    assert found.table.loc["misfit", "p_value"] > 0.999
    assert "misfit" not in found.failed


def test_intervals_and_p_values_of_totals_agree():
    """A fit reproduces totals but for a pull of its priors, which no p-value calls far out, and intervals hold."""
    rng = np.random.default_rng(2)
    counts = rng.poisson(rng.gamma(1.0, 3.0, (60, 2)) @ rng.dirichlet(np.ones(20), 2) * 4000)
    found = bayesnmf.predictive_checks(bayesnmf.fit(counts, rank=2, seed=0, options=OPTIONS), 5)
    line = found.table.loc["total"]
    assert line["p_value"] > 0.2
    assert line["low"] <= line["observed"] <= line["high"]


def test_zeros_count_in_both_directions():
    rng = np.random.default_rng(3)
    means = rng.gamma(1.0, 3.0, (60, 1)) @ rng.dirichlet(np.ones(20), 1) * 4
    wrong = [rng.poisson(means) * (rng.random(means.shape) > 0.4), np.maximum(rng.poisson(means), 1)]
    verdicts = []
    for counts in wrong:
        fit = bayesnmf.fit(counts, rank=1, seed=0, options=OPTIONS)
        found = bayesnmf.predictive_checks(fit, 5)
        assert "share of zeros" in found.failed
        verdicts.append(" ".join(repr(found).split()))
    assert "share of zeros" in verdicts[0].split("too large")[0].split("does not")[1]
    assert "share of zeros too small" in verdicts[1]


# --- how often right and wrong models fail -----------------------------------------------------------


@pytest.mark.parametrize("method", ["vi", "map"])
def test_too_small_a_rank_is_found_by_every_method(method):
    options = {"vi": OPTIONS, "map": plain_map(algorithm="scd", threads=1)}[method]
    counts = three_components().counts
    right, wrong = (bayesnmf.fit(counts, rank=rank, method=method, seed=0, options=options) for rank in (3, 2))
    assert bayesnmf.predictive_checks(right, 5).p_value > 0.05
    assert "misfit" in bayesnmf.predictive_checks(wrong, 5).failed


@pytest.mark.long
@pytest.mark.parametrize(("method", "sets"), [("vi", 200), ("gibbs", 100)])
def test_one_right_model_in_twenty_fails(method, sets):
    """Size 0.05 ± 0.03 of all statistics together, 0.05 ± 0.06 of fewer sets; p-values of the misfit are uniform.

    With half as many refits as by default, which Student's t allows for, it takes less than a minute.
    """
    failed, misfits = [], []
    for seed in range(sets):
        drawn = bayesnmf.simulate("gamma_poisson", (30, 16), 2, priors=even_priors(rank=2), seed=seed)
        options = {"vi": OPTIONS, "gibbs": GIBBS}[method]
        fit = bayesnmf.fit(drawn.counts, rank=2, method=method, seed=seed, options=options)
        found = bayesnmf.predictive_checks(fit, 1, refits=12, seed=seed)
        failed.append(bool(found.failed))
        misfits.append(found.table.loc["misfit", "p_value"])
    assert abs(np.mean(failed) - 0.05) <= (0.03 if sets == 200 else 0.06)
    assert kstest(misfits, "uniform").pvalue > 1e-3
