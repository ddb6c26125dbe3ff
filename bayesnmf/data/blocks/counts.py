"""Counts that stay on disk: the interface of `Counts`, with rows that are read block by block.

Counts on disk by features: for each block of features, the rows and counts of their nonzeros. Blocks of rows are read
once to count the nonzeros of the features, and once more to write each block's nonzeros to the blocks of features that
they belong to. These are then put in order one after the other. At no time is more than a block of either kind in
memory.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Any, ClassVar
from zlib import crc32

import numpy as np
from scipy.sparse import csr_array

from bayesnmf.data.blocks.checks import CountsOnDiskError
from bayesnmf.data.blocks.raw import Buffers, RawArray, RowsInFile, TemporaryFolder
from bayesnmf.data.blocks.sources import Made
from bayesnmf.data.blocks.store import Store, check_as_written, write_store
from bayesnmf.data.counts import Counts
from bayesnmf.data.mask import Mask
from bayesnmf.types import Array


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
    held : TemporaryFolder or None
        Folder of the store that is removed with the last reference to the counts.
    factor : float
        What the counts of the store are multiplied with.
    cut : list of int or None
        First row of each block, and the number of rows; None makes blocks of equal size.
    """

    store: Store
    dtype: np.dtype
    nonzeros: int
    scratch: Path
    held: TemporaryFolder | None = None
    factor: float = 1.0
    cut: list[int] | None = None

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
        return as_type(self.store.read(first, last), self.dtype, self.factor)

    def __gt__(self, other: Any) -> Any:
        raise CountsOnDiskError("they cannot be compared")

    def __array__(self, *given: Any, **more: Any) -> Any:
        raise CountsOnDiskError("they are no array")


@dataclass(frozen=True)
class StoredRows:
    """Counts on disk by blocks of rows."""

    counts: Any
    beside: ClassVar[bool] = True

    @property
    def blocks(self) -> list[slice]:
        """Rows of each block."""
        blocks: list[slice] = self.counts.blocks
        return blocks

    def read(self, block: int, dtype: Any) -> csr_array:
        """Return the counts of a block of rows."""
        return as_type(self.counts.stored(self.blocks[block]), dtype, self.counts.matrix.factor)


def as_type(matrix: csr_array, dtype: Any, factor: float) -> csr_array:
    """Return counts in a type, times a factor."""
    data = matrix.data.astype(dtype)
    data = data if factor == 1 else (data * factor).astype(dtype, copy=False)
    return csr_array((data, matrix.indices, matrix.indptr), shape=matrix.shape)


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


@dataclass(frozen=True)
class ObservedTotals:
    """Totals of observed entries, as a `Store` has those of all entries.

    Attributes
    ----------
    of_rows, feature_totals : ndarray (n,) and (m,)
        Sums of rows and features, in float64.
    log_factorial : float
        Σ log X!.
    nnz : int
    """

    of_rows: Array
    feature_totals: Array
    log_factorial: float
    nnz: int

    @classmethod
    def of(cls, matrices: Iterable[csr_array], features: int) -> ObservedTotals:
        """Return the totals of the counts of all blocks of rows, in order."""
        of_rows, of_features, constant, nonzeros = [], np.zeros(features), 0.0, 0
        for matrix in matrices:
            part = Counts(matrix, np.arange(matrix.shape[0]), np.arange(features))
            of_rows.append(part.row_totals)
            of_features += part.feature_totals
            constant, nonzeros = constant + part.log_factorial, nonzeros + part.nnz
        return cls(np.concatenate(of_rows), of_features, constant, nonzeros)

    @property
    def total(self) -> float:
        """Sum of all counts."""
        return float(self.feature_totals.sum())

    def row_totals(self, first: int, last: int) -> Array:
        """Return the sums of the rows from `first` to `last` (excluded), in float64."""
        return self.of_rows[first:last]


@dataclass(frozen=True, eq=False)
class Filling:
    """What takes the place of missing entries in every block.

    Attributes
    ----------
    mask : Mask
    means : tuple of array, (n,) and (m,), or None
        Factors whose products are put there; None puts zeros there.
    """

    mask: Mask
    means: tuple[Array, Array] | None

    def apply(self, matrix: csr_array, rows: Any) -> csr_array:
        """Return the counts of some rows with their missing entries filled, in float64."""
        mask, seen = self.mask.rows(rows), matrix.astype(np.float64)
        seen = mask.apply(seen) if seen.nnz else seen
        return seen if self.means is None else mask.filled(seen, self.means[0][rows], self.means[1])


