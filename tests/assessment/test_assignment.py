"""`assign`: the sampler against evidences by importance sampling, its frequencies on simulated samples, its table."""

import re
import subprocess
import sys
from dataclasses import replace
from itertools import combinations

import numpy as np
import pandas as pd
import pytest
from sameness import same
from scipy.sparse import csc_array, csr_array
from scipy.special import gammaln, logsumexp
from scipy.stats import gamma, nbinom, poisson
from suites import mostly_long

import bayesnmf
from bayesnmf.assessment.assignment import BELOW, BETWEEN, _r_hat_of, aligned
from bayesnmf.inference.sampling import presence
from bayesnmf.inference.sampling.presence import (
    CONCENTRATION,
    LEAST_STRENGTH,
    Catalogue,
    Drawn,
    draw_chain,
    draw_components,
    judge,
    quantiles_of_stored,
)
from bayesnmf.kernels.cpu.presence import (
    LINEAR,
    POISSON,
    QUADRATIC,
    Model,
    draw_presence,
    judge_presence,
    refit_presence,
)
from bayesnmf.kernels.cpu.threads import even_bounds
from bayesnmf.noise.negative_binomial import NegativeBinomial
from bayesnmf.noise.poisson import POISSON as POISSON_NOISE
from bayesnmf.results import storage

RNG = np.random.default_rng(0)
KNOWN = RNG.dirichlet(np.full(8, 0.7), 3)
COUNTS = RNG.poisson(30 * np.array([0.6, 0.4, 0.0]) @ KNOWN).astype(float)
CHANCES, SHAPE = np.array([0.2, 0.3, 0.1]), 1.3


def exact(log_pmf, draws):
    """Return chances of presence and mean loadings, by importance sampling of every support."""
    logs, means, total = {}, {}, COUNTS.sum()
    for size in range(1, 4):
        for chosen in combinations(range(3), size):
            rng = np.random.default_rng(size)
            tau = rng.gamma(4, total / 4, draws)
            u = tau[:, None] * rng.dirichlet(np.full(size, SHAPE), draws)
            weights = log_pmf(u @ KNOWN[[*chosen]]) - tau / total - np.log(total)
            weights -= gamma.logpdf(tau, 4, scale=total / 4)
            odds = np.log(CHANCES / (1 - CHANCES))[[*chosen]].sum()
            logs[chosen] = logsumexp(weights) - np.log(draws) + odds
            own = np.exp(weights - weights.max())
            means[chosen] = own @ u / own.sum()
    whole, presence, loadings = logsumexp([*logs.values()]), np.zeros(3), np.zeros(3)
    for chosen, log in logs.items():
        presence[[*chosen]] += np.exp(log - whole)
        loadings[[*chosen]] += np.exp(log - whole) * means[chosen]
    return presence, loadings


def model_of(known, odds, noise, shape=SHAPE):
    """Return what the kernels are told of a variance and a dispersion, one or that of each feature."""
    rank, m = known.shape
    variance, s = noise[0], noise[1] * np.ones(m)
    factors = {POISSON: np.ones(m), QUADRATIC: np.zeros(m), LINEAR: np.log1p(s) / np.maximum(s, 1e-9)}[variance]
    return Model(
        known, np.zeros((0, m), bool), (known @ factors)[None], np.full(rank, shape), odds, variance, s, factors
    )


def sampled(noise, rows, rounds):
    """Return the means over rows, and their standard errors, of presence and loadings."""
    odds, counts = np.log(CHANCES / (1 - CHANCES)), csr_array(np.tile(COUNTS, (rows, 1)))
    loadings, present, sums = np.full((rows, 3), 10.0), np.zeros((rows, 3)), np.zeros((rows, 3))
    for number in range(-20, rounds):
        if number == 0:
            present[:] = 0
        model = model_of(KNOWN, odds, noise)
        draw_presence(counts, model, number + 20, 4, False, loadings, present)
        sums += (number >= 0) * loadings
    each = np.hstack([present, sums]) / rounds
    return each.mean(axis=0), each.std(axis=0) / np.sqrt(rows)


S_OF_FEATURES = np.linspace(0.05, 2.0, 8)


def quadratic(alpha):
    return lambda means: (COUNTS * np.log(means) - (COUNTS + 1 / alpha) * np.log1p(alpha * means)).sum(axis=1)


def linear(s):
    s = s * np.ones(8)
    steps = [(j, t) for j, x in enumerate(COUNTS) for t in range(int(x))]
    return lambda means: sum(np.log(means[:, j] + t * s[j]) for j, t in steps) - means @ (np.log1p(s) / s)


@pytest.mark.parametrize(
    ("noise", "log_pmf"),
    [
        ((POISSON, 0.0), lambda means: (COUNTS * np.log(means) - means).sum(axis=1)),
        ((QUADRATIC, S_OF_FEATURES[::-1] / 4), quadratic(S_OF_FEATURES[::-1] / 4)),
        ((LINEAR, S_OF_FEATURES), linear(S_OF_FEATURES)),
    ],
    ids=["poisson", "nb2 by feature", "nb1 by feature"],
)
def test_chances_are_those_of_the_evidence_of_every_support(noise, log_pmf):
    """Within four standard errors, which are about 0.007 for chances: a ratio wrong by 15 % would be seen."""
    presence, loadings = exact(log_pmf, 20_000)
    found, se = sampled(noise, 100, 40)
    off = np.abs(found - np.concatenate([presence, loadings])) / np.hypot(se, 0.006 * np.maximum(1, found))
    assert off.max() < 4, (found, presence, loadings)
    assert se[:3].max() < 0.01


