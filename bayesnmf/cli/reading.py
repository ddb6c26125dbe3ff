"""Read the input files of a command."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from bayesnmf.cli.checks import check_has_columns, check_two_columns

DEFAULT_ROWS = 334


def read_counts_of(options: argparse.Namespace) -> tuple[Any, tuple[int, int] | None]:
    """Return the counts of FILE, or of several by name, and the shape of images if they are the digits."""
    if options.file is None:
        from bayesnmf.checks import check_has_file
        from bayesnmf.datasets import DIGITS_IMAGE, digits

        check_has_file(options.transpose)
        return digits().rows(slice(DEFAULT_ROWS)), DIGITS_IMAGE
    from bayesnmf.data.reading import read_counts

    how: Any = {name: getattr(options, name) for name in ("layer", "feature_labels", "layout")}
    how["missing"] = "nan" if getattr(options, "missing", None) == "nan" else None
    if isinstance(options.file, dict):
        return {name: read_counts(file, options.transpose, **how) for name, file in options.file.items()}, None
    return read_counts(options.file, options.transpose, **how), None


def read_entries(missing: str | None, transpose: bool) -> Any:
    """Return the word of missing entries, or a table of booleans by name that is True at them.

    None if those of NaN have been found when the counts were read.
    """
    if missing in (None, "nan", "zeros"):
        return None if missing == "nan" else missing
    import pandas as pd

    from bayesnmf.data.reading import read_counts

    entries = read_counts(missing, transpose)
    return pd.DataFrame(entries.matrix.toarray() > 0, entries.row_names, entries.feature_names)


def read_exposures(options: argparse.Namespace, sides: tuple[str, ...] = ("row", "feature")) -> dict[str, Any]:
    """Return the exposures that are given, each a Series by name, as arguments of a fit."""
    given = {f"{side}_exposure": getattr(options, f"{side}_exposure") for side in sides}
    return {name: read_column(path, f"--{name.replace('_', '-')}") for name, path in given.items() if path is not None}


def read_around(options: argparse.Namespace) -> dict[str, Any]:
    """Return what stands around the counts, as arguments of a fit: exposures, seeds, covariates and batches."""
    given = {"seeds": options.seeds, "formula": options.formula, "covariates": read_covariates(options)}
    return {**read_exposures(options), **given, "batch": read_batch(options)}


def read_covariates(options: argparse.Namespace) -> Any:
    """Return the table of covariates by name, or that of the rows of an AnnData file where a formula needs it."""
    import pandas as pd

    if options.covariates is not None:
        separator = "\t" if options.covariates.lower().endswith((".tsv", ".tsv.gz", ".txt", ".txt.gz")) else ","
        return pd.read_csv(options.covariates, sep=separator, dtype={0: str}).pipe(lambda x: x.set_index(x.columns[0]))
    if getattr(options, "formula", "") is None or not str(options.file).lower().endswith(".h5ad"):
        return None
    from anndata import read_h5ad

    return read_h5ad(options.file, backed="r").obs


def read_batch(options: argparse.Namespace) -> Any:
    """Return the batches of samples by name: a column of the obs of the .h5ad FILE, or that of a table."""
    if options.batch is None or Path(options.batch).suffix:
        return options.batch and read_column(options.batch, "--batch").to_dict()
    check_has_columns(options.file, "--batch")
    from anndata import read_h5ad

    from bayesnmf.data.batches import column_of

    return column_of(options.batch, read_h5ad(options.file, backed="r")).to_dict()


def read_column(path: str, name: str) -> Any:
    """Return the second column of a table with two as a Series, with the names in the first as text."""
    import pandas as pd

    separator = "\t" if path.lower().endswith((".tsv", ".tsv.gz", ".txt", ".txt.gz")) else ","
    try:
        table = pd.read_csv(path, sep=separator, dtype={0: str})
    except (UnicodeDecodeError, pd.errors.ParserError, pd.errors.EmptyDataError):
        table = pd.DataFrame()
    return check_two_columns(table, path, name)


def read_fit(path: str, names: str | None) -> Any:
    """Return the fit in a file, whose components a table may name."""
    from bayesnmf.fitting.loading import load_fit

    fit = load_fit(path)
    return fit if names is None else fit.rename(read_column(names, "--names").to_dict())
