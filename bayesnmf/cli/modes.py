"""`bayesnmf modes`: which of the many factorisations, and which components come back."""

from __future__ import annotations

import argparse

from bayesnmf.cli.checks import check_noise_of_fit, check_outputs, check_suffix, check_whole
from bayesnmf.cli.codes import INTERRUPTED, SUCCESS
from bayesnmf.cli.names import TABLES
from bayesnmf.cli.shared import (
    add_around,
    add_checkpoint,
    add_counts,
    add_exposures,
    add_model,
    add_noise,
    add_options,
    add_printing,
)

HELP = "how many different factorisations there are, and which components come back"
DESCRIPTION = (
    "Fit from many random starts and group the fits into modes: the objective of each, its held-out score and stacking "
    "weight, and how often each component comes back."
)
EXAMPLES = """  bayesnmf modes counts.csv --rank 6 --starts 20
  bayesnmf modes counts.csv --rank 6 --starts 100 --checkpoint runs/ --components recurrence.csv --out best.nc"""
TABLE_OPTIONS = ("--table", "--runs", "--components")


def add(command: argparse.ArgumentParser) -> None:
    """Add the options."""
    add_counts(command)
    add_exposures(command)
    group = add_model(command, methods=("map", "vi", "bld"))
    add_options(group)
    add_around(group)
    add_noise(group)
    group.add_argument("--starts", default="20", metavar="N", help="number of runs (default: %(default)s)")
    group.add_argument("--jobs", metavar="N", help="number of runs side by side (default: one for each core)")
    group = command.add_argument_group("output")
    add_checkpoint(group)
    group.add_argument("--table", metavar="PATH", help=f"the table of the modes: {TABLES}")
    group.add_argument("--runs", metavar="PATH", help=f"the table of the runs: {TABLES}")
    group.add_argument("--components", metavar="PATH", help=f"how often each component comes back: {TABLES}")
    group.add_argument("--out", metavar="PATH", help="the fit of the best mode: .nc or .zarr")
    group.add_argument("--plot", metavar="PATH", help="figure of the modes: .png, .pdf or .svg")
    add_printing(command)


def run(options: argparse.Namespace) -> int:
    """Read, fit, write and print."""
    from bayesnmf.checks import check_choice
    from bayesnmf.cli.fit import settings_of_method

    method = check_choice(options.method, "--method", ("map", "vi", "bld"))
    rank, seed = check_whole(options.rank, "--rank"), check_whole(options.seed, "--seed", 0)
    starts = check_whole(options.starts, "--starts")
    jobs = None if options.jobs is None else check_whole(options.jobs, "--jobs")
    named = {f"--{name}": getattr(options, name) for name in ("table", "runs", "components", "out", "plot")}
    outputs = check_outputs(named, TABLE_OPTIONS, (options.file, options.seeds, options.covariates, options.batch))
    if "--out" in outputs:
        check_suffix(outputs["--out"], "--out", (".nc", ".zarr"))
    settings, noise = settings_of_method(options, method), check_noise_of_fit(options.noise, options.dispersion)

    from bayesnmf.cli.reading import read_around, read_counts_of
    from bayesnmf.cli.writing import about_counts, finish, records_of, write_table
    from bayesnmf.studies.stability.modes import modes

    counts, _ = read_counts_of(options)
    found = modes(counts, options.model, rank, method, starts=starts, seed=seed, jobs=jobs, options=settings,
                  noise=noise, checkpoint=options.checkpoint, progress=not options.quiet,
                  **read_around(options))  # fmt: skip

    def write() -> None:
        for name in {*TABLE_OPTIONS} & {*outputs}:
            write_table(getattr(found, name.removeprefix("--")).reset_index(), outputs[name], index=False)
        if "--out" in outputs:
            found.best.save(outputs["--out"])
        if "--plot" in outputs:
            from bayesnmf.plots import modes as draw
            from bayesnmf.plots.style import save_figure

            save_figure(draw(found), outputs["--plot"])

    about = {"counts": about_counts(counts), "modes": records_of(found.table),
             "components": records_of(found.components), "cautions": found.cautions}  # fmt: skip
    finish(write, repr(found), about, outputs, options.json)
    return INTERRUPTED if found.interrupted else SUCCESS
