"""Run tasks on separate threads; all of them end when one fails or when a signal interrupts the wait."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_EXCEPTION, Future, ThreadPoolExecutor, wait
from contextvars import copy_context
from threading import Event

from bayesnmf.kernels.cpu.threads import STOP

# Seconds. A thread that waits without a limit misses Ctrl-C on Windows, exceptions that another thread sets in it, and
# signals that arrive just before it falls asleep.
WAKE = 0.1


def side_by_side[T](tasks: Sequence[Callable[[], T]], at_once: int, stop: Event) -> list[T]:
    """Run each task on its own thread, and return the results in order.

    Parameters
    ----------
    tasks : sequence of callable
        Tasks that check `stop` often and return their result so far once it is set; within them, compiled loops over
        blocks then raise KeyboardInterrupt.
    at_once : int
        Largest number of tasks to run at once.
    stop : Event
        Event that tells the tasks to end. It is set by Ctrl-C during the wait; the tasks may then have ended early. It
        is also set by any other exception, here or in a task.

    Raises
    ------
    BaseException
        An exception from a task or from here, except the first Ctrl-C during the wait.
    """
    pool, ready = ThreadPoolExecutor(at_once), Event()
    running: list[Future[T]] = []

    def begin(task: Callable[[], T]) -> T:
        ready.wait()
        return task()

    try:
        for task in tasks:  # one by one, so that all running tasks are known after an interrupt
            context = copy_context()
            context.run(STOP.set, stop)
            running.append(pool.submit(context.run, begin, task))
        ready.set()  # only now, so that Ctrl-C before the wait finds nothing that could be lost
        try:
            while _all_go_on(running):
                pass
        except KeyboardInterrupt:
            stop.set()
    except BaseException:
        stop.set()
        raise
    finally:
        if not all(each.done() for each in running):  # one task has failed
            stop.set()
        ready.set()
        for started in running:
            started.exception()  # waits until the task has ended
        # If a signal arrived while a thread was being started, that thread cannot be waited for.
        pool.shutdown(wait=False)
    return [ended.result() for ended in running]


def _all_go_on[T](running: list[Future[T]]) -> bool:
    """Wait for a while; return whether some tasks are still running and none has failed."""
    ended, others = wait(running, WAKE, FIRST_EXCEPTION)
    return bool(others) and all(task.exception() is None for task in ended)
