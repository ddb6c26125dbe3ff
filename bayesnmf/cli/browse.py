"""`bayesnmf browse`: one page to choose components in, for a browser."""

from __future__ import annotations

import argparse

from bayesnmf.cli.checks import check_outputs, check_suffix
from bayesnmf.cli.codes import SUCCESS
from bayesnmf.cli.shared import add_printing

HELP = "write one page to browse the components of a fit"
DESCRIPTION = (
    "Write one HTML file without links to other files: the components by size, their leading features by share, by "
    "lift or between, the samples that show each best, and a search for features."
)
EXAMPLES = """  bayesnmf browse fit.nc
  bayesnmf browse topics.nc --texts abstracts.csv --title "Abstracts since 1990" --out topics.html"""


def add(command: argparse.ArgumentParser) -> None:
    """Add the options."""
    command.add_argument("fit", metavar="FIT", help="file of a fit, .nc or .zarr")
    command.add_argument("--texts", metavar="FILE", help="table with name and text of each sample: .csv, .tsv")
    command.add_argument("--names", metavar="FILE", help="table with number and name of each component: .csv, .tsv")
    command.add_argument("--title", metavar="TEXT", help="heading of the page")
    command.add_argument("--out", default="browse.html", metavar="PATH", help="the page (default: %(default)s)")
    add_printing(command)


def run(options: argparse.Namespace) -> int:
    """Read the fit, write the page and print."""
    outputs = check_outputs({"--out": options.out}, (), (options.fit, options.texts, options.names))
    check_suffix(outputs["--out"], "--out", (".html", ".htm"))

    from bayesnmf import browse
    from bayesnmf.cli.reading import read_column, read_fit
    from bayesnmf.cli.writing import about_fit, tell
    from bayesnmf.places import check_plots_can_be_drawn

    check_plots_can_be_drawn()
    fit = read_fit(options.fit, options.names)
    texts = None if options.texts is None else read_column(options.texts, "--texts")
    browse(fit, outputs["--out"], texts=texts, title=options.title)
    tell(repr(fit), about_fit(fit), outputs, options.json)
    return SUCCESS
