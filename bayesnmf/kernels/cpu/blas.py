"""Matrix products on one thread, where blocks of rows have threads of their own."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from threading import Lock
from typing import Any

_ENTERING = Lock()
_inside: list[Any] = []  # the limit, once for each block of code that it holds for


@cache
def _libraries() -> Any:
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController()


@contextmanager
def one_blas_thread() -> Iterator[None]:
    """Give matrix products of NumPy one thread each inside the block, which several threads may be in at once.

    Their rounding is then the same everywhere.
    """
    with _ENTERING:
        _inside.append(_inside[-1] if _inside else _libraries().limit(limits=1, user_api="blas"))
    try:
        yield
    finally:
        with _ENTERING:
            limit = _inside.pop()
            if not _inside:
                limit.restore_original_limits()
