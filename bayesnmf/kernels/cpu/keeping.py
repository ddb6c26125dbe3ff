"""Compiled code on disk that can be missing, damaged or impossible to write: what is not found there is compiled.

Numba's own cache ends the program in each of these cases, and takes code with flipped bits for code.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable
from contextlib import suppress
from typing import Any
from zlib import crc32

from numba.core.caching import FunctionCache, IndexDataCacheFile, NullCache
from numba.core.serialize import dumps


def cache_of(function: Callable[..., Any]) -> Any:
    """Return the cache of a function's compiled code; one that keeps nothing where no folder can be written to."""
    try:
        return _Cache(function)
    except RuntimeError:  # neither the package's folder nor the user's can be written to
        return NullCache()


class _Cache(FunctionCache):
    """Numba's cache of one function, without which everything works."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__(function)
        self._cache_file = _Files(self._cache_file)

    def save_overload(self, sig: Any, data: Any) -> None:
        with suppress(OSError):  # a full disk, say: the code is in memory all the same
            super().save_overload(sig, data)


class _Files:
    """The index of one function's code and its files, with a checksum before the code."""

    def __init__(self, files: IndexDataCacheFile) -> None:
        self.files = files

    def load(self, key: Any) -> Any:
        """Return what was saved under a key, or None where that cannot be read."""
        try:
            checksum, code = self.files.load(key)
        except Exception:  # unpickling damaged bytes raises anything; nothing is there: None is not a pair
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
