"""`bayesnmf select`: which model, and how many components."""

from __future__ import annotations

from argparse import Namespace

from bayesnmf.cli.arguments import options_of

HELP = "how many components, and which model"
DESCRIPTION = (
    "Rank models, numbers of components and noises by held-out entries or counts, by the stability of the components "
    "in halves of the rows, or, for small data, by the evidence; check the best one against the counts."
)
EXAMPLES = """  bayesnmf select counts.csv --ranks 2-8
  bayesnmf select counts.csv --ranks 4,8,12 --models gamma_poisson,dirichlet_poisson --plot ranks.png
  bayesnmf select sbs96.tsv --ranks 2-12 --criterion stability --table ranks.csv"""


def run(args: Namespace) -> int:
    """Read, select, write and print."""
    from bayesnmf.studies.selection.selecting import CRITERIA

    default = "vi" if args.criterion is None else CRITERIA[args.criterion].method
    options = options_of(args, args.method or default)

    from bayesnmf.cli.reading import how_to_run, read_around, read_counts_of
    from bayesnmf.cli.writing import about_counts, finish, records_of, save_plot, write_table
    from bayesnmf.studies.selection.selecting import select

    counts, _ = read_counts_of(args)
    found = select(counts, args.models, args.ranks, args.method, noise=args.noise, criterion=args.criterion,
                   resample=args.resample, options=options, weights=args.weights, **read_around(args),
                   **how_to_run(args))  # fmt: skip
    best = None if found.best is None else found.best._asdict()
    about = {"counts": about_counts(counts), "criterion": found.criterion, "method": found.method, "best": best,
             "noise": repr(found.noise), "table": records_of(found.table), "cautions": found.cautions}  # fmt: skip
    return finish(args, found, about, {
        "--table": lambda path: write_table(found.table.reset_index(), path, index=False),
        "--plot": lambda path: save_plot("selection", found, path),
    })  # fmt: skip
