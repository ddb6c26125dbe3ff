"""The files of one fit's checkpoint: a journal of pieces, and folders of loadings on disk that pieces refer to.

A file of named pieces of bytes has a digest: it is whole and unchanged, or not read at all.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import time
import warnings
from collections.abc import Mapping
from pathlib import Path
from threading import RLock
from typing import Any

from bayesnmf.inference.checkpoints.exact import link_files
from bayesnmf.writing import remove, replacing

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


MOST_WAITING = 2**27  # bytes of ended loops in memory, before they are written although it is too early
ROWS = "rows-"


class Keeper:
    """Checkpoint of one fit, in a folder.

    A file that cannot be written costs no fit: it is told once, and tried again after the time between snapshots.

    Parameters
    ----------
    folder : Path
        Existing folder.
    seconds : float
        Time between snapshots.
    identity : str
        What determines the fit, in short; files of other fits are not read.

    Attributes
    ----------
    spent : float
        Seconds that earlier calls took up to the last thing they wrote.
    """

    def __init__(self, folder: Path, seconds: float, identity: str) -> None:
        self.folder, self.seconds, self.identity, self.lock = folder, seconds, identity, RLock()
        self.begun = self.written = time.monotonic()
        self.loops = 0  # that were given a slot
        self._failed = False
        self._waiting: dict[str, bytes] = {}
        self._rows: set[str] = set()  # folders of loadings that the pieces in `_waiting` refer to
        self._journal: dict[str, Pieces] = {}
        self._lasting: set[str] = set()  # folders of loadings that the journal refers to
        files = sorted(folder.glob("journal-*"))
        self._files = max((int(path.name[8:]) for path in files if path.name[8:].isdecimal()), default=0)
        found = [*map(self._take, files), *map(self.read, folder.glob("snapshot-*"))]
        known = [each.about for each in found if each is not None]
        self.spent: float = max((each["seconds"] for each in known), default=0.0)
        used = {name for each in known for name in each["rows"]}
        for path in folder.glob(f"{ROWS}*"):  # those that nothing refers to, a process that was killed has left
            if path.name not in used:
                remove(path)

    def read(self, path: Path) -> Pieces | None:
        """Return the pieces in a file of this fit; None for one that is damaged, or of another fit."""
        found = read_pieces(path)
        if found is None or found.about.get("identity") != self.identity:
            return None
        return found if all(map(_is_folder_of_rows, found.about["rows"])) else None

    def _take(self, path: Path) -> Pieces | None:
        found = self.read(path)
        if found is not None:
            self._journal |= dict.fromkeys(found.places, found)
            self._lasting |= set(found.about["rows"])
        return found

    def find(self, name: str) -> bytes | None:
        """Return a piece of the journal, or None."""
        with self.lock:
            if name in self._waiting:
                return self._waiting[name]
            return self._journal[name][name] if name in self._journal else None

    def put(self, name: str, content: bytes, rows: set[str]) -> None:
        """Add a piece to the journal, which refers to folders of loadings; it is written when it is time."""
        with self.lock:
            self._waiting[name] = content
            self._rows |= rows
            self._lasting |= rows
            full = sum(map(len, self._waiting.values())) > MOST_WAITING and not self._failed
            if self.is_time() or full:
                self.flush()

    def is_time(self) -> bool:
        """Return whether nothing was written for longer than `seconds`."""
        return time.monotonic() - self.written >= self.seconds

    def flush(self) -> bool:
        """Write the pieces that wait; return whether none waits any more."""
        with self.lock:
            if self._waiting:
                path = self.folder / f"journal-{self._files + 1:05d}"
                try:
                    write_pieces(path, self._waiting, self.about(self._rows))
                except OSError as error:
                    self.tell_failed(error)
                    return False
                self._files += 1
                self._waiting, self._rows = {}, set()
                self._take(path)
            self.written = time.monotonic()
            return True

    def tell_failed(self, error: OSError) -> None:
        """Warn, once for a fit, that something could not be written; it is tried again when it is time."""
        with self.lock:
            self.written = time.monotonic()
            if self._failed:
                return
            self._failed = True
        warnings.warn(
            f"the checkpoint could not be written: {error}; the fit goes on, and this is tried again every "
            f"{self.seconds:g} s",
            UserWarning,
            skip_file_prefixes=(str(Path(__file__).parents[2]), contextlib.__file__.removesuffix(".py")),
        )

    def about(self, rows: set[str]) -> dict[str, Any]:
        """Return what is written into every file: the fit, its seconds so far, and folders that the file refers to."""
        seconds = self.spent + time.monotonic() - self.begun
        return {"identity": self.identity, "seconds": seconds, "rows": sorted(rows)}

    def keep_rows(self, folder: Path) -> str:
        """Keep the files of loadings on disk; return the name of their folder."""
        target = self.rows(folder.name)
        if not target.exists():
            with replacing(target) as temporary:
                temporary.mkdir(mode=0o700)
                link_files(folder, temporary)
        return folder.name

    def rows(self, name: str) -> Path:
        """Return the folder of loadings on disk."""
        return self.folder / name

    def drop_rows(self, names: set[str]) -> None:
        """Remove folders of loadings, except those that the journal refers to."""
        for name in names - self._lasting:
            remove(self.rows(name))

    def clear(self) -> None:
        """Remove everything, after the fit itself was written."""
        self._waiting = {}
        for kind in ("journal-", "snapshot-", ROWS):
            for path in self.folder.glob(f"{kind}*"):
                remove(path)


def _is_folder_of_rows(name: Any) -> bool:
    """Return whether this is a name of a folder beside the files, which may be removed, and not of one elsewhere."""
    return isinstance(name, str) and name.startswith(ROWS) and Path(name).name == name
