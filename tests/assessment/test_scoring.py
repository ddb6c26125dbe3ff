"""Held-out counts: how they are set aside, the score against its definition, and calibration."""

from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from scipy.special import logsumexp

import bayesnmf
from bayesnmf import MAP, VI, Gibbs, Priors, Start
from bayesnmf.assessment import scoring
from bayesnmf.assessment.scoring import MIXED, background, pit_coverage, score
from bayesnmf.data.conversion import as_counts
from bayesnmf.data.splitting import split_counts, thin_counts
from bayesnmf.data.suspicions import DataWarning
from bayesnmf.priors import ScaledProportions
from bayesnmf.priors.specification import MODELS
from bayesnmf.results.record import iterate_draws

pytestmark = pytest.mark.filterwarnings("ignore::bayesnmf.inference.status.ConvergenceWarning")  # chains of a few draws

N, M, K = 15, 8, 2
OPTIONS = {
    "map": MAP(start="svd", max_iter=100, threads=1),
    "vi": VI(start="svd", max_iter=100, threads=1),
    "gibbs": Gibbs(start="random", chains=2, warmup=30, draws=20, threads=1),
}

every_model = pytest.mark.parametrize("model", MODELS)
every_method = pytest.mark.parametrize("method", OPTIONS)


def simulate(seed=0, size=(N, M), mean=6.0):
    """Counts of two overlapping components, with zeros."""
    rng = np.random.default_rng(seed)
    return rng.poisson(rng.gamma(1.0, mean * size[1] / K, (size[0], K)) @ rng.dirichlet(np.full(size[1], 0.5), K))


def counts_of(values):
    return as_counts(np.asarray(values, float))


def generator(seed=0):
    return np.random.default_rng(seed)


# --- counts set aside -------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("keep", [0.2, 0.5, 0.8])
def test_thinning_splits_every_entry(keep, dtype):
    values = simulate(size=(40, 30))
    counts = as_counts(values, dtype=dtype)
    before = counts.matrix.copy()
    train, rest = thin_counts(counts, keep, generator())
    kept, left = (part.matrix.toarray() for part in (train, rest))
    np.testing.assert_array_equal(kept + left, values)
    for part, dense in ((train, kept), (rest, left)):
        assert part.dtype == dtype
        assert part.matrix.has_canonical_format
        assert part.matrix.data.all()  # no stored zeros
        assert dense.min() >= 0
        np.testing.assert_array_equal(dense, np.floor(dense))
        np.testing.assert_array_equal(part.row_totals, dense.sum(axis=1))  # not those of the counts it came from
        assert part.total == dense.sum()
    # The original is as it was.
    np.testing.assert_array_equal(counts.matrix.toarray(), values)
    np.testing.assert_array_equal(counts.matrix.indptr, before.indptr)
    # Each count goes by itself: the mean and the spread, over entries, are binomial.
    z = (kept - keep * values) / np.sqrt(np.maximum(values * keep * (1 - keep), 1e-9))
    z = z[values > 0]
    assert abs(z.mean()) < 4 / np.sqrt(z.size)
    assert abs(z.var() - 1) < 4 * np.sqrt(2 / z.size)  # a binomial of several counts is nearly normal


def test_thinning_is_reproducible_and_keeps_names():
    names = np.array([f"s{i}" for i in range(N)]), np.array(list("abcdefgh"))
    counts = replace(counts_of(simulate()), row_names=names[0], feature_names=names[1])
    one, two = (thin_counts(counts, 0.5, generator(seed)) for seed in (3, 3))
    for part, again in zip(one, two, strict=True):
        np.testing.assert_array_equal(part.matrix.toarray(), again.matrix.toarray())
        np.testing.assert_array_equal(part.row_names, names[0])
        np.testing.assert_array_equal(part.feature_names, names[1])
    other = thin_counts(counts, 0.5, generator(4))[0]
    assert (one[0].matrix.toarray() != other.matrix.toarray()).any()


