"""`bayesnmf report`: one page about a fit, for a browser."""

from __future__ import annotations

import argparse
from typing import Any

from bayesnmf.cli.checks import check_outputs, check_pair_of_numbers, check_suffix
from bayesnmf.cli.codes import SUCCESS
from bayesnmf.cli.shared import add_printing

HELP = "write one page about a fit, for a colleague without Python"
DESCRIPTION = (
    "Write one HTML file without links to other files. It says first what was found, what failed and what may be "
    "trusted; then the composition of every sample, the components with intervals, checks of the model, and how to "
    "repeat and cite the fit. Tables can be sorted, filtered and downloaded."
)
EXAMPLES = """  bayesnmf report fit.nc
  bayesnmf report fit.nc --groups celltypes.csv --title "Blood cells" --out blood.html
  bayesnmf report fit.nc --catalogue COSMIC_v3.4_SBS_GRCh38.txt"""
LEAST = 0.8  # cosine of a match


def add(command: argparse.ArgumentParser) -> None:
    """Add the options."""
    command.add_argument("fit", metavar="FIT", help="file of a fit, .nc or .zarr")
    command.add_argument("--groups", metavar="FILE", help="table with name and group of each sample: .csv, .tsv")
    command.add_argument("--names", metavar="FILE", help="table with number and name of each component: .csv, .tsv")
    command.add_argument(
        "--catalogue", metavar="FILE", help="known components, such as a table of COSMIC: shown where the cosine is "
        f"at least {LEAST}"
    )  # fmt: skip
    command.add_argument("--title", metavar="TEXT", help="heading of the page")
    command.add_argument("--image-shape", metavar="H,W", help="height and width, if the features are pixels")
    command.add_argument("--out", default="report.html", metavar="PATH", help="the page (default: %(default)s)")
    add_printing(command)


def run(options: argparse.Namespace) -> int:
    """Read the fit, write the page and print."""
    outputs = check_outputs({"--out": options.out}, (), (options.fit, options.groups, options.names, options.catalogue))
    check_suffix(outputs["--out"], "--out", (".html", ".htm"))
    shape: Any = None if options.image_shape is None else check_pair_of_numbers(options.image_shape, "--image-shape")

    from bayesnmf import report
    from bayesnmf.assessment.matching import match
    from bayesnmf.cli.reading import read_column, read_fit
    from bayesnmf.cli.writing import about_fit, tell
    from bayesnmf.places import check_plots_can_be_drawn

    check_plots_can_be_drawn()
    fit = read_fit(options.fit, options.names)
    groups = None if options.groups is None else read_column(options.groups, "--groups")
    found = None if options.catalogue is None else match(fit, options.catalogue, least=LEAST)
    given: Any = {"title": options.title, "image_shape": shape, "known": found}
    report(fit, outputs["--out"], groups=groups, progress=not options.quiet, **given)
    tell(repr(fit), about_fit(fit), outputs, options.json)
    return SUCCESS
