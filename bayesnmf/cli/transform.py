"""`bayesnmf transform`: loadings of new samples."""

from __future__ import annotations

from argparse import Namespace
from pathlib import Path

from bayesnmf.cli.arguments import FIT_SUFFIXES

HELP = "loadings of new samples, given the components of a fit"
DESCRIPTION = (
    "Estimate the loadings of new samples with the components of a fit held as they are. Features are matched by name; "
    "those that the file lacks are taken as missing entries, and those that the fit lacks are left out."
)
EXAMPLES = """  bayesnmf transform fit.nc new_samples.csv --out exposures.csv
  bayesnmf transform fit.nc new_samples.h5ad --layer counts --out projected.nc"""


def run(args: Namespace) -> int:
    """Read, project, write and print."""
    from bayesnmf.cli.reading import read_batch, read_counts_of, read_covariates, read_exposures
    from bayesnmf.cli.writing import about_fit, finish, write_table
    from bayesnmf.data.suspicions import warn_of_empty_rows
    from bayesnmf.fitting.loading import load_fit
    from bayesnmf.results.thinning import loadings_table

    fit = load_fit(args.fit)
    counts, _ = read_counts_of(args)
    covariates = read_covariates(args, fit.priors.loadings.has_effects)  # type: ignore[union-attr]
    found = fit.project(counts, **read_exposures(args), covariates=covariates, batch=read_batch(args), seed=args.seed)
    warn_of_empty_rows(found.counts)

    def write(path: Path) -> None:
        if path.suffix in FIT_SUFFIXES:
            found.save(path)
        else:
            write_table(loadings_table(found), path)

    return finish(args, found, about_fit(found), {"--out": write})
