"""Split counts on disk for held-out scores: the split of counts in memory, in two new stores."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from bayesnmf.data.blocks.counts import BlockedCounts
from bayesnmf.data.blocks.raw import TemporaryFolder
from bayesnmf.data.blocks.sources import Source
from bayesnmf.data.blocks.store import write_store
from bayesnmf.data.blocks.stored_matrix import StoredMatrix
from bayesnmf.data.splitting import Split, set_rows_aside
from bayesnmf.types import Array


def split_on_disk(counts: BlockedCounts, keep: float, withhold: float, rng: np.random.Generator) -> Split:
    """Withhold a random fraction of the samples, and thin the others (`split_counts`); withheld rows are not split."""
    rows, others = set_rows_aside(counts.shape[0], withhold, rng)
    again = deepcopy(rng)
    train, thinned = (_written(counts, rows, _Thinned(counts, rows, keep, each, kept))
                      for each, kept in ((again, True), (rng, False)))  # fmt: skip
    return Split(train, thinned, None, None, keep, rows, others)


@dataclass(frozen=True)
class _Thinned:
    """Kept or other counts of some rows; blocks must be read in order, as each takes its random numbers in turn."""

    counts: BlockedCounts
    rows: Array
    keep: float
    rng: np.random.Generator
    kept: bool

    @property
    def shape(self) -> tuple[int, int]:
        """Number of rows and of features."""
        return len(self.rows), self.counts.shape[1]

    def __getitem__(self, rows: slice) -> Any:
        matrix = self.counts.rows(self.rows[rows]).matrix
        kept = self.rng.binomial(matrix.data.astype(np.int64), self.keep)
        matrix.data[:] = kept if self.kept else matrix.data - kept
        return matrix


def _written(counts: BlockedCounts, rows: Array, values: _Thinned) -> BlockedCounts:
    folder = TemporaryFolder(counts.scratch, "counts-")
    source = Source(values, f"a split of {counts.store.source}", nnz=counts.nnz)
    store = write_store(folder.path / "store", source, lambda *_: None)
    found = BlockedCounts.of(StoredMatrix(store, counts.dtype, counts.matrix.nonzeros, counts.scratch, (folder,)))
    exposure = None if counts.row_exposure is None else counts.row_exposure[rows]
    return replace(
        found, row_names=counts.row_names[rows], feature_names=counts.feature_names, row_exposure=exposure,
        feature_exposure=counts.feature_exposure,
    )  # fmt: skip
