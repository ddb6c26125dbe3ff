"""`bayesnmf report`: one page about a fit, for a browser."""

from __future__ import annotations

from argparse import Namespace

from bayesnmf.cli.arguments import LEAST_COSINE

HELP = "write one page about a fit, for a colleague without Python"
DESCRIPTION = (
    "Write one HTML file without links to other files. It says first what was found, what failed and what may be "
    "trusted; then the composition of every sample, the components with intervals, checks of the model, and how to "
    "repeat and cite the fit. Tables can be sorted, filtered and downloaded."
)
EXAMPLES = """  bayesnmf report fit.nc
  bayesnmf report fit.nc --groups celltypes.csv --title "Blood cells" --out blood.html
  bayesnmf report fit.nc --catalogue COSMIC_v3.4_SBS_GRCh38.txt"""


def run(args: Namespace) -> int:
    """Read the fit, write the page and print."""
    from bayesnmf import report
    from bayesnmf.assessment.matching import match
    from bayesnmf.cli.reading import read_column, read_fit
    from bayesnmf.cli.writing import SUCCESS, about_fit, tell
    from bayesnmf.places import check_plots_can_be_drawn

    check_plots_can_be_drawn()
    fit = read_fit(args)
    groups = read_column(args.groups, "--groups")
    known = None if args.catalogue is None else match(fit, args.catalogue, least=LEAST_COSINE)
    report(fit, args.out, groups=groups, known=known, title=args.title, image_shape=args.image_shape,
           progress=False if args.quiet else None)  # fmt: skip
    tell(repr(fit), about_fit(fit), args.outputs, args.json)
    return SUCCESS
