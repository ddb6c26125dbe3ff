"""The noise that is advised is the one that made the counts, at the size of tables of mutations, texts and cells."""

import numpy as np
import pytest
from plain import plain_map, plain_vi
from smallfits import quietly

import bayesnmf
from bayesnmf import NegativeBinomial
from bayesnmf.data.conversion import as_counts
from bayesnmf.inference.likelier_noise import likeliest_noise

NOISES = (NegativeBinomial("linear"), NegativeBinomial("quadratic"))
SIZES = {"mutations": (90, 60, 4, 2000), "words": (150, 300, 3, 150)}  # rows, features, rank, counts a row


def counts_of(size, word, seed):
    rng, (n, m, K, total) = np.random.default_rng(seed), SIZES[size]
    means = rng.gamma(1, 1, (n, K)) @ rng.dirichlet(np.full(m, 0.3), K) * total / K
    noise = NegativeBinomial("linear", 2.0) if word == "nb1" else NegativeBinomial("quadratic", 0.2)
    return noise.draw(means, rng), means


@quietly
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("word", ["nb1", "nb2"])
@pytest.mark.parametrize("options", [plain_vi(max_iter=60), plain_map(max_iter=60)], ids=["vi", "map"])
def test_around_a_poisson_fit_the_noise_that_made_the_counts_is_likeliest(size, word, options):
    counts, _ = counts_of(size, word, 1)
    method = "vi" if isinstance(options, bayesnmf.VI) else "map"
    fit = bayesnmf.fit(counts, rank=SIZES[size][2], method=method, seed=0, options=options)
    assert likeliest_noise(fit.counts, fit.expected_loadings, fit.exposed_components, NOISES).word == word


@quietly
@pytest.mark.parametrize("word", ["nb1", "nb2"])
def test_exposures_missing_entries_and_means_of_0_change_nothing(word):
    counts, _ = counts_of("mutations", word, 2)
    counts[0] = 0
    seen = np.random.default_rng(0).random(counts.shape) > 0.3
    given = bayesnmf.fit(
        counts, rank=4, method="map", seed=0, options=plain_map(max_iter=40), observed=seen,
        row_exposure=np.linspace(1, 9, len(counts)),
    )  # fmt: skip
    loadings = given.expected_loadings.copy()
    loadings[0] = 0.0
    assert likeliest_noise(given.counts, loadings, given.exposed_components, NOISES).word == word


def test_few_rows_are_looked_at(monkeypatch):
    """So a row that is left out has no say."""
    counts, means = counts_of("mutations", "nb2", 3)
    factors = means, np.eye(means.shape[1])
    monkeypatch.setattr("bayesnmf.inference.likelier_noise.ROWS", 45)
    changed = counts.copy()
    changed[1::2] = 7
    found = [likeliest_noise(as_counts(each), *factors, NOISES) for each in (counts, changed)]
    assert found[0] is found[1]
