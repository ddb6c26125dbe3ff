"""`bayesnmf select`: which model, and how many components."""

from __future__ import annotations

import argparse
from typing import Any, get_args

from bayesnmf.cli.checks import NOISES, check_list, check_outputs, check_ranks, check_whole
from bayesnmf.cli.codes import INTERRUPTED, SUCCESS
from bayesnmf.cli.names import METHODS, MODELS, TABLES
from bayesnmf.cli.shared import (
    add_around,
    add_checkpoint,
    add_counts,
    add_exposures,
    add_options,
    add_printing,
    add_seed,
)
from bayesnmf.types import CriterionWord

HELP = "how many components, and which model"
DESCRIPTION = (
    "Rank models, numbers of components and noises by held-out entries or counts, by the stability of the components "
    "in halves of the rows, or, for small data, by the evidence; check the best one against the counts."
)
EXAMPLES = """  bayesnmf select counts.csv --ranks 2-8
  bayesnmf select counts.csv --ranks 4,8,12 --models gamma_poisson,dirichlet_poisson --plot ranks.png
  bayesnmf select sbs96.tsv --ranks 2-12 --criterion stability --table ranks.csv"""


def add(command: argparse.ArgumentParser) -> None:
    """Add the options."""
    add_counts(command)
    add_exposures(command)
    group = command.add_argument_group("candidates")
    group.add_argument("--models", default="gamma_poisson", metavar="LIST",
                       help=f"comma-separated, of {', '.join(MODELS)} (default: %(default)s)")  # fmt: skip
    group.add_argument("--ranks", default="2-6,8,10", metavar="LIST",
                       help="numbers of components, such as 2-8 or 4,8,12 (default: %(default)s)")  # fmt: skip
    group.add_argument("--criterion", help=f"one of {', '.join(get_args(CriterionWord))} (default: masked)")
    group.add_argument("--resample", help="with stability: halves (of the rows, the default) or counts (of all rows)")
    group.add_argument("--noise", default="poisson", metavar="LIST",
                       help="noises to compare, comma-separated: poisson, nb1, nb2 (default: %(default)s)")  # fmt: skip
    group.add_argument("--method", help=f"one of {', '.join(METHODS)} (default: vi; smc with the evidence)")
    add_options(group)
    add_around(group)
    add_seed(group)
    group = command.add_argument_group("output")
    add_checkpoint(group)
    group.add_argument("--table", metavar="PATH", help=f"the table of scores: {TABLES}")
    group.add_argument("--plot", metavar="PATH", help="figure of the scores: .png, .pdf or .svg")
    add_printing(command)


def run(options: argparse.Namespace) -> int:
    """Read, select, write and print."""
    from bayesnmf.checks import check_choice
    from bayesnmf.cli.fit import settings_of_method
    from bayesnmf.studies.selection.result import CRITERIA

    models = check_list(options.models, "--models", MODELS)
    noises = check_list(options.noise, "--noise", NOISES)
    ranks, seed = check_ranks(options.ranks), check_whole(options.seed, "--seed", 0)
    given: Any = options.criterion
    criterion: Any = given if given is None else check_choice(given, "--criterion", tuple(CRITERIA))
    chosen = None if options.method is None else check_choice(options.method, "--method", METHODS)
    outputs = check_outputs(
        {"--table": options.table, "--plot": options.plot},
        ("--table",),
        (options.file, options.seeds, options.covariates, options.batch),
    )

    settings = settings_of_method(options, chosen or ("vi" if criterion is None else CRITERIA[criterion].method))

    from bayesnmf.cli.reading import read_around, read_counts_of
    from bayesnmf.cli.writing import about_counts, finish, records_of, write_table
    from bayesnmf.studies.selection.selecting import select

    counts, _ = read_counts_of(options)
    found = select(counts, models, ranks, chosen, noise=noises, criterion=criterion, resample=options.resample,
                   seed=seed, options=settings, checkpoint=options.checkpoint, progress=not options.quiet,
                   **read_around(options))  # fmt: skip

    def write() -> None:
        if "--table" in outputs:
            write_table(found.table.reset_index(), outputs["--table"], index=False)
        if "--plot" in outputs:
            from bayesnmf.plots import selection
            from bayesnmf.plots.style import save_figure

            save_figure(selection(found), outputs["--plot"])

    best = None if found.best is None else found.best._asdict()
    about = {"counts": about_counts(counts), "criterion": found.criterion, "method": found.method, "best": best,
             "noise": repr(found.noise),
             "table": records_of(found.table), "cautions": found.cautions}  # fmt: skip
    finish(write, repr(found), about, outputs, options.json)
    return INTERRUPTED if found.interrupted else SUCCESS
