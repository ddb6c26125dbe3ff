"""Hidden features of rows that no fit has seen, predicted from the shown features of the same rows."""

import numpy as np
import pytest
from scipy.special import digamma

import bayesnmf
from bayesnmf import VI, Dirichlet, Gamma, Priors
from bayesnmf.assessment.scoring import MIXED
from bayesnmf.data.conversion import as_counts
from bayesnmf.studies.selection.held_out import hidden_features, loadings_prior, predict_hidden

NEW = np.array([[3, 0, 5, 9, 2, 1], [0, 7, 1, 0, 4, 6], [0, 0, 0, 2, 0, 3], [4, 1, 2, 0, 0, 0], [0, 0, 0, 0, 0, 0]])
HIDDEN = np.array([False, True, False, False, True, True])
FREQUENCIES = np.array([0.1, 0.2, 0.1, 0.3, 0.2, 0.1])
DRAWN = 50_000


def fitted(model, rank, priors=None, **exposures):
    counts = bayesnmf.simulate(size=(30, 6), rank=2, priors=Priors(Gamma(1.0, 0.05), Dirichlet(0.5)), seed=1).counts
    options = VI(priors=Priors() if priors is None else priors, max_iter=200, threads=1, start="svd")
    return bayesnmf.fit(counts, model, rank, options=options, seed=0, **exposures)


def scores_of(loadings, components):
    """Average the multinomial probabilities of the hidden counts over draws of one row's loadings, (draws, K)."""
    shares = FREQUENCIES * HIDDEN / FREQUENCIES[HIDDEN].sum()
    rates = loadings @ (components * HIDDEN)
    p = (1 - MIXED) * rates / rates.sum(axis=1, keepdims=True) + MIXED * shares
    return np.log(p[:, HIDDEN])


def q_by_hand(row, components, shape, rate):
    """Iterate the mean-field posterior of one row's loadings given its shown counts, in plain NumPy."""
    shown, exposure = row * ~HIDDEN, (components * ~HIDDEN).sum(axis=1) + rate
    allocated = shape + np.full(len(shape), shown.sum() / len(shape))
    for _ in range(20_000):
        weights = np.exp(digamma(allocated))[:, None] / exposure[:, None] * components
        before, allocated = allocated, shape + (shown * weights / weights.sum(axis=0)).sum(axis=1)
        if np.abs(allocated - before).max() < 1e-13:
            break
    return allocated, exposure


def test_one_component_predicts_its_own_shares():
    fit = fitted("gamma_poisson", 1)
    logs, counted = predict_hidden(fit, as_counts(NEW), HIDDEN, FREQUENCIES, 0)
    wanted = scores_of(np.ones((1, 1)), fit.components)[0]
    np.testing.assert_allclose(logs, NEW[:, HIDDEN] @ wanted, rtol=1e-12, atol=1e-12)
    np.testing.assert_array_equal(counted, NEW[:, HIDDEN].sum(axis=1))
    assert abs(logs[-1]) < 1e-12  # a row without counts is predicted with certainty


@pytest.mark.parametrize("model", ["gamma_poisson", "dirichlet_poisson", "dirichlet_gamma"])
def test_hidden_counts_are_predicted_by_the_posterior_given_the_shown_ones(model):
    """The mean over 100 draws lies within five standard errors of that over 50,000 from a q made by hand.

    Of these faults each fails: the exposure of all features instead of the shown ones, hidden counts among those shown,
    and probabilities that are not divided by those of the hidden features.
    """
    fit = fitted(model, 2)
    components = fit.components
    logs, _ = predict_hidden(fit, as_counts(NEW), HIDDEN, FREQUENCIES, 3)
    prior = loadings_prior(fit, as_counts(NEW * ~HIDDEN), components * ~HIDDEN)
    rng = np.random.default_rng(8)
    for place, row in enumerate(NEW[:4]):
        shape = np.broadcast_to(prior.shape, (len(NEW), 2))[place]
        rate = np.broadcast_to(prior.rate, (len(NEW), 2))[place]
        allocated, exposure = q_by_hand(row, components, shape, rate)
        each = scores_of(rng.gamma(allocated, size=(DRAWN, 2)) / exposure, components) @ row[HIDDEN]
        probability = np.exp(each)
        error = probability.std() / np.sqrt(100) / probability.mean()  # of the log of a mean of 100 draws, first order
        assert abs(logs[place] - np.log(probability.mean())) < 5 * error + 1e-5


def test_the_scale_of_proportions_gives_the_shown_total():
    """A prior of proportions becomes one of loadings whose expected counts at the shown features are those seen."""
    fit = fitted("dirichlet_gamma", 2)
    shown = as_counts(NEW * ~HIDDEN)
    prior = loadings_prior(fit, shown, fit.components * ~HIDDEN)
    expected = prior.shape / prior.rate @ (fit.components * ~HIDDEN).sum(axis=1)
    np.testing.assert_allclose(expected[:4], shown.row_totals[:4], rtol=1e-12)
    concentration = fit.priors.loadings.proportions.concentration
    np.testing.assert_allclose(prior.shape, np.broadcast_to(concentration, (1, 2)), rtol=1e-12)


def test_features_seen_twice_as_long_have_twice_the_rate():
    """An exposure of features enters the hidden shares and the exposure of the loadings."""
    exposure = np.array([1.0, 2.0, 1.0, 1.0, 1.0, 1.0])
    fit = fitted("gamma_poisson", 1, Priors(Gamma(1.0, 0.05), Gamma(1.0, 1.0)), feature_exposure=exposure)
    logs, _ = predict_hidden(fit, as_counts(NEW), HIDDEN, FREQUENCIES, 0)
    wanted = scores_of(np.ones((1, 1)), fit.components * exposure)[0]
    np.testing.assert_allclose(logs, NEW[:, HIDDEN] @ wanted, rtol=1e-12, atol=1e-12)
    assert np.abs(logs - NEW[:, HIDDEN] @ scores_of(np.ones((1, 1)), fit.components)[0]).max() > 0.1


def test_half_of_the_features_are_hidden():
    hidden = hidden_features(7, np.random.default_rng(0))
    assert hidden.sum() == 3
    many = np.mean([hidden_features(7, np.random.default_rng(seed)) for seed in range(400)], axis=0)
    assert np.all(np.abs(many - 3 / 7) < 0.12)  # each is hidden as often as any other: five standard errors
