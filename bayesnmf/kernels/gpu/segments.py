"""Nonzero counts cut into segments of equal length, in the order of the rows of one side.

Parts of a matrix can be padded to one size (`Room`), so that what is compiled for one serves all.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from scipy.sparse import csr_array

CHUNK = 2**25  # numbers in a temporary: 128 MiB in float32
LONGEST = 1024  # entries in a segment
FAN = 4  # number of sums added at a time


def smallest_mean(dtype: Any) -> float:
    """Return the mean below which counts are shared out by logarithms: quotients, and their sums, could overflow."""
    return float(jnp.finfo(dtype).tiny ** 0.75)


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Segments:
    """Nonzero counts in the order of one side's rows, cut into segments.

    Attributes
    ----------
    indices, values : (nnz,)
        Row on the other side of each count, and the count itself.
    owners, starts, ends : (chunks, segments of a chunk)
        Row that each segment belongs to, its first entry, and the entry after its last. Empty segments fill up the
        chunks.
    tree : tuple of pairs of (S,)
        For each level of the sum over a row's segments: the first summand of each new sum, and the one after its last.
    length : int
        Largest number of entries in a segment.
    rows : int
        Number of rows of this side.
    lanes : int
        Number of lanes that share a segment in `bayesnmf.kernels.gpu.warps`; 0 leaves the sums to XLA.
    """

    indices: Any
    values: Any
    owners: Any
    starts: Any
    ends: Any
    tree: tuple[tuple[Any, Any], ...]
    length: int = field(metadata={"static": True})
    rows: int = field(metadata={"static": True})
    lanes: int = field(metadata={"static": True})


class Room(NamedTuple):
    """The size that parts of a matrix are padded to: no part has more rows on this side, or more nonzeros."""

    rows: int
    nonzeros: int


def segments(matrix: csr_array, rank: int, lanes: int, room: Room | None = None) -> Segments:
    """Cut the nonzeros of every row into segments of one length, in chunks for this rank; pad all to a given room."""
    rows, nnz = room or Room(len(matrix.indptr) - 1, len(matrix.data))
    indptr = matrix.indptr.astype(np.int32 if nnz < 2**30 else np.int64)
    indptr = np.pad(indptr, (0, rows + 1 - len(indptr)), mode="edge")
    length = min(1 << max(int(np.ceil(np.log2(max(nnz, 1) / (4 * rows)))), 0), LONGEST)
    owners, starts, ends, bounds = _cut_runs(indptr, length)
    pieces, most = len(owners), int(np.diff(bounds).max())
    if room is not None:
        pieces, most = rows + nnz // length, -(-nnz // length)
    width = max(min(CHUNK // (length * rank), pieces), 1)
    chunks = -(-pieces // width)
    owners, starts, ends = (_padded(each, chunks * width).reshape(chunks, width) for each in (owners, starts, ends))
    tree = []
    while most > 1:
        _, first, last, bounds = _cut_runs(bounds, FAN)
        pieces, most = len(first) if room is None else rows + pieces // FAN, -(-most // FAN)
        tree.append((_padded(first, pieces), _padded(last, pieces)))
    entries = max(nnz, 1)  # an empty array cannot be indexed
    indices, values = _padded(matrix.indices.astype(np.int32, copy=False), entries), _padded(matrix.data, entries)
    return Segments(indices, values, owners, starts, ends, tuple(tree), length, rows, lanes)


def _padded(values: Any, length: int) -> Any:
    return values if len(values) == length else np.pad(values, (0, length - len(values)))


def _cut_runs(indptr: Any, length: int) -> tuple[Any, Any, Any, Any]:
    """Cut runs into pieces of at most `length`, at least one for each run.

    Returns
    -------
    owners, starts, ends : ndarray of shape (pieces,)
        Run of each piece, its first position, and the position after its last.
    bounds : ndarray of shape (runs + 1,)
        Bounds of the pieces of each run.
    """
    pieces = np.maximum(-(-np.diff(indptr) // length), 1)
    bounds = np.concatenate([[0], np.cumsum(pieces)]).astype(indptr.dtype)
    owners = np.repeat(np.arange(len(pieces), dtype=np.int32), pieces)
    place = np.arange(len(owners), dtype=indptr.dtype) - bounds[owners]
    starts = indptr[owners] + place * length
    return owners, starts, np.minimum(starts + length, indptr[owners + 1]), bounds


def sums_of_rows(entries: Segments, partial: Any) -> Any:
    """Return the sum (rows, K) of what the segments of each row have received, (S, K)."""
    for starts, ends in entries.tree:
        places, inside = places_of_runs(starts, ends, FAN)
        partial = jnp.where(inside[..., None], partial[places], 0).sum(axis=1)
    return partial[: entries.rows]


def places_of_runs(starts: Any, ends: Any, length: int) -> tuple[Any, Any]:
    """Return the positions in each run, (runs, length), filled up with 0, and a mask of the valid ones."""
    places = starts[:, None] + jnp.arange(length, dtype=starts.dtype)
    inside = places < ends[:, None]
    return jnp.where(inside, places, 0), inside
