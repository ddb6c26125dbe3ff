"""`bayesnmf equivalences`: check what the papers prove on the user's counts."""

from __future__ import annotations

import argparse

from bayesnmf.cli.checks import check_outputs, check_whole
from bayesnmf.cli.codes import DOES_NOT_HOLD, INTERRUPTED, SUCCESS
from bayesnmf.cli.shared import add_counts, add_printing, add_seed

HELP = "check every identity between models, algorithms and bounds on the counts"
DESCRIPTION = (
    "Check every identity between the models, algorithms and bounds on the counts, and print both sides of each. The "
    "exit code is 1 if an identity does not hold."
)
EXAMPLES = """  bayesnmf equivalences
  bayesnmf equivalences counts.csv --rank 3 --csv identities.csv"""


def add(command: argparse.ArgumentParser) -> None:
    """Add the options."""
    add_counts(command, "334 of scikit-learn's digits")
    command.add_argument("--rank", default="5", metavar="K", help="number of components (default: %(default)s)")
    command.add_argument("--iterations", default="20", metavar="N",
                         help="updates of each sequence of iterates (default: %(default)s)")  # fmt: skip
    add_seed(command)
    command.add_argument("--csv", metavar="PATH", help="also write the table to this file, in a folder that exists")
    add_printing(command)


def run(options: argparse.Namespace) -> int:
    """Read counts, check the identities, and print and write the results."""
    from bayesnmf.cli.reading import read_counts_of
    from bayesnmf.cli.writing import about_counts, attempt, console_of, records_of, tell

    rank, seed = check_whole(options.rank, "--rank"), check_whole(options.seed, "--seed", 0)
    iterations = check_whole(options.iterations, "--iterations")
    outputs = check_outputs({"--csv": options.csv}, (), (options.file,))
    counts, _ = read_counts_of(options)

    from bayesnmf import equivalences
    from bayesnmf.text import WIDTH

    found = equivalences(counts, rank, iterations=iterations, seed=seed, progress=not options.quiet)
    # Written before printing, which a closed pipe may end; results are printed even if writing fails.
    _, failure = (None, None) if options.csv is None else attempt(lambda: found.save(options.csv))
    if options.json:
        about = {"counts": about_counts(counts), "hold": found.hold, "statements": records_of(found.table)}
        tell("", about, outputs if failure is None else {}, as_json=True)
    else:
        console = console_of()
        (console if console.is_terminal else console_of(WIDTH)).print(found)
    if failure is not None:
        raise failure
    return INTERRUPTED if found.interrupted else SUCCESS if found.hold else DOES_NOT_HOLD