def simulate(n, size, seed=1, noise=0.0):
    """Return counts (n, 40), components (20, 40), and exposures of 1 to 4 of them."""
    rng = np.random.default_rng(seed)
    known, share = rng.dirichlet(np.full(40, 0.2), 20), np.zeros((n, 20))
    for row in share:
        chosen = rng.choice(20, rng.integers(1, 5), replace=False)
        row[chosen] = rng.dirichlet(np.full(len(chosen), 2.0))
    rate = size * share @ known
    if noise:
        rate = rate * rng.gamma(1 / noise**2, noise**2, rate.shape)
    return rng.poisson(rate), known, size * share


@pytest.mark.parametrize(("noise", "word"), [(0.0, "poisson"), (0.3, "nb2"), (0.0, "nb1")])
def test_components_of_simulated_samples_are_found(noise, word):
    counts, known, truth = simulate(30, 400, noise=noise)
    found = bayesnmf.assign(counts, known, noise=word, chains=1, draws=30, warmup=40)
    there = truth > 0
    assert ((found.presence > 0.5) == there).mean() > 0.95
    inside = (truth >= found.low) & (truth <= found.high)
    assert inside[there].mean() > 0.75
    totals = found.draws.toarray().reshape(30, *truth.shape).sum(axis=2)
    far = np.abs(found.exposures.sum(axis=1) - counts.sum(axis=1))
    assert (far < (0.005 * counts.sum(axis=1) if word == "poisson" else 3 * totals.std(axis=0))).all()
    if word == "nb2":
        assert 0.04 < found.dispersion.mean() < 0.2


@pytest.mark.long
@pytest.mark.parametrize(("noise", "word"), [(0.0, "poisson"), (0.3, "nb2")])
def test_chances_and_intervals_are_calibrated(noise, word):
    """Over 400 samples: sums of chances by tenths within four standard errors and 3 points of how often it is true.

    A sampler that kept the prior odds of presence at half or twice what they should be would be 5 to 10 points off in
    the middle tenths, and intervals of a standard deviation that is 20 % too small would hold 81 % instead of 90 %.
    """
    counts, known, truth = simulate(400, 100, noise=noise)
    found = bayesnmf.assign(counts, known, noise=word, draws=200, warmup=60)
    there = truth > 0
    tenth = np.minimum((found.presence * 10).astype(int), 9)
    for each in range(10):
        p = found.presence[tenth == each]
        se = np.sqrt((p * (1 - p)).sum()) / len(p)
        assert abs(p.mean() - there[tenth == each].mean()) < 4 * se + 0.03
    inside = (truth >= found.low) & (truth <= found.high)
    assert 0.85 < inside[there].mean() < 0.95


def peaked(n, size=10_000, seed=2):
    """Return counts (n, 24) of 5 of 30 components whose entries are often near 0, the components, and exposures.

    Means of most supports are near 0 somewhere, which is what samples of catalogues of mutational signatures get stuck
    on (half a quadratic gain there is far above the true one).
    """
    rng = np.random.default_rng(seed)
    known, share = rng.dirichlet(np.full(24, 0.1), 30) + 1e-12, np.zeros((n, 30))
    known /= known.sum(axis=1, keepdims=True)
    for row in share:
        row[rng.choice(30, 5, replace=False)] = rng.dirichlet(np.full(5, 0.7))
    return rng.poisson(size * share @ known), known, size * share


@pytest.mark.parametrize("variance", ["linear", "quadratic"])
def test_dispersions_of_features_are_found(variance):
    """Where every second feature varies much more than the others; one dispersion for all is between them."""
    _, known, truth = simulate(40, 2000)
    means, s = truth @ known, np.where(np.arange(known.shape[1]) % 2, 4.0, 0.2) * (1 if variance == "linear" else 0.1)
    rng = np.random.default_rng(1)
    size = means / s if variance == "linear" else np.broadcast_to(1 / s, means.shape)
    counts = rng.poisson(rng.gamma(size) * means / size)
    found = bayesnmf.assign(counts, known, noise=NegativeBinomial(variance, "feature"), draws=30, warmup=30)
    assert found.dispersion.shape == (60, known.shape[1])
    ratio = np.log(found.dispersion).mean(axis=0) - np.log(s)
    assert abs(ratio[1::2].mean()) < 0.3
    assert ratio[::2].mean() < 1.0  # what is below the noise of Poisson counts is hardly seen
    given = bayesnmf.assign(counts, known, noise=NegativeBinomial(variance, s, by="feature"), draws=5, warmup=10)
    np.testing.assert_array_equal(given.dispersion, np.tile(s, (10, 1)))


@pytest.mark.parametrize("word", ["poisson", "nb2"])
def test_poisson_counts_do_not_get_stuck(word):
    """With proposals by half a quadratic gain, totals are 1.1 to 123 times the counts under nb2.

    Under Poisson noise, 25.9 times too much variation was told, with the advice to use nb2.
    """
    counts, known, _ = peaked(12)
    found = bayesnmf.assign(counts, known, noise=word, draws=20, warmup=30)
    np.testing.assert_allclose(
        found.exposures.sum(axis=1), counts.sum(axis=1), rtol=1e-9 if word == "poisson" else 0.03
    )
    assert not found.judged["stuck"].any()
    assert not any("stuck" in each or "vary" in each for each in found.cautions)
    if word == "nb2":
        assert found.dispersion.mean() < 0.01


