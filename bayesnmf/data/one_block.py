"""What counts in memory have in one block, where counts on disk have many: rows of an array, and features."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from scipy.sparse import csr_array


@dataclass(frozen=True, eq=False)
class Lines:
    """Counts by rows or by features, in one block of all."""

    matrix: csr_array
    beside: ClassVar[bool] = False

    @property
    def blocks(self) -> list[slice]:
        """Lines of each block."""
        return [slice(0, self.matrix.shape[0])]

    def read(self, block: int, dtype: Any) -> csr_array:
        """Return the counts of a block of lines."""
        return self.matrix


class Rows:
    """An array with a row for each sample, given block by block."""

    def __init__(self, dtype: Any) -> None:
        self._dtype, self._blocks = dtype, list[Any]()

    def append(self, rows: Any) -> None:
        """Add more rows."""
        self._blocks.append(np.asarray(rows, self._dtype))

    def array(self, *, changes: bool = False) -> Any:
        """Return all rows; with `changes`, as an array that nothing else refers to."""
        if len(self._blocks) > 1:
            return np.concatenate(self._blocks)
        return self._blocks[0].copy() if changes else self._blocks[0]
