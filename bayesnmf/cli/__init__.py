"""The command line, `bayesnmf`: one file for each command, and a record for each argument (`arguments.py`).

Every command file has `HELP`, `DESCRIPTION`, `EXAMPLES`, and a function `run` that takes the values of the arguments,
runs it and returns the exit code. They import what computes only when they run, so that --help is fast.
"""

from bayesnmf.cli.entry import main

__all__ = ["main"]
