"""`bayesnmf equivalences`: check what the papers prove on the user's counts."""

from __future__ import annotations

from argparse import Namespace

HELP = "check every identity between models, algorithms and bounds on the counts"
DESCRIPTION = (
    "Check every identity between the models, algorithms and bounds on the counts, and print both sides of each. The "
    "exit code is 1 if an identity does not hold."
)
EXAMPLES = """  bayesnmf equivalences
  bayesnmf equivalences counts.csv --rank 3 --csv identities.csv"""


def run(args: Namespace) -> int:
    """Read counts, check the identities, and print and write the results."""
    from bayesnmf import equivalences
    from bayesnmf.cli import writing
    from bayesnmf.cli.reading import read_counts_of
    from bayesnmf.text import WIDTH

    counts, _ = read_counts_of(args)
    found = equivalences(
        counts, args.rank, iterations=args.iterations, seed=args.seed, progress=False if args.quiet else None
    )
    # Written before printing, which a closed pipe may end; results are printed even if writing fails.
    _, failure = (None, None) if args.csv is None else writing.attempt(lambda: found.save(args.csv))
    if args.json:
        about = {
            "counts": writing.about_counts(counts),
            "hold": found.hold,
            "statements": writing.records_of(found.table),
        }
        writing.tell("", about, args.outputs if failure is None else {}, as_json=True)
    else:
        console = writing.console_of()
        (console if console.is_terminal else writing.console_of(WIDTH)).print(found)
    if failure is not None:
        raise failure
    return writing.INTERRUPTED if found.interrupted else writing.SUCCESS if found.hold else writing.DOES_NOT_HOLD
