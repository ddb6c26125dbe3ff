"""What is held out of a matrix, and how all tools are judged by it."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import linear_sum_assignment
from scipy.sparse import csc_array, csr_array

from bayesnmf.assessment.coherence import npmi
from bayesnmf.assessment.scoring import MIXED, entry_probabilities
from bayesnmf.data.splitting import with_data
from bayesnmf.results.markers import shares_in_rest
from benchmarks import recommend
from benchmarks.arena.matrices import Matrix

Array = NDArray[np.float64]
KEEP, TOP_WORDS = 0.8, 10
TINY = 1e-300

# Figures of a run: what they are called in tables, and whether more is better.
HELD_OUT, RECALL, NDCG = "held-out, nats a count", "recall@20", "NDCG@20"
NMI, TRUTH, USAGE, NPMI, F1 = "NMI of labels", "cosine of components", "r of usage", "NPMI", "F1 of presence"
FIRST = {"items": RECALL}  # the figure by which a task is won; held-out counts for the others
SECONDS, CPU, MEGABYTES = "seconds", "cpu", "MB"


class Split(NamedTuple):
    """Counts that tools are given, and those that they are judged by."""

    train: csr_array
    test: csr_array


def split(matrix: Matrix, number: int) -> Split:
    """Return a split: every count is kept by chance, or for users and items every entry."""
    if matrix.task == "items":
        return Split(*recommend.split(matrix.counts, number))
    rng = np.random.default_rng([11, number])
    counts = csr_array(matrix.counts)
    kept = rng.binomial(counts.data.astype(np.int64), KEEP).astype(float)
    return Split(with_data(counts, kept), with_data(counts, counts.data - kept))


def held_out(loadings: Array, components: Array, given: Split) -> float:
    """Return the log probability of held-out counts for each of them, given the totals of rows, in nats.

    A millionth of the frequencies of the features is mixed in, with ½ added to each. Rows without loadings have these.
    """
    frequencies = np.asarray(given.train.sum(axis=0)).ravel() + 0.5
    frequencies /= frequencies.sum()
    test, lost = csr_array(given.test, dtype=np.float64), loadings @ components.sum(axis=1) <= 0
    rows = np.repeat(np.arange(test.shape[0]), np.diff(test.indptr))
    with np.errstate(invalid="ignore"):
        found = entry_probabilities(test, rows, loadings, components)
    probability = np.where(lost[rows], frequencies[test.indices], found)
    logs = np.log((1 - MIXED) * probability + MIXED * frequencies[test.indices])
    return float(test.data @ logs / test.data.sum())


def matched(similarity: Array) -> tuple[Array, Array]:
    """Return rows and columns of the one-to-one matching with the largest sum."""
    rows, columns = linear_sum_assignment(-similarity)
    return rows, columns


def cosine_of_components(found: Array, truth: Array) -> float:
    """Return the mean cosine of true components with those that are matched to them; 0 without one."""
    one, two = (side / np.maximum(np.linalg.norm(side, axis=1, keepdims=True), TINY) for side in (found, truth))
    similarity = two @ one.T
    return float(similarity[matched(similarity)].sum() / len(truth))


def correlation_of_usage(loadings: Array, truth: Array) -> float:
    """Return the mean correlation over rows of true shares with those that are matched to them; 0 without one."""
    one, two = (_centred(side / np.maximum(side.sum(axis=1, keepdims=True), TINY)) for side in (loadings, truth))
    similarity = two.T @ one
    return float(similarity[matched(similarity)].sum() / truth.shape[1])


def _centred(values: Array) -> Array:
    centred = values - values.mean(axis=0)
    return np.asarray(centred / np.maximum(np.linalg.norm(centred, axis=0), TINY))


def agreement_with_labels(loadings: Array, components: Array, labels: NDArray[np.generic]) -> float:
    """Return the normalised mutual information of labels with k-means of the roots of shares, with their number."""
    from sklearn.cluster import KMeans
    from sklearn.metrics import normalized_mutual_info_score

    used = loadings * components.sum(axis=1)
    shares = used / np.maximum(used.sum(axis=1, keepdims=True), TINY)
    groups = KMeans(len(np.unique(labels)), n_init=10, random_state=0).fit_predict(np.sqrt(shares))
    return float(normalized_mutual_info_score(labels.astype(str), groups))


def coherence(loadings: Array, components: Array, test: csr_array) -> float:
    """Return the mean NPMI of the leading words of topics, by the documents of held-out counts that have both."""
    shares = components / np.maximum(components.sum(axis=1, keepdims=True), TINY)
    rest = shares_in_rest(shares, loadings.sum(axis=0) * components.sum(axis=1))
    leading = np.argsort(-(np.sqrt(shares) - np.sqrt(rest)), axis=1)[:, :TOP_WORDS]
    there, pairs = csc_array(test > 0, dtype=np.float64), np.triu_indices(leading.shape[1], 1)
    together = [(own.T @ own).toarray() for own in (there[:, words] for words in leading)]
    return float(np.nanmean([npmi(each, test.shape[0])[pairs] for each in together]))


def f1(present: Array, truth: Array) -> float:
    """Return F1 of what is present."""
    one, two = present.astype(bool), truth > 0
    return float(2 * (one & two).sum() / max(one.sum() + two.sum(), 1))


def judged(matrix: Matrix, given: Split, found: dict[str, Array]) -> dict[str, float]:
    """Return the figures of a run."""
    loadings, components = found["loadings"], found["components"]
    if matrix.task == "items":
        return dict(zip((RECALL, NDCG), recommend.judged(loadings @ components, *given), strict=True))
    told = {HELD_OUT: held_out(loadings, components, given)}
    if matrix.task == "refit" and matrix.loadings is not None and "present" in found:
        told[F1] = f1(found["present"], matrix.loadings)
        return told
    if matrix.labels is not None:
        told[NMI] = agreement_with_labels(loadings, components, matrix.labels)
    if matrix.task == "texts":
        told[NPMI] = coherence(loadings, components, given.test)
    if matrix.components is not None and matrix.task != "refit":
        told[TRUTH] = cosine_of_components(components, matrix.components)
    if matrix.loadings is not None and matrix.task == "cells":
        told[USAGE] = correlation_of_usage(loadings * components.sum(axis=1), matrix.loadings)
    return told
