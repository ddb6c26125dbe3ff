"""A digest at the end of a NetCDF file, which is compared before anything reads the file.

HDF5 takes a damaged file for what it says: a flipped bit may send it through the file for ever. It ignores what follows
the end that a file declares, so that other tools read a sealed file as any other.
"""

from __future__ import annotations

import hashlib
from pathlib import Path

MARK = b"bayesnmf sha256:"
CHUNK = 2**22


def seal_of(content: bytes | memoryview) -> bytes:
    """Return what follows the content of a file."""
    return MARK + hashlib.sha256(content).digest()


def is_whole(path: Path) -> bool | None:
    """Return whether a file is as it was sealed; None for one that has no seal."""
    length = len(MARK) + hashlib.sha256().digest_size
    left = path.stat().st_size - length
    if left < 0:
        return None
    digest = hashlib.sha256()
    with path.open("rb") as file:
        file.seek(left)
        seal = file.read(length)
        if not seal.startswith(MARK):
            return None
        file.seek(0)
        while left and (chunk := file.read(min(CHUNK, left))):
            digest.update(chunk)
            left -= len(chunk)
    return seal[len(MARK) :] == digest.digest()
