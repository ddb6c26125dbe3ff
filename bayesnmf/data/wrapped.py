"""Counts as a noise shows them to routines for Poisson counts, in memory or on disk: what they share with the counts.

All that comes from the data is that of the counts inside, which read it from where it lies and keep what they have
computed, whatever the noise.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

import numpy as np
from scipy.sparse import csr_array

from bayesnmf.data.counts import Counts


def of_inner(name: str) -> Any:
    """Return an attribute that is that of the counts inside."""
    return property(lambda counts: getattr(counts.inner, name))


@dataclass(frozen=True, eq=False, repr=False)
class WrappedCounts(Counts):
    """Counts around others, with the same numbers and names, and exposures and a likelihood of their own.

    Attributes
    ----------
    holds : str
        Name of the attribute that is the counts inside.
    """

    holds: ClassVar[str] = "plain"

    in_memory = of_inner("in_memory")
    rows_held = of_inner("rows_held")
    nnz = of_inner("nnz")
    transposed = of_inner("transposed")
    dense = of_inner("dense")
    sizes = of_inner("sizes")
    row_totals = of_inner("row_totals")
    feature_totals = of_inner("feature_totals")
    total = of_inner("total")
    log_factorial = of_inner("log_factorial")
    is_integer = of_inner("is_integer")
    blocks = of_inner("blocks")
    by_row = of_inner("by_row")
    by_feature = of_inner("by_feature")
    new_rows = of_inner("new_rows")
    scratch = of_inner("scratch")
    store = of_inner("store")

    @property
    def inner(self) -> Any:
        """The counts inside."""
        return getattr(self, self.holds)

    @abstractmethod
    def around(self, inner: Any, rows: Any = None) -> Self:
        """Return the same around other counts, or around some rows of these."""

    def exposing(self, counts: Counts) -> Counts:
        """Return Poisson counts of the same entries with the exposures of these."""
        given = self.row_exposure, self.feature_exposure
        return replace(counts, row_exposure=given[0], feature_exposure=given[1], mask=self.mask)

    def with_drawn_clusters(self, draw: Callable[[int, slice, Any], csr_array]) -> Counts:
        """Return numbers of clusters, as a function of the number, the rows and the counts of a block draws them."""
        return self.exposing(self.plain.rewritten(self, draw))

    def parts(self) -> Iterator[tuple[slice, Counts]]:
        """Yield the rows and the counts of each part that is in memory at once."""
        for rows, part in self.inner.parts():
            yield rows, self._part(part, rows)

    def rows(self, index: Any) -> Self:
        """Return the chosen rows, with what belongs to them."""
        chosen = np.atleast_1d(np.arange(self.shape[0])[index])
        return self.around(self.inner.rows(chosen), chosen)

    def block(self, first: int, last: int) -> Self:
        """Return the rows from `first` to `last` (excluded), in memory shared with these counts or read from disk."""
        return self._part(self.inner.block(first, last), slice(first, last))

    def raw_block(self, first: int, last: int, buffers: Any) -> Self:
        """Return the same of counts on disk, in the type of the store and in memory that the next call overwrites."""
        return self._part(self.inner.raw_block(first, last, buffers), slice(first, last))

    def empty_block(self, first: int, last: int) -> Self:
        """Return these rows with their totals, but without reading counts from disk: all are 0."""
        return self._part(self.inner.empty_block(first, last), slice(first, last))

    def _part(self, part: Counts, rows: slice) -> Self:
        """Return one of the parts that sums are taken over."""
        return self.around(part, rows)

    def without_names(self) -> Self:
        """Return the same counts with numbers for names, where they may be sent elsewhere."""
        inner = self.inner.without_names()
        if inner is self.inner:
            return self
        names = {"row_names": inner.row_names, "feature_names": inner.feature_names}
        return replace(self, matrix=inner.matrix, **{**names, self.holds: inner})

    def completed(self, means: Any) -> Self:
        """Return the counts without a mask, with means of rank one, or zeros, in place of missing entries."""
        return self.around(self.inner.completed(means))

    def with_mask(self, mask: Any) -> Counts:
        """Return the counts with these entries missing, and no others."""
        return self.around(self.inner.with_mask(mask))

    def as_type(self, dtype: Any) -> Counts:
        """Return the same counts in another type."""
        return self.around(self.inner.as_type(dtype))

    def with_matrix(self, matrix: csr_array) -> Counts:
        """Return counts with the same names, exposures and noise, and another canonical matrix of the same shape."""
        return self.around(self.inner.with_matrix(matrix))

    def rewritten(self, whole: Counts, change: Callable[[int, slice, Any], csr_array]) -> Counts:
        """Return counts with the same names, exposures and noise, and what a change makes of each block of `whole`."""
        return self.around(self.inner.rewritten(whole, change))

    def with_features(self, matrix: csr_array, names: Any) -> Counts:
        """Return the same rows with other features, which have no exposures, and a canonical matrix of them."""
        return self.around(self.inner.with_features(matrix, names))