def starts(counts, known, truth):
    """Return loadings to begin with: none, nearly none, all, what explains least, another sample's support."""
    n, rank = truth.shape
    totals, worst = counts.sum(axis=1, keepdims=True), np.zeros((n, rank))
    worst[np.arange(n), (counts @ np.log(known).T).argmin(axis=1)] = totals[:, 0]
    other = np.roll(truth, 1, axis=0)
    return [np.zeros((n, rank)), np.full((n, rank), 1e-200), np.repeat(totals / rank, rank, axis=1), worst, other]


@pytest.mark.parametrize("noise", [POISSON_NOISE, NegativeBinomial("quadratic"), NegativeBinomial("linear", 0.5)])
def test_no_start_is_too_far(noise):
    counts, known, truth = peaked(3)
    data = bayesnmf.as_counts(counts)
    catalogue = Catalogue(known, known[:0])
    chains = [
        draw_chain(data, catalogue, noise, (30, 15), np.random.default_rng(number), lambda _: None, start)
        for number, start in enumerate(["refit", "all", *starts(counts, known, truth)])
    ]
    between, below = judge(data, catalogue, noise, chains)
    assert between.max() < BETWEEN
    assert below.max() < BELOW


def stated(counts, known, loadings, odds, noise):
    """Return the log joint density of one sample, by SciPy: of its counts, of presence, of the total, and of shares.

    It is a density of the logarithms of the loadings.
    """
    u = loadings[loadings > 0]
    means, total, shares = loadings @ known, u.sum(), u / u.sum()
    if noise[0] == POISSON:
        likelihood = poisson.logpmf(counts, means).sum()
    else:
        size = 1 / noise[1] if noise[0] == QUADRATIC else means / noise[1]
        likelihood = nbinom.logpmf(counts, size, size / (size + means)).sum()
    prior = (
        gamma.logpdf(total, 1, scale=counts.sum())
        + odds[loadings > 0].sum()
        - (len(u) - 1) * np.log(total)
        + np.log(u).sum()
    )
    return likelihood, prior + gammaln(SHAPE * len(u)) + np.sum(
        (SHAPE - 1) * np.log(shares) - gammaln(SHAPE)
    ) + likelihood