@pytest.mark.parametrize(("withhold", "aside"), [(0.1, 2), (0.2, 3), (0.5, 8), (0.99, 14), (0.01, 0), (0.0, 0)])
def test_as_many_samples_are_set_aside_as_were_asked_for(withhold, aside):
    values = simulate() + 1
    names = np.array([f"s{i}" for i in range(N)])
    counts = replace(counts_of(values), row_names=names)
    split = split_counts(counts, 0.7, withhold, generator(1))
    assert split.keep == 0.7
    assert split.train.shape == (N - aside, M)
    np.testing.assert_array_equal(split.train.row_names, split.thinned.row_names)
    assert (split.seen is None) == (split.withheld is None) == (aside == 0)
    pairs = [(split.train, split.thinned)]
    if aside:
        np.testing.assert_array_equal(split.seen.row_names, split.withheld.row_names)
        assert set(split.train.row_names).isdisjoint(split.seen.row_names)
        pairs.append((split.seen, split.withheld))
        # Half of what is withheld is seen, whatever `keep` is.
        total = split.seen.total + split.withheld.total
        assert abs(split.seen.total - 0.5 * total) < 4.5 * 0.5 * np.sqrt(total)
    rows = []
    for kept, left in pairs:
        for name, row in zip(kept.row_names, (kept.matrix + left.matrix).toarray(), strict=True):
            np.testing.assert_array_equal(row, values[int(name[1:])])
            rows.append(name)
    assert sorted(rows) == sorted(names)
    total = split.train.total + split.thinned.total
    assert abs(split.train.total - 0.7 * total) < 4.5 * np.sqrt(0.7 * 0.3 * total)


def test_which_samples_are_set_aside_is_left_to_chance():
    counts = counts_of(simulate())
    chosen = {tuple(split_counts(counts, 0.5, 0.2, generator(seed)).seen.row_names) for seed in range(60)}
    assert len(chosen) > 10
    assert len(set().union(*chosen)) == N


def test_a_single_sample_is_never_set_aside():
    split = split_counts(counts_of(simulate()[:1]), 0.5, 0.9, generator())
    assert split.train.shape[0] == 1
    assert split.seen is None


# --- the score --------------------------------------------------------------------------------------


@cache
def split(model="gamma_poisson"):
    return split_counts(counts_of(simulate(seed=2)), 0.7, 0.0, generator(3))


@cache
def fit(model, method):
    return bayesnmf.fit(split().train, model, K, method, seed=4, options=OPTIONS[method])


def dense_score(pairs, held_out, frequencies):
    """The definition: a mean over draws of the probability of each whole row, in logarithms, for each count."""
    y = held_out.matrix.toarray()
    by_draw = []
    for loadings, components in pairs:
        rates = loadings @ components
        totals = rates.sum(axis=1, keepdims=True)
        probabilities = np.divide(rates, totals, out=np.zeros_like(rates), where=totals > 0)
        by_draw.append((y * np.log((1 - 1e-6) * probabilities + 1e-6 * frequencies)).sum(axis=1))
    log_mean = logsumexp(by_draw, axis=0) - np.log(len(by_draw))
    return log_mean.sum() / y.sum()


@every_method
@every_model
def test_score_is_that_of_its_definition(model, method):
    fitted, held_out = fit(model, method), split().thinned
    frequencies = background(split().train)
    found = score(fitted, held_out, frequencies, 30, seed=5)
    expected = dense_score(list(iterate_draws(fitted, 30, 5)), held_out, frequencies)
    np.testing.assert_allclose(found.per_count, expected, rtol=1e-10)
    assert found.entries == held_out.nnz
    if method == "map":  # the point is plugged in
        plugged = [(fitted.expected_loadings, fitted.components)]
        np.testing.assert_allclose(found.per_count, dense_score(plugged, held_out, frequencies), rtol=1e-10)


def test_background_is_the_add_half_frequencies():
    counts = counts_of([[3, 0, 1], [0, 0, 4]])
    np.testing.assert_allclose(background(counts), np.array([3.5, 0.5, 5.5]) / 9.5)


@every_method
@every_model
def test_the_average_is_of_probabilities_and_not_of_their_logarithms(model, method):
    """Jensen: the mean of logarithms is lower, but for a single draw."""
    fitted, held_out, frequencies = fit(model, method), split().thinned, background(split().train)
    draws = 1 if method == "map" else 30
    found = score(fitted, held_out, frequencies, draws, 5).per_count
    each = [dense_score([pair], held_out, frequencies) for pair in iterate_draws(fitted, draws, 5)]
    assert len(each) == draws
    assert found >= np.mean(each) - 1e-12
    assert (found > np.mean(each) + 1e-4) == (method != "map")


