"""Counts that stay on disk: the interface of `Counts`, with rows that are read block by block."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from scipy.sparse import csr_array

from bayesnmf.data.blocks.checks import CountsOnDiskError
from bayesnmf.data.blocks.observed import ObservedTotals
from bayesnmf.data.blocks.raw import Buffers, RowsInFile
from bayesnmf.data.blocks.store import Store
from bayesnmf.data.blocks.transposed import StoredRows, TransposedStore
from bayesnmf.data.counts import Counts
from bayesnmf.data.mask import Mask
from bayesnmf.types import Array

SPARSE = 64  # rows are read one by one where fewer than one in 64 is wanted


@dataclass(frozen=True, eq=False)
class StoredMatrix:
    """The part of a sparse matrix that is known without reading its counts.

    Attributes
    ----------
    store : Store
    dtype : dtype
        Type in which rows are given.
    nonzeros : int
        Size of a block.
    scratch : Path
        Folder for the loadings during a fit.
    keeps : tuple
        What must live as long as the counts.
    factor : float
        What the counts of the store are multiplied with.
    """

    store: Store
    dtype: np.dtype
    nonzeros: int
    scratch: Path
    keeps: tuple[Any, ...] = ()
    factor: float = 1.0

    @property
    def shape(self) -> tuple[int, int]:
        """Number of rows and of features."""
        return self.store.shape

    @property
    def nnz(self) -> int:
        """Number of nonzero counts."""
        return self.store.nnz

    def __getattr__(self, name: str) -> Any:
        raise CountsOnDiskError(f"they have no {name}")

    def __getitem__(self, place: Any) -> csr_array:
        """Return some consecutive rows, read from disk."""
        if not (isinstance(place, slice) and place.step in (None, 1) and place != slice(None)):
            raise CountsOnDiskError("they are read by blocks")
        first, last, _ = place.indices(self.shape[0])
        return _as_type(self.store.read(first, last), self.dtype, self.factor)

    def __gt__(self, other: Any) -> Any:
        raise CountsOnDiskError("they cannot be compared")

    def __array__(self, *given: Any, **more: Any) -> Any:
        raise CountsOnDiskError("they are no array")


@dataclass(frozen=True, eq=False, repr=False)
class BlockedCounts(Counts):
    """Counts on disk, with the attributes of `Counts`; `matrix` has their shape, but not their numbers.

    Attributes
    ----------
    means : tuple of array, (n,) and (m,), or None
        Factors whose products take the place of missing cells in every block, which then has no mask.
    """

    matrix: Any
    means: tuple[Array, Array] | None = None
    in_memory = False

    @classmethod
    def of(cls, matrix: StoredMatrix) -> BlockedCounts:
        """Return the counts of a store, with its names."""
        found = [matrix.store.names(side) for side in ("rows", "features")]
        rows, features = (
            np.arange(length) if names is None else names for names, length in zip(found, matrix.shape, strict=True)
        )
        return cls(matrix, rows, features)

    @property
    def scratch(self) -> Path:
        """Folder for the loadings during a fit."""
        folder: Path = self.matrix.scratch
        return folder

    @property
    def store(self) -> Store:
        """The store that the counts are read from."""
        store: Store = self.matrix.store
        return store

    @property
    def transposed(self) -> csr_array:
        """Refused: it would need all counts in memory."""
        return self.matrix.transposed

    @cached_property
    def bounds(self) -> list[int]:
        """First row of each block, and the number of rows."""
        return self.store.bounds(self.matrix.nonzeros)

    @property
    def blocks(self) -> list[slice]:
        """Rows of each block."""
        return [slice(first, last) for first, last in pairwise(self.bounds)]

    def by_row(self) -> Any:
        """Return the counts by blocks of rows."""
        return StoredRows(self.store, self.blocks)

    def by_feature(self) -> Any:
        """Return the counts by blocks of features, written once more, into files that go with it."""
        return TransposedStore(self.store, self.blocks, self.matrix.nonzeros, self.scratch)

    def new_rows(self, columns: int, dtype: Any) -> Any:
        """Return an array in a file that rows are appended to, block by block."""
        return RowsInFile(self.scratch, columns, dtype)

    @cached_property
    def totals(self) -> Any:
        """What knows the totals of the counts: the store, or sums over a pass where cells are missing."""
        return self.store if self.mask is None else ObservedTotals.of(self.store, self.blocks, self.mask)

    @cached_property
    def row_totals(self) -> Array:
        """Sum of each row, (n,), float64."""
        totals: Array = self._factored(self.totals.row_totals(0, self.shape[0]))
        return totals

    @cached_property
    def feature_totals(self) -> Array:
        """Sum of each column, (m,), float64."""
        totals: Array = self._factored(self.totals.feature_totals)
        return totals

    @property
    def total(self) -> float:
        """Sum of all counts."""
        total: float = self._factored(self.totals.total)
        return total

    @property
    def nnz(self) -> int:
        """Number of nonzero counts."""
        number: int = self.totals.nnz
        return number

    def log_factorial_of(self, unit: float) -> float:
        """Return Σ log (X / unit)!, in the unit of the store."""
        assert unit == self.matrix.factor
        constant: float = self.totals.log_factorial
        return constant

    @property
    def identity(self) -> list[Any]:
        """The fingerprint of the store."""
        return [self.store.fingerprint]

    @property
    def is_integer(self) -> bool:
        """True: a store has no other counts."""
        return True

    def without_names(self) -> BlockedCounts:
        """Return the same counts with numbers for names, which take no memory wherever they are sent."""
        names: Any = [range(length) for length in self.shape]
        return self._with(row_names=names[0], feature_names=names[1])

    def _with(self, **changes: Any) -> BlockedCounts:
        """Return the same cells with other attributes, and with what takes a pass to know."""
        found = replace(self, **changes)
        vars(found).update(self._known())
        return found

    def _known(self) -> dict[str, Any]:
        """Return the bounds of blocks, and the totals of observed cells, which not every task need find out."""
        return {"bounds": self.bounds, **({} if self.mask is None else {"totals": self.totals})}

    def __getstate__(self) -> dict[str, Any]:
        """Return the state with the bounds of blocks and the totals of observed cells, but no other cached values."""
        return {**super().__getstate__(), **self._known()}

    def as_type(self, dtype: Any) -> BlockedCounts:
        """Return the same counts, given in another type."""
        return self._with(matrix=replace(self.matrix, dtype=np.dtype(dtype)))

    def times(self, factor: float) -> BlockedCounts:
        """Return the counts times a factor."""
        return self._with(matrix=replace(self.matrix, factor=self.matrix.factor * factor))

    def with_mask(self, mask: Mask | None) -> BlockedCounts:
        """Return the counts with these cells missing, and no others."""
        return self if mask is None and self.mask is None else replace(self, mask=mask)

    def completed(self, means: tuple[Array, Array] | None) -> BlockedCounts:
        """Return the counts with means of rank one, or zeros, in place of missing cells, in every block."""
        zeros = np.zeros(self.shape[0]), np.zeros(self.shape[1])
        return self if self.mask is None else self._with(means=means or zeros)

    def parts(self) -> Iterator[tuple[slice, Counts]]:
        """Yield the rows and the counts of each block, read from disk."""
        for rows in self.blocks:
            yield rows, self.block(rows.start, rows.stop)

    @property
    def number_of_parts(self) -> int:
        """Number of blocks."""
        return len(self.blocks)

    def block(self, first: int, last: int) -> Counts:
        """Return the rows from `first` to `last` (excluded), read from disk."""
        return self._counts(_as_type(self.store.read(first, last), self.dtype, self.matrix.factor), slice(first, last))

    def raw_block(self, first: int, last: int, buffers: Buffers) -> Counts:
        """Return the same with counts in the type of the store, in memory that the next call overwrites."""
        if self.matrix.factor != 1:
            return self.block(first, last)
        return self._counts(self.store.read(first, last, buffers), slice(first, last))

    def empty_block(self, first: int, last: int) -> Counts:
        """Return these rows with their totals and exposures, but without reading counts: all are 0."""
        return self._counts(csr_array((last - first, self.shape[1]), dtype=self.dtype), slice(first, last))

    def rows(self, index: Any) -> Counts:
        """Return the chosen rows in memory, with their names and exposures."""
        chosen = np.atleast_1d(np.arange(self.shape[0])[index])
        parts = self._parts_of(chosen)
        starts = np.cumsum(np.concatenate([[0], *(np.diff(part.indptr) for part in parts)]))
        empty = [np.empty(0, np.int32)]
        arrays = (np.concatenate([part.data for part in parts] + empty),
                  np.concatenate([part.indices for part in parts] + empty), starts)  # fmt: skip
        matrix = csr_array(arrays, shape=(len(chosen), self.shape[1]))
        return self._counts(_as_type(matrix, self.dtype, self.matrix.factor), chosen)

    def _parts_of(self, chosen: Array) -> list[csr_array]:
        """Return rows in order: those that lie close together in a block are read together, others one by one."""
        if np.any(np.diff(chosen) <= 0):
            return [self.store.read(row, row + 1) for row in chosen.tolist()]
        found = []
        for own in np.split(chosen, np.searchsorted(chosen, self.bounds[1:-1])):
            if len(own) and len(own) * SPARSE >= own[-1] + 1 - own[0]:
                found.append(self.store.read(int(own[0]), int(own[-1]) + 1)[own - own[0]])
            else:
                found.extend(self.store.read(row, row + 1) for row in own.tolist())
        return found

    def _counts(self, matrix: csr_array, rows: Any) -> Counts:
        exposure = None if self.row_exposure is None else self.row_exposure[rows]
        mask = None if self.mask is None else self.mask.rows(rows)
        if mask is not None and matrix.nnz:
            matrix = mask.apply(matrix)
        if mask is not None and self.means is not None:
            matrix = mask.filled(matrix, self.means[0][rows], self.means[1]) if mask.of_missing else matrix
            mask = None
        counts = Counts(matrix, self.row_names[rows], self.feature_names, exposure, self.feature_exposure, mask)
        if self.means is None:
            whole = not isinstance(rows, slice)
            totals = self.row_totals[rows] if whole else self._factored(self.totals.row_totals(rows.start, rows.stop))
            vars(counts)["row_totals"] = totals  # where the cached property stores its value
        return counts

    def _factored(self, totals: Any) -> Any:
        return totals if self.matrix.factor == 1 else self.matrix.factor * totals


def _as_type(matrix: csr_array, dtype: Any, factor: float) -> csr_array:
    data = matrix.data.astype(dtype)
    data = data if factor == 1 else (data * factor).astype(dtype, copy=False)
    return csr_array((data, matrix.indices, matrix.indptr), shape=matrix.shape)