@pytest.mark.parametrize(
    "noise",
    [(POISSON, 0.0), (QUADRATIC, 0.1), (LINEAR, 1.5), (QUADRATIC, S_OF_FEATURES), (LINEAR, S_OF_FEATURES)],
    ids=["poisson", "nb2", "nb1", "nb2 by feature", "nb1 by feature"],
)
def test_densities_of_draws_are_those_of_the_model(noise):
    """Up to a constant of the sample: differences between draws, and with a last component of each draw's own."""
    rng, odds = np.random.default_rng(3), np.array([-1.0, -2.0, 0.5])
    loadings = rng.gamma(2.0, 10.0, (6, 3)) * np.array(
        [[1, 1, 1], [0, 1, 1], [1, 0, 1], [1, 1, 0], [1, 0, 0], [1, 1, 1]]
    )
    extra = rng.dirichlet(np.ones(8), (6, 1))
    model = model_of(KNOWN, odds, noise)
    found = judge_presence(csr_array(COUNTS[None]), model, csc_array(loadings), extra)
    told = [
        stated(COUNTS, np.vstack([KNOWN[:2], own]), each, odds, noise)
        for each, own in zip(loadings, extra, strict=True)
    ]
    for one, two in zip(found[:2], np.transpose(told), strict=True):
        np.testing.assert_allclose(np.diff(one[:, 0]), np.diff(two), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("noise", [(POISSON, 0.0), (QUADRATIC, 0.05), (LINEAR, 0.5)])
def test_a_refit_cannot_be_pruned_further_and_is_as_good_as_the_truth(noise):
    """No component can be left out with a rise of the density; the support of the truth has no higher density."""
    counts, known, truth = peaked(8, 2000)
    data = bayesnmf.as_counts(counts)
    model = model_of(known, np.full(30, -2.0), noise, 1.5)
    loadings = refit_presence(data.matrix, model)

    def joint(each):
        return judge_presence(data.matrix, model, csc_array(each.reshape(1, -1)), np.zeros((1, 0, 24)))[1][0]

    best = joint(loadings)
    assert (best > joint(truth) - 1).all()
    totals = loadings.sum(axis=1, keepdims=True)
    for k in range(30):
        without = np.where(np.arange(30) == k, 0.0, loadings)
        has = (loadings[:, k] > 0) & (without.sum(axis=1) > 0)
        without *= totals / np.maximum(without.sum(axis=1, keepdims=True), 1e-9)
        assert (joint(without)[has] < best[has]).all()


@pytest.mark.parametrize(("chains", "again"), [(1, False), (2, False), (1, True), (2, True)])
def test_stuck_samples_are_drawn_again_and_told_if_that_is_in_vain(monkeypatch, chains, again):
    """Of a chain that keeps to a wrong component in one sample, a figure is far beyond its limit."""
    counts, known, _ = peaked(4)
    names = [f"s{i}" for i in range(4)]

    def stuck(*given):
        found = draw_chain(*given)
        loadings = found.loadings.toarray().reshape(-1, 4, 30)
        loadings[:, 2] = 0.0
        loadings[:, 2, (counts @ np.log(known).T).argmin(axis=1)[2]] = counts[2].sum()
        wrong = given[-1] == ("all" if chains == 2 else "refit")
        return found._replace(loadings=csr_array(loadings.reshape(-1, 120))) if wrong else found

    monkeypatch.setattr("bayesnmf.assessment.assignment.draw_chain", stuck)
    if not again:
        monkeypatch.setattr("bayesnmf.assessment.assignment.draw_again", lambda *given: given[3])
    found = bayesnmf.assign(pd.DataFrame(counts, names), known, drift=None, draws=10, warmup=20, chains=chains)
    if again:
        assert not found.judged["stuck"].any()
        assert not any("stuck" in each for each in found.cautions)
        np.testing.assert_allclose(found.exposures.sum(axis=1), counts.sum(axis=1), rtol=2e-3)
        monkeypatch.undo()
        plain = bayesnmf.assign(counts, known, drift=None, draws=30, warmup=30, chains=chains)
        sure = np.abs(plain.presence[2] - 0.5) > 0.48
        assert sure.sum() > 10
        np.testing.assert_allclose(found.presence[2, sure], plain.presence[2, sure], atol=0.5)
        return
    assert found.judged["stuck"].tolist() == [False, False, True, False]
    assert found.judged.loc["s2", "below_refit" if chains == 1 else "between_chains"] > 100
    assert any(each.startswith("1 of 4 samples are stuck (s2)") for each in found.cautions)
    assert not any("vary" in each for each in found.cautions)  # the others are Poisson counts


def test_samples_that_lack_a_component_do_not_decide_the_variation_of_all():
    counts, known, _ = simulate(20, 1000)
    counts[:4] = 25  # flat, as no few components are
    found = bayesnmf.assign(counts, known, chains=1, draws=10, warmup=30)
    assert not any("vary" in each for each in found.cautions)


@pytest.mark.parametrize("word", ["nb1", "nb2"])
def test_the_noise_that_is_advised_is_that_of_the_counts(word):
    """Means of 2 to 200 tell both noises apart; the call of the caution works as it stands."""
    rng, (_, known, truth) = np.random.default_rng(0), simulate(30, 2000)
    means = truth @ known + 1e-9
    size = means / 3 if word == "nb1" else 1 / 0.1
    counts, catalogue = rng.poisson(rng.gamma(size, size=means.shape) * means / size), known
    found = bayesnmf.assign(counts, known, chains=1, draws=10, warmup=30)
    (told,) = [each for each in found.cautions if "vary" in each]
    call = told[told.index("bayesnmf.assign(") :]
    assert call == f"bayesnmf.assign(counts, catalogue, noise={word!r})"
    better = eval(
        call.replace("noise=", "chains=1, draws=5, warmup=5, noise="),
        {},
        {"bayesnmf": bayesnmf, "counts": counts, "catalogue": catalogue},
    )
    assert better.noise == word


@pytest.mark.long
def test_poisson_counts_are_not_said_to_vary_more():
    told = []
    for seed in range(20):
        counts, known, _ = simulate(30, (100, 1000, 10_000)[seed % 3], seed)
        told.append(any("vary" in each for each in bayesnmf.assign(counts, known, draws=15, warmup=30).cautions))
    assert sum(told) == 0


def test_draws_do_not_depend_on_the_number_of_threads():
    counts, known, _ = simulate(20, 200)
    found = []
    for threads in (1, 2):
        loadings, present = np.full((20, 20), 10.0), np.zeros((20, 20))
        matrix, model = csr_array(counts.astype(float)), model_of(known, np.full(20, -2.0), (POISSON, 0.0), 1.5)
        draw_presence(matrix, model, 3, 2, False, loadings, present, threads)
        found.append(loadings)
    np.testing.assert_array_equal(*found)
    assert len(even_bounds(20, 16)) == 17  # there is more than one block


def named(counts, known):
    features, rows = [f"f{j}" for j in range(40)], [f"s{i}" for i in range(len(counts))]
    return pd.DataFrame(counts, rows, features), pd.DataFrame(known, [f"k{k}" for k in range(20)], features)


def test_table_names_and_probabilities_go_together():
    counts, known, _ = simulate(8, 300)
    frame, catalogue = named(counts, known)
    few = {"chains": 1, "draws": 10, "warmup": 30}
    found = bayesnmf.assign(frame, catalogue[catalogue.columns[::-1]], **few)
    plain = bayesnmf.assign(counts, known, **few)
    np.testing.assert_array_equal(found.presence, plain.presence)  # names decide, and the seed makes it repeatable
    table = found.table(0.0)
    assert len(table) == 8 * 20
    assert table.set_index(["sample", "component"]).loc[("s3", "k4"), "chance"] == found.presence[3, 4]
    assert (found.table()["chance"] >= 0.05).all()
    chances = found.feature_probabilities("s2")
    assert chances.shape == (40, 20)
    np.testing.assert_allclose(chances.sum(axis=1), 1.0)
    u = found.draws[:, 40:60].toarray()
    expected = np.mean([row[:, None] * known / (row @ known) for row in u], axis=0)
    np.testing.assert_allclose(chances.to_numpy().T, expected, rtol=1e-6)
    assert "20 components" in repr(found)


@pytest.mark.parametrize("word", ["poisson", "nb1", "nb2"])
def test_components_that_share_no_feature_are_present_where_their_features_have_counts(word):
    """Supports without the only component of a count have means of 0 there, with a curvature beyond all floats."""
    counts = [[5, 0, 3], [0, 40, 0], [30, 20, 0], [9, 9, 9]] * 3
    found = bayesnmf.assign(counts, np.eye(3), noise=word, chains=1, draws=30, warmup=40)
    there = np.array(counts) > 0
    assert (found.presence[there] > 0.999).all()
    assert np.isfinite(found.presence).all()
    assert (found.presence[~there] < 0.5).all()


def test_samples_without_counts_have_no_chances_and_change_nothing():
    counts, known, _ = simulate(8, 300)
    few = {"chains": 1, "draws": 10, "warmup": 30}
    plain = bayesnmf.assign(counts, known, **few)
    more = np.insert(counts, [3], 0, axis=0).astype(float)
    more = np.vstack([more, np.full(40, np.nan)])  # nobody looked
    found = bayesnmf.assign(more, known, missing="nan", **few)
    silent = [3, 9]
    assert np.isnan(found.presence[silent]).all()
    assert (found.exposures[silent] == 0).all()
    assert np.isnan(found.low[silent]).all()
    assert not set(silent) & set(found.table(0.0)["sample"])
    assert found.feature_probabilities(3).isna().all(axis=None)
    assert "nothing is said of 2 samples without counts" in repr(found)
    assert "without counts" not in repr(plain)
    seen = np.setdiff1d(np.arange(10), silent)
    np.testing.assert_array_equal(found.presence[seen], plain.presence)
    np.testing.assert_array_equal(found.prevalence, plain.prevalence)


@pytest.mark.parametrize(
    ("noise", "missing", "strength"),
    mostly_long(
        [
            ((POISSON, 0.0), False, 0.0),
            ((POISSON, 0.0), True, 20.0),
            ((QUADRATIC, 2.0), True, 0.0),
            ((QUADRATIC, 2.0), False, 20.0),
            ((LINEAR, 5.0), False, 20.0),
            ((LINEAR, 5.0), True, 0.0),
            ((POISSON, 0.0), False, 20.0),
            ((POISSON, 0.0), True, 0.0),
            ((QUADRATIC, 2.0), True, 20.0),
            ((QUADRATIC, 2.0), False, 0.0),
            ((LINEAR, 5.0), False, 0.0),
            ((LINEAR, 5.0), True, 20.0),
        ],
        6,  # every pair of values
    ),
)
def test_components_are_drawn_from_their_conditional(noise, missing, strength):
    """Components from the prior, and then drawn given counts made with them, are from the prior again.

    Of means, squares and products of coordinates: draws without the unseen counts, rates or clusters, or with rates of
    1 for clusters, have z-scores of 4.9 to 32.
    """
    rng, rounds = np.random.default_rng(0), 1500
    loadings = np.array([[8.0, 20.0, 0.0], [0.0, 3.0, 25.0], [5.0, 30.0, 9.0]])
    hidden = np.zeros((3, 4), bool) if missing else np.zeros((0, 4), bool)
    hidden[:2, 0] = True
    known, before, after = rng.dirichlet(np.ones(4), 1), [], []
    concentration = strength * rng.dirichlet(np.ones(4), 2) + CONCENTRATION
    for _ in range(rounds):
        components = np.vstack([known, np.maximum([rng.dirichlet(each) for each in concentration], 1e-290)])
        before.append(components[1:].copy())
        means = loadings @ components
        kind, s = noise[0], noise[1] * S_OF_FEATURES[::2]  # of each feature
        if kind == POISSON:
            counts = rng.poisson(means)
        else:
            size, odds = (1 / s + 0 * means, s * means) if kind == QUADRATIC else (means / s, s)
            counts = rng.poisson(rng.gamma(size) * odds)
        if missing:
            counts[hidden] = 0
        draw_components(counts.astype(float), hidden, loadings, components, concentration, kind, s, rng)
        after.append(components[1:])
    one, two = (np.reshape(each, (rounds, 8)) for each in (before, after))
    asked = [np.hstack([each, each**2, each[:, :4] * each[:, 4:]]) for each in (one, two)]
    change = asked[1] - asked[0]  # each pair is of its own; draws within a pair depend on each other
    assert np.abs(change.mean(axis=0) / (change.std(axis=0) / np.sqrt(rounds))).max() < 4


@pytest.mark.parametrize(("noise", "word", "drift"), [(0.0, "poisson", None), (0.2, "nb2", "learned")])
def test_a_component_that_the_catalogue_lacks_comes_back(noise, word, drift):
    counts, known, truth = simulate(40, 1000, noise=noise)
    own, had = known[13], truth[:, 13]  # ten of the samples have it
    found = bayesnmf.assign(counts, np.delete(known, 13, axis=0), extra=1, drift=drift, noise=word, draws=40, warmup=30)
    back = found.components[-1]
    assert back @ own / np.linalg.norm(back) / np.linalg.norm(own) > 0.95
    assert found.component_names[-1] == "extra 1"
    assert (found.spread[:-1] == 0).all() == (drift is None)
    assert (np.abs(back - own) < 5 * found.spread[-1] + 0.01).all()
    assert (found.presence[had > 150, -1] > 0.5).mean() > 0.8
    assert (found.presence[had == 0, -1] < 0.5).mean() > 0.9


def moved(strength, size=3000, rows=30):
    """Return counts of samples whose spectra have all moved in the same way, the catalogue, the truth, the spectra."""
    _, known, truth = simulate(rows, size)
    rng = np.random.default_rng(5)
    spectra = np.array([rng.dirichlet(strength * each + 0.01) for each in known])
    return rng.poisson(truth @ spectra), known, truth, spectra


def test_a_misfit_that_samples_share_is_no_component():
    """Where the catalogue stays, many presences are false; components come near to the spectra that made the counts."""
    counts, known, truth, spectra = moved(200.0)
    given = {"draws": 15, "warmup": 45, "chains": 1}
    stays, found = (bayesnmf.assign(counts, known, drift=drift, **given) for drift in (None, "learned"))
    wrong, many = (((each.presence > 0.5) & (truth == 0)).sum() for each in (found, stays))
    assert many > 10
    assert wrong < many / 4
    assert ((found.presence > 0.5) & (truth > 30)).sum() > 0.9 * (truth > 30).sum()
    assert stays.moved is None
    used = truth.sum(axis=0) > 2000
    closer = np.linalg.norm(found.components - spectra, axis=1) < np.linalg.norm(known - spectra, axis=1)
    assert closer[used].mean() > 0.8
    assert "known components have moved, least alike is" in repr(found)
    assert found.moved["strength"].iloc[0] == pytest.approx(LEAST_STRENGTH, rel=0.2)


def test_a_catalogue_that_is_right_hardly_moves():
    counts, known, truth = simulate(30, 3000)
    found = bayesnmf.assign(counts, known, drift="learned", draws=15, warmup=45, chains=1)
    assert found.moved["strength"].iloc[0] > 10_000
    assert found.moved["cosine"].min() > 0.99
    assert ((found.presence > 0.5) & (truth == 0)).mean() < 0.02


def test_a_strength_without_limit_is_a_catalogue_that_stays():
    given = {"draws": 3, "warmup": 3}
    one, two = (bayesnmf.assign(COUNTS[None], KNOWN, drift=drift, **given) for drift in (None, np.inf))
    np.testing.assert_array_equal(one.exposures, two.exposures)
    firm = bayesnmf.assign(COUNTS[None], KNOWN, drift=1e9, **given)
    np.testing.assert_allclose(firm.components, KNOWN, atol=1e-3)
    loose = bayesnmf.assign(np.tile(COUNTS * 100, (20, 1)), KNOWN[[0, 2]], drift=10, **given)
    assert any("moved far from the known ones" in each for each in loose.cautions)


@pytest.mark.parametrize(
    ("drift", "message"),
    [
        (0, "at least 1"), (-3.0, "at least 1"), (np.nan, "at least 1"), ("a lot", "'learned' or a number"),
        (True, "use drift='learned'"), ([1, 2], "drift must be one number"),
    ],
)  # fmt: skip
def test_a_strength_that_means_nothing_is_refused(drift, message):
    with pytest.raises((ValueError, TypeError), match=message):
        bayesnmf.assign(COUNTS[None], KNOWN, drift=drift)


def test_prevalence_is_the_share_of_these_samples():
    """It was the chance of a further sample, which the prior draws to the middle: .85 of a component that all have."""
    rng = np.random.default_rng(0)
    known, exposures = np.array([[0.9, 0.05, 0.05], [0.05, 0.05, 0.9]]), np.zeros((7, 2))
    exposures[:6, 0], exposures[:3, 1] = 1000, 800
    found = bayesnmf.assign(rng.poisson(exposures @ known), known, draws=20, warmup=20)
    np.testing.assert_allclose(found.prevalence["mean"], [1.0, 0.5], atol=0.02)
    np.testing.assert_allclose(found.prevalence["mean"], np.nanmean(found.presence, axis=0), atol=0.05)
    assert (found.prevalence["low"] <= [1.0, 0.5]).all()
    assert (found.prevalence["high"] >= [1.0, 0.5]).all()


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        (["A", "extra 1", "B"], ["A", "extra 1", "B", "extra 2"]),
        (["A", np.nan, None], ["A", "component 1", "component 2", "extra 1"]),
        ([0, 1, 0], ["component 0", "1", "component 2", "extra 1"]),
        ([4, 5, 7], ["4", "5", "7", "extra 1"]),
    ],
)
def test_names_of_all_components_differ(names, expected):
    """Extra components were called as those of the catalogue that an earlier call had found."""
    found = bayesnmf.assign(
        COUNTS[None], pd.DataFrame(KNOWN, pd.Index(names, dtype=object)), extra=1, draws=2, warmup=2
    )
    assert list(map(str, found.component_names)) == expected


