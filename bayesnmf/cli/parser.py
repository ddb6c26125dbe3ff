"""The parser of the command line."""

from __future__ import annotations

import argparse
from textwrap import fill
from types import ModuleType

from bayesnmf.cli import compare, equivalences, fit, modes, report, select, simulate, transform

COMMANDS: dict[str, ModuleType] = {
    "fit": fit,
    "transform": transform,
    "select": select,
    "modes": modes,
    "compare": compare,
    "equivalences": equivalences,
    "report": report,
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
  all methods on built-in data, on one page:
    bayesnmf compare

exit codes:
  0 success; 1 an identity does not hold (equivalences); 2 bad input;
  130, 143, 129 after Ctrl-C, SIGTERM, SIGHUP, with the results so far, if there are any;
  141 if the reader closed the pipe

bayesnmf COMMAND --help explains each command."""


def build_parser() -> argparse.ArgumentParser:
    """Build the parser of all commands."""
    from bayesnmf import __version__

    form = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(
        prog="bayesnmf", description=DESCRIPTION, epilog=EPILOG, formatter_class=form, allow_abbrev=False
    )
    parser.add_argument("--version", action="version", version=f"bayesnmf {__version__}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for name, command in COMMANDS.items():
        added = commands.add_parser(
            name,
            help=command.HELP,
            description=fill(command.DESCRIPTION, WIDTH),
            epilog=f"examples:\n{command.EXAMPLES}",
            formatter_class=form,
            allow_abbrev=False,
        )
        command.add(added)
    return parser
