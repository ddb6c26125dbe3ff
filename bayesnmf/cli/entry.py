"""The parser of all commands, and `main`: run a command, print its errors and warnings, and return the exit code."""

from __future__ import annotations

import argparse
import os
import re
import signal
import sys
import threading
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, redirect_stderr, suppress
from io import TextIOWrapper
from pathlib import Path
from textwrap import fill
from types import ModuleType
from typing import Any, NoReturn

from bayesnmf.checks import nearest
from bayesnmf.cli import assign, browse, compare, equivalences, fit, modes, report, select, simulate, transform
from bayesnmf.cli.arguments import add_arguments, read_arguments
from bayesnmf.cli.writing import BAD_INPUT, CLOSED_PIPE, INTERRUPTED, SIGNALLED, SUCCESS
from bayesnmf.text import Unread

COMMANDS: dict[str, ModuleType] = {
    "fit": fit,
    "transform": transform,
    "assign": assign,
    "select": select,
    "modes": modes,
    "compare": compare,
    "equivalences": equivalences,
    "report": report,
    "browse": browse,
    "simulate": simulate,
}
WIDTH = 78
DESCRIPTION = "Bayesian non-negative matrix factorisation of counts: components, and how sure you may be of them."
EPILOG = """examples:
  from a folder of 10x Genomics to components, marker genes and a page:
    bayesnmf select filtered_feature_bc_matrix/ --ranks 4,6,8,10
    bayesnmf fit filtered_feature_bc_matrix/ --rank 6 --markers markers.csv
    bayesnmf report fit.nc --out report.html
  from a table of single base substitutions to signatures and exposures:
    bayesnmf fit BRCA.SBS96.all --rank 8 --components signatures.tsv
    bayesnmf assign BRCA.SBS96.all COSMIC_v3.4_SBS_GRCh38.txt --noise nb2
  all methods on built-in data, on one page:
    bayesnmf compare

exit codes:
  0 success; 1 an identity does not hold (equivalences); 2 bad input;
  130, 143, 129 after Ctrl-C, SIGTERM, SIGHUP, with the results so far, if there are any;
  141 if the reader closed the pipe

bayesnmf COMMAND --help explains each command."""


class Parser(argparse.ArgumentParser):
    """A parser that suggests the command or option that is nearest to one that it does not know."""

    def error(self, message: str) -> NoReturn:
        """Print usage and error, with a suggestion, and exit with code 2."""
        unknown = re.search(r"invalid choice: '(\S+)'|unrecognized arguments: .*?(--[\w-]+)", message)
        choices = re.findall(r"'(\S+?)'", message.partition("choose from")[2])
        known = choices or [*COMMANDS, *re.findall(r"--[a-z-]+", self.format_help())]
        close = nearest(unknown[1] or unknown[2], known) if unknown else None
        super().error(message + (f"; did you mean {close}?" if close else ""))

    def parse(self, arguments: Sequence[str] | None) -> argparse.Namespace:
        """Return the options of a command, whose own parser tells of those that it does not know."""
        options, unknown = self.parse_known_args(arguments)
        if unknown:
            parser: Parser = getattr(options, "parser", self)
            parser.error(f"unrecognized arguments: {' '.join(unknown)}")
        return options


def build_parser() -> Parser:
    """Build the parser of all commands."""
    from bayesnmf import __version__

    form = argparse.RawDescriptionHelpFormatter
    parser = Parser(prog="bayesnmf", description=DESCRIPTION, epilog=EPILOG, formatter_class=form, allow_abbrev=False)
    parser.add_argument("--version", action="version", version=f"bayesnmf {__version__}")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND")
    for name, command in COMMANDS.items():
        added = commands.add_parser(
            name,
            help=command.HELP,
            description=fill(command.DESCRIPTION, WIDTH),
            epilog=f"examples:\n{command.EXAMPLES}",
            formatter_class=form,
            allow_abbrev=False,
        )
        add_arguments(added, name)
        added.set_defaults(parser=added)
    return parser


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
    parser = build_parser()
    options = parser.parse(arguments)
    if options.command is None:
        parser.print_help()
        return SUCCESS
    with signals_as_ctrl_c() as caught, redirect_stderr(Unread(sys.stderr)):
        try:
            with warnings_as_lines():
                code: int = COMMANDS[options.command].run(read_arguments(options))
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
    from bayesnmf.data.suspicions import DataWarning
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
