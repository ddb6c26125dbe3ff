"""Slots: what single loops of a fit have reached, and what they have ended with.

A fit is a sequence of loops, and all that is done between them depends on what they return and on the seed alone. The
loops of a fit are therefore numbered in their order. A call that goes on does the same again, but each loop that had
ended returns at once what it had returned, and the one that was under way goes on from its last snapshot.

A snapshot has two generations: while one is written, the other stays. What ended loops have returned, and the draws of
chains, are added to a journal, in files that are never changed.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from threading import RLock
from typing import Any, Protocol

from bayesnmf.data.counts import Counts
from bayesnmf.inference.checkpoints.exact import from_bytes, link_files, to_bytes
from bayesnmf.inference.checkpoints.files import Pieces, read_pieces, write_pieces
from bayesnmf.writing import remove, replacing

MOST_WAITING = 2**27  # bytes of ended loops in memory, before they are written although it is too early


class Slot(Protocol):
    """Place of one loop in a checkpoint."""

    def result(self) -> Any:
        """Return what the loop had returned, if it had ended; else None."""

    def snapshot(self) -> Any:
        """Return the newest snapshot of the loop, or None."""

    def due(self) -> bool:
        """Return whether it is time for a snapshot."""

    def save(self, thing: Any) -> None:
        """Write a snapshot."""

    def add(self, thing: Any) -> None:
        """Add a piece that later snapshots refer to by its number."""

    def pieces(self, number: int) -> list[Any]:
        """Return the first pieces."""

    def end(self, thing: Any) -> None:
        """Say what the loop returns."""


class NoSlot:
    """The slot of loops that are not kept."""

    def result(self) -> Any:
        """Return None: nothing is kept."""

    def snapshot(self) -> Any:
        """Return None: nothing is kept."""

    def due(self) -> bool:
        """Return False."""
        return False

    def save(self, thing: Any) -> None:
        """Keep nothing."""

    def add(self, thing: Any) -> None:
        """Keep nothing."""

    def pieces(self, number: int) -> list[Any]:
        """Return none."""
        return []

    def end(self, thing: Any) -> None:
        """Keep nothing."""


NOWHERE: Slot = NoSlot()


class Keeper:
    """Checkpoint of one fit, in a folder.

    Parameters
    ----------
    folder : Path
        Existing folder.
    seconds : float
        Time between snapshots.

    Attributes
    ----------
    spent : float
        Seconds that earlier calls took up to the last thing they wrote.
    """

    def __init__(self, folder: Path, seconds: float) -> None:
        self.folder, self.seconds, self.lock = folder, seconds, RLock()
        self.begun = self.written = time.monotonic()
        self.spent, self._number = 0.0, 0
        self._journal: dict[str, Pieces] = {}
        self._waiting: dict[str, bytes] = {}
        self._lasting: set[str] = set()  # folders of loadings that the journal refers to
        for path in sorted(folder.glob("journal-*")):
            self._take(path)
        self._files = len(list(folder.glob("journal-*")))
        self._rows: set[str] = set()  # folders of loadings that the pieces in `_waiting` refer to
        self._remove_unused_rows()

    def _take(self, path: Path) -> None:
        found = read_pieces(path)
        if found is not None:
            self._journal |= dict.fromkeys(found.places, found)
            self._lasting |= set(found.about["rows"])
            self.spent = max(self.spent, found.about["seconds"])

    def _remove_unused_rows(self) -> None:
        """Remove folders of loadings that no file refers to, which a process that was killed has left."""
        files = [*self._journal.values(), *map(read_pieces, self.folder.glob("snapshot-*"))]
        used = {name for file in files if file is not None for name in file.about["rows"]}
        for path in self.folder.glob("rows-*"):
            if path.name not in used:
                remove(path)

    def next_slot(self, kind: str, counts: Counts | None) -> Slot:
        """Return the slot of the next loop."""
        self._number += 1
        return KeptSlot(self, f"{self._number:05d}-{kind}", counts)

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
            if self.is_time() or sum(map(len, self._waiting.values())) > MOST_WAITING:
                self.flush()

    def is_time(self) -> bool:
        """Return whether nothing was written for longer than `seconds`."""
        return time.monotonic() - self.written >= self.seconds

    def flush(self) -> None:
        """Write the pieces that wait."""
        with self.lock:
            if self._waiting:
                self._files += 1
                path = self.folder / f"journal-{self._files:05d}"
                write_pieces(path, self._waiting, self.about(self._rows))
                self._waiting, self._rows = {}, set()
                self._take(path)
            self.written = time.monotonic()

    def about(self, rows: set[str]) -> dict[str, Any]:
        """Return what is written into every file: seconds of the fit so far, and folders that the file refers to."""
        return {"seconds": self.spent + time.monotonic() - self.begun, "rows": sorted(rows)}

    def keep_rows(self, folder: Path) -> str:
        """Keep the files of loadings on disk; return the name of their folder."""
        target = self.rows(folder.name)
        if not target.exists():
            with replacing(target) as temporary:
                temporary.mkdir()
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
        for path in [*self.folder.glob("journal-*"), *self.folder.glob("snapshot-*"), *self.folder.glob("rows-*")]:
            remove(path)


class KeptSlot:
    """A slot of a `Keeper`."""

    def __init__(self, keeper: Keeper, name: str, counts: Counts | None) -> None:
        self.keeper, self.name, self.counts = keeper, name, counts
        self._added, self._generation, self._last = 0, 0, keeper.written
        self._rows: list[set[str]] = [set(), set()]  # folders of loadings that the two generations refer to

    def result(self) -> Any:
        """Return what the loop had returned, if it had ended; else None."""
        return self._read(self.keeper.find(self.name))

    def snapshot(self) -> Any:
        """Return the newest whole snapshot of the loop, or None."""
        whole = [found for found in map(read_pieces, self._paths()) if found is not None]
        if not whole:
            return None
        newest = max(whole, key=lambda found: found.about["generation"])
        self._generation, self._added = newest.about["generation"], newest.about["added"]
        for found in whole:
            self._rows[found.about["generation"] % 2] = set(found.about["rows"])
        self.keeper.spent = max(self.keeper.spent, newest.about["seconds"])
        if any(self.keeper.find(self._piece(number)) is None for number in range(self._added)):
            self._added = 0
            return None
        return self._read(newest[self.name])

    def due(self) -> bool:
        """Return whether it is time for a snapshot."""
        return time.monotonic() - self._last >= self.keeper.seconds

    def save(self, thing: Any) -> None:
        """Write a snapshot in place of the older one of two; what it refers to is written first."""
        rows: set[str] = set()
        content = self._bytes(thing, rows)
        self.keeper.flush()
        self._generation += 1
        place = self._generation % 2
        about = {"generation": self._generation, "added": self._added, **self.keeper.about(rows)}
        write_pieces(self._paths()[place], {self.name: content}, about)
        self._last = self.keeper.written = time.monotonic()
        self.keeper.drop_rows(self._rows[place] - self._rows[1 - place] - rows)
        self._rows[place] = rows

    def add(self, thing: Any) -> None:
        """Add a piece that later snapshots refer to by its number."""
        rows: set[str] = set()
        self.keeper.put(self._piece(self._added), self._bytes(thing, rows), rows)
        self._added += 1

    def pieces(self, number: int) -> list[Any]:
        """Return the first pieces."""
        return [self._read(self.keeper.find(self._piece(each))) for each in range(number)]

    def end(self, thing: Any) -> None:
        """Say what the loop returns; its snapshots are no longer needed."""
        rows: set[str] = set()
        self.keeper.put(self.name, self._bytes(thing, rows), rows)
        if self._generation:
            self.keeper.flush()
            for path in self._paths():
                remove(path)
            self.keeper.drop_rows(self._rows[0] | self._rows[1])

    def _piece(self, number: int) -> str:
        return f"{self.name}/{number}"

    def _paths(self) -> tuple[Path, Path]:
        folder = self.keeper.folder
        return folder / f"snapshot-{self.name}.0", folder / f"snapshot-{self.name}.1"

    def _bytes(self, thing: Any, rows: set[str]) -> bytes:
        """Return a state as bytes; names of folders of loadings that it refers to are added to `rows`."""

        def keep(folder: Path) -> str:
            rows.add(name := self.keeper.keep_rows(folder))
            return name

        return to_bytes(thing, self.counts, keep)

    def _read(self, content: bytes | None) -> Any:
        return None if content is None else from_bytes(content, self.counts, self.keeper.rows)


_KEEPER: ContextVar[Keeper | None] = ContextVar("keeper", default=None)


def next_slot(kind: str, counts: Counts | None) -> Slot:
    """Return the slot of the next loop of the fit that runs, or one that keeps nothing."""
    keeper = _KEEPER.get()
    return NOWHERE if keeper is None else keeper.next_slot(kind, counts)


@contextmanager
def keeping(keeper: Keeper | None) -> Iterator[None]:
    """Keep the loops that run inside the block; None keeps none of them."""
    token = _KEEPER.set(keeper)
    try:
        yield
    finally:
        _KEEPER.reset(token)
