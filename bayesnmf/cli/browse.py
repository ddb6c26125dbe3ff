"""`bayesnmf browse`: one page to choose components in, for a browser."""

from __future__ import annotations

from argparse import Namespace

HELP = "write one page to browse the components of a fit"
DESCRIPTION = (
    "Write one HTML file without links to other files: the components by size, their leading features by share, by "
    "lift or between, the samples that show each best, and a search for features."
)
EXAMPLES = """  bayesnmf browse fit.nc
  bayesnmf browse topics.nc --texts abstracts.csv --title "Abstracts since 1990" --out topics.html"""


def run(args: Namespace) -> int:
    """Read the fit, write the page and print."""
    from bayesnmf import browse
    from bayesnmf.cli.reading import read_column, read_fit
    from bayesnmf.cli.writing import SUCCESS, about_fit, tell
    from bayesnmf.places import check_plots_can_be_drawn

    check_plots_can_be_drawn()
    fit = read_fit(args)
    browse(fit, args.out, texts=read_column(args.texts, "--texts"), title=args.title)
    tell(repr(fit), about_fit(fit), args.outputs, args.json)
    return SUCCESS
