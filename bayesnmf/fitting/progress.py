"""Report progress, to the caller or as a bar on standard error."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from math import isfinite
from typing import Any

from bayesnmf.checks import check_progress
from bayesnmf.text import Unread

ProgressReport = Callable[[str, int, int, float], None]


@contextmanager
def progress_bar() -> Iterator[ProgressReport]:
    """Show one line for each label: steps done and in all, elapsed and remaining time, and the current objective."""
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    columns = (
        TextColumn("{task.description:>28}"),
        BarColumn(bar_width=30),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
        TextColumn("{task.fields[objective]}"),
    )
    file: Any = sys.stderr and Unread(sys.stderr)  # None without a standard error
    with Progress(*columns, console=Console(file=file, stderr=True)) as bar:
        tasks: dict[str, int] = {}

        def report(label: str, done: int, total: int, objective: float) -> None:
            if label not in tasks:
                for task in tasks.values():
                    bar.stop_task(task)  # type: ignore[arg-type]
                tasks[label] = bar.add_task(label, total=total, objective="")
            text = f"{objective:,.1f}" if isfinite(objective) else ""
            bar.update(tasks[label], completed=done, total=total, objective=text)  # type: ignore[arg-type]

        yield report


def progress_context(progress: ProgressReport | bool) -> Any:
    """Return a context that provides a progress report: a bar, the caller's function, or none."""
    check_progress(progress)
    if callable(progress):
        return nullcontext(progress)
    if not progress:
        return nullcontext(lambda *_: None)
    return progress_bar()
