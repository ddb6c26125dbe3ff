"""Read the input files of a command."""

from __future__ import annotations

from argparse import Namespace
from pathlib import Path
from typing import Any

DEFAULT_ROWS = 334


def read_counts_of(args: Namespace) -> tuple[Any, tuple[int, int] | None]:
    """Return the counts of FILE, or of several by name, and the shape of images if they are the digits."""
    if args.file is None:
        from bayesnmf.checks import check_has_file
        from bayesnmf.datasets import DIGITS_IMAGE, digits

        check_has_file(args.transpose)
        return digits().rows(slice(DEFAULT_ROWS)), DIGITS_IMAGE
    from bayesnmf.data.files import read_counts

    how: Any = {name: getattr(args, name) for name in ("layer", "feature_labels", "layout")}
    how["missing"] = "nan" if args.missing == "nan" else None
    if isinstance(args.file, dict):
        return {name: read_counts(file, args.transpose, **how) for name, file in args.file.items()}, None
    return read_counts(args.file, args.transpose, **how), None


def read_entries(args: Namespace) -> Any:
    """Return the word of missing entries, or a table of booleans by name that is True at them.

    None if those of NaN have been found when the counts were read.
    """
    if args.missing in (None, "nan", "zeros"):
        return None if args.missing == "nan" else args.missing
    import pandas as pd

    from bayesnmf.data.files import read_counts

    entries = read_counts(args.missing, args.transpose)
    return pd.DataFrame(entries.matrix.toarray() > 0, entries.row_names, entries.feature_names)


def read_around(args: Namespace) -> dict[str, Any]:
    """Return what stands around the counts, as arguments of a fit: exposures, seeds, covariates and batches."""
    found = {"seeds": args.seeds, "formula": args.formula, "batch": read_batch(args)}
    return {**found, **read_exposures(args), "covariates": read_covariates(args, args.formula is not None)}


def how_to_run(args: Namespace) -> dict[str, Any]:
    """Return the seed, the folder that keeps the work, and whether progress is shown, as arguments of a function."""
    return {"seed": args.seed, "checkpoint": args.checkpoint, "progress": False if args.quiet else None}


def read_exposures(args: Namespace) -> dict[str, Any]:
    """Return the exposures that are given, each a Series by name, as arguments of a fit."""
    paths = {"row_exposure": args.row_exposure, "feature_exposure": args.feature_exposure}
    return {name: read_column(path, f"--{name.replace('_', '-')}") for name, path in paths.items() if path is not None}


def read_covariates(args: Namespace, needed: bool) -> Any:
    """Return the table of covariates by name, or, if they are needed, that of the rows of an AnnData file."""
    if args.covariates is not None:
        table = _table(args.covariates)
        return table.set_index(table.columns[0])
    if not needed or not str(args.file).lower().endswith(".h5ad"):
        return None
    from anndata import read_h5ad

    return read_h5ad(args.file, backed="r").obs


def read_batch(args: Namespace) -> Any:
    """Return the batches of samples by name: a column of the obs of the .h5ad FILE, or that of a table."""
    if args.batch is None or Path(args.batch).suffix:
        return args.batch and read_column(args.batch, "--batch").to_dict()
    if not str(args.file).lower().endswith(".h5ad"):
        raise ValueError(
            f"--batch must be a table, .csv or .tsv, unless FILE is an .h5ad file with obs: found {args.file}"
        )
    from anndata import read_h5ad

    from bayesnmf.data.batches import column_of

    return column_of(args.batch, read_h5ad(args.file, backed="r")).to_dict()


def read_column(path: str | None, name: str) -> Any:
    """Return the second column of a table with two as a Series, with the names in the first as text; None for None."""
    if path is None:
        return None
    import pandas as pd

    try:
        table = _table(path)
    except (UnicodeDecodeError, pd.errors.ParserError, pd.errors.EmptyDataError):
        table = pd.DataFrame()
    if table.shape[1] != 2:
        raise ValueError(
            f"{name} must be a table with a header line and two columns, of which the first has the names: found "
            f"{table.shape[1]} columns in {path}; rewrite the file"
        )
    return table.set_index(table.columns[0]).iloc[:, 0]


def _table(path: str) -> Any:
    """Return a table, whose first column is text."""
    import pandas as pd

    separator = "\t" if path.lower().endswith((".tsv", ".tsv.gz", ".txt", ".txt.gz")) else ","
    return pd.read_csv(path, sep=separator, dtype={0: str})


def read_fit(args: Namespace) -> Any:
    """Return the fit in the file FIT, whose components a table may name."""
    from bayesnmf.fitting.loading import load_fit

    fit = load_fit(args.fit)
    return fit if args.names is None else fit.rename(read_column(args.names, "--names").to_dict())