def test_a_number_and_its_text_are_refused():
    with pytest.raises(ValueError, match="names that differ as text: found '1' as a number and as text"):
        bayesnmf.assign(COUNTS[None], pd.DataFrame(KNOWN, pd.Index([1, "1", 2], dtype=object)), draws=2, warmup=2)


def test_extra_components_of_all_chains_are_those_of_the_first():
    rng = np.random.default_rng(0)
    one = Drawn(csr_array(rng.poisson(1.0, (5, 6))), rng.random((2, 3)), rng.random((5, 3)), rng.random(5),
                rng.random((5, 1)), rng.random(5), rng.dirichlet(np.full(9, 0.1), 2) + np.zeros((5, 1, 1)))  # fmt: skip
    turned = Drawn(one.loadings[:, [0, 2, 1, 3, 5, 4]], one.presence[:, [0, 2, 1]], one.prevalence[:, [0, 2, 1]],
                   one.shapes, one.dispersions, one.strength, one.extra[:, ::-1])  # fmt: skip
    found = aligned([one, turned], 2)[1]
    for each in ("presence", "prevalence", "extra"):
        np.testing.assert_array_equal(getattr(found, each), getattr(one, each))
    np.testing.assert_array_equal(found.loadings.toarray(), one.loadings.toarray())


