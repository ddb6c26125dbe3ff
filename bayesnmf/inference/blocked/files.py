"""Arrays with a row for each sample of a block, in one file for each block.

Rows are written with the padding that compiled loops need, so that they are read into place without a copy. A file is
complete or absent: it is written under another name first. It ends with a checksum of its bytes.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from io import BufferedReader, BytesIO
from pathlib import Path
from typing import Any
from zlib import crc32

import numpy as np

from bayesnmf.data.blocks.raw import write_all
from bayesnmf.kernels.cpu.factors import padded, whole_vectors
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
