"""Compile loops with Numba and keep the compiled code on disk.

Numba compiles a function again when the function's own file changes, but not when a file changes from which it inlines
code. So the name under which code is kept includes a digest of all kernels.

Files that are missing, damaged or cannot be written make it compile again; Numba's own cache would end the program, or
run code in which bits have flipped. What is read from the cache runs. A folder that somebody else could have written to
is therefore not used, unless the same person could have changed this file as well.
"""

from __future__ import annotations

import hashlib
import os
import pickle
import stat
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from types import FunctionType
from typing import Any
from zlib import crc32

from numba import njit
from numba.core.caching import FunctionCache, IndexDataCacheFile, NullCache
from numba.core.serialize import dumps


def cache_of(function: Callable[..., Any]) -> Any:
    """Return the cache of a function's compiled code, or one that keeps nothing if there is no folder to trust."""
    try:
        cache = _Cache(function)
    except RuntimeError:  # neither the package's folder nor the user's folder can be written to
        return NullCache()
    return cache if is_trusted(Path(cache.cache_path)) else NullCache()


def trusted_folder(name: str) -> Path | None:
    """Return a folder of this name beside the code of this file, made if need be; None if there is none to trust."""
    cache = cache_of(trusted_folder)
    if isinstance(cache, NullCache):
        return None
    folder = Path(cache.cache_path) / name
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
    except OSError:
        return None
    return folder if is_trusted(folder) else None


def is_trusted(folder: Path) -> bool:
    """Return whether nobody can write to a folder but the user and who can write to the code of this package."""
    if not hasattr(os, "getuid"):  # Windows: the folder is within the user's own, or that of the package
        return True
    found, package = folder.stat(), Path(__file__).parent.stat()
    if found.st_uid not in (os.getuid(), package.st_uid) or found.st_mode & stat.S_IWOTH:
        return False
    shared = package.st_mode & stat.S_IWGRP and package.st_gid == found.st_gid
    return not found.st_mode & stat.S_IWGRP or bool(shared) or _is_of_one_user(found.st_gid)


def _is_of_one_user(group: int) -> bool:
    """Return whether a group is the user's own, as where new folders may be written to by their group."""
    import grp
    import pwd

    try:
        known, user = grp.getgrgid(group), pwd.getpwuid(os.getuid())
    except KeyError:
        return False
    return known.gr_name == user.pw_name and set(known.gr_mem) <= {user.pw_name}


class _Cache(FunctionCache):
    """Numba's cache of one function, which ignores errors in writing."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__(function)
        self._cache_file = _Files(self._cache_file)

    def save_overload(self, sig: Any, data: Any) -> None:
        with suppress(OSError):  # such as a full disk: the code is still in memory
            super().save_overload(sig, data)


class _Files:
    """The index and the files of one function's code, with a checksum of the code."""

    def __init__(self, files: IndexDataCacheFile) -> None:
        self.files = files

    def load(self, key: Any) -> Any:
        """Return the code saved under a key, or None if it cannot be read."""
        try:
            checksum, code = self.files.load(key)
        except Exception:  # damaged bytes raise anything when unpickled; a missing entry is None, which is not a pair
            return None
        return pickle.loads(code) if crc32(code) == checksum else None

    def save(self, key: Any, data: Any) -> None:
        code = dumps(data)
        try:
            self.files.save(key, (crc32(code), code))
        except OSError:
            raise
        except Exception:  # the index is damaged
            self.files.flush()
            self.files.save(key, (crc32(code), code))

    def flush(self) -> None:
        self.files.flush()


# Sums may be reordered and fused, so that the loops over components vectorise; NaN and infinity keep their meaning.
FAST = {"reassoc", "contract", "arcp", "nsz"}

_SOURCES = sorted(Path(__file__).parent.glob("*.py"))
DIGEST = hashlib.blake2b(b"".join(path.read_bytes() for path in _SOURCES), digest_size=6).hexdigest()


def compiled_on_disk(**options: Any) -> Callable[[Callable[..., Any]], Any]:
    """Return a decorator that compiles a function with these options of Numba and keeps the code on disk.

    What is not given is said all the same: Numba takes it from the function by which another one is first called, and
    numbers then depend on which was compiled first.
    """

    def compiled(function: Callable[..., Any]) -> Any:
        function.__qualname__ += f"_{DIGEST}"
        plan: dict[str, Any] = {"fastmath": False, "error_model": "python", **options}
        plan["no_cfunc_wrapper"] = True  # nothing calls it from C: less to compile
        dispatcher = njit(**plan)(function)
        dispatcher._cache = cache_of(function)
        return dispatcher

    return compiled


def compiled_for_kernels(**options: Any) -> Callable[[Callable[..., Any]], Any]:
    """Return `compiled_on_disk` for a function that only compiled functions call: there is less to compile."""
    return compiled_on_disk(no_cpython_wrapper=True, **options)


def with_globals(function: Callable[..., Any], name: str, **names: Any) -> Callable[..., Any]:
    """Return a copy of a function with another name, for Numba's cache, in which these globals have other values."""
    twin = FunctionType(function.__code__, {**function.__globals__, **names}, function.__name__)
    twin.__qualname__ = name
    return twin
