"""Stacking weights are the optimum of a concave function, and their score is not judged on the counts they fit."""

import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.sparse import csr_array

import bayesnmf
from bayesnmf import MAP, VI, Gamma, Priors
from bayesnmf.assessment.scoring import background, score
from bayesnmf.data.conversion import as_counts
from bayesnmf.data.splitting import thin_counts
from bayesnmf.results.record import iterate_draws
from bayesnmf.studies.stability.stacking import (
    Predictions,
    halves_of,
    per_count,
    probabilities_of,
    rows_of,
    stack,
    stacking_weights,
)

quiet = pytest.mark.filterwarnings("ignore::bayesnmf.inference.status.ConvergenceWarning")


def value(weights, probabilities, counts):
    return counts @ np.log(weights @ probabilities) / counts.sum()


@pytest.mark.parametrize("modes", [2, 3, 6, 10])
@pytest.mark.parametrize("seed", range(4))
def test_weights_are_those_of_a_general_optimiser_and_meet_the_conditions_of_the_optimum(modes, seed):
    rng = np.random.default_rng([seed, modes])
    probabilities = rng.gamma(0.7, 0.1, (modes, 300)) + 1e-8
    counts = rng.poisson(0.8, 300).astype(float)
    found = stacking_weights(probabilities, counts)
    assert found.weights.sum() == pytest.approx(1, abs=1e-12)
    assert found.weights.min() >= 0
    assert found.value == pytest.approx(value(found.weights, probabilities, counts), abs=1e-12)
    # Karush, Kuhn and Tucker: no mode could gain weight, and those with weight are indifferent
    ratios = probabilities @ (counts / (found.weights @ probabilities)) / counts.sum()
    assert ratios.max() <= 1 + 1e-9
    np.testing.assert_allclose(ratios[found.weights > 1e-6], 1, atol=1e-6)
    assert found.gap <= 1e-9
    general = minimize(
        lambda w: -value(w, probabilities, counts), np.full(modes, 1 / modes), method="SLSQP", bounds=[(0, 1)] * modes,
        constraints={"type": "eq", "fun": lambda w: w.sum() - 1}, options={"ftol": 1e-13, "maxiter": 1000},
    )  # fmt: skip
    assert found.value >= -general.fun - 1e-12
    assert found.value <= -general.fun + 1e-6  # SLSQP ends a little below
    np.testing.assert_allclose(found.weights, general.x, atol=2e-3)


def test_a_mode_that_is_better_everywhere_has_all_the_weight():
    rng = np.random.default_rng(0)
    worse = rng.uniform(0.1, 0.2, (3, 50))
    probabilities = np.vstack([worse, worse.max(axis=0) * 1.1])
    found = stacking_weights(probabilities, rng.poisson(3.0, 50).astype(float))
    np.testing.assert_allclose(found.weights, [0, 0, 0, 1], atol=1e-9)


def test_modes_that_are_right_about_different_counts_share_the_weight():
    right, wrong = np.array([0.4, 0.4, 0.1, 0.1]), np.array([0.1, 0.1, 0.4, 0.4])
    counts = np.array([6.0, 6.0, 4.0, 4.0])
    found = stacking_weights(np.vstack([right, wrong]), counts)
    # by hand: 0.6 (0.3 / (0.4 w + 0.1 (1 − w))) = 0.4 (0.3 / (0.1 w + 0.4 (1 − w)))
    np.testing.assert_allclose(found.weights, [2 / 3, 1 / 3], atol=1e-8)
    assert found.value > max(value(each, np.vstack([right, wrong]), counts) for each in np.eye(2))


def test_equal_modes_and_tiny_probabilities_and_no_counts_are_no_trouble():
    same = np.random.default_rng(1).uniform(size=(1, 40))
    found = stacking_weights(np.repeat(same, 3, axis=0), np.ones(40))
    assert found.weights.sum() == pytest.approx(1)
    assert found.gap < 1e-9
    tiny = stacking_weights(np.array([[1e-300, 1e-5], [1e-305, 1e-4]]), np.array([3.0, 1.0]))
    assert tiny.gap < 1e-9
    assert np.isfinite(tiny.value)
    none = stacking_weights(np.ones((2, 3)), np.zeros(3))
    assert none.weights.tolist() == [0.5, 0.5]


def held_out_of(dense):
    return as_counts(np.asarray(dense, float))


def test_errors_of_scores_are_those_of_ratios_over_rows():
    counts = held_out_of([[1, 2], [3, 0], [0, 4], [0, 0]])  # rows without held-out counts do not enter
    logs = np.log([0.2, 0.8, 0.5, 0.6])
    found = per_count(counts, logs)
    sums = np.array([logs[0] + 2 * logs[1], 3 * logs[2], 4 * logs[3]])
    totals = np.array([3.0, 3.0, 4.0])
    assert found.value == pytest.approx(sums.sum() / 10)
    left = sums - found.value * totals
    assert found.se == pytest.approx(np.sqrt(3 / 2 * (left @ left)) / 10)
    assert np.isnan(per_count(held_out_of([[1, 2]]), np.log([0.5, 0.5])).se)
    assert np.isnan(per_count(held_out_of([[0, 0]]), np.zeros(0)).value)


