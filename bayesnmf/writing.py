"""Write files so that a failure loses nothing: beside their place first, and then moved there.

Every file of the package is written through `replacing`, or through `write_bytes` and `write_text`, which use it. A
full disk, a missing permission or Ctrl-C leaves the older file whole, and nothing else behind.
"""

from __future__ import annotations

import os
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def replacing(path: str | os.PathLike[str]) -> Iterator[Path]:
    """Yield a temporary path, and move what the block wrote there to `path` once the block has ended well.

    The temporary path has the same folder and suffix, and may become a file or a folder. A link is written through. A
    device or a pipe, as /dev/stdout is, is yielded itself, since it can only be written to in place.

    Raises
    ------
    OSError
        The block or the move failed, for want of space or permission; what stood at `path` still does.
    """
    target = Path(os.path.realpath(path))
    if target.exists() and not (target.is_file() or target.is_dir()):
        yield target
        return
    temporary = _name_beside(target)
    try:
        _check_may_replace(target)
        yield temporary
        _put(temporary, target)
    except OSError as error:
        kind = PermissionError if isinstance(error, PermissionError) else OSError
        refused = kind(f"cannot write {path}: {error}; check free space and permissions")
        refused.errno = error.errno
        raise refused from error
    finally:
        _remove(temporary)


def write_bytes(path: str | os.PathLike[str], content: bytes | memoryview) -> None:
    """Write a binary file; an older one is replaced only once the new one is complete."""
    with replacing(path) as temporary, temporary.open("wb") as file:
        file.write(content)


def write_text(path: str | os.PathLike[str], text: str) -> None:
    """Write a text file as UTF-8, with line ends as given; an older one is replaced only once the new one is complete.

    What UTF-8 cannot hold, half a surrogate pair, is written as its escape sequence.
    """
    write_bytes(path, text.encode("utf-8", errors="backslashreplace"))


def try_folder(folder: str | os.PathLike[str]) -> None:
    """Write an empty file into a folder and remove it, so that OSError is raised now if it would be raised later."""
    probe = _name_beside(Path(folder) / "probe")
    probe.touch(exist_ok=False)
    probe.unlink()


def _name_beside(path: Path) -> Path:
    """Return a new hidden name in the same folder with the same suffix."""
    stem = path.stem.encode(errors="surrogateescape")[:200].decode(errors="ignore")  # a name has at most 255 bytes
    return path.with_name(f".{stem}-{secrets.token_hex(4)}{path.suffix}")


def _check_may_replace(target: Path) -> None:
    """Raise PermissionError for a file that is write-protected, which a move would replace all the same."""
    if target.is_file() and not os.access(target, os.W_OK):
        raise PermissionError(f"{target} is write-protected")


def _put(temporary: Path, target: Path) -> None:
    """Move a complete file or folder to its place; an older folder is moved aside first, and back on failure."""
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
    """Bring a file to disk, where some systems find out only now that there is no room; keep the older permissions."""
    with temporary.open("r+b") as file:
        os.fsync(file.fileno())
    if target.is_file():
        shutil.copymode(target, temporary)


def _remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
