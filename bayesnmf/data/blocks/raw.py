"""Arrays of numbers in files, read and written in pieces, without mapping them into memory; and folders for them.

A mapped file would count as memory of the process for every page that was read. Here a piece takes the memory of the
array that is returned, and no more.

Folders of scratch files are removed even if the process that made them was killed. A process holds a locked file in
each of its folders, with the name of its machine. The next one on this machine that makes a folder of the same kind
removes those whose lock it can take: their process has ended. Where there are no locks, there is no such file, and
nothing is removed.
"""

from __future__ import annotations

import hashlib
import os
import platform
import shutil
import tempfile
import weakref
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import IO, Any

import numpy as np
from numpy.typing import DTypeLike

from bayesnmf.types import Array
from bayesnmf.writing import take_lock

LOCK = f"held-by-{platform.node()}"
_own: set[Path] = set()  # on some network disks, a process would be given a lock that it holds itself


class Hold:
    """The mark of a new folder as in use, until it is released or this process ends."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._held: IO[bytes] | None = None
        _own.add(folder)
        new = folder / f"new-{os.getpid()}"
        try:
            self._held = take_lock(new)
            os.replace(new, folder / LOCK)  # it is locked before anyone can find it
        except OSError:
            new.unlink(missing_ok=True)

    def release(self) -> None:
        """Remove the mark."""
        with suppress(FileNotFoundError):
            (self.folder / LOCK).unlink()
        if self._held is not None:
            self._held.close()
        _own.discard(self.folder)


def remove_leftovers(parent: Path, pattern: str) -> None:
    """Remove the folders of a kind that no process of this machine holds any more."""
    for folder in parent.glob(pattern):
        if folder not in _own and (folder / LOCK).is_file() and _is_free(folder / LOCK):
            shutil.rmtree(folder, ignore_errors=True)


def _is_free(lock: Path) -> bool:
    try:
        held = take_lock(lock)
    except OSError:  # the folder was removed this moment, or belongs to another user
        return False
    if held is None:
        return False
    held.close()
    return True


CHUNK = 2**22


def _description(dtype: np.dtype, length: int, digest: Any) -> str:
    return f"{dtype.str} {length} {digest.hexdigest()}"


@dataclass(frozen=True)
class RawArray:
    """A one-dimensional array of numbers in a file.

    Attributes
    ----------
    path : Path
    offset : int
        Position of the first number, in bytes.
    dtype : dtype
    length : int
        Number of numbers.
    """

    path: Path
    offset: int
    dtype: np.dtype
    length: int

    @classmethod
    def of_npy(cls, path: Path) -> RawArray:
        """Return the array in a .npy file."""
        mapped: Any = np.load(path, mmap_mode="r", allow_pickle=False)
        return cls(path, int(mapped.offset), mapped.dtype, mapped.size)

    def describe(self) -> str:
        """Return the type, the length and a digest of all numbers, which are read for it."""
        found, done = hashlib.sha256(), 0
        with self.path.open("rb", buffering=0) as file:
            file.seek(self.offset)
            while chunk := file.read(min(CHUNK, self.length * self.dtype.itemsize - done)):
                found.update(chunk)
                done += len(chunk)
        return _description(self.dtype, done // max(self.dtype.itemsize, 1), found)

    def read(self, first: int, last: int, buffers: Buffers | None = None) -> Array:
        """Return the numbers from `first` to `last` (excluded), in memory of `buffers` if there are any.

        Raises
        ------
        OSError
            The file has become shorter.
        """
        out = np.empty(last - first, self.dtype) if buffers is None else buffers.take(self, last - first)
        view = memoryview(out).cast("B") if out.size else memoryview(b"")
        with self.path.open("rb", buffering=0) as file:
            file.seek(self.offset + first * self.dtype.itemsize)
            done = 0
            while done < len(view):
                got = file.readinto(view[done:])
                if not got:
                    raise OSError(f"{self.path} ends too early: it was changed or cut off while it was read")
                done += got
        return out


class Buffers:
    """Memory that is used again for one block after another: fresh memory would cost as much as reading it."""

    def __init__(self) -> None:
        self._held: dict[RawArray, Array] = {}

    def take(self, array: RawArray, length: int) -> Array:
        """Return memory for some numbers of an array, the same at every call."""
        if array not in self._held or len(self._held[array]) < length:
            self._held[array] = np.empty(length + length // 8, array.dtype)
        return self._held[array][:length]


class TemporaryFolder:
    """A new folder that is removed with the last reference to this object, or after the end of this process.

    A process that was forked from this one has the object too, but removes nothing.
    """

    def __init__(self, parent: Path, prefix: str) -> None:
        remove_leftovers(parent, f"{prefix}*")
        self.path = Path(tempfile.mkdtemp(prefix=prefix, dir=parent))
        self._remove = weakref.finalize(self, _remove, self.path, Hold(self.path), os.getpid())


def _remove(folder: Path, held: Hold, process: int) -> None:
    if os.getpid() != process:
        return
    shutil.rmtree(folder, ignore_errors=True)
    held.release()


class NpyWriter:
    """A .npy file of one dimension that grows, for a length that is known only at the end."""

    def __init__(self, path: Path, dtype: DTypeLike) -> None:
        self.path, self.dtype, self.length = path, np.dtype(dtype), 0
        self._digest = hashlib.sha256()
        self._file = path.open("wb")
        self._write_header()
        self._begin = self._file.tell()

    def append(self, numbers: Array) -> None:
        """Write more numbers."""
        content = np.ascontiguousarray(numbers, dtype=self.dtype).data
        self._file.write(content)
        self._digest.update(content)
        self.length += len(numbers)

    def describe(self) -> str:
        """Return the type, the length and a digest of all numbers so far, as `RawArray.describe` finds in the file."""
        return _description(self.dtype, self.length, self._digest)

    def widened(self, dtype: DTypeLike) -> NpyWriter:
        """Return a writer that has written the same numbers as another type; this one is closed."""
        self.close()
        before, wider = RawArray.of_npy(self.path), NpyWriter(self.path.with_suffix(".wider"), dtype)
        for first in range(0, before.length, 2**22):
            wider.append(before.read(first, min(first + 2**22, before.length)))
        os.replace(wider.path, self.path)
        wider.path = self.path
        return wider

    def close(self) -> None:
        """Write the length into the header, and flush the file to disk."""
        if self._file.closed:
            return
        self._file.seek(0)
        self._write_header()
        assert self._file.tell() == self._begin
        self._file.flush()
        os.fsync(self._file.fileno())
        self._file.close()

    def _write_header(self) -> None:
        # NumPy pads the header so that it can be written again with another length.
        header = {"descr": np.lib.format.dtype_to_descr(self.dtype), "fortran_order": False, "shape": (self.length,)}
        np.lib.format.write_array_header_1_0(self._file, header)

    def __enter__(self) -> NpyWriter:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        self.close()


def write_all(file: Any, view: memoryview) -> None:
    """Write all bytes into a file without a buffer, which may take some of them at a time."""
    done = 0
    while done < len(view):
        done += file.write(view[done:])


class RowsInFile:
    """An array with a row for each sample, written block by block into a nameless file, then mapped into memory.

    The file is removed with the last reference to the array. Writing through a mapping would count as memory.
    """

    def __init__(self, folder: Path, columns: int, dtype: Any) -> None:
        self._file = tempfile.TemporaryFile(dir=folder)  # noqa: SIM115 (it lives as long as the array)
        self._columns, self._dtype, self._rows = columns, np.dtype(dtype), 0

    def append(self, rows: Array) -> None:
        """Write more rows."""
        write_all(self._file, memoryview(np.ascontiguousarray(rows, self._dtype)).cast("B"))
        self._rows += len(rows)

    def array(self, *, changes: bool = False) -> Array:
        """Return all rows; with `changes`, what is written into them goes to the file and not into private memory."""
        self._file.flush()
        mapped = np.memmap(self._file, self._dtype, "r+" if changes else "c", shape=(self._rows, self._columns))
        self._file.close()
        return mapped
