"""How much several matrices share: what makes the same rows alike in both.

The modified RV coefficient [A. K. Smilde, H. A. L. Kiers, S. Bijlsma, C. M. Rubingh & M. J. van Erk, *Matrix
correlations for high-dimensional data*] correlates the cosines between rows in one matrix with those in the other,
leaving out those of a row with itself, which noise makes: it is about 0 of matrices that have nothing to do with each
other, and 1 at most.
"""

from __future__ import annotations

from itertools import combinations

import numpy as np

from bayesnmf.data.counts import Counts
from bayesnmf.data.several import SeveralCounts
from bayesnmf.types import Array

MOST = 500  # rows, evenly spaced, and features, those with most counts, that are looked at


def relatedness(counts: SeveralCounts) -> dict[tuple[str, str], float]:
    """Return the modified RV coefficient of each two matrices, over rows that both have."""
    found, features = {}, {name: _common(counts, counts.features_of(name)) for name in counts.matrices.names}
    for one, two in combinations(features, 2):
        rows = counts.rows(_evenly(np.intersect1d(counts.rows_of(one), counts.rows_of(two))))
        alike, alike_too = _cosines(rows, features[one]), _cosines(rows, features[two])
        size = np.sqrt(np.sum(alike**2) * np.sum(alike_too**2))
        found[one, two] = float(np.sum(alike * alike_too) / size) if size > 0 else 0.0
    return found


def _common(counts: Counts, features: Array) -> Array:
    return features[np.argsort(-counts.feature_totals[features], kind="stable")[:MOST]]


def _evenly(rows: Array) -> Array:
    return rows[:: -(-len(rows) // MOST) or 1]


def _entries(counts: Counts, features: Array) -> tuple[Array, Array]:
    """Return the counts of some features, and which of them are missing."""
    found = counts.matrix[:, features].toarray()
    lost = None if counts.mask is None else counts.mask.features(features).hidden(slice(None))
    return found, np.zeros(found.shape, bool) if lost is None else lost


def _cosines(rows: Counts, features: Array) -> Array:
    """Return the cosines between rows, (n, n), of how they differ from the mean profile; 0 of a row with itself."""
    counts, missing = _entries(rows, features)
    expected = np.outer(counts.sum(axis=1), counts.sum(axis=0)) / max(counts.sum(), 1.0)
    differences = np.where(expected > 0, (counts - expected) / np.sqrt(np.where(expected > 0, expected, 1.0)), 0.0)
    differences[missing] = 0.0
    lengths = np.linalg.norm(differences, axis=1, keepdims=True)
    differences = np.divide(differences, lengths, out=np.zeros_like(differences), where=lengths > 0)
    found = differences @ differences.T
    np.fill_diagonal(found, 0.0)
    return np.asarray(found)
