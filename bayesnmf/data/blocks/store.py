"""The store: counts in a folder as a CSR matrix of raw arrays, with what a fit needs to know about all of them.

A folder has ``data.npy`` (uint16, or uint32 where a count is larger), ``indices.npy`` (int32), ``indptr.npy`` (int64),
the sums of rows and features in ``row_totals.npy`` and ``feature_totals.npy`` (float64), names in ``rows.npy`` and
``features.npy`` if there are any, and ``about.json``, which is written last. Rows are canonical: sorted features, none
twice, no zeros. That makes 6 bytes for a nonzero, and a processor reads some 10⁹ of them in a second.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from dataclasses import dataclass, fields
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array
from scipy.special import gammaln

from bayesnmf.data.blocks.checks import (
    check_is_store,
    check_room,
    check_rows_of_source,
    check_unchanged,
    check_whole_numbers,
)
from bayesnmf.data.blocks.leftovers import Hold, remove_leftovers
from bayesnmf.data.blocks.raw import Buffers, NpyWriter, RawArray
from bayesnmf.data.conversion import convert
from bayesnmf.kernels.cpu.allocation import row_blocks
from bayesnmf.places import check_folder
from bayesnmf.writing import replacing, write_text

Array = NDArray[Any]
VERSION = 2
ABOUT, PARTS = "about.json", ("indptr", "indices", "data")
ROW_TOTALS, FEATURE_TOTALS = "row_totals", "feature_totals"
SMALL, LARGE = np.dtype(np.uint16), np.dtype(np.uint32)


@dataclass(frozen=True)
class Store:
    """Counts in a folder.

    Attributes
    ----------
    folder : Path
    shape : tuple of int
        Number of rows and of features.
    nnz : int
    total, log_factorial : float
        Sum of all counts, and Σ log X!.
    source : str
        What the counts were read from.
    fingerprint : str
        Digest of the counts, which tells other counts from these.
    """

    folder: Path
    shape: tuple[int, int]
    nnz: int
    total: float
    log_factorial: float
    source: str
    fingerprint: str

    @classmethod
    def open(cls, folder: Path) -> Store:
        """Open a folder that `write_store` has written."""
        about = check_is_store(folder, ABOUT, VERSION)
        about = {name: value for name, value in about.items() if name not in ("version", "stamps")}
        return cls(**{**about, "folder": folder, "shape": tuple(about["shape"])})

    def __getstate__(self) -> dict[str, Any]:
        """Return the state without cached values, which can be read again."""
        return {each.name: getattr(self, each.name) for each in fields(self)}

    @cached_property
    def arrays(self) -> dict[str, RawArray]:
        """The arrays of the CSR matrix, and the sums of its rows."""
        return {name: RawArray.of_npy(self.folder / f"{name}.npy") for name in (*PARTS, ROW_TOTALS)}

    @cached_property
    def feature_totals(self) -> Array:
        """Sums of the features, in float64."""
        return np.asarray(np.load(self.folder / f"{FEATURE_TOTALS}.npy", allow_pickle=False))

    def row_totals(self, first: int, last: int) -> Array:
        """Return the sums of the rows from `first` to `last` (excluded), in float64."""
        return self.arrays[ROW_TOTALS].read(first, last)

    def names(self, side: str) -> Array | None:
        """Return the names of the "rows" or of the "features", or None if they have none."""
        path = self.folder / f"{side}.npy"
        return np.load(path, allow_pickle=False).astype(object) if path.is_file() else None

    def check(self) -> None:
        """Refuse files that were changed after they were written."""
        check_unchanged(self.folder, ABOUT, PARTS)

    def starts(self, first: int, last: int) -> Array:
        """Return the positions at which the rows from `first` to `last` begin, and that at which the last one ends."""
        return self.arrays["indptr"].read(first, last + 1)

    def bounds(self, nonzeros: int) -> list[int]:
        """Return bounds of blocks of about `nonzeros` nonzeros; a block has at least two rows if there are two."""
        starts = np.load(self.folder / "indptr.npy", mmap_mode="r")  # a few pages of it are read
        inner = row_blocks(starts, max(-(-self.nnz // nonzeros), 1))[1:-1].tolist()
        bounds, n = [0], self.shape[0]
        for row in inner:
            if bounds[-1] + 2 <= row <= n - 2:
                bounds.append(row)
        return [*bounds, n]

    def read(self, first: int, last: int, buffers: Buffers | None = None) -> csr_array:
        """Return the rows from `first` to `last` (excluded), with counts as they are stored.

        With `buffers`, the next call with them overwrites these rows.
        """
        starts = self.starts(first, last)
        ends = int(starts[0]), int(starts[-1])
        data, indices = (self.arrays[name].read(*ends, buffers) for name in ("data", "indices"))
        return csr_array((data, indices, (starts - starts[0]).astype(np.int32)), shape=(last - first, self.shape[1]))


def write_store(folder: Path, source: Any, told: Any) -> Store:
    """Write the counts of a source into a folder, and open it; after an error, the folder is not there.

    Parameters
    ----------
    folder : Path
    source : Source
        Counts (`bayesnmf.data.blocks.sources`).
    told : callable
        Function that is called with a label, rows done, all rows and NaN.

    Raises
    ------
    TypeError, ValueError
        Counts that are negative, not finite or not whole numbers, a source that changes while it is read, or not
        enough room on the disk.
    """
    check_folder(folder.parent, "scratch")
    check_room(folder.parent, source, 6)
    remove_leftovers(folder.parent, f".{folder.stem}-*")
    with replacing(folder) as temporary:
        temporary.mkdir()
        held = Hold(temporary)
        try:
            about = _write(temporary, source, told)
        finally:
            held.release()
        stamps = {name: (temporary / f"{name}.npy").stat().st_mtime_ns for name in PARTS}
        write_text(temporary / ABOUT, json.dumps({"version": VERSION, **about, "stamps": stamps}))
    return Store.open(folder)


def _write(folder: Path, source: Any, told: Any) -> dict[str, Any]:
    n, m = source.shape
    writers = {name: NpyWriter(folder / f"{name}.npy", kind)
               for name, kind in (("indptr", np.int64), ("indices", np.int32), ("data", SMALL))}  # fmt: skip
    writers["indptr"].append(np.zeros(1, np.int64))
    row_totals, feature_totals = np.empty(n), np.zeros(m)
    constants: list[float] = []
    try:
        for first, matrix in _canonical_blocks(source):
            last = first + matrix.shape[0]
            told("reading counts", first, n, np.nan)
            if matrix.nnz and matrix.data.max() > np.iinfo(writers["data"].dtype).max:
                writers["data"] = writers["data"].widened(LARGE)
            starts = writers["data"].length + matrix.indptr[1:].astype(np.int64)
            for name, values in (("indptr", starts), ("indices", matrix.indices), ("data", matrix.data)):
                writers[name].append(values)
            row_totals[first:last] = matrix.sum(axis=1)
            feature_totals += np.bincount(matrix.indices, weights=matrix.data, minlength=m)
            constants.append(_log_factorial(matrix.data))
    finally:
        for writer in writers.values():
            writer.close()
    told("reading counts", n, n, np.nan)
    for name, totals in ((ROW_TOTALS, row_totals), (FEATURE_TOTALS, feature_totals)):
        np.save(folder / f"{name}.npy", totals, allow_pickle=False)
    for side, names in (("rows", source.row_names), ("features", source.feature_names)):
        if names is not None:
            np.save(folder / f"{side}.npy", np.asarray(names).astype(str), allow_pickle=False)
    nnz, total = writers["data"].length, float(feature_totals.sum())
    return {
        "shape": [n, m], "nnz": nnz, "total": total, "log_factorial": math.fsum(constants), "source": source.name,
        "fingerprint": _digest(n, m, nnz, row_totals, feature_totals),
    }  # fmt: skip


def _canonical_blocks(source: Any) -> Iterator[tuple[int, csr_array]]:
    """Yield the first row and the counts of each block of a source, checked, in order."""
    n, m = source.shape
    reached = 0
    for first, last in source.bounds():
        values = source.read(first, last)
        name = f"rows {first} to {last - 1} of {source.name}"
        check_rows_of_source(values, (last - first, m), name)
        matrix = convert(values, name, np.dtype(np.float64), True).matrix
        check_whole_numbers(matrix, name, np.iinfo(LARGE).max)
        yield first, matrix
        reached = last
    assert reached == n


def _log_factorial(data: Array) -> float:
    """Return Σ log X! of whole numbers, by a table where they are small."""
    small = data[data < 1024].astype(np.int64)
    times = np.bincount(small, minlength=1)
    return float(times @ gammaln(np.arange(len(times)) + 1.0) + gammaln(data[data >= 1024] + 1.0).sum())


def _digest(n: int, m: int, nnz: int, row_totals: Array, feature_totals: Array) -> str:
    import hashlib

    digest = hashlib.blake2b(f"{n} {m} {nnz}".encode(), digest_size=16)
    for totals in (row_totals, feature_totals):
        digest.update(totals.tobytes())
    return digest.hexdigest()
