"""The command line: ``bayesnmf compare`` and ``bayesnmf equivalences``."""

from __future__ import annotations

import argparse
import os
import signal
import sys
import threading
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from io import TextIOWrapper
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import Console


DEFAULT_ROWS = 334
INTERRUPTED = 130  # Ctrl-C: 128 and the number of the signal, as in shells
SIGPIPE = 13  # not defined on Windows


def build_parser(words: Sequence[str] = ()) -> argparse.ArgumentParser:
    """Build the parser; load models and methods only if `words` need them, so that --help is fast."""
    from bayesnmf import __version__

    models, methods = names() if "compare" in words else ((), ())
    parser = argparse.ArgumentParser(
        prog="bayesnmf", description="Bayesian non-negative matrix factorisation of counts."
    )
    parser.add_argument("--version", action="version", version=f"bayesnmf {__version__}")
    commands = parser.add_subparsers(dest="command", required=True)
    compare = commands.add_parser(
        "compare",
        help="fit one model by several methods and compare them",
        description="Fit one model to the same counts by several methods, align the components, score held-out counts, "
        "and write a table, an ArviZ file and figures.",
    )
    compare.add_argument("file", nargs="?", metavar="FILE",
                         help=f"counts, samples in rows: .npz .mtx[.gz] .csv[.gz] .tsv[.gz] .h5ad "
                         f"(default: {DEFAULT_ROWS} of scikit-learn's digits)")  # fmt: skip
    add_transpose(compare)
    compare.add_argument("--model", default="gamma_poisson", help=f"one of {', '.join(models)} (default: %(default)s)")
    compare.add_argument("--rank", default="8", metavar="K", help="number of components (default: %(default)s)")
    compare.add_argument("--methods", default="map,vi,gibbs,nuts", metavar="LIST",
                         help=f"comma-separated, of {', '.join(methods)} (default: %(default)s)")  # fmt: skip
    compare.add_argument("--seed", default="0", help="seed of all random numbers (default: %(default)s)")
    compare.add_argument("--out", default="results", metavar="DIR", help="folder to write to (default: %(default)s)")
    compare.add_argument("--draws", default="thinned", help="thinned or all: which draws of gibbs and nuts to write "
    "(default: %(default)s, at most 2.5 MB a method)")  # fmt: skip
    compare.add_argument("--quiet", action="store_true", help="no progress bar")
    equivalences = commands.add_parser(
        "equivalences",
        help="check every identity between models, algorithms and bounds on the counts",
        description="Check every identity between the models, algorithms and bounds on the counts, and print both "
        "sides of each. The exit code is 1 if an identity does not hold.",
    )
    equivalences.add_argument("file", nargs="?", metavar="FILE", help="as for compare")
    add_transpose(equivalences)
    equivalences.add_argument("--rank", default="5", metavar="K", help="number of components (default: %(default)s)")
    equivalences.add_argument("--iterations", default="20", metavar="N",
                              help="updates of each sequence of iterates (default: %(default)s)")  # fmt: skip
    equivalences.add_argument("--seed", default="0", help="seed of all random numbers (default: %(default)s)")
    equivalences.add_argument(
        "--csv", metavar="PATH", help="also write the table to this file, in a folder that exists"
    )
    equivalences.add_argument("--quiet", action="store_true", help="no progress bar")
    return parser


def names() -> tuple[Sequence[str], Sequence[str]]:
    """Return the names of all models and methods."""
    from bayesnmf.options import METHODS
    from bayesnmf.priors.specification import MODELS

    return tuple(MODELS), tuple(METHODS)