SPARSE = 64  # rows are read one by one where fewer than one in 64 is wanted


@dataclass(frozen=True, eq=False, repr=False)
class BlockedCounts(Counts):
    """Counts on disk, with the attributes of `Counts`; `matrix` has their shape, but not their numbers.

    Attributes
    ----------
    filling : Filling or None
        What takes the place of entries that were missing.
    """

    matrix: Any
    filling: Filling | None = None
    in_memory, rows_held = False, 0

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
        return self.matrix.cut or self.store.bounds(self.matrix.nonzeros)

    @property
    def blocks(self) -> list[slice]:
        """Rows of each block."""
        return [slice(first, last) for first, last in pairwise(self.bounds)]

    def by_row(self) -> Any:
        """Return the counts by blocks of rows."""
        return StoredRows(self)

    def by_feature(self) -> Any:
        """Return the counts by blocks of features, written once more, into files that go with it."""
        return TransposedStore(self)

    def new_rows(self, columns: int, dtype: Any) -> Any:
        """Return an array in a file that rows are appended to, block by block."""
        return RowsInFile(self.scratch, columns, dtype)

    @cached_property
    def totals(self) -> Any:
        """What knows the totals of the counts: the store, or sums over a pass where entries are missing or filled."""
        return self.store if self._as_stored else ObservedTotals.of(self.stored_blocks(), self.shape[1])

    @property
    def _as_stored(self) -> bool:
        """Whether the counts are those of the store."""
        return self.mask is None and self.filling is None

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

    @cached_property
    def sizes(self) -> tuple[Array, Array]:
        """The different counts above 0, and how many there are of each: a pass over the counts on first use."""
        found: dict[Any, int] = {}
        for matrix in self.stored_blocks():
            for size, times in zip(*np.unique(matrix.data, return_counts=True), strict=True):
                found[size] = found.get(size, 0) + times
        sizes = sorted(found)
        return self._factored(np.array(sizes, self.dtype)), np.array([found[size] for size in sizes], np.int64)

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
        """Whether every count is a whole number: a store has no others."""
        return self.filling is None

    def without_names(self) -> BlockedCounts:
        """Return the same counts with numbers for names, which take no memory wherever they are sent."""
        names: Any = [range(length) for length in self.shape]
        return self._with(row_names=names[0], feature_names=names[1])

    def _with(self, **changes: Any) -> BlockedCounts:
        """Return the same entries with other attributes, and with what takes a pass to know."""
        found = replace(self, **changes)
        vars(found).update(self._known())
        return found

    def _known(self) -> dict[str, Any]:
        """Return the bounds of blocks, and the totals of observed entries, which not every task need find out."""
        return {"bounds": self.bounds, **({} if self._as_stored else {"totals": self.totals})}

    def __getstate__(self) -> dict[str, Any]:
        """Return the state with the bounds of blocks and the totals of observed entries, but no other cached values."""
        return {**super().__getstate__(), **self._known()}

    def as_type(self, dtype: Any) -> BlockedCounts:
        """Return the same counts, given in another type."""
        return self._with(matrix=replace(self.matrix, dtype=np.dtype(dtype)))

    def times(self, factor: float) -> BlockedCounts:
        """Return the counts times a factor."""
        return self._with(matrix=replace(self.matrix, factor=self.matrix.factor * factor))

    def with_mask(self, mask: Mask | None) -> BlockedCounts:
        """Return the counts with these entries missing, and no others."""
        return self if mask is None and self.mask is None else replace(self, mask=mask)

    def completed(self, means: tuple[Array, Array] | None) -> BlockedCounts:
        """Return the counts with means of rank one, or zeros, in place of missing entries, in every block."""
        if self.mask is None:
            return self
        in_store = None if means is None else (means[0] / self.matrix.factor, means[1])
        return replace(self, mask=None, filling=Filling(self.mask, in_store))

    def rewritten(self, whole: Any, change: Callable[[int, slice, Any], csr_array]) -> BlockedCounts:
        """Return counts with the same names and exposures, and what a change makes of each block of `whole`.

        They are whole numbers and are written to another store, which is removed with the last reference to them.
        """

        def read(first: int, last: int) -> csr_array:
            return change(self.bounds.index(first), slice(first, last), whole.block(first, last))

        return replace(self, matrix=self._written(self.bounds, read, self.bounds))

    def at_hand(self) -> Counts:
        """Return the same counts in memory, for what keeps more than them in memory anyway."""
        return self.rows(np.arange(self.shape[0]))

    def apart(self, chosen: Array, change: Callable[[csr_array], csr_array] = lambda matrix: matrix) -> BlockedCounts:
        """Return chosen rows as counts of their own, in a store that is removed with the last reference to them.

        A change makes them from the matrix of some of these rows, in order.
        """
        rows = max(len(chosen) // max(len(self.blocks) * len(chosen) // self.shape[0], 1), 1)
        edges = [*range(0, len(chosen), rows), len(chosen)]
        found = self._written(edges, lambda first, last: change(self.rows(chosen[first:last]).matrix))
        return replace(self, matrix=found, **self.of_rows(chosen))

    def _written(
        self, edges: list[int], read: Callable[[int, int], csr_array], cut: list[int] | None = None
    ) -> StoredMatrix:
        """Write whole counts to another store, and return its matrix, which removes the store in the end."""
        folder = TemporaryFolder(self.scratch, "counts-")
        source = Made(edges, self.shape[1], f"counts made of {self.store.source}", self.store.nnz, read)
        store = write_store(folder.path / "store", source, lambda *_: None)
        matrix: StoredMatrix = replace(self.matrix, store=store, held=folder, factor=1.0, cut=cut)
        return matrix

    def parts(self) -> Iterator[tuple[slice, Counts]]:
        """Yield the rows and the counts of each block, read from disk."""
        for rows in self.blocks:
            yield rows, self.block(rows.start, rows.stop)

    def block(self, first: int, last: int) -> Counts:
        """Return the rows from `first` to `last` (excluded), read from disk."""
        rows = slice(first, last)
        return self._counts(as_type(self.stored(rows), self.dtype, self.matrix.factor), rows)

    def raw_block(self, first: int, last: int, buffers: Buffers) -> Counts:
        """Return the same with counts in the type of the store, in memory that the next call overwrites."""
        if self.matrix.factor != 1:
            return self.block(first, last)
        return self._counts(self.stored(slice(first, last), buffers), slice(first, last))

    def stored(self, rows: slice, buffers: Buffers | None = None) -> csr_array:
        """Return the counts of some rows as the store has them, without those of missing entries.

        With `buffers`, the next call with them overwrites these rows.
        """
        return self._seen(self.store.read(rows.start, rows.stop, buffers), rows)

    def stored_blocks(self) -> Iterator[csr_array]:
        """Yield the same of each block of rows, in order."""
        return (self.stored(rows) for rows in self.blocks)

    @property
    def stored_type(self) -> np.dtype:
        """Type of what `stored` returns."""
        kind: np.dtype = self.store.arrays["data"].dtype
        return kind if self.filling is None else np.dtype(np.float64)

    def _seen(self, matrix: csr_array, rows: Any) -> csr_array:
        """Return the counts of some rows without those of missing entries, or with what stands there."""
        if self.filling is not None:
            return self.filling.apply(matrix, rows)
        return matrix if self.mask is None or not matrix.nnz else self.mask.rows(rows).apply(matrix)

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
        return self._counts(as_type(self._seen(matrix, chosen), self.dtype, self.matrix.factor), chosen)

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
        of_features: Any = {"feature_names": self.feature_names, "feature_exposure": self.feature_exposure}
        counts = Counts(matrix, **of_features, **self.of_rows(rows))
        whole = not isinstance(rows, slice)
        totals = self.row_totals[rows] if whole else self._factored(self.totals.row_totals(rows.start, rows.stop))
        vars(counts)["row_totals"] = totals  # where the cached property stores its value
        return counts

    def _factored(self, totals: Any) -> Any:
        return totals if self.matrix.factor == 1 else self.matrix.factor * totals