def test_the_standard_error_over_rows_is_the_spread_of_repeated_scores():
    rng, p = np.random.default_rng(2), np.array([0.5, 0.3, 0.2])
    drawn = [held_out_of(rng.multinomial(rng.poisson(20, 60), p)) for _ in range(300)]
    found = [per_count(each, np.log(p)[each.matrix.indices]) for each in drawn]
    # the spread of 300 scores is known to 1/√600 = 4 %
    assert np.std([each.value for each in found]) == pytest.approx(np.mean([each.se for each in found]), rel=0.15)


def test_weights_and_the_best_mode_are_scored_on_the_half_that_did_not_choose_them():
    rng = np.random.default_rng(3)
    counts = held_out_of(rng.poisson(2.0, (30, 8)))
    probabilities = rng.dirichlet(np.ones(8), (3, 30))[:, rows_of(counts), counts.matrix.indices]
    found = stack(Predictions(counts, probabilities, []), 7)
    first, second = halves_of(counts, 7)
    np.testing.assert_array_equal(first + second, counts.matrix.data)
    assert min(first.min(), second.min()) >= 0
    stacked = single = 0.0
    for chosen_on, scored_on in ((first, second), (second, first)):
        weights = stacking_weights(probabilities, chosen_on).weights
        stacked += scored_on @ np.log(weights @ probabilities)
        single += max((chosen_on @ np.log(p), scored_on @ np.log(p)) for p in probabilities)[1]
    assert found.score == pytest.approx(stacked / counts.total)
    assert found.single == pytest.approx(single / counts.total)
    assert found.difference == pytest.approx((stacked - single) / counts.total)
    whole = stacking_weights(probabilities, counts.matrix.data)
    np.testing.assert_array_equal(found.weights, whole.weights)
    assert found.score < whole.value  # on the counts that chose them, weights look better than they are


@quiet
@pytest.mark.parametrize("model", ["poisson", "gamma_poisson", "dirichlet_poisson", "dirichlet_gamma"])
def test_a_point_has_the_score_of_select(model):
    counts = bayesnmf.simulate(size=(30, 9), rank=2, seed=1).counts
    train, held_out = thin_counts(counts, 0.8, np.random.default_rng(0))
    fitted = bayesnmf.fit(train, model, 2, "map", seed=0, options=MAP(start="random", max_iter=50))
    found = per_count(held_out, np.log(probabilities_of(fitted, held_out, background(train), 0)))
    assert found.value == pytest.approx(score(fitted, held_out, background(train), 5, 0).per_count, rel=1e-12)


@quiet
@pytest.mark.parametrize(
    ("model", "priors", "exposed"),
    [
        ("gamma_poisson", Priors(), False),
        ("gamma_poisson", Priors(components="parameter"), False),
        ("gamma_poisson", Priors(loadings=Gamma(np.array([1.0, 2.0]), np.array([0.1, 0.5]))), False),
        ("gamma_poisson", Priors(components=Gamma(1.0, 1.0)), False),
        ("gamma_poisson", Priors(components=Gamma(1.0, 1.0)), True),
        ("dirichlet_poisson", Priors(), False),
        ("dirichlet_gamma", Priors(), False),
        ("hierarchical_poisson", Priors(), False),
        ("hierarchical_poisson", Priors(), True),
    ],
    ids=[
        "gamma", "parameter", "own rates", "Gamma components", "Gamma components, exposed", "LDA", "dirichlet_gamma",
        "hierarchical", "hierarchical, exposed",
    ],
)  # fmt: skip
def test_probabilities_are_means_over_draws_of_q(model, priors, exposed):
    rng = np.random.default_rng(5)
    counts = rng.poisson(2.0, (12, 5))
    more = {"feature_exposure": np.linspace(0.5, 2, 5)} if exposed else {}
    options = VI(start="random", priors=priors, max_iter=100)
    fitted = bayesnmf.fit(counts, model, 2, "vi", seed=0, options=options, **more)
    held_out = as_counts(rng.poisson(0.5, (12, 5)))
    found = probabilities_of(fitted, held_out, np.full(5, 0.2), 1)
    rows, columns = rows_of(held_out), held_out.matrix.indices
    draws = []
    for loadings, components in iterate_draws(fitted, 1000, 2, shares=True):
        rates = loadings @ components
        draws.append((rates / rates.sum(axis=1, keepdims=True))[rows, columns])
    mean, se = np.mean(draws, axis=0), np.std(draws, axis=0) / np.sqrt(200)  # at most 200 draws in what is tested
    np.testing.assert_allclose(found, mean, atol=float(5 * se.max()))
    assert isinstance(held_out.matrix, csr_array)
