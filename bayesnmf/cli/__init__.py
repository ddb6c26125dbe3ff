"""The command line, `bayesnmf`: one file for each command.

Every command file has `HELP`, `DESCRIPTION`, `EXAMPLES`, a function `add` that adds its options to a parser, and a
function `run` that runs it and returns the exit code. They import what computes only when they run, so that --help is
fast.
"""

from bayesnmf.cli.entry import main

__all__ = ["main"]
