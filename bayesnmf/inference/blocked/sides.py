"""The loadings of counts on disk as a side: sums and penalties in memory, rows in files, one for each block.

Rows are written with the padding that compiled loops need, so that they are read into place without a copy. A file is
complete or absent: it is written under another name first. It ends with a checksum of its bytes.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from io import BufferedReader, BytesIO
from pathlib import Path
from typing import Any, NamedTuple
from zlib import crc32

import numpy as np

from bayesnmf.data.blocks.counts import BlockedCounts
from bayesnmf.data.blocks.raw import write_all
from bayesnmf.data.counts import Counts
from bayesnmf.inference.side import Side, log_scale
from bayesnmf.kernels.cpu.factors import padded, whole_vectors
from bayesnmf.priors import Distribution, ScaledProportions
from bayesnmf.priors.values import Value, parts_of
from bayesnmf.types import Array

CHECKSUM = 8  # bytes


def of_block(folder: Path, number: int) -> Path:
    """Return the path of the file of a block."""
    return folder / f"{number}.rows"


def write_rows(path: Path, arrays: Sequence[Array]) -> None:
    """Write arrays of the same number of rows; an older file is replaced when the new one is complete."""
    temporary = path.with_suffix(f".{os.getpid()}")
    try:
        with temporary.open("wb", buffering=0) as file:
            checksum = 0
            for array in arrays:
                whole = np.ascontiguousarray(whole_vectors(array))
                about: Any = {"descr": whole.dtype.str, "fortran_order": False, "shape": whole.shape}
                header = BytesIO()
                np.lib.format.write_array_header_1_0(header, about)
                for part in (header.getbuffer(), memoryview(whole).cast("B")):
                    write_all(file, part)
                    checksum = _checksum(part, checksum)
            write_all(file, memoryview(checksum.to_bytes(CHECKSUM, "little")))
        os.replace(temporary, path)
    except OSError as error:
        raise OSError(f"cannot write loadings to scratch, {path.parent}: {error}; free some space there") from error


def read_rows(path: Path, ranks: Sequence[int]) -> list[Array]:
    """Return the arrays in a file, given their numbers of columns."""
    with path.open("rb") as file:
        checksum, found = 0, []
        try:
            for rank in ranks:
                array, checksum = _read_array(file, rank, checksum)
                found.append(array)
            whole = file.read() == checksum.to_bytes(CHECKSUM, "little")
        except OSError:
            raise
        except Exception:  # a damaged header raises anything
            whole = False
    if not whole:
        raise OSError(f"{path} was changed, damaged or cut off after it was written; fit again")
    return found


def _checksum(content: memoryview, before: int) -> int:
    """Return a checksum of bytes after others: sums of words of 8 bytes take a seventh of the time of CRC-32."""
    whole = len(content) - len(content) % 8
    words = np.add.reduce(np.frombuffer(content[:whole], np.uint64))
    return (3 * before + int(words) + crc32(content[whole:])) % 2**64


def checksums(folder: Path) -> dict[str, int]:
    """Return the checksum at the end of the file of each block, by its name."""
    found = {}
    for path in folder.glob("*.rows"):
        with path.open("rb") as file:
            file.seek(-CHECKSUM, os.SEEK_END)
            found[path.name] = int.from_bytes(file.read(), "little")
    return found


def _read_array(file: BufferedReader, rank: int, checksum: int) -> tuple[Array, int]:
    begin = file.tell()
    assert np.lib.format.read_magic(file) == (1, 0)
    (rows, _), _, dtype = np.lib.format.read_array_header_1_0(file)
    end = file.tell()
    file.seek(begin)
    checksum = _checksum(memoryview(file.read(end - begin)), checksum)
    assert rows * rank <= os.fstat(file.fileno()).st_size  # before memory for them is asked for
    out = padded((rows, rank), dtype)
    view, done = memoryview(whole_vectors(out)).cast("B"), 0
    while done < len(view):
        got = file.readinto(view[done:])
        if not got:
            raise EOFError
        done += got
    return out, _checksum(view, checksum)


class RowSums(NamedTuple):
    """Sums over the rows of one block of loadings, or of several.

    Attributes
    ----------
    sums, exposed_sums : ndarray (K,)
        Sums of the loadings, and of the loadings times the exposures of their rows, in float64.
    penalty : float
        Term of the objective.
    shift : float
        Σ N_i log_shift_i, the part of the log-likelihood that the allocation step does not see.
    """

    sums: Array
    exposed_sums: Array
    penalty: float
    shift: float

    @classmethod
    def of(cls, counts: Counts, side: Side) -> RowSums:
        """Return the sums over the rows of a side."""
        return cls(side.sums(1), side.exposed_sums(1, counts.row_weights), side.penalty, side.shift(counts))

    def __add__(self, other: RowSums) -> RowSums:  # type: ignore[override]
        sums, exposed = self.sums + other.sums, self.exposed_sums + other.exposed_sums
        return RowSums(sums, exposed, self.penalty + other.penalty, self.shift + other.shift)


class RowsRead(Side):
    """The side of one block, read from its file."""

    def __init__(
        self, value: Value | None, geometric: Array, conditional: Distribution | None, log_shift: Array | None
    ) -> None:
        self._value, self.geometric, self.conditional = value, geometric, conditional
        self.log_shift, self.penalty, self.dtype = log_shift, np.nan, geometric.dtype
        self._sums, self._exposed_sums = {}, {}

    @property
    def value(self) -> Value:  # type: ignore[override]
        """The value, or the expectation of a mean field."""
        return self._value if self.conditional is None else self.conditional.mean()  # type: ignore[return-value]


@dataclass(frozen=True)
class RowLayout:
    """The arrays in the file of a block, and what all rows share.

    Attributes
    ----------
    of : Distribution or None
        A mean field with the parameters that all rows share; None for modes and draws.
    names : tuple of str
        Names of the parameters in the file, in order; empty without a mean field.
    ranks : tuple of int
        Numbers of columns of the arrays in the file.
    times : ndarray (K,) or None
        Factors of the columns of draws, whose scale was changed after they were written.
    shifted : bool
        Whether logarithms of factors of rows are kept, which matter where counts cluster, are missing or in batches.
    """

    of: Distribution | None
    names: tuple[str, ...]
    ranks: tuple[int, ...]
    times: Array | None = None
    shifted: bool = False

    @classmethod
    def like(cls, side: Side, counts: Counts) -> RowLayout:
        """Return the layout of the rows of a side in memory, which has at least two rows or is the only block."""
        noted = counts.mask is not None or counts.batch is not None or counts.in_clusters
        shifted = noted and side.log_shift is not None
        if side.conditional is None:
            return cls(None, (), tuple(part.shape[1] for part in parts_of(side.value)), None, shifted)
        named = {name: np.atleast_2d(value) for name, value in side.conditional.parameters.items()}
        rows = len(side.geometric)
        own = tuple(name for name, value in named.items() if len(value) == rows)
        empty = {name: named[name][:0].copy() for name in own}  # a layout refers to no rows
        shared = side.conditional.with_parameters({**side.conditional.parameters, **empty})
        ranks = *(named[name].shape[1] for name in own), side.geometric.shape[1], *([1] if shifted else [])
        return cls(shared, own, ranks, None, shifted)

    def arrays(self, side: Side) -> list[Array]:
        """Return the arrays to write."""
        if side.conditional is None:
            return list(parts_of(side.value))
        shift: Any = [side.log_shift] if self.shifted else []
        return [*(side.conditional.parameters[name] for name in self.names), side.geometric, *shift]

    def side(self, arrays: list[Array]) -> Side:
        """Return the side that these arrays make."""
        if self.times is not None:
            arrays[0] *= self.times
        if self.of is None:
            value: Value = arrays[0] if len(arrays) == 1 else ScaledProportions(*arrays)
            return RowsRead(value, arrays[0], None, log_scale(arrays[-1]) if self.shifted else None)
        named = {**self.of.parameters, **dict(zip(self.names, arrays, strict=False))}
        shift = arrays[-1] if self.shifted else None
        return RowsRead(None, arrays[len(self.names)], self.of.with_parameters(named), shift)


@dataclass(frozen=True)
class RowReader:
    """Reads the loadings of blocks from a folder."""

    folder: Path
    layout: RowLayout

    def block(self, number: int) -> Side:
        """Return the loadings of a block."""
        return self.layout.side(read_rows(of_block(self.folder, number), self.layout.ranks))

    def collect(self, counts: BlockedCounts) -> tuple[Value, Distribution | None]:
        """Return the value and the mean field of all rows, as arrays in files that are mapped into memory."""
        layout = self.layout
        files: list[Any] = []
        for number in range(len(counts.blocks)):
            side = self.block(number)
            given = {} if side.conditional is None else side.conditional.parameters
            arrays = [*(given[name] for name in layout.names), *parts_of(side.value)]
            if not files:
                files = [counts.new_rows(each.shape[1], each.dtype) for each in arrays]
            for file, rows in zip(files, arrays, strict=True):
                file.append(rows)
        whole = [file.array() for file in files]
        own, parts = dict(zip(layout.names, whole, strict=False)), whole[len(layout.names) :]
        value: Value = parts[0] if len(parts) == 1 else ScaledProportions(*parts)
        return value, None if layout.of is None else layout.of.with_parameters({**layout.of.parameters, **own})


@dataclass(frozen=True)
class RowWriter:
    """Writes the loadings of blocks into a folder; a task that runs twice writes the same file again."""

    folder: Path

    def write(self, number: int, counts: Counts, side: Side) -> tuple[RowSums, RowLayout]:
        """Write the rows of a block; return their sums and their layout."""
        layout = RowLayout.like(side, counts)
        write_rows(of_block(self.folder, number), layout.arrays(side))
        return RowSums.of(counts, side), layout
