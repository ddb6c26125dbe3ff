"""Files of named pieces of bytes, with a digest: whole and unchanged, or not read at all."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bayesnmf.writing import replacing

MAGIC = b"bayesnmf checkpoint 2\n"
READ = 2**24


def write_pieces(path: Path, pieces: Mapping[str, bytes], about: Mapping[str, Any]) -> None:
    """Write pieces of bytes with their names; an older file is replaced only once the new one is complete."""
    names = json.dumps({"sizes": {name: len(piece) for name, piece in pieces.items()}, "about": about}).encode()
    names = len(names).to_bytes(8, "little") + names
    digest = hashlib.blake2b(names)
    for piece in pieces.values():
        digest.update(piece)
    with replacing(path) as temporary, temporary.open("wb") as file:
        file.write(MAGIC + digest.digest() + names)
        for piece in pieces.values():
            file.write(piece)


class Pieces:
    """The pieces in a file; `read_pieces` returns it for files that are whole and unchanged.

    Attributes
    ----------
    about : dict
        What was written with them.
    places : dict of str to (int, int)
        First byte and size of each piece.
    """

    def __init__(self, path: Path, about: dict[str, Any], places: dict[str, tuple[int, int]]) -> None:
        self.path, self.about, self.places = path, about, places

    def __getitem__(self, name: str) -> bytes:
        first, size = self.places[name]
        with self.path.open("rb") as file:
            file.seek(first)
            return file.read(size)


def read_pieces(path: Path) -> Pieces | None:
    """Return the pieces in a file; None if there is no file, or if it is damaged."""
    if not path.is_file():
        return None
    digest_size = hashlib.blake2b().digest_size
    with path.open("rb") as file:
        start = file.read(len(MAGIC) + digest_size + 8)
        if not start.startswith(MAGIC) or len(start) < len(MAGIC) + digest_size + 8:
            return None
        names = file.read(min(int.from_bytes(start[-8:], "little"), path.stat().st_size))
        digest, first = hashlib.blake2b(start[-8:] + names), len(start) + len(names)
        while chunk := file.read(READ):
            digest.update(chunk)
    if digest.digest() != start[len(MAGIC) : -8]:
        return None
    found, places = json.loads(names), {}
    for name, size in found["sizes"].items():
        places[name] = first, size
        first += size
    return Pieces(path, found["about"], places)
