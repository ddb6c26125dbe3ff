"""The function `main`: run a command, print its errors and warnings, and return the exit code."""

from __future__ import annotations

import os
import signal
import sys
import threading
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, redirect_stderr, suppress
from io import TextIOWrapper
from pathlib import Path
from typing import Any

from bayesnmf.cli.codes import BAD_INPUT, CLOSED_PIPE, INTERRUPTED, SIGNALLED
from bayesnmf.cli.parser import COMMANDS, build_parser
from bayesnmf.text import Unread


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; return the exit code.

    The code is 0 on success; 1 if an identity does not hold; 2 on bad input; 130 after Ctrl-C, 143 after SIGTERM and
    129 after SIGHUP, with or without results; 141 if the reader of standard output closed the pipe.
    """
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:  # closed, as by >&-
            setattr(sys, name, Path(os.devnull).open("w", encoding="utf-8"))  # noqa: SIM115  (for the rest of the process)
    if isinstance(sys.stdout, TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")  # a terminal or file may be unable to encode θ
    options = build_parser().parse_args(arguments)
    with signals_as_ctrl_c() as caught, redirect_stderr(Unread(sys.stderr)):
        try:
            with warnings_as_lines():
                code: int = COMMANDS[options.command].run(options)
            sys.stdout.flush()
        except BrokenPipeError:
            with suppress(OSError, ValueError):  # Python flushes again at exit, and would report an error
                os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            return CLOSED_PIPE
        except (ValueError, TypeError, OSError, ImportError, MemoryError) as error:
            print(f"bayesnmf: error: {str(error) or type(error).__name__}", file=sys.stderr)
            return BAD_INPUT
        except KeyboardInterrupt:
            print("bayesnmf: interrupted", file=sys.stderr)
            code = INTERRUPTED
    return SIGNALLED + caught[0] if caught and code == INTERRUPTED else code


@contextmanager
def warnings_as_lines() -> Iterator[None]:
    """Print warnings of the library as one line each, without the place in the code."""
    from bayesnmf.data.counts import DataWarning
    from bayesnmf.inference.status import ConvergenceWarning

    own = DataWarning, ConvergenceWarning
    package = str(Path(__file__).parents[1])

    def show(message: Any, category: Any, filename: str, *place: Any, **more: Any) -> None:
        if category in own or filename.startswith(package):
            print(f"bayesnmf: warning: {message}", file=sys.stderr)
        else:
            before(message, category, filename, *place, **more)

    with warnings.catch_warnings():
        for category in own:
            warnings.simplefilter("always", category)
        before, warnings.showwarning = warnings.showwarning, show
        yield


@contextmanager
def signals_as_ctrl_c() -> Iterator[list[int]]:
    """Let signals that ask a program to end act like Ctrl-C; yield the list of signals received."""
    caught: list[int] = []

    def interrupt(number: int, _: Any) -> None:
        caught.append(number)
        raise KeyboardInterrupt

    before = {}
    if threading.current_thread() is threading.main_thread():  # only the main thread may set handlers
        asking = [getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name)]
        # Keep a signal that is ignored, as under nohup, or that has a handler of the caller.
        asking = [number for number in asking if signal.getsignal(number) is signal.SIG_DFL]
        before = {number: signal.signal(number, interrupt) for number in asking}
    try:
        yield caught
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
