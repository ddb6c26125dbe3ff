"""A plugin under which no two processes compile a loop at once: the later waits, and reads what the other has kept.

Both begin with the same loops, whatever they test, and one loop takes up to twenty seconds.
"""

import fcntl
import os
import time
from pathlib import Path
from typing import IO, Any

FOLDER = Path(__file__).parents[1] / ".pytest_cache" / "loops"
LONGEST = 60.0  # seconds that a process waits for another, which may have failed to compile

held: dict[str, IO[str]] = {}  # the locks of this process, by the names of functions


def pytest_sessionstart() -> None:
    """Let Numba's cache of a function lock it between looking for its code in vain and keeping it."""
    if "PYTEST_XDIST_WORKER" not in os.environ:
        return
    from numba.core.caching import Cache

    load, save = Cache.load_overload, Cache.save_overload

    def load_or_lock(self: Any, *key: Any) -> Any:
        found, name = load(self, *key), self._impl.filename_base
        if found is None and name not in held:
            wait_for(name)
            found = load(self, *key)
            if found is not None:
                let_go(name)
        return found

    def save_and_let_go(self: Any, *entry: Any) -> None:
        try:
            save(self, *entry)
        finally:
            let_go(self._impl.filename_base)

    Cache.load_overload, Cache.save_overload = load_or_lock, save_and_let_go


def wait_for(name: str) -> None:
    """Lock a function, as soon as no other process holds it, or in vain."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    held[name] = (FOLDER / name).open("w")
    end = time.monotonic() + LONGEST
    while time.monotonic() < end:
        try:
            fcntl.flock(held[name], fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            time.sleep(0.02)


def let_go(name: str) -> None:
    """Unlock a function, also for processes that this one has forked."""
    if name in held:
        with held.pop(name) as file:
            fcntl.flock(file, fcntl.LOCK_UN)
