"""A disk cache for compiled code that tolerates missing, damaged and unwritable files: it compiles again.

In these cases Numba's own cache ends the program; and it runs code in which bits have flipped.
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
    """Return the cache of a function's compiled code, or a cache that keeps nothing if no folder can be written to."""
    try:
        return _Cache(function)
    except RuntimeError:  # neither the package's folder nor the user's folder can be written to
        return NullCache()


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
