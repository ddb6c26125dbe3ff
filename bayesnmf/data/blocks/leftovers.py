"""Folders of scratch files that are removed even if the process that made them was killed.

A process holds a locked file in each of its folders, with the name of its machine. The next one on this machine that
makes a folder of the same kind removes those whose lock it can take: their process has ended.
"""

from __future__ import annotations

import os
import platform
import shutil
from pathlib import Path
from typing import IO

from bayesnmf.writing import take_lock

LOCK = f"held-by-{platform.node()}"


def hold(folder: Path) -> IO[bytes]:
    """Mark a new folder as in use until the returned file is closed or this process ends."""
    new = folder / f"new-{os.getpid()}"
    held = take_lock(new)
    assert held is not None
    os.replace(new, folder / LOCK)  # it is locked before anyone can find it
    return held


def remove_leftovers(parent: Path, pattern: str) -> None:
    """Remove the folders of a kind that no process of this machine holds any more."""
    for folder in parent.glob(pattern):
        lock = folder / LOCK
        if lock.is_file() and _is_free(lock):
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
