"""A plugin that lists, at the end of a run, the tests that took more than a second of their own.

What Numba and JAX compile in a test for the first time is no time of its own: the next test that needs it has it.
"""

import sys
import time
from collections.abc import Iterator
from typing import Any

import pytest

SLOW = 1.0  # seconds


class Compiling:
    """The seconds that this process has spent on compiling, since it imported Numba and JAX."""

    def __init__(self) -> None:
        self.numba: Any = None
        self.spans: list[tuple[float, float]] | None = None  # of JAX: those inside others are not counted again
        self.of_jax = 0.0

    def seconds(self) -> float:
        """Return the seconds so far."""
        if self.numba is None and "numba.core.event" in sys.modules:
            event = sys.modules["numba.core.event"]
            self.numba = event.TimingListener()
            event.register("numba:compile", self.numba)
        if self.spans is None and "jax.monitoring" in sys.modules:
            self.spans = []
            sys.modules["jax.monitoring"].register_event_time_span_listener(self.add)
        of_numba = self.numba.duration if self.numba and self.numba.done else 0.0
        return of_numba + self.of_jax

    def add(self, event: str, start: float, end: float, **_: Any) -> None:
        """Count a span of JAX in place of those that lie inside it."""
        if event.startswith("/jax/core/compile/") and self.spans is not None:
            while self.spans and self.spans[-1][0] >= start:
                self.of_jax -= self.spans[-1][1] - self.spans[-1][0]
                self.spans.pop()
            self.spans.append((start, end))
            self.of_jax += end - start


compiling = Compiling()
began = {"time": 0.0, "compiling": 0.0}
slow: list[tuple[float, float, str]] = []
in_all = {"own": 0.0, "compiling": 0.0}


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    """Note when a test begins, which has to set up what it uses."""
    began.update(time=time.perf_counter(), compiling=compiling.seconds())
    return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo) -> Iterator[Any]:
    """Give a test's report its seconds, for the process that collects the reports."""
    if call.when == "call":
        compiled = compiling.seconds() - began["compiling"]
        item.user_properties.append(("own seconds", (time.perf_counter() - began["time"] - compiled, compiled)))
    return (yield)


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Collect the tests that took long."""
    own, compiled = dict(report.user_properties).get("own seconds", (0.0, 0.0))
    if report.when != "call":
        return
    in_all["own"] += own
    in_all["compiling"] += compiled
    if own > SLOW:
        slow.append((own, compiled, report.nodeid))


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """List them."""
    seconds = f"{in_all['own']:.0f} s in tests, {in_all['compiling']:.0f} s in what they compiled for the first time"
    terminalreporter.write_line(seconds)
    if slow:
        terminalreporter.write_line(f"{len(slow)} tests took over {SLOW:.0f} s of their own, without compiling:")
    for own, compiled, name in sorted(slow, reverse=True):
        terminalreporter.write_line(f"  {own:6.1f} s  + {compiled:4.1f} s compiling  {name}")
