"""The store: counts in a folder as a CSR matrix of raw arrays, with what a fit needs to know about all of them.

A folder has ``data.npy`` (uint16, or uint32 where a count is larger), ``indices.npy`` (int32), ``indptr.npy`` (int64),
the sums of rows and features in ``row_totals.npy`` and ``feature_totals.npy`` (float64), names in ``rows.npy`` and
``features.npy`` if there are any, and ``about.json``, which is written last. Rows are canonical: sorted features, none
twice, no zeros. That makes 6 bytes for a nonzero, and a processor reads some 10⁹ of them in a second.

``about.json`` has a digest of every array and of itself. Before the first use in a process all files are read once and
compared with them; from then on their sizes and times are looked at before every pass, and the numbers that a compiled
loop takes for places in memory are held against their bounds in every block.
"""

from __future__ import annotations

import hashlib
import json
import math
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, fields
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from scipy.sparse import csr_array
from scipy.special import gammaln

from bayesnmf.checks import shown
from bayesnmf.data.blocks.raw import Buffers, Hold, NpyWriter, RawArray, remove_leftovers
from bayesnmf.data.conversion import entry_at, matrix_of
from bayesnmf.kernels.cpu.threads import row_blocks
from bayesnmf.places import check_folder
from bayesnmf.types import Array
from bayesnmf.writing import replacing, write_text

