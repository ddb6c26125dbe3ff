"""Shares of their exposure that entries lack, which are what missing entries lack all of.

Routines that know of missing entries ask a mask for sums over these. Where each entry, or each group of rows and
feature, lacks a share of its exposure, the same sums are weighted by the shares.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np
from scipy.sparse import csr_array

from bayesnmf.data.batches import Batches
from bayesnmf.data.mask import Mask
from bayesnmf.types import Array


@lru_cache(4)
def nothing_missing(size: tuple[int, int]) -> csr_array:
    """Return the pattern of no missing entries of (n, m) counts."""
    return csr_array(size, dtype=np.float64)


@dataclass(frozen=True, eq=False)
class Unexposed(Mask):
    """The share of its exposure that each entry lacks, from 0 to 1, which is that of a missing entry.

    Attributes
    ----------
    lost : ndarray (n, m)
    """

    lost: Array

    @classmethod
    def shares(cls, lost: Array) -> Unexposed:
        """Return the mask of these shares."""
        return cls(nothing_missing(lost.shape), True, lost)

    @cached_property
    def seen_rows(self) -> Array:
        """Whether each row has an observed entry, (n,)."""
        return np.asarray(self.lost.min(axis=1, initial=1.0) < 1)

    def rows(self, index: slice | Array) -> Unexposed:
        """Return the shares of some rows."""
        return Unexposed.shares(self.lost[index])

    def sums_by_row(self, factor: Array) -> Array:
        """Return, for each row, Σ of the rows of a factor (m, K) times the shares of its features, (n, K)."""
        return (self.lost @ factor.astype(self.lost.dtype, copy=False)).astype(np.float64, copy=False)

    def sums_by_feature(self, factor: Array) -> Array:
        """Return, for each feature, Σ of the rows of a factor (n, K) times their shares, (m, K)."""
        return (self.lost.T @ factor.astype(self.lost.dtype, copy=False)).astype(np.float64, copy=False)


@dataclass(frozen=True, eq=False)
class UnexposedGroups(Mask):
    """The share of its exposure that each entry lacks, as its group of rows does; missing entries lack all of it.

    Attributes
    ----------
    lost : ndarray (G, m)
        Shares of the groups.
    groups : Batches
        Group of each row.
    whole : Mask or None
        Missing entries.
    parts : list of (ndarray, Mask)
        Rows of each group, and their missing entries; empty if there are none (`missing_in_groups`).
    """

    lost: Array
    groups: Batches
    whole: Mask | None
    parts: list[tuple[Array, Mask]]

    @classmethod
    def of_groups(
        cls, lost: Array, groups: Batches, whole: Mask | None, parts: list[tuple[Array, Mask]]
    ) -> UnexposedGroups:
        """Return the shares that entries lack, with what is missing as a whole."""
        return cls(nothing_missing((len(groups.codes), lost.shape[1])), True, lost, groups, whole, parts)

    @classmethod
    def of_features(cls, lost: Array, n: int, whole: Mask | None) -> UnexposedGroups:
        """Return shares (m,) that are equal in all n rows, with what is missing as a whole."""
        rows = Batches(np.array(["all"], dtype=object), np.zeros(n, np.intp))
        return cls.of_groups(lost[None, :], rows, whole, missing_in_groups(whole, rows))

    @property
    def seen_rows(self) -> Array:
        """Whether each row has an observed entry, (n,)."""
        return np.ones(len(self.groups.codes), bool) if self.whole is None else self.whole.seen_rows

    @property
    def seen_features(self) -> Array:
        """Whether each feature has an observed entry, (m,)."""
        return np.ones(self.lost.shape[1], bool) if self.whole is None else self.whole.seen_features

    def sums_by_row(self, factor: Array) -> Array:
        """Return, for each row, Σ of the rows of a factor (m, K) times the shares of its features, (n, K)."""
        found: Array = (self.lost @ np.asarray(factor, np.float64))[self.groups.codes]
        for (rows, mask), kept in self._missing():
            found[rows] += mask.sums_by_row(kept * factor)
        return found

    def sums_by_feature(self, factor: Array) -> Array:
        """Return, for each feature, Σ of the rows of a factor (n, K) times their shares, (m, K)."""
        found: Array = self.lost.T @ self.groups.sums(factor)
        for (rows, mask), kept in self._missing():
            found += kept * mask.sums_by_feature(factor[rows])
        return found

    def _missing(self) -> Iterator[tuple[tuple[Array, Mask], Array]]:
        """Yield the rows and missing entries of each group, and what its features do not lack, (m, 1)."""
        return zip(self.parts, 1 - self.lost[:, :, None], strict=bool(self.parts))

    def rows(self, index: slice | Array) -> UnexposedGroups:
        """Return the shares of some rows."""
        groups = self.groups.rows(index)
        whole = None if self.whole is None else self.whole.rows(index)
        return UnexposedGroups.of_groups(self.lost, groups, whole, missing_in_groups(whole, groups))


def missing_in_groups(mask: Mask | None, groups: Batches) -> list[tuple[Array, Mask]]:
    """Return the rows of each group, and their missing entries; an empty list without any."""
    members = [] if mask is None else [np.flatnonzero(groups.codes == group) for group in range(groups.number)]
    return [(rows, mask.rows(rows)) for rows in members]  # type: ignore[union-attr]
