"""Write files so that a failure loses nothing: first to a temporary file in the same folder, then by a move.

Every file of the package is written through `replacing`, directly or by `write_bytes` and `write_text`. After a full
disk, a missing permission or Ctrl-C, the older file is unchanged, and no other file is left.
"""

from __future__ import annotations

import os
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO


@contextmanager
def replacing(path: str | os.PathLike[str]) -> Iterator[Path]:
    """Yield a temporary path; after the block has ended without an error, move what it wrote there to `path`.

    The temporary path has the same folder and suffix, and may become a file or a folder. If `path` is a link, its
    target is written. For a device or a pipe, such as /dev/stdout, `path` itself is yielded, as it can only be written
    directly.

    Raises
    ------
    OSError
        The block or the move failed for lack of space or permission; an older file at `path` is unchanged.
    """
    target = Path(os.path.realpath(path))
    if target.exists() and not (target.is_file() or target.is_dir()):
        yield target
        return
    temporary = _name_beside(target)
    try:
        _check_may_replace(target)
        yield temporary
        put(temporary, target)
    except OSError as error:
        kind = PermissionError if isinstance(error, PermissionError) else OSError
        refused = kind(f"cannot write {path}: {error}; check free space and permissions")
        refused.errno = error.errno
        raise refused from error
    finally:
        remove(temporary)


def write_bytes(path: str | os.PathLike[str], *parts: bytes | memoryview) -> None:
    """Write a binary file of one or more parts; replace an older one only when the new one is complete."""
    with replacing(path) as temporary, temporary.open("wb") as file:
        for part in parts:
            file.write(part)


def write_text(path: str | os.PathLike[str], text: str) -> None:
    """Write a text file as UTF-8 without changing line ends; replace an older one only when the new one is complete.

    Half a surrogate pair, which UTF-8 cannot encode, is written as its escape sequence.
    """
    write_bytes(path, text.encode("utf-8", errors="backslashreplace"))


def try_folder(folder: str | os.PathLike[str]) -> None:
    """Write an empty file into a folder and remove it, so that an OSError is raised now and not later."""
    probe = _name_beside(Path(folder) / "probe")
    probe.touch(exist_ok=False)
    probe.unlink()


def take_lock(path: Path) -> IO[bytes] | None:
    """Return a file that is open and locked until it is closed or this process ends; None if another one holds it.

    Raises
    ------
    OSError
        The system (Windows) or the file system has no such locks, or the file cannot be opened.
    """
    try:
        import fcntl
    except ImportError as error:
        raise OSError("this system has no locks of whole files") from error
    file = path.open("wb")
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        file.close()
        if isinstance(error, BlockingIOError):
            return None
        raise
    return file


def _name_beside(path: Path) -> Path:
    """Return a new hidden name with the same folder and suffix."""
    stem = path.stem.encode(errors="surrogateescape")[:200].decode(errors="ignore")  # a name has at most 255 bytes
    return path.with_name(f".{stem}-{secrets.token_hex(4)}{path.suffix}")


def _check_may_replace(target: Path) -> None:
    """Raise PermissionError for a write-protected file, which a move would replace anyway."""
    if target.is_file() and not os.access(target, os.W_OK):
        raise PermissionError(f"{target} is write-protected")


def put(temporary: Path, target: Path) -> None:
    """Move a complete file or folder to its place; move an older folder aside first, and back if the move fails."""
    if temporary.is_file():
        _settle(temporary, target)
    if not target.is_dir():
        os.replace(temporary, target)
        return
    aside = temporary.with_name(temporary.name + ".old")
    os.rename(target, aside)
    try:
        os.rename(temporary, target)
    except BaseException:
        os.rename(aside, target)
        raise
    shutil.rmtree(aside)


def _settle(temporary: Path, target: Path) -> None:
    """Flush a file to disk, where some systems only now find a lack of space; keep the older file's permissions."""
    with temporary.open("r+b") as file:
        os.fsync(file.fileno())
    if target.is_file():
        shutil.copymode(target, temporary)


def remove(path: Path) -> None:
    """Remove a file or a folder with all that is in it, if it exists."""
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