def add_transpose(command: argparse.ArgumentParser) -> None:
    """Add the option for files that have features in rows."""
    command.add_argument("--transpose", action="store_true", help="FILE has features in rows; transpose it")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; return the exit code.

    The code is 0 on success; 1 if an identity does not hold; 2 on bad input; 130 after Ctrl-C, 143 after SIGTERM and
    129 after SIGHUP, with or without results; 141 if the reader of standard output closed the pipe.
    """
    if isinstance(sys.stdout, TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")  # a terminal or file may be unable to encode θ
    words = sys.argv[1:] if arguments is None else arguments
    options = build_parser(words).parse_args(words)
    with signals_as_ctrl_c() as caught:
        try:
            code = {"compare": run_compare, "equivalences": run_equivalences}[options.command](options)
            sys.stdout.flush()
        except BrokenPipeError:
            with suppress(OSError, ValueError):  # Python flushes again at exit, and would report an error
                os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            return 128 + SIGPIPE
        except (ValueError, TypeError, OSError, ImportError, MemoryError) as error:
            print(f"bayesnmf: error: {error}", file=sys.stderr)
            return 2
        except KeyboardInterrupt:
            print("bayesnmf: interrupted", file=sys.stderr)
            code = INTERRUPTED
    return 128 + caught[0] if caught and code == INTERRUPTED else code


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


def console_of(width: int | None = None) -> Console:
    """Return a console that prints to standard output; a closed pipe raises BrokenPipeError."""
    from rich.console import Console

    class Raising(Console):
        def on_broken_pipe(self) -> None:  # rich would exit with code 1
            raise BrokenPipeError

    return Raising(width=width)


def run_compare(options: argparse.Namespace) -> int:
    """Read counts, compare methods, and print and write the results."""
    from bayesnmf.checks import check_choice, check_count, parse_int
    from bayesnmf.places import check_folder, check_plots_can_be_drawn

    check_choice(options.model, "--model", names()[0])
    methods = [check_choice(word.strip(), "--methods", names()[1]) for word in options.methods.split(",")]
    rank = check_count(parse_int(options.rank, "--rank"), "--rank")
    seed = check_count(parse_int(options.seed, "--seed"), "--seed", minimum=0)
    check_choice(options.draws, "--draws", ("thinned", "all"))
    counts, image_shape = read(options.file, options.transpose)

    from bayesnmf.comparison.report import file_names, notes, rich_table, write
    from bayesnmf.comparison.running import Settings, compare

    out = check_folder(options.out, "--out", file_names())
    check_plots_can_be_drawn()

    settings, progress = Settings(draws=options.draws), not options.quiet
    result = compare(counts, options.model, rank, methods, seed=seed, settings=settings, out=out, progress=progress)
    # Written before printing, which a closed pipe may end; results are printed even if writing fails.
    written, failure = attempt(lambda: write(result, out, image_shape))
    console = console_of()
    console.print(rich_table(result))
    for line in notes(result):
        console.print(line, style="bold red" if line.startswith("CAUTION") else "", highlight=False)
    if failure is not None:
        raise failure
    for path in written or []:
        console.print(f"wrote {path}", highlight=False)
    return INTERRUPTED if result.interrupted else 0


def attempt[Result](write: Callable[[], Result]) -> tuple[Result | None, BaseException | None]:
    """Return the result of a function that writes, or its error: a full disk must not lose the results."""
    try:
        return write(), None
    except (Exception, KeyboardInterrupt) as error:
        return None, error


def run_equivalences(options: argparse.Namespace) -> int:
    """Read counts, check the identities, and print and write the results."""
    from bayesnmf.checks import check_count, parse_int
    from bayesnmf.places import check_file_to_write

    rank = check_count(parse_int(options.rank, "--rank"), "--rank")
    iterations = check_count(parse_int(options.iterations, "--iterations"), "--iterations")
    seed = check_count(parse_int(options.seed, "--seed"), "--seed", minimum=0)
    if options.csv is not None:
        check_file_to_write(options.csv, "--csv")
    counts, _ = read(options.file, options.transpose)

    from bayesnmf.theorems.statements import equivalences
    from bayesnmf.theorems.table import WIDTH

    found = equivalences(counts, rank, iterations=iterations, seed=seed, progress=not options.quiet)
    # Written before printing, as above.
    _, failure = (None, None) if options.csv is None else attempt(lambda: found.save(options.csv))
    console = console_of()
    (console if console.is_terminal else console_of(WIDTH)).print(found)
    if failure is not None:
        raise failure
    return INTERRUPTED if found.interrupted else 0 if found.hold else 1


def read(file: str | None, transpose: bool) -> tuple[Any, tuple[int, int] | None]:
    """Return the counts, and the shape of their images if the features are pixels; print warnings of reading."""
    if file is None:
        from bayesnmf.checks import check_has_file
        from bayesnmf.datasets import DIGITS_IMAGE, digits

        check_has_file(transpose)
        return digits().rows(slice(DEFAULT_ROWS)), DIGITS_IMAGE
    from bayesnmf.data.counts import DataWarning
    from bayesnmf.data.reading import read_counts

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", DataWarning)
        counts = read_counts(Path(file), transpose)
    for warning in caught:
        print(f"bayesnmf: warning: {warning.message}", file=sys.stderr)
    return counts, None


if __name__ == "__main__":
    raise SystemExit(main())