@every_method
@every_model
def test_the_scale_of_a_row_does_not_matter(model, method):
    """Given its total, a row's prediction depends on the shares alone."""
    fitted, held_out, frequencies = fit(model, method), split().thinned, background(split().train)
    by = np.geomspace(1e-3, 1e3, N)[:, None]
    if method == "map":
        scaled = replace(fitted, loadings=fitted.loadings * by)
    elif method == "gibbs":
        scaled = replace(fitted, estimate=replace(fitted.posterior, loadings=fitted.posterior.loadings * by))
    elif model == "dirichlet_poisson":  # its scale is that of the given totals
        with pytest.warns(DataWarning, match="look rescaled"):
            scaled = replace(fitted, counts=counts_of(fitted.counts.matrix.toarray() * by))
    else:
        q = replace(fitted.posterior.loadings, rate=fitted.posterior.loadings.rate / by)
        scaled = replace(fitted, estimate=replace(fitted.posterior, loadings=q))
    one, two = (score(f, held_out, frequencies, 20, 6) for f in (fitted, scaled))
    np.testing.assert_allclose(two.per_count, one.per_count, rtol=1e-10)
    assert two.floored == one.floored
    assert pit_coverage(scaled, held_out, 20, 6) == pit_coverage(fitted, held_out, 20, 6)


def point(loadings, components, model="poisson"):
    """A MAP fit that is nothing but the given factors."""
    n, m = len(loadings), components.shape[1]
    options = MAP(start=Start(loadings, components), max_iter=0, threads=1)
    fitted = bayesnmf.fit(np.ones((n, m)), model, components.shape[0], "map", options=options)
    np.testing.assert_allclose(fitted.expected_loadings, loadings)
    np.testing.assert_allclose(fitted.components, components)
    return fitted


def test_impossible_entries_are_floored_and_counted():
    components = np.array([[0.5, 0.5, 0.0], [0.0, 0.5, 0.5]])
    fitted = point(np.array([[2.0, 0.0], [0.0, 1.0]]), components)
    frequencies = np.array([0.2, 0.3, 0.5])
    held_out = counts_of([[1, 2, 3], [4, 0, 1]])
    found = score(fitted, held_out, frequencies, 10, 0)
    possible = np.log((1 - MIXED) * 0.5 + MIXED * frequencies)
    impossible = np.log(MIXED * frequencies)
    expected = possible[0] + 2 * possible[1] + 3 * impossible[2] + 4 * impossible[0] + possible[2]
    np.testing.assert_allclose(found.per_count, expected / 11, rtol=1e-12)
    assert (found.floored, found.entries) == (2, 5)


def test_rows_without_any_rate_have_the_background_alone():
    fitted = point(np.array([[2.0], [0.0]]), np.array([[0.25, 0.75]]))
    frequencies = np.array([0.4, 0.6])
    held_out = counts_of([[1, 1], [2, 1]])
    found = score(fitted, held_out, frequencies, 1, 0)
    assert found.floored == 2
    first = np.log((1 - MIXED) * np.array([0.25, 0.75]) + MIXED * frequencies).sum()
    second = 2 * np.log(MIXED * 0.4) + np.log(MIXED * 0.6)
    np.testing.assert_allclose(found.per_count, (first + second) / 5, rtol=1e-12)


@pytest.mark.parametrize("method", ["vi", "gibbs"])
@every_model
def test_samples_without_training_counts_are_predicted_all_the_same(model, method):
    """Their prior predicts them: about as well as the background does, not at the floor (a millionth of that)."""
    values = split().train.matrix.toarray()
    values[4] = 0
    fitted = bayesnmf.fit(values, model, K, method, seed=4, options=OPTIONS[method])
    frequencies = background(fitted.counts)
    held_out = np.zeros((N, M))
    held_out[4] = 5
    found = score(fitted, counts_of(held_out), frequencies, 40, 7)
    assert found.floored == 0
    assert found.per_count > np.log(frequencies).mean() - 1.0


def test_nothing_held_out_has_no_score():
    """Rather than a perfect one."""
    nothing = counts_of(np.zeros((N, M)))
    found = score(fit("gamma_poisson", "vi"), nothing, background(split().train), 5, 0)
    assert np.isnan(found.per_count)
    assert (found.floored, found.entries) == (0, 0)
    assert np.isnan(pit_coverage(fit("gamma_poisson", "vi"), nothing, 5, 0))


