"""`bayesnmf modes`: which of the many factorisations, and which components come back."""

from __future__ import annotations

from argparse import Namespace

from bayesnmf.cli.arguments import noise_of, options_of

HELP = "how many different factorisations there are, and which components come back"
DESCRIPTION = (
    "Fit from many random starts and group the fits into modes: the objective of each, its held-out score and stacking "
    "weight, and how often each component comes back."
)
EXAMPLES = """  bayesnmf modes counts.csv --rank 6 --starts 20
  bayesnmf modes counts.csv --rank 6 --starts 100 --checkpoint runs/ --components recurrence.csv --out best.nc"""


def run(args: Namespace) -> int:
    """Read, fit, write and print."""
    options, noise = options_of(args, args.method), noise_of(args)

    from bayesnmf.cli.reading import how_to_run, read_around, read_counts_of
    from bayesnmf.cli.writing import about_counts, finish, records_of, save_plot, write_table
    from bayesnmf.studies.stability.modes import modes

    counts, _ = read_counts_of(args)
    found = modes(counts, args.model, args.rank, args.method, starts=args.starts, jobs=args.jobs, options=options,
                  noise=noise, **read_around(args), **how_to_run(args))  # fmt: skip
    about = {"counts": about_counts(counts), "modes": records_of(found.table),
             "components": records_of(found.components), "cautions": found.cautions}  # fmt: skip
    return finish(args, found, about, {
        "--out": lambda path: found.best.save(path),
        "--table": lambda path: write_table(found.table.reset_index(), path, index=False),
        "--runs": lambda path: write_table(found.runs.reset_index(), path, index=False),
        "--components": lambda path: write_table(found.components.reset_index(), path, index=False),
        "--plot": lambda path: save_plot("modes", found, path),
    })  # fmt: skip
