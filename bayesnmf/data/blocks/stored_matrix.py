"""The matrix of counts on disk: what is known of it without reading its counts, and its blocks of rows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from scipy.sparse import csr_array

from bayesnmf.data.annotated import RAW
from bayesnmf.data.blocks.checks import CountsOnDiskError
from bayesnmf.data.blocks.store import Store


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
    cut : list of int or None
        First row of each block, and the number of rows; None makes blocks of equal size.
    """

    store: Store
    dtype: np.dtype
    nonzeros: int
    scratch: Path
    keeps: tuple[Any, ...] = ()
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


@dataclass(frozen=True)
class Made:
    """A source of counts that are made in blocks of rows, one after the other (`bayesnmf.data.blocks.sources`).

    Attributes
    ----------
    edges : list of int
        First row of each block, and the number of rows.
    features : int
    name : str
        What messages call the source.
    nnz : int
        Number of nonzeros, at most.
    read : callable
        Function of the first row of a block and the one after its last that returns its counts.
    """

    edges: list[int]
    features: int
    name: str
    nnz: int
    read: Callable[[int, int], csr_array]
    row_names: ClassVar[None] = None
    feature_names: ClassVar[None] = None

    @property
    def shape(self) -> tuple[int, int]:
        """Number of rows and of features."""
        return self.edges[-1], self.features

    def bounds(self) -> list[tuple[int, int]]:
        """Return the blocks of rows in which the source is read, in order."""
        return list(pairwise(self.edges))

    def where_raw_counts_are(self) -> str:
        """Return what to pass in place of values that are no counts."""
        return RAW


def as_type(matrix: csr_array, dtype: Any, factor: float) -> csr_array:
    """Return counts in a type, times a factor."""
    data = matrix.data.astype(dtype)
    data = data if factor == 1 else (data * factor).astype(dtype, copy=False)
    return csr_array((data, matrix.indices, matrix.indptr), shape=matrix.shape)
