"""Leave out some entries of a sparse matrix."""

from __future__ import annotations

import numpy as np
from scipy.sparse import csr_array

from bayesnmf.kernels.cpu.compiling import compiled_on_disk
from bayesnmf.kernels.cpu.threads import over_rows
from bayesnmf.types import Array

SEARCH = 40  # cost of a search, in multiply-adds


@compiled_on_disk(nogil=True)
def _find(indptr: Array, indices: Array, starts: Array, entries: Array, start: int, stop: int, found: Array) -> None:
    """Fill in where a matrix stores the given entries of some rows, or −1 where it stores none."""
    for i in range(start, stop):
        low, last = indptr[i], indptr[i + 1]
        for q in range(starts[i], starts[i + 1]):
            high = last
            while low < high:
                middle = (low + high) // 2
                if indices[middle] < entries[q]:
                    low = middle + 1
                else:
                    high = middle
            found[q] = low if low < last and indices[low] == entries[q] else -1


def at_entries(matrix: csr_array, pattern: csr_array, *, listed: bool) -> csr_array:
    """Return the matrix at the entries that a pattern stores (`listed`), or at all others.

    Both are canonical: the features of every row rise. The matrix itself is returned if it has no other entries.
    """
    found, given = np.empty(pattern.nnz, np.int64), (matrix.indptr, matrix.indices, pattern.indptr, pattern.indices)
    over_rows(pattern.indptr, SEARCH * pattern.nnz, lambda first, last: _find(*given, first, last, found), 1)
    there = found >= 0
    sums = np.cumsum(there, dtype=matrix.indptr.dtype)  # in the matrix's own kind, for which loops have been compiled
    found, ends = found[there], np.append(matrix.indptr[:1], sums)[pattern.indptr]
    if len(found) == (matrix.nnz if listed else 0):
        return matrix
    if listed:
        return csr_array((matrix.data[found], matrix.indices[found], ends), shape=matrix.shape)
    parts = np.delete(matrix.data, found), np.delete(matrix.indices, found), matrix.indptr - ends
    return csr_array(parts, shape=matrix.shape)
