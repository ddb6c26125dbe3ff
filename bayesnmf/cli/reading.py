"""Read the input files of a command."""

from __future__ import annotations

from argparse import Namespace
from pathlib import Path
from typing import Any

DEFAULT_ROWS = 334


def read_counts_of(given: Namespace) -> tuple[Any, tuple[int, int] | None]:
    """Return the counts of FILE, or of several by name, and the shape of images if they are the digits."""
    if given.file is None:
        from bayesnmf.checks import check_has_file
        from bayesnmf.datasets import DIGITS_IMAGE, digits

        check_has_file(given.transpose)
        return digits().rows(slice(DEFAULT_ROWS)), DIGITS_IMAGE
    from bayesnmf.data.reading import read_counts

    how: Any = {name: getattr(given, name) for name in ("layer", "feature_labels", "layout")}
    how["missing"] = "nan" if given.missing == "nan" else None
    if isinstance(given.file, dict):
        return {name: read_counts(file, given.transpose, **how) for name, file in given.file.items()}, None
    return read_counts(given.file, given.transpose, **how), None


def read_entries(given: Namespace) -> Any:
    """Return the word of missing entries, or a table of booleans by name that is True at them.

    None if those of NaN have been found when the counts were read.
    """
    if given.missing in (None, "nan", "zeros"):
        return None if given.missing == "nan" else given.missing
    import pandas as pd

    from bayesnmf.data.reading import read_counts

    entries = read_counts(given.missing, given.transpose)
    return pd.DataFrame(entries.matrix.toarray() > 0, entries.row_names, entries.feature_names)


def read_around(given: Namespace) -> dict[str, Any]:
    """Return what stands around the counts, as arguments of a fit: exposures, seeds, covariates and batches."""
    found = {"seeds": given.seeds, "formula": given.formula, "batch": read_batch(given)}
    return {**found, **read_exposures(given), "covariates": read_covariates(given, given.formula is not None)}


def how_to_run(given: Namespace) -> dict[str, Any]:
    """Return the seed, the folder that keeps the work, and whether progress is shown, as arguments of a function."""
    return {"seed": given.seed, "checkpoint": given.checkpoint, "progress": not given.quiet}


def read_exposures(given: Namespace) -> dict[str, Any]:
    """Return the exposures that are given, each a Series by name, as arguments of a fit."""
    paths = {"row_exposure": given.row_exposure, "feature_exposure": given.feature_exposure}
    return {name: read_column(path, f"--{name.replace('_', '-')}") for name, path in paths.items() if path is not None}


def read_covariates(given: Namespace, needed: bool) -> Any:
    """Return the table of covariates by name, or, if they are needed, that of the rows of an AnnData file."""
    if given.covariates is not None:
        table = _table(given.covariates)
        return table.set_index(table.columns[0])
    if not needed or not str(given.file).lower().endswith(".h5ad"):
        return None
    from anndata import read_h5ad

    return read_h5ad(given.file, backed="r").obs


def read_batch(given: Namespace) -> Any:
    """Return the batches of samples by name: a column of the obs of the .h5ad FILE, or that of a table."""
    if given.batch is None or Path(given.batch).suffix:
        return given.batch and read_column(given.batch, "--batch").to_dict()
    if not str(given.file).lower().endswith(".h5ad"):
        raise ValueError(
            f"--batch must be a table, .csv or .tsv, unless FILE is an .h5ad file with obs: found {given.file}"
        )
    from anndata import read_h5ad

    from bayesnmf.data.batches import column_of

    return column_of(given.batch, read_h5ad(given.file, backed="r")).to_dict()


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


def read_fit(given: Namespace) -> Any:
    """Return the fit in the file FIT, whose components a table may name."""
    from bayesnmf.fitting.loading import load_fit

    fit = load_fit(given.fit)
    return fit if given.names is None else fit.rename(read_column(given.names, "--names").to_dict())