def test_missing_entries_say_nothing():
    counts, known, truth = simulate(12, 500)
    marked = counts.astype(float)
    marked[:, :10] = np.nan
    found = bayesnmf.assign(marked, known, missing="nan", chains=1, draws=20, warmup=40)
    there = truth > 0
    assert ((found.presence > 0.5) == there).mean() > 0.9
    large = truth > 150
    np.testing.assert_allclose(found.exposures[large], truth[large], rtol=0.5)


def test_counts_beyond_poisson_are_cautioned_of():
    counts, known, _ = simulate(20, 3000, noise=0.4)
    found = bayesnmf.assign(counts, known, chains=1, draws=10, warmup=35)
    assert any("noise='nb2'" in caution for caution in found.cautions)
    assert "CAUTION" in repr(found)


def test_quantiles_of_few_draws():
    values = csc_array(np.array([[1.0, 0.0], [3.0, 0.0], [0.0, 0.0], [2.0, 0.0]]))
    (low, middle) = quantiles_of_stored(values, (0.05, 0.5))
    assert (low[0], middle[0]) == (1.0, 2.0)
    assert np.isnan(low[1])


@pytest.mark.parametrize("ended", [0, 1])
def test_ctrl_c_returns_the_chains_that_had_ended(ended):
    counts, known = [[90, 10, 0], [40, 20, 35]], [[0.9, 0.1, 0.0], [0.0, 0.2, 0.8]]

    def interrupt(_, done, *__):
        if done == 20 * ended + 5:
            raise KeyboardInterrupt

    settings = {"draws": 10, "warmup": 10}
    if not ended:
        with pytest.raises(KeyboardInterrupt):
            bayesnmf.assign(counts, known, **settings, progress=interrupt)
        return
    found = bayesnmf.assign(counts, known, **settings, progress=interrupt)
    assert found.cautions[-1] == "interrupted: 1 of 2 chains ended"
    assert found.interrupted
    np.testing.assert_array_equal(found.presence, bayesnmf.assign(counts, known, **settings, chains=1).presence)


