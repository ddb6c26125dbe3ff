"""Tasks on threads of their own that all end when one fails, or when a signal interrupts the wait for them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_EXCEPTION, Future, ThreadPoolExecutor, wait
from threading import Event

# Seconds. Some exceptions reach no thread that waits without a limit: Ctrl-C on Windows, and what another thread sets.
WAKE = 0.5


def side_by_side[T](tasks: Sequence[Callable[[], T]], at_once: int, stop: Event) -> list[T]:
    """Run tasks, each on a thread of its own, and return their results in order.

    Parameters
    ----------
    tasks : sequence of callable
        Each looks at `stop` often, and returns what it has once that is set.
    at_once : int
        Most tasks run at once.
    stop : Event
        Is set by Ctrl-C while waiting, after which the results are those of tasks that may have ended early; and by any
        other exception, here or in a task. Otherwise it is left as it is, so callers know by it that they must end.

    Raises
    ------
    BaseException
        What a task raised, or what was raised here, except for the first Ctrl-C while waiting.
    """
    pool = ThreadPoolExecutor(at_once)
    running: list[Future[T]] = []
    try:
        for task in tasks:
            running.append(pool.submit(task))  # what is running must be known if this is interrupted
        try:
            while _all_go_on(running):
                pass
        except KeyboardInterrupt:
            stop.set()
    except BaseException:
        stop.set()
        raise
    finally:
        if not all(each.done() for each in running):  # one has failed
            stop.set()
        for started in running:
            started.exception()  # waits until it has ended
        # A signal may have come while a thread was being started, which nobody can wait for.
        pool.shutdown(wait=False)
    return [ended.result() for ended in running]


def _all_go_on[T](running: list[Future[T]]) -> bool:
    """Wait for a while; return whether there are tasks still to end, and none that failed."""
    ended, others = wait(running, WAKE, FIRST_EXCEPTION)
    return bool(others) and all(task.exception() is None for task in ended)