@every_model
def test_the_truth_scores_better_than_anything_else(model):
    """Against one component for all, against the truth of other rows, and against a truth blurred by half."""
    rng = np.random.default_rng(8)
    loadings, components = rng.gamma(1.0, 100.0, (20, K)), rng.dirichlet(np.full(12, 0.5), K)
    held_out = counts_of(rng.poisson(loadings @ components))
    frequencies = background(held_out)

    def of(loadings, components):
        if model == "poisson":
            return score(point(loadings, components), held_out, frequencies, 1, 0).per_count
        given = counts_of(rng.poisson(loadings @ components))  # totals, where they are given
        start = {"gamma_poisson": loadings, "dirichlet_gamma": loadings}.get(model)
        if start is None:
            start = loadings / loadings.sum(axis=1, keepdims=True)
        options = MAP(start=Start(start, components), max_iter=0)
        fitted = bayesnmf.fit(given, model, K, "map", options=options)
        return score(fitted, held_out, frequencies, 1, 0).per_count

    best = of(loadings, components)
    mean = np.tile(components.mean(axis=0), (K, 1))
    assert best > of(loadings, mean) + 0.05
    assert best > of(loadings[::-1].copy(), components) + 0.05
    assert best > of(loadings, 0.5 * components + 0.5 * mean) + 0.01
    # By definition, near minus the entropy of a count: what a perfect predictor scores.
    p = loadings @ components
    p /= p.sum(axis=1, keepdims=True)
    y = held_out.matrix.toarray()
    entropy = -(held_out.row_totals[:, None] * p * np.log(p)).sum() / y.sum()
    assert abs(best + entropy) < 4.5 * np.std(np.repeat(np.log(p).ravel(), y.astype(int).ravel())) / np.sqrt(y.sum())


# --- calibration ------------------------------------------------------------------------------------


def truth(seed=9, size=(60, 40), mean=6.0):
    rng = np.random.default_rng(seed)
    loadings, components = rng.gamma(1.0, mean * size[1] / K, (size[0], K)), rng.dirichlet(np.full(size[1], 0.5), K)
    return loadings, components, counts_of(rng.poisson(loadings @ components))


@pytest.mark.parametrize("interval", [0.5, 0.9])
def test_intervals_of_the_truth_cover_what_they_say(interval):
    """Entries given their totals are nearly independent: 2,400 of them, within 4 standard errors."""
    loadings, components, held_out = truth()
    covered = pit_coverage(point(loadings, components), held_out, 1, 0, interval)
    assert abs(covered - interval) < 4 * np.sqrt(interval * (1 - interval) / held_out.matrix.shape[0] / 40)


def test_small_counts_are_covered_too():
    """Mostly zeros: without randomisation the intervals would cover nearly all."""
    loadings, components, held_out = truth(mean=0.3)
    assert held_out.nnz < 0.3 * 60 * 40
    assert abs(pit_coverage(point(loadings, components), held_out, 1, 0) - 0.9) < 4 * 0.3 / np.sqrt(2_400)


def test_overconfident_and_wrong_predictions_cover_less_and_diffuse_ones_more():
    loadings, components, held_out = truth(mean=30.0)
    right = pit_coverage(point(loadings, components), held_out, 1, 0)
    rng = np.random.default_rng(1)
    wrong = loadings * np.exp(1.5 * rng.standard_normal(loadings.shape))  # a point, sure of itself, and off
    assert pit_coverage(point(wrong, components), held_out, 1, 0) < right - 0.2
    # Draws that scatter about the truth far more than the data say.
    draws = np.exp(0.5 * rng.standard_normal((1, 60, *loadings.shape))) * loadings
    options = Gibbs(start="random", chains=1, warmup=0, draws=1)
    scattered = bayesnmf.fit(np.ones((60, 40)), "poisson", K, "gibbs", seed=0, options=options)
    posterior = replace(scattered.posterior, loadings=draws, components=np.tile(components, (1, 60, 1, 1)))
    assert pit_coverage(replace(scattered, estimate=posterior), held_out, 60, 0) > right + 0.04


@every_model
def test_coverage_of_a_sampled_posterior(model):
    """Where the model is true and what was thinned is predicted by Gibbs, intervals are calibrated."""
    _, _, counts = truth(mean=4.0)
    train, thinned = thin_counts(counts, 0.8, generator(10))
    options = Gibbs(start="random", chains=2, warmup=100, draws=50, threads=1, priors=Priors())
    fitted = bayesnmf.fit(train, model, K, "gibbs", seed=11, options=options)
    assert abs(pit_coverage(fitted, thinned, 50, 12) - 0.9) < 4 * 0.3 / np.sqrt(2_400) + 0.01


