"""`bayesnmf transform`: loadings of new samples."""

from __future__ import annotations

import argparse

from bayesnmf.cli.checks import TABLE_SUFFIXES, check_outputs, check_suffix, check_whole, files_of, paths_of
from bayesnmf.cli.codes import SUCCESS
from bayesnmf.cli.names import FORMATS, TABLES
from bayesnmf.cli.shared import add_batch, add_printing, add_reading, add_seed

HELP = "loadings of new samples, given the components of a fit"
DESCRIPTION = (
    "Estimate the loadings of new samples with the components of a fit held as they are. Features are matched by name; "
    "those that the file lacks are taken as missing entries, and those that the fit lacks are left out."
)
EXAMPLES = """  bayesnmf transform fit.nc new_samples.csv --out exposures.csv
  bayesnmf transform fit.nc new_samples.h5ad --layer counts --out projected.nc"""


def add(command: argparse.ArgumentParser) -> None:
    """Add the options."""
    command.add_argument("fit", metavar="FIT", help="file of a fit, .nc or .zarr")
    group = command.add_argument_group("counts")
    group.add_argument("file", metavar="FILE", nargs="+",
                       help=f"counts of new samples, in rows: {FORMATS}; or NAME=FILE of one or several matrices, "
                       "if the fit is of several")  # fmt: skip
    add_reading(group)
    group.add_argument("--row-exposure", metavar="FILE", help="table with the name and the exposure of each row")
    group.add_argument("--covariates", metavar="FILE",
                       help="table with the name and the covariates of each row, if the fit had some")  # fmt: skip
    add_batch(group)
    group = command.add_argument_group("output")
    group.add_argument("--out", default="loadings.csv", metavar="PATH",
                       help=f"table of the loadings, {TABLES}, or .nc or .zarr for a fit with its posterior "
                       "(default: %(default)s)")  # fmt: skip
    add_seed(group)
    add_printing(command)


def run(options: argparse.Namespace) -> int:
    """Read, project, write and print."""
    seed = check_whole(options.seed, "--seed", 0)
    options.file = files_of(options.file)
    read = (options.fit, *paths_of(options.file), options.row_exposure, options.covariates, options.batch)
    outputs = check_outputs({"--out": options.out}, (), read)
    out = outputs["--out"]
    check_suffix(out, "--out", (*TABLE_SUFFIXES, ".nc", ".zarr"))

    from bayesnmf.cli.reading import read_batch, read_counts_of, read_covariates, read_exposures
    from bayesnmf.cli.writing import about_fit, finish, write_table
    from bayesnmf.data.suspicions import warn_of_empty_rows
    from bayesnmf.fitting.loading import load_fit
    from bayesnmf.results.thinning import loadings_table

    fit = load_fit(options.fit)
    counts, _ = read_counts_of(options)
    covariates = read_covariates(options) if options.covariates or fit.priors.loadings.has_effects else None  # type: ignore[union-attr]
    more = {"covariates": covariates, "batch": read_batch(options), "seed": seed}
    found = fit.project(counts, **read_exposures(options, ("row",)), **more)
    warn_of_empty_rows(found.counts)

    def write() -> None:
        if out.suffix in (".nc", ".zarr"):
            found.save(out)
        else:
            write_table(loadings_table(found), out)

    finish(write, repr(found), about_fit(found), outputs, options.json)
    return SUCCESS
