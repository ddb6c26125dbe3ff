"""Slots: what single loops of a fit have reached, and what they have ended with.

A fit is a sequence of loops, and all that is done between them depends on what they return and on the seed alone. The
loops of a fit are therefore numbered in their order. A call that goes on does the same again, but each loop that had
ended returns at once what it had returned, and the one that was under way goes on from its last snapshot.

A snapshot has two generations: while one is written, the other stays. What ended loops have returned, and the draws of
chains, are added to a journal, in files that are never changed (`bayesnmf.inference.checkpoints.keeper`).
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import Any, Literal

from bayesnmf.data.counts import Counts
from bayesnmf.inference.checkpoints.checks import check_pieces
from bayesnmf.inference.checkpoints.exact import from_bytes, recall, to_bytes
from bayesnmf.inference.checkpoints.keeper import Keeper, write_pieces
from bayesnmf.writing import remove


class Slot:
    """The place of one loop in a checkpoint.

    Parameters
    ----------
    keeper : Keeper or None
        The checkpoint; None keeps nothing.
    name : str
        Name of the loop there.
    counts : Counts, optional
        Counts that its state may refer to.
    """

    def __init__(self, keeper: Keeper | None, name: str = "", counts: Counts | None = None) -> None:
        self._keeper, self.name, self.counts = keeper, name, counts
        self._added, self._generation, self._last = 0, 0, 0.0 if keeper is None else keeper.written
        self._lost = False  # whether a piece could not be kept, to which all that follows would refer
        self._rows: list[set[str]] = [set(), set()]  # folders of loadings that the two generations refer to

    @property
    def keeper(self) -> Keeper:
        """The checkpoint, where there is one."""
        assert self._keeper is not None
        return self._keeper

    def recall(self, loop: Any) -> Literal["new", "begun", "ended"]:
        """Bring a loop to where it had been left; return whether there was anything, and whether it had ended."""
        ended = self.result()
        begun = self.snapshot() if ended is None else ended
        if begun is None:
            return "new"
        recall(loop, begun)
        return "begun" if ended is None else "ended"

    def result(self) -> Any:
        """Return what the loop had returned, if it had ended; else None."""
        if self._keeper is None:
            return None
        added, thing = self._read(self.keeper.find(self.name)) or (0, None)
        return thing if self._has_pieces(added) else None

    def snapshot(self) -> Any:
        """Return the newest whole snapshot of the loop, or None."""
        if self._keeper is None:
            return None
        found = [each for each in map(self.keeper.read, self._paths()) if each is not None and self.name in each.places]
        found.sort(key=lambda each: each.about["generation"])
        for each in found:
            self._generation = each.about["generation"]
            self._rows[self._generation % 2] = set(each.about["rows"])
        for each in reversed(found):
            thing = self._read(each[self.name]) if self._has_pieces(each.about["added"]) else None
            if thing is not None:
                self._added = each.about["added"]
                return thing
        return None

    def due(self) -> bool:
        """Return whether it is time for a snapshot."""
        return self._keeper is not None and time.monotonic() - self._last >= self._keeper.seconds

    def save(self, thing: Any) -> None:
        """Write a snapshot in place of the older one of two; what it refers to is written first."""
        rows: set[str] = set()
        with self._told():
            content = self._bytes(thing, rows)
            if not self._lost and self.keeper.flush():
                about = {"generation": self._generation + 1, "added": self._added, **self.keeper.about(rows)}
                place = about["generation"] % 2
                write_pieces(self._paths()[place], {self.name: content}, about)
                self._generation, self.keeper.written = about["generation"], time.monotonic()
                self.keeper.drop_rows(self._rows[place] - self._rows[1 - place] - rows)
                self._rows[place] = rows
        self._last = time.monotonic()

    def add(self, thing: Any) -> None:
        """Add a piece that later snapshots refer to by its number."""
        if self._keeper is None:
            return
        rows: set[str] = set()
        kept = False
        with self._told():
            self.keeper.put(self._piece(self._added), self._bytes(thing, rows), rows)
            kept = True
        self._lost |= not kept
        self._added += 1

    def pieces(self, number: int) -> list[Any]:
        """Return the first pieces."""
        found = [self._read(self.keeper.find(self._piece(each))) for each in range(number)]
        if found:
            check_pieces(found, self.keeper.folder)
        return found

    def end(self, thing: Any) -> None:
        """Store the result of the loop; its snapshots are no longer needed."""
        if self._keeper is None:
            return
        rows: set[str] = set()
        with self._told():
            content = self._bytes((self._added, thing), rows)
            if self._lost:
                return
            self.keeper.put(self.name, content, rows)
            if self._generation and self.keeper.flush():
                for path in self._paths():
                    remove(path)
                self.keeper.drop_rows(self._rows[0] | self._rows[1])

    @contextmanager
    def _told(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            self.keeper.tell_failed(error)

    def _piece(self, number: int) -> str:
        return f"{self.name}/{number}"

    def _has_pieces(self, number: int) -> bool:
        return all(self.keeper.find(self._piece(each)) is not None for each in range(number))

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
        """Return a state; None without one, or if loadings that it refers to are damaged or missing."""
        try:
            return None if content is None else from_bytes(content, self.counts, self.keeper.rows)
        except OSError:
            return None


NOWHERE = Slot(None)  # of loops that are not kept
KEEPER: ContextVar[Keeper | None] = ContextVar("keeper", default=None)  # of the fit that runs


def slot_of(keeper: Keeper | None, kind: str, counts: Counts | None) -> Slot:
    """Return the slot of the next loop of a checkpoint, or one that keeps nothing."""
    if keeper is None:
        return NOWHERE
    keeper.loops += 1
    return Slot(keeper, f"{keeper.loops:05d}-{kind}", counts)


def next_slot(kind: str, counts: Counts | None) -> Slot:
    """Return the slot of the next loop of the fit that runs, or one that keeps nothing."""
    return slot_of(KEEPER.get(), kind, counts)


@contextmanager
def keeping(keeper: Keeper | None) -> Iterator[None]:
    """Keep the loops that run inside the block; None keeps none of them."""
    token = KEEPER.set(keeper)
    try:
        yield
    finally:
        KEEPER.reset(token)