def test_coverage_is_reproducible_and_takes_a_sample_of_large_matrices():
    loadings, components, held_out = truth(size=(120, 60))
    fitted = point(loadings, components)
    one = pit_coverage(fitted, held_out, 1, 0)
    assert one == pit_coverage(fitted, held_out, 1, 0)
    assert one != pit_coverage(fitted, held_out, 1, 1)
    assert (one * 5_000) == pytest.approx(round(one * 5_000))  # a share of 5,000 of the 7,200 entries


def test_empty_rows_and_rows_without_rate_do_not_upset_the_coverage():
    loadings, components, held_out = truth()
    loadings[3] = 0
    values = held_out.matrix.toarray()
    values[5] = 0
    assert abs(pit_coverage(point(loadings, components), counts_of(values), 1, 0) - 0.9) < 0.05


def test_draws_with_a_scale_are_taken_apart():
    """Shares are without the scale; with it they are the loadings of the counts."""
    fitted = fit("dirichlet_gamma", "vi")
    for (shares, one), (loadings, two) in zip(
        iterate_draws(fitted, 3, 0, shares=True), iterate_draws(fitted, 3, 0), strict=True
    ):
        np.testing.assert_array_equal(one, two)
        np.testing.assert_allclose(shares.sum(axis=1), 1)
        np.testing.assert_allclose(loadings / loadings.sum(axis=1, keepdims=True), shares)
    rng = np.random.default_rng(0)
    value = fitted.posterior.loadings.draw(rng)
    assert isinstance(value, ScaledProportions)
    first = next(iterate_draws(fitted, 1, 0))[0]
    np.testing.assert_allclose(first, value.proportions * value.scale)


def test_the_monte_carlo_error_is_that_of_the_score():
    """Thirty scores of 10 draws each against one of 1,200: their root mean square error is what each says of itself."""
    fitted, held_out, frequencies = fit("gamma_poisson", "vi"), split().thinned, background(split().train)
    exact = score(fitted, held_out, frequencies, 1_200, 1000)
    assert exact.error < 0.1 * score(fitted, held_out, frequencies, 10, 0).error
    found = [score(fitted, held_out, frequencies, 10, seed) for seed in range(30)]
    off = np.sqrt(np.mean([(one.per_count - exact.per_count) ** 2 for one in found]))
    assert 0.6 < off / np.mean([one.error for one in found]) < 1.6


def test_draws_go_on_until_the_error_is_small(monkeypatch):
    held_out, frequencies = split().thinned, background(split().train)
    few = score(fit("gamma_poisson", "vi"), held_out, frequencies, 50, 0)
    monkeypatch.setattr(scoring, "TARGET", few.error / 2)
    more = score(fit("gamma_poisson", "vi"), held_out, frequencies, 50, 0, 10_000)
    assert 100 <= more.draws <= 600
    assert more.draws % 50 == 0
    assert more.error <= few.error / 2
    monkeypatch.setattr(scoring, "TARGET", 0.0)
    assert score(fit("gamma_poisson", "vi"), held_out, frequencies, 50, 0, 150).draws == 150
    chains = fit("gamma_poisson", "gibbs")
    kept = chains.posterior.chains * chains.posterior.draws
    assert score(chains, held_out, frequencies, 50, 0, 10_000).draws == kept
    point = score(fit("gamma_poisson", "map"), held_out, frequencies, 50, 0, 150)
    assert (point.draws, point.error) == (1, 0.0)
    assert score(fit("gamma_poisson", "vi"), held_out, frequencies, 1, 0).error == np.inf


def test_batches_of_chains_are_neighbours():
    """Draws that hang together count for fewer: the error of chains that stand still is that of their number."""
    rng = np.random.default_rng(0)
    values = np.repeat(rng.normal(0, 0.1, 20), 50)
    still, shuffled = scoring._LogMeans(1, 1000, in_order=True), scoring._LogMeans(1, 1000, in_order=True)
    for one, other in zip(values, rng.permutation(values), strict=True):
        still.add(np.array([one]))
        shuffled.add(np.array([other]))
    np.testing.assert_allclose(still.log_means(), shuffled.log_means())
    np.testing.assert_allclose(still.error(), np.exp(values).std() / np.exp(values).mean() / np.sqrt(20), rtol=0.1)
    assert shuffled.error() < 0.4 * still.error()
