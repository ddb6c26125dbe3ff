"""Masks for `select`: which entries are held out. They never look at the counts.

Of small matrices, single entries at random: each entry is held out in one of `FOLDS` folds. Of large ones, groups: rows
and features are put at random in as many groups, each row group is held out in one feature group, and another one in
the next fold; so each row misses the same share of the features, and sums over missing entries take no time. There are
so many groups that no more entries are held out than counts are positive.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from bayesnmf.data.counts import Counts
from bayesnmf.data.mask import GroupMask, Mask, as_pattern
from bayesnmf.types import Array

FOLDS = 10  # of which each holds out a tenth of the entries, or less
SMALL = 1_000_000  # entries of a matrix whose entries are held out one by one
FEW, MANY = 2, 5  # masks of large and of small matrices
MASKS = 2**31 + 7  # seed beside those of the fits


def make_masks(counts: Counts, number: int, seed: int) -> list[Mask]:
    """Return the masks of the first folds: a given number, or for 0, 5 of small matrices and 2 of large ones."""
    n, m = counts.shape
    number = number or (MANY if n * m <= SMALL else FEW)
    rng = np.random.default_rng([seed, MASKS])
    if n * m <= SMALL:
        folds = rng.permutation(n * m).reshape(n, m) % FOLDS
        return [Mask.of(as_pattern(folds == each % FOLDS)) for each in range(number)]
    groups = min(max(FOLDS, -(-n * m // max(counts.nnz, 1))), n, m)
    rows, features = rng.permutation(n) % groups, rng.permutation(m) % groups
    return [GroupMask.of_groups(rows, (features + each) % groups, groups) for each in range(number)]


def tiles(mask: Mask, counts: Counts) -> Iterator[tuple[Array, Array, Array, Array]]:
    """Yield held-out entries in pieces: positions of rows and features, dense counts, and which are held out."""
    for rows, part in counts.parts():
        own = mask.rows(rows)
        if not isinstance(own, GroupMask):
            entries = part.matrix.toarray()
            yield np.arange(rows.start, rows.stop), np.arange(entries.shape[1]), entries, own.hidden(slice(None))
            continue
        for places, features in own.members():
            entries = part.matrix[places][:, features].toarray()
            yield rows.start + places, features, entries, np.ones(entries.shape, bool)
