"""Folders of scratch files that are removed even if the process that made them was killed.

A process holds a locked file in each of its folders, with the name of its machine. The next one on this machine that
makes a folder of the same kind removes those whose lock it can take: their process has ended. Where there are no locks,
there is no such file, and nothing is removed.
"""

from __future__ import annotations

import os
import platform
import shutil
from contextlib import suppress
from pathlib import Path
from typing import IO

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
