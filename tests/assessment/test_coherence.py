"""Coherence of components."""

import itertools
from dataclasses import replace

import numpy as np
import pytest
from plain import plain_vi
from smallfits import COUNTS

import bayesnmf
from bayesnmf.assessment.coherence import npmi


def by_hand(counts, i, j):
    """Return NPMI of two features, written out."""
    rows = len(counts)
    first, second = np.mean(counts[:, i] > 0), np.mean(counts[:, j] > 0)
    both = sum((row[i] > 0) and (row[j] > 0) for row in counts) / rows
    return 1.0 if both == 1 else np.log((both + 1e-12) / (first * second)) / -np.log(both + 1e-12)


def fitted(counts, components):
    fit = bayesnmf.fit(counts, rank=len(components), seed=0, options=plain_vi(threads=1))
    return replace(fit, components=np.asarray(components, float))


COUNTED = np.random.default_rng(0).poisson(0.8, (30, 6))
COMPONENTS = [[0.4, 0.3, 0.1, 0.1, 0.05, 0.05], [0.0, 0.1, 0.1, 0.2, 0.25, 0.35]]


def test_npmi_is_the_mean_over_pairs_of_the_largest_features():
    found = bayesnmf.coherence(fitted(COUNTED, COMPONENTS), n=3)
    for k, largest in enumerate(([0, 1, 2], [5, 4, 3])):
        wanted = np.mean([by_hand(COUNTED, i, j) for i, j in itertools.combinations(largest, 2)])
        assert found[k] == pytest.approx(wanted, rel=1e-12)
    assert (found.name, found.index.name) == ("npmi", "component")
    named = fitted(COUNTED, COMPONENTS).rename({1: "rain"})
    assert bayesnmf.coherence(named, n=3).index.tolist() == named.component_labels.tolist()


def test_c_v_is_the_mean_cosine_with_the_sum_of_all_vectors():
    found = bayesnmf.coherence(fitted(COUNTED, COMPONENTS), n=3, measure="c_v")
    vectors = np.array([[1.0 if i == j else by_hand(COUNTED, i, j) for j in (0, 1, 2)] for i in (0, 1, 2)])
    whole = vectors.sum(axis=0)
    wanted = np.mean([v @ whole / np.sqrt((v @ v) * (whole @ whole)) for v in vectors])
    assert found[0] == pytest.approx(wanted, rel=1e-12)


TEXTS = [[(7 * i * i + (3 + i % 2) * i * j + j**3) % (12 + 6 * (i % 3)) for j in range(4 + i % 9)] for i in range(40)]
TOPICS = ((0, 3, 5, 7, 11), (1, 14, 4, 17, 16), (2, 6, 20, 9, 12))
GENSIM = {  # CoherenceModel(topics, texts, Dictionary(texts), coherence="c_v", window_size=20, topn=5) of gensim 4.4.0
    ("c_v", 20): [0.395165568186544, 0.4108012729912926, 0.37167152611962095],
    ("c_v", 4): [0.22697731378984728, 0.1515520690175433, 0.4467620377514413],
    ("npmi", 20): [-0.023758774888957963, -0.022328319835612082, -0.4597194808002286],  # coherence="c_npmi"
    ("npmi", 4): [-0.17265990108052637, -0.28534463364876295, -0.6587605440287645],
}


@pytest.mark.parametrize(("measure", "width"), GENSIM)
def test_values_are_those_of_gensim_if_its_windows_are_the_rows(measure, width):
    """All texts are shorter than 20 words, whose windows are whole texts; in the third topic most pairs never meet."""
    windows = [text[i : i + width] for text in TEXTS for i in range(max(1, len(text) - width + 1))]
    rows = [[window.count(word) for word in range(24)] for window in windows]
    components = np.zeros((3, 24))
    for component, topic in zip(components, TOPICS, strict=True):
        component[list(topic)] = np.arange(5, 0, -1) / 15
    found = bayesnmf.coherence(fitted(rows, components), n=5, measure=measure)
    np.testing.assert_allclose(found, GENSIM[measure, width], rtol=1e-12)


def test_limits_are_those_of_features_that_are_always_or_never_together():
    present = np.array([[1, 1, 0, 1], [1, 1, 0, 1], [0, 0, 1, 1], [0, 0, 1, 1]], float)
    pairs = npmi(present.T @ present, 4)
    assert pairs[0, 1] == pytest.approx(1.0)
    assert pairs[0, 2] == pytest.approx(-1.0 + 2 * np.log(2) / (12 * np.log(10)))  # (p_i p_j = 1/4)
    assert pairs[0, 3] == pytest.approx(0.0, abs=4e-12)  # present everywhere, so independent; ε adds ε / (p log 1/p)
    assert pairs[3, 3] == 1.0
    independent = np.array([[1, 1], [1, 0], [0, 1], [0, 0]], float)
    assert npmi(independent.T @ independent, 4)[0, 1] == pytest.approx(0.0, abs=4e-12)


def test_other_rows_may_be_counted_and_absent_features_have_none():
    fit = fitted(COUNTED, COMPONENTS)
    new = np.random.default_rng(1).poisson(0.8, (20, 6))
    pairs = [by_hand(new, i, j) for i, j in itertools.combinations([0, 1, 2], 2)]
    assert bayesnmf.coherence(fit, new, n=3)[0] == pytest.approx(np.mean(pairs), rel=1e-12)
    new[:, 0] = 0
    assert np.isnan(bayesnmf.coherence(fit, new, n=3)[0])
    assert np.isfinite(bayesnmf.coherence(fit, new, n=3)[1])


def test_true_topics_are_more_coherent_than_random_ones():
    rng = np.random.default_rng(0)
    topics = np.kron(np.eye(4), np.full(10, 0.1))
    texts = np.array([rng.multinomial(25, topics[k % 4]) for k in range(200)])
    fit = bayesnmf.fit(texts, "dirichlet_poisson", 4, seed=0, options=plain_vi(start="svd", threads=1))
    mixed = replace(fit, components=rng.dirichlet(np.full(40, 0.1), 4))
    for measure in ("npmi", "c_v"):
        assert bayesnmf.coherence(fit, measure=measure).min() > bayesnmf.coherence(mixed, measure=measure).max() + 0.2


@pytest.mark.parametrize(
    ("error", "message", "settings"),
    [
        (ValueError, "n must be at least 2", {"n": 1}),
        (ValueError, "measure must be one of 'npmi', 'c_v': found 'umass'", {"measure": "umass"}),
        (ValueError, "features", {"counts": COUNTS.iloc[:, :2]}),
        (TypeError, "fit must be a result", {"fit": COUNTS}),
    ],
)
def test_bad_arguments_are_refused(error, message, settings):
    with pytest.raises(error, match=message):
        bayesnmf.coherence(**{"fit": fitted(COUNTED, COMPONENTS), **settings})
