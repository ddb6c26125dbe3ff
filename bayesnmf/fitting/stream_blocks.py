"""Blocks of a stream: rows of several blocks together, and rows that come again."""

from __future__ import annotations

import warnings
from dataclasses import replace

import numpy as np
from scipy.sparse import csr_array, vstack

from bayesnmf.data.counts import Counts
from bayesnmf.data.mask import Mask, as_pattern
from bayesnmf.data.suspicions import DataWarning
from bayesnmf.types import Array


class FirstRows:
    """The rows of the first block, to notice if they come again.

    Parameters
    ----------
    stated : bool
        Whether the number of different rows is stated, so that they may.
    """

    def __init__(self, stated: bool) -> None:
        self.stated = stated
        self.left: Array | None = None  # those that have not come again

    def see(self, data: Counts) -> None:
        """Warn once if the rows of the first block come again, in any order and blocks.

        A few rows may be equal by chance, so at least five different rows must all have come again.
        """
        weights = np.random.default_rng(0).standard_normal(data.shape[1])
        rows = np.unique(data.matrix @ weights)  # equal for equal rows
        if self.left is None:
            self.left = rows if len(rows) >= 5 and not self.stated else np.zeros(0)
        elif len(self.left):
            self.left = np.setdiff1d(self.left, rows, assume_unique=True)
            if len(self.left):
                return
            warnings.warn(
                "the rows of the first block have come again: repeated rows count as new ones, so the posterior of "
                "the components becomes too narrow; give bayesnmf.MinibatchVI(total_rows=...), the number of different "
                "rows",
                DataWarning,
                stacklevel=3,
            )


def stacked(blocks: list[Counts]) -> Counts:
    """Return the rows of several blocks with the same features."""
    first = blocks[0]
    exposure = None if first.row_exposure is None else np.concatenate([each.row_exposure for each in blocks])
    names, matrix = np.concatenate([each.row_names for each in blocks]), csr_array(vstack([b.matrix for b in blocks]))
    lost = [csr_array(each.shape) if each.mask is None else each.mask.missing for each in blocks]
    mask = None if all(each.mask is None for each in blocks) else Mask.of(as_pattern(vstack(lost)))
    return replace(first, matrix=matrix, row_names=names, row_exposure=exposure, mask=mask)