VERSION = 3
ABOUT, PARTS = "about.json", ("indptr", "indices", "data")
ROW_TOTALS, FEATURE_TOTALS = "row_totals", "feature_totals"
SMALL, LARGE = np.dtype(np.uint16), np.dtype(np.uint32)
TYPES = {"indptr": ["<i8"], "indices": ["<i4"], "data": [SMALL.str, LARGE.str], ROW_TOTALS: ["<f8"],
         FEATURE_TOTALS: ["<f8"]}  # fmt: skip


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
        Digest of every count and its place: equal counts have the same, in blocks of any size.
    arrays_written : dict of str to str
        Type, length and digest of every array, by the name of its file.
    """

    folder: Path
    shape: tuple[int, int]
    nnz: int
    total: float
    log_factorial: float
    source: str
    fingerprint: str
    arrays_written: dict[str, str] = field(compare=False, repr=False)

    @classmethod
    def open(cls, folder: Path) -> Store:
        """Open a folder that `write_store` has written."""
        about = _read_about(folder)
        try:
            (n, m), nnz, written = about["shape"], about["nnz"], about["arrays_written"]
            lengths = {"indptr": n + 1, "indices": nnz, "data": nnz, ROW_TOTALS: n, FEATURE_TOTALS: m}
            whole = all(written[name].split()[1] == str(length) for name, length in lengths.items())
            whole &= all(written[name].split()[0] in kinds for name, kinds in TYPES.items())
            found = cls(**{**about, "folder": folder, "shape": (n, m)})
        except (KeyError, TypeError, ValueError, AttributeError, IndexError):
            whole = False
        check_as_written(whole, folder / ABOUT)
        return found

    def __getstate__(self) -> dict[str, Any]:
        """Return the state without cached values, which can be read again; another process need not compare again."""
        return {**{each.name: getattr(self, each.name) for each in fields(self)}, "stamps": self.stamps}

    @cached_property
    def stamps(self) -> dict[str, tuple[int, ...]]:
        """Size and time of each file, at which its numbers were those that had been written."""
        return self.compare(lambda *_: None)

    def compare(self, told: Callable[..., None]) -> dict[str, tuple[int, ...]]:
        """Read all files once, and refuse those that are not as they were written; return their stamps."""
        found = self._stamps_now()
        for done, (name, written) in enumerate(self.arrays_written.items()):
            told("checking counts on disk", done, len(self.arrays_written), np.nan)
            check_as_written(_is_described(self._path(name), written), self._path(name))
        told("checking counts on disk", len(self.arrays_written), len(self.arrays_written), np.nan)
        vars(self)["stamps"] = found  # where the cached property stores its value
        return found

    def check(self) -> None:
        """Refuse files that were changed after they were compared with what had been written."""
        now = self._stamps_now()
        for name, stamp in self.stamps.items():
            check_as_written(now[name] == stamp, self._path(name))

    def _stamps_now(self) -> dict[str, tuple[int, ...]]:
        found: dict[str, tuple[int, ...]] = {}
        for name in self.arrays_written:
            check_as_written(self._path(name).is_file(), self._path(name))
            stat = self._path(name).stat()
            found[name] = stat.st_size, stat.st_mtime_ns
        return found

    def _path(self, name: str) -> Path:
        return self.folder / f"{name}.npy"

    @cached_property
    def arrays(self) -> dict[str, RawArray]:
        """All arrays, by the names of their files."""
        self.check()
        found = {name: RawArray.of_npy(self._path(name)) for name in self.arrays_written}
        for name, array in found.items():
            written = self.arrays_written[name].split()[:2]
            check_as_written(written == [array.dtype.str, str(array.length)], array.path)
        return found

    @cached_property
    def feature_totals(self) -> Array:
        """Sums of the features, in float64."""
        return self.arrays[FEATURE_TOTALS].read(0, self.shape[1])

    def row_totals(self, first: int, last: int) -> Array:
        """Return the sums of the rows from `first` to `last` (excluded), in float64."""
        return self.arrays[ROW_TOTALS].read(first, last)

    def names(self, side: str) -> Array | None:
        """Return the names of the "rows" or of the "features", or None if they have none."""
        return self.arrays[side].read(0, self.arrays[side].length).astype(object) if side in self.arrays else None

    def fingerprint_of_sums(self) -> str:
        """Return the digest that fits saved by version 0.2.0 have, which other counts with equal sums share."""
        digest = hashlib.blake2b(f"{self.shape[0]} {self.shape[1]} {self.nnz}".encode(), digest_size=16)
        for totals in (self.row_totals(0, self.shape[0]), self.feature_totals):
            digest.update(totals.tobytes())
        return digest.hexdigest()

    def starts(self, first: int, last: int) -> Array:
        """Return the positions at which the rows from `first` to `last` begin, and that at which the last one ends.

        They are refused if they are out of order or beyond the nonzeros.
        """
        starts = self.arrays["indptr"].read(first, last + 1)
        in_order = starts[0] >= 0 and starts[-1] <= self.nnz and np.all(starts[1:] >= starts[:-1])
        check_as_written(bool(in_order), self._path("indptr"))
        return starts

    def bounds(self, nonzeros: int) -> list[int]:
        """Return bounds of blocks of about `nonzeros` nonzeros; a block has at least two rows if there are two."""
        starts = np.load(self.arrays["indptr"].path, mmap_mode="r", allow_pickle=False)  # a few pages of it are read
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
        # A compiled loop would look for a feature that does not exist anywhere in memory; negative numbers are largest.
        check_as_written(indices.view(np.uint32).max(initial=0) < self.shape[1], self._path("indices"))
        return csr_array((data, indices, (starts - starts[0]).astype(np.int32)), shape=(last - first, self.shape[1]))


def _read_about(folder: Path) -> dict[str, Any]:
    """Return what a folder says about its counts; refuse other folders, and a file that was changed."""
    file = folder / ABOUT
    try:
        found: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
        known, digest = found.pop("version"), found.pop("digest", None)
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"{folder} must be a folder of counts that bayesnmf has written: {error}") from error
    if known != VERSION:
        raise ValueError(
            f"{folder} must be of version {VERSION}: found {shown(known)}; write it again, with bayesnmf.Blocks of the "
            "file that the counts are from"
        )
    check_as_written(digest == _digest(found), file)
    return found


def check_as_written(same: bool | np.bool, file: Path) -> None:
    """Refuse a folder with a file that is not as it was written."""
    if not same:
        raise ValueError(
            f"{file} was changed, damaged or removed after it was written; remove {file.parent}, and begin again with "
            "the file that the counts are from"
        )


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
    needed = 0 if source.nnz is None else 6 * source.nnz + 16 * source.shape[0]
    free = shutil.disk_usage(folder.parent).free
    if needed > free:
        raise ValueError(
            f"scratch needs {needed / 1e9:.1f} GB for {source.name}: {folder.parent} has {free / 1e9:.1f} GB; name a "
            "folder with more room, as in bayesnmf.Blocks(..., scratch=...)"
        )
    remove_leftovers(folder.parent, f".{folder.stem}-*")
    with replacing(folder) as temporary:
        temporary.mkdir(mode=0o700)
        held = Hold(temporary)
        try:
            about = _write(temporary, source, told)
        finally:
            held.release()
        write_text(temporary / ABOUT, json.dumps({"version": VERSION, **about, "digest": _digest(about)}))
    store = Store.open(folder)
    vars(store)["stamps"] = store._stamps_now()  # no need to read what was written a moment ago
    return store


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
    small = (path for path in folder.glob("*.npy") if path.stem not in writers)
    written = {name: writer.describe() for name, writer in writers.items()}
    return {
        "shape": [n, m], "nnz": writers["data"].length, "total": float(feature_totals.sum()),
        "log_factorial": math.fsum(constants), "source": source.name, "fingerprint": _digest([n, m, written]),
        "arrays_written": {**written, **{path.stem: RawArray.of_npy(path).describe() for path in sorted(small)}},
    }  # fmt: skip


def _canonical_blocks(source: Any) -> Iterator[tuple[int, csr_array]]:
    """Yield the first row and the counts of each block of a source, checked, in order."""
    n, m = source.shape
    reached = 0
    for first, last in source.bounds():
        values = source.read(first, last)
        name = f"rows {first} to {last - 1} of {source.name}"
        if tuple(values.shape) != (last - first, m):
            raise ValueError(
                f"{name} must have the shape {(last - first, m)}: found {tuple(values.shape)}; was the file changed?"
            )
        matrix = matrix_of(values, name, np.dtype(np.float64), source.where_raw_counts_are)
        bad = (matrix.data != np.floor(matrix.data)) | (matrix.data > np.iinfo(LARGE).max)
        if bad.any():
            raise ValueError(
                f"counts on disk must be whole numbers up to {np.iinfo(LARGE).max}: found "
                f"{entry_at(matrix, int(np.argmax(bad)))} of {name}; {source.where_raw_counts_are()}, or read these "
                "into memory"
            )
        yield first, matrix
        reached = last
    assert reached == n


def _log_factorial(data: Array) -> float:
    """Return Σ log X! of whole numbers, by a table where they are small."""
    small = data[data < 1024].astype(np.int64)
    times = np.bincount(small, minlength=1)
    return float(times @ gammaln(np.arange(len(times)) + 1.0) + gammaln(data[data >= 1024] + 1.0).sum())


def _digest(about: Any) -> str:
    """Return a digest of numbers and words."""
    return hashlib.blake2b(json.dumps(about, sort_keys=True).encode(), digest_size=16).hexdigest()


def _is_described(path: Path, written: str) -> bool:
    try:
        return RawArray.of_npy(path).describe() == written
    except Exception:  # the header of a damaged file raises anything
        return False