def test_ctrl_c_in_the_first_chain_returns_what_it_has_kept():
    def interrupt(_, done, *__):
        if done == 16:
            raise KeyboardInterrupt

    settings = {"draws": 10, "warmup": 10, "extra": 1}
    found = bayesnmf.assign(SOME, KNOWN, **settings, progress=interrupt)
    assert found.cautions[-1] == "interrupted: 0 of 2 chains ended; these are the first 5 draws of one"
    assert found.interrupted
    whole = bayesnmf.assign(SOME, KNOWN, **settings, chains=1)
    np.testing.assert_array_equal(found.draws.toarray(), whole.draws.toarray()[:5])
    assert np.nanmax(found.presence) <= 1


SOME = np.random.default_rng(1).poisson(np.random.default_rng(2).gamma(1.0, 20.0, (6, 3)) @ KNOWN)
SOME[3] = 0
SETTINGS = {"noise": "nb2", "extra": 1, "drift": "learned", "draws": 12, "warmup": 6, "seed": 3}


def killed(monkeypatch, after, folder):
    """Begin `assign` in a folder, and end it after some rounds as a killed process ends: without a word."""

    class KilledError(Exception):
        pass

    step, left = presence.Setting.step, iter(range(after))

    def counted(*given):
        if next(left, None) is None:
            raise KilledError
        return step(*given)

    often = bayesnmf.Checkpoint(folder, seconds=1e-9)
    with monkeypatch.context() as patched:
        patched.setattr(presence.Setting, "step", counted)
        with pytest.raises(KilledError):
            bayesnmf.assign(SOME, KNOWN, **SETTINGS, checkpoint=often)


def test_a_killed_run_goes_on_to_the_same_draws(tmp_path, monkeypatch):
    """In the chain that extra components begin from, in the warm-up and among the draws of both chains."""
    for rounds in (25, 20, 10, 7, 5, 3):  # of 40 + 2 · 18
        killed(monkeypatch, rounds, tmp_path / "run")
    found = bayesnmf.assign(SOME, KNOWN, **SETTINGS, checkpoint=tmp_path / "run")
    assert same(found, bayesnmf.assign(SOME, KNOWN, **SETTINGS))
    monkeypatch.setattr(presence.Setting, "step", None)  # an ended call returns what it had returned
    assert same(found, bayesnmf.assign(SOME, KNOWN, **{**SETTINGS, "seed": None}, checkpoint=tmp_path / "run"))


PROGRAM = """
import os, signal, sys
import numpy as np
import bayesnmf
from bayesnmf.inference.checkpoints.slots import Slot

times, save = int(sys.argv[2]), Slot.save

def killing(slot, thing):
    global times
    save(slot, thing)
    times -= 1
    if not times:
        os.kill(os.getpid(), getattr(signal, sys.argv[3]))

Slot.save = killing
data = np.load("data.npz")
bayesnmf.assign(data["counts"], data["known"], noise="nb2", extra=1, drift="learned", draws=12, warmup=6, seed=3,
                checkpoint=bayesnmf.Checkpoint("run", seconds=1e-9)).save(sys.argv[1])
"""


@pytest.mark.long
def test_a_process_that_signals_end_goes_on_to_the_same_draws(tmp_path):
    np.savez(tmp_path / "data.npz", counts=SOME, known=KNOWN)
    for times, signal in ((30, "SIGKILL"), (25, "SIGTERM"), (9, "SIGINT")):
        words = [sys.executable, "-c", PROGRAM, "found.nc", str(times), signal]
        ended = subprocess.run(words, cwd=tmp_path, capture_output=True, check=False)
        assert ended.returncode != 0 or signal == "SIGINT", ended.stderr
    words = [sys.executable, "-c", PROGRAM, "found.nc", "-1", ""]
    subprocess.run(words, cwd=tmp_path, check=True)
    assert same(bayesnmf.load(tmp_path / "found.nc"), bayesnmf.assign(SOME, KNOWN, **SETTINGS))


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"draws": 13}, r"differs in draws \(12 there, 13 here\)"),
        ({"noise": "nb1"}, "differs in noise"),
        ({"counts": SOME + 1}, "differs in counts"),
        ({"catalogue": KNOWN[:2]}, "differs in catalogue"),
    ],
)
def test_the_folder_of_another_call_is_refused(changed, message, tmp_path, monkeypatch):
    killed(monkeypatch, 1, tmp_path / "run")
    given = {"counts": SOME, "catalogue": KNOWN, **SETTINGS, **changed}
    with pytest.raises(ValueError, match=message):
        bayesnmf.assign(given.pop("counts"), given.pop("catalogue"), **given, checkpoint=tmp_path / "run")


