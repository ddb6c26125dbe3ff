"""Counts on disk by features: for each block of features, the rows and counts of their nonzeros.

Blocks of rows are read once to count the nonzeros of the features, and once more to write each block's nonzeros to the
blocks of features that they belong to. These are then put in order one after the other. At no time is more than a block
of either kind in memory.
"""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any
from zlib import crc32

import numpy as np
from scipy.sparse import csr_array

from bayesnmf.data.blocks.checks import check_as_written
from bayesnmf.data.blocks.raw import RawArray, TemporaryFolder
from bayesnmf.data.blocks.stored_matrix import as_type
from bayesnmf.types import Array

PARTS = ("rows", "data")


class TransposedStore:
    """Counts by features, in a folder that is removed with the last reference to this object.

    Parameters
    ----------
    counts : BlockedCounts
    """

    beside = True  # blocks are worked on beside each other

    def __init__(self, counts: Any) -> None:
        self._kept = TemporaryFolder(counts.scratch, "columns-")
        self.folder, self.rows = self._kept.path, counts.shape[0]
        number = np.zeros(counts.shape[1], np.int64)
        for matrix in counts.stored_blocks():
            number += np.bincount(matrix.indices, minlength=len(number))
        self.starts = np.concatenate([[0], np.cumsum(number)])
        self.bounds = _bounds(self.starts, counts.matrix.nonzeros)
        self._kind, self._factor = counts.stored_type, counts.matrix.factor
        self._checksums: dict[tuple[int, str], int] = {}
        segments: list[Array] = []
        for rows, matrix in zip(counts.blocks, counts.stored_blocks(), strict=True):
            segments.append(self._distribute(matrix, rows.start))
        for block in range(len(self.bounds) - 1):
            first, last = self.bounds[block : block + 2]
            self._put_in_order(block, np.stack([each[first:last] for each in segments]))

    def __getstate__(self) -> dict[str, Any]:
        """Return what reads the files in other processes, which must not remove them."""
        return {name: value for name, value in vars(self).items() if name != "_kept"}

    @property
    def blocks(self) -> list[slice]:
        """Features of each block."""
        return [slice(first, last) for first, last in pairwise(self.bounds)]

    def read(self, block: int, dtype: Any) -> csr_array:
        """Return the counts of a block of features, (features, n)."""
        first, last = self.bounds[block : block + 2]
        starts = self.starts[first : last + 1] - self.starts[first]
        rows, data = (self._array(block, part, kind, int(starts[-1])) for part, kind in self._kinds())
        for part, values in zip(PARTS, (rows, data), strict=True):
            check_as_written(crc32(values) == self._checksums[block, part], self._path(block, part))
        matrix = csr_array((data, rows, starts.astype(np.int32)), shape=(last - first, self.rows))
        return as_type(matrix, dtype, self._factor)

    def _kinds(self) -> list[tuple[str, Any]]:
        return list(zip(PARTS, (np.dtype(np.int32), self._kind), strict=True))

    def _path(self, block: int, part: str) -> Path:
        return self.folder / f"{block}.{part}"

    def _array(self, block: int, part: str, kind: Any, length: int) -> Array:
        return RawArray(self._path(block, part), 0, kind, length).read(0, length) if length else np.empty(0, kind)

    def _distribute(self, matrix: Any, first_row: int) -> Array:
        """Append the nonzeros of some rows to the blocks of their features; return how many each feature has."""
        by_feature = matrix.tocsc()
        rows = (by_feature.indices + first_row).astype(np.int32)
        for block, (first, last) in enumerate(pairwise(self.bounds)):
            own = slice(by_feature.indptr[first], by_feature.indptr[last])
            for part, values in zip(PARTS, (rows[own], by_feature.data[own]), strict=True):
                with self._path(block, part).open("ab") as file:
                    file.write(np.ascontiguousarray(values).data)
        return np.diff(by_feature.indptr).astype(np.int32)

    def _put_in_order(self, block: int, number: Array) -> None:
        """Bring the nonzeros of a block from the order (rows' block, feature) into the order (feature, row)."""
        number = number.astype(np.int64)
        begins = (np.cumsum(number.ravel()) - number.ravel()).reshape(number.shape)
        targets = (np.cumsum(number.T.ravel()) - number.T.ravel()).reshape(number.T.shape).T
        places = np.repeat((targets - begins).ravel(), number.ravel()) + np.arange(number.sum())
        for part, kind in self._kinds():
            values = self._array(block, part, kind, len(places))
            ordered = np.empty_like(values)
            ordered[places] = values
            self._path(block, part).write_bytes(ordered.data)
            self._checksums[block, part] = crc32(ordered)


def _bounds(starts: Array, nonzeros: int) -> list[int]:
    """Return bounds of blocks of features of about `nonzeros` nonzeros."""
    ends = np.searchsorted(starts, np.arange(nonzeros, int(starts[-1]), nonzeros))
    return np.unique([0, *ends, len(starts) - 1]).tolist()
