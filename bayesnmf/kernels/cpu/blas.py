"""Matrix products on one thread, where blocks of rows have threads of their own."""

from __future__ import annotations

from functools import cache
from threading import Lock
from typing import Any


@cache
def _libraries() -> Any:
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController()


class _OneThread:
    """Context in which matrix products of NumPy have one thread each; several threads may be in it at once."""

    def __init__(self) -> None:
        self._entering, self._inside, self._limit = Lock(), 0, None

    def __enter__(self) -> None:
        with self._entering:
            if not self._inside:
                self._limit = _libraries().limit(limits=1, user_api="blas")
            self._inside += 1

    def __exit__(self, *_: object) -> None:
        with self._entering:
            self._inside -= 1
            if not self._inside:
                self._limit.restore_original_limits()  # type: ignore[attr-defined]


_CONTEXT = _OneThread()


def one_blas_thread() -> _OneThread:
    """Return a context in which matrix products have one thread each, so that their rounding is the same everywhere."""
    return _CONTEXT
