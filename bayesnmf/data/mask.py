"""Which entries of a count matrix are missing, as the smaller of the two sets of entries."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
from scipy.sparse import coo_array, csr_array

from bayesnmf.types import Array


@dataclass(frozen=True, eq=False)
class Mask:
    """Entries that are missing, which is not a count of 0: nobody looked.

    Attributes
    ----------
    pattern : csr_array (n, m)
        Ones at the entries of the smaller set, in float64, with sorted indices.
    of_missing : bool
        Whether these are the missing entries, or all others.
    by_block : bool
        Whether it is made for each block of rows, from its counts.
    """

    pattern: csr_array
    of_missing: bool
    by_block: ClassVar[bool] = False

    @classmethod
    def of(cls, missing: csr_array) -> Mask:
        """Return the mask of the entries that a sparse matrix stores."""
        n, m = missing.shape
        if 2 * missing.nnz <= n * m:
            return cls(missing, True)
        observed = np.ones((n, m), bool)
        entries = missing.tocoo()
        observed[entries.row, entries.col] = False
        return cls(as_pattern(observed), False)

    @property
    def number(self) -> int:
        """Number of missing entries."""
        n, m = self.pattern.shape
        return self.pattern.nnz if self.of_missing else n * m - self.pattern.nnz

    @property
    def missing(self) -> csr_array:
        """Pattern of the missing entries."""
        return self.pattern if self.of_missing else as_pattern(self.pattern.toarray() == 0)

    @property
    def turned(self) -> Mask:
        """The mask of the counts with features in rows."""
        return Mask(self.transposed, self.of_missing)

    @cached_property
    def seen_rows(self) -> Array:
        """Whether each row has an observed entry, (n,)."""
        stored = np.diff(self.pattern.indptr)
        return np.asarray(stored < self.pattern.shape[1] if self.of_missing else stored > 0)

    @property
    def seen_features(self) -> Array:
        """Whether each feature has an observed entry, (m,)."""
        return self.turned.seen_rows

    @cached_property
    def transposed(self) -> csr_array:
        """The pattern with features in rows."""
        return csr_array(self.pattern.T)

    def sums_by_row(self, factor: Array) -> Array:
        """Return, for each row, Σ of the rows of a factor (m, K) over its missing features, (n, K), in float64."""
        return self._of_missing(self.pattern @ np.asarray(factor, np.float64), factor)

    def sums_by_feature(self, factor: Array) -> Array:
        """Return, for each feature, Σ of the rows of a factor (n, K) over the rows it is missing in, (m, K)."""
        return self._of_missing(self.transposed @ np.asarray(factor, np.float64), factor)

    def products_by_row(self, one: Array, other: Array) -> Array:
        """Return, for each row, Σ_k one_ik other_jk over its missing features j, (n,), of (n, K) and (m, K)."""
        return np.asarray(np.einsum("ik,ik->i", one, self.sums_by_row(other)))

    def _of_missing(self, sums: Array, factor: Array) -> Array:
        # The rest of a sum may be off by rounding, but not negative.
        return sums if self.of_missing else np.maximum(factor.sum(axis=0, dtype=np.float64) - sums, 0.0)

    def places_of_observed(self, numbers: Array) -> Array:
        """Return the places i m + j of the observed entries with these numbers, which are counted row by row."""
        stored: Any = self.pattern.tocoo()
        places = stored.row.astype(np.int64) * self.pattern.shape[1] + stored.col
        if not self.of_missing:
            return np.asarray(places[numbers])
        return np.asarray(numbers + np.searchsorted(places - np.arange(len(places)), numbers, side="right"))

    def rows(self, index: Any) -> Mask:
        """Return the mask of some rows."""
        return replace(self, pattern=csr_array(self.pattern[index]))

    def features(self, index: Any) -> Mask:
        """Return the mask of some features."""
        return replace(self, pattern=as_pattern(self.pattern[:, index]))

    def and_features(self, lost: Array) -> Mask:
        """Return the mask with whole features (m,) missing beside its entries."""
        missing = self.missing.tolil()
        missing[:, np.flatnonzero(lost)] = 1.0
        return Mask.of(as_pattern(missing))

    def hidden(self, rows: slice) -> Array:
        """Return which entries of some rows are missing, as booleans (rows, m)."""
        n, m = self.pattern.shape
        first, last, _ = rows.indices(n)
        ends = self.pattern.indptr[first : last + 1]
        found = np.full((last - first, m), not self.of_missing)
        places = np.repeat(np.arange(last - first), np.diff(ends)), self.pattern.indices[ends[0] : ends[-1]]
        found[places] = self.of_missing
        return found

    @property
    def arrays(self) -> tuple[Array, ...]:
        """What says which entries are missing."""
        indices, indptr = (each.astype(np.int64) for each in (self.pattern.indices, self.pattern.indptr))
        return indices, indptr, np.asarray(self.of_missing)

    @property
    def as_entries(self) -> Mask:
        """The mask of the same entries one by one."""
        return self

    def same_as(self, other: Mask | None) -> bool:
        """Return whether the same entries are missing, in the same form."""
        return type(other) is type(self) and all(map(np.array_equal, self.arrays, other.arrays))

    def apply(self, matrix: csr_array) -> csr_array:
        """Return a canonical matrix without the entries at missing entries; itself if there are none."""
        from bayesnmf.kernels.cpu.masking import at_entries  # compiled code takes time to import

        return at_entries(matrix, self.pattern, listed=not self.of_missing)

    def filled(self, matrix: csr_array, rows: Array, features: Array) -> csr_array:
        """Return a matrix without entries at missing entries with products of two factors, (n,) and (m,), there."""
        entries = self.missing.tocoo()
        products = csr_array((rows[entries.row] * features[entries.col], entries.coords), shape=matrix.shape)
        return csr_array(matrix + products.astype(matrix.dtype))


@dataclass(frozen=True, eq=False)
class GroupMask(Mask):
    """Missing entries of rows and features in groups: a group of rows lacks whole groups of features.

    Sums over missing entries take no longer than sums over rows and features, whatever the number of entries.

    Attributes
    ----------
    row_groups, feature_groups : ndarray (n,) and (m,)
        Number of the group of each row and feature.
    lacks : ndarray (groups of rows, groups of features)
        Whether the rows of a group lack the features of another.
    """

    row_groups: Array
    feature_groups: Array
    lacks: Array

    @classmethod
    def of_groups(cls, row_groups: Array, feature_groups: Array, groups: int | Array) -> GroupMask:
        """Return the mask of these groups, whose number says that each lacks that of the same number."""
        nothing = csr_array((len(row_groups), len(feature_groups)), dtype=np.float64)
        lacks = np.eye(groups, dtype=bool) if isinstance(groups, int) else np.asarray(groups, bool)
        return cls(nothing, True, row_groups, feature_groups, lacks)

    @cached_property
    def _sizes(self) -> tuple[Array, Array]:
        """Number of rows and of features in each group."""
        sides = zip((self.row_groups, self.feature_groups), self.lacks.shape, strict=True)
        rows, features = (np.bincount(each, minlength=groups) for each, groups in sides)
        return rows, features

    @property
    def number(self) -> int:
        """Number of missing entries."""
        rows, features = self._sizes
        return int(rows @ self.lacks @ features)

    @property
    def missing(self) -> csr_array:
        """Pattern of the missing entries."""
        entries = [np.meshgrid(*sides, indexing="ij") for sides in self.members()]
        rows, features = (np.concatenate([each[side].ravel() for each in entries]) for side in (0, 1))
        return as_pattern(coo_array((np.ones(len(rows)), (rows, features)), shape=self.pattern.shape))

    def members(self) -> list[tuple[Array, Array]]:
        """Return the rows of each group, and the features that they lack."""
        return [
            (np.flatnonzero(self.row_groups == group), np.flatnonzero(lacks[self.feature_groups]))
            for group, lacks in enumerate(self.lacks)
        ]

    @property
    def seen_rows(self) -> Array:
        """Whether each row has an observed entry, (n,)."""
        return np.asarray((self.lacks @ self._sizes[1])[self.row_groups] < len(self.feature_groups))

    @property
    def seen_features(self) -> Array:
        """Whether each feature has an observed entry, (m,)."""
        return np.asarray((self._sizes[0] @ self.lacks)[self.feature_groups] < len(self.row_groups))

    @property
    def arrays(self) -> tuple[Array, ...]:
        """What says which entries are missing."""
        return self.row_groups, self.feature_groups, self.lacks

    @property
    def as_entries(self) -> Mask:
        """The mask of the same entries one by one."""
        return Mask.of(self.missing)

    def places_of_observed(self, numbers: Array) -> Array:
        """Return the places i m + j of the observed entries with these numbers, which are counted row by row."""
        return self.as_entries.places_of_observed(numbers)

    def sums_by_row(self, factor: Array) -> Array:
        """Return, for each row, Σ of the rows of a factor (m, K) over its missing features, (n, K), in float64."""
        return np.asarray((self.lacks @ self._sums(factor, 1))[self.row_groups])

    def sums_by_feature(self, factor: Array) -> Array:
        """Return, for each feature, Σ of the rows of a factor (n, K) over the rows it is missing in, (m, K)."""
        return np.asarray((self.lacks.T @ self._sums(factor, 0))[self.feature_groups])

    @cached_property
    def _members(self) -> list[csr_array]:
        """Matrices (groups, n) and (groups, m) of ones at the members of each group."""
        sides = zip((self.row_groups, self.feature_groups), self.lacks.shape, strict=True)
        return [
            csr_array((np.ones(len(each)), (each, np.arange(len(each)))), shape=(groups, len(each)))
            for each, groups in sides
        ]

    def _sums(self, factor: Array, side: int) -> Array:
        """Return the sum of the rows of a factor of rows (0) or features (1) over each group, (groups, K)."""
        return np.asarray(self._members[side] @ np.asarray(factor, np.float64))

    def hidden(self, rows: slice) -> Array:
        """Return which entries of some rows are missing, as booleans (rows, m)."""
        return np.asarray(self.lacks[self.row_groups[rows]][:, self.feature_groups])

    def rows(self, index: Any) -> GroupMask:
        """Return the mask of some rows."""
        return GroupMask.of_groups(self.row_groups[index], self.feature_groups, self.lacks)

    def features(self, index: Any) -> GroupMask:
        """Return the mask of some features."""
        return GroupMask.of_groups(self.row_groups, self.feature_groups[index], self.lacks)

    def and_features(self, lost: Array) -> GroupMask:
        """Return the mask with whole features (m,) missing beside its entries."""
        all_lack = np.ones((len(self.lacks), 1), bool)
        groups = np.where(lost, self.lacks.shape[1], self.feature_groups)
        return GroupMask.of_groups(self.row_groups, groups, np.hstack([self.lacks, all_lack]))

    def apply(self, matrix: csr_array) -> csr_array:
        """Return a matrix without the entries at missing entries."""
        entries = matrix.tocoo()
        kept = ~self.lacks[self.row_groups[entries.row], self.feature_groups[entries.col]]
        return csr_array((entries.data[kept], (entries.row[kept], entries.col[kept])), shape=matrix.shape)


def as_pattern(entries: Any) -> csr_array:
    """Return ones at the nonzero entries of an array, or the stored entries of a sparse matrix, as canonical CSR."""
    stored: Any = coo_array(entries)
    pattern: Any = csr_array((np.ones(stored.nnz), stored.coords), shape=stored.shape)
    pattern.sum_duplicates()
    pattern.data[:] = 1.0
    return pattern


def without_nan(values: Any) -> tuple[Any, csr_array]:
    """Return an array or a sparse matrix (n, m) with 0 in place of NaN, and the pattern of the entries of NaN."""
    if hasattr(values, "tocoo"):
        found = values.tocoo(copy=True)
        entries = np.isnan(found.data)
        places = tuple(each[entries] for each in (found.row, found.col))
        found.data[entries] = 0
        return found, as_pattern(coo_array((np.ones(entries.sum()), places), shape=found.shape))
    dense = np.array(values, np.float64)
    entries = np.isnan(dense)
    dense[entries] = 0
    return dense, as_pattern(entries)
