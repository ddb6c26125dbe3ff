"""Compile loops with Numba and keep the compiled code on disk.

Numba compiles a function again when the function's own file changes, but not when a file changes from which it inlines
code. So the name under which code is kept includes a digest of all kernels.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path
from types import FunctionType
from typing import Any

from numba import njit

from bayesnmf.kernels.cpu.keeping import cache_of

# Sums may be reordered and fused, so that the loops over components vectorise; NaN and infinity keep their meaning.
FAST = {"reassoc", "contract", "arcp", "nsz"}

_SOURCES = sorted(Path(__file__).parent.glob("*.py"))
DIGEST = hashlib.blake2b(b"".join(path.read_bytes() for path in _SOURCES), digest_size=6).hexdigest()


def compiled_on_disk(**options: Any) -> Callable[[Callable[..., Any]], Any]:
    """Return a decorator that compiles a function with these options of Numba and keeps the code on disk."""

    def compiled(function: Callable[..., Any]) -> Any:
        function.__qualname__ += f"_{DIGEST}"
        dispatcher = njit(**options)(function)
        dispatcher._cache = cache_of(function)
        return dispatcher

    return compiled


def with_globals(function: Callable[..., Any], name: str, **names: Any) -> Callable[..., Any]:
    """Return a copy of a function with another name, for Numba's cache, in which these globals have other values."""
    twin = FunctionType(function.__code__, {**function.__globals__, **names}, function.__name__)
    twin.__qualname__ = name
    return twin