@pytest.mark.parametrize("suffix", [".nc", ".zarr"])
def test_what_is_saved_is_loaded(suffix, tmp_path):
    names = pd.Index(["a\0", "\ud800", "", "nan", "a ", "b"], dtype=object)
    counts = pd.DataFrame(SOME, names, [f"f{number}" for number in range(8)])
    found = bayesnmf.assign(counts, KNOWN, **SETTINGS)
    found.save(tmp_path / f"found{suffix}")
    loaded = bayesnmf.load(tmp_path / f"found{suffix}")
    assert same(found, loaded)
    assert same(found.table(), loaded.table())
    assert repr(found) == repr(loaded)
    assert [each.name for each in tmp_path.iterdir()] == [f"found{suffix}"]
    with pytest.raises(
        ValueError, match=r"must be a fit that Fit\.save wrote: found Assignment; read it with bayesnmf"
    ):
        bayesnmf.assign(SOME, tmp_path / f"found{suffix}")


def test_a_changed_file_is_refused(tmp_path, monkeypatch):
    found = bayesnmf.assign(SOME, KNOWN, **SETTINGS)
    found.save(tmp_path / "found.nc")
    content = (tmp_path / "found.nc").read_bytes()
    place = content.find(found.exposures.tobytes()[:64])
    (tmp_path / "found.nc").write_bytes(content[:place] + b"!" + content[place + 1 :])
    with pytest.raises(ValueError, match="its content is not that of its checksum"):
        bayesnmf.load(tmp_path / "found.nc")
    monkeypatch.setattr(storage, "is_whole", lambda _: True)
    with pytest.raises(ValueError, match=r"values of '[a-z]+' differ from those that were saved"):
        bayesnmf.load(tmp_path / "found.nc")
    (tmp_path / "found.nc").write_bytes(content[: len(content) // 2])
    with pytest.raises(ValueError, match="must be a whole file"):
        bayesnmf.load(tmp_path / "found.nc")


def test_what_a_file_would_give_back_changed_is_not_saved(tmp_path):
    found = replace(bayesnmf.assign(SOME, KNOWN, **SETTINGS), interval={0.1, 0.9})
    with pytest.raises(TypeError, match="interval must be an array, a table, or a word, a number"):
        found.save(tmp_path / "found.nc")


def test_chains_that_keep_to_their_own_answers_have_an_infinite_r_hat():
    mixed = np.tile([[0.0], [1.0]], (20, 1))
    chains = [csr_array(np.hstack([np.full((40, 1), 1.0 - number), mixed, np.ones((40, 1))])) for number in (0, 1)]
    found = _r_hat_of(np.array([[0.5, 0.5, 1.0]]), chains)[0]
    assert found[0] == np.inf
    assert 0.9 < found[1] < 1.1
    assert np.isnan(found[2])


@pytest.mark.parametrize(
    ("counts", "known", "settings", "told"),
    [
        ([[1.5, 2]], [[0.5, 0.5]], {}, "whole numbers"),
        ([[1, 2]], [[0.5, 0.5]], {"noise": "quasi"}, "one dispersion"),
        ([[1, 2]], [[0.5, 0.5]], {"noise": NegativeBinomial("linear", "row")}, "found a dispersion for each row"),
        ([[0, 0]], [[0.5, 0.5]], {}, "found zeros only"),
        ([[1, 2]], [[1.0, 0.0]], {}, "no count of feature"),
        ([[1, 2]], [[1.0, -1.0]], {}, "catalogue must be nonnegative"),
        ([[1, 2]], [[1.0, 1.0]], {"draws": 0}, "draws"),
        ([[1, 2]], [[1.0, 1.0]], {"interval": 2}, "interval"),
    ],
)
def test_bad_input_is_refused(counts, known, settings, told):
    with pytest.raises(ValueError, match=told):
        bayesnmf.assign(counts, known, **settings)


def test_a_little_of_a_component_in_nearly_all_samples_is_told():
    rng = np.random.default_rng(3)
    known = np.array([[0.9, 0.05, 0.05, 0.0], [0.05, 0.9, 0.05, 0.0], [0.0, 0.0, 0.1, 0.9]])
    shares = rng.dirichlet([5.0, 5.0], 20)
    given = {"drift": None, "chains": 1, "draws": 10, "warmup": 10}
    counts = rng.poisson(5000 * np.hstack([0.97 * shares, np.full((20, 1), 0.03)]) @ known)
    (told,) = [each for each in bayesnmf.assign(counts, known, **given).cautions if each.startswith("nearly all")]
    assert re.search(r"a little of 2 \(100% of the samples, 3\.\d% of the counts\): what their spectra share", told)
    more = rng.poisson(5000 * np.hstack([0.8 * shares, np.full((20, 1), 0.2)]) @ known)
    for other in (more, counts[:9]):
        assert not any(each.startswith("nearly all") for each in bayesnmf.assign(other, known, **given).cautions)
