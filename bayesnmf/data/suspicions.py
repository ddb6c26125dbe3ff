"""Warnings about matrices that are valid counts, but whose names or numbers show a likely mistake."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np

from bayesnmf.data.counts import Counts, DataWarning
from bayesnmf.data.mutations import read_types

PACKAGE = str(Path(__file__).parent.parent)
FEWEST_ROWS = 3  # rows that are not empty; with fewer, equal sums may be chance
MOST_ROWS = 1000  # rows examined first, which exclude most matrices
SMALLEST_TOTAL = 1e4  # of a power of ten that rounded rows add up to
LARGEST_LOG = 30.0  # natural logarithm of the largest plausible count
EQUAL = 1e-3  # relative tolerance, since numbers in files are rounded


def warn_of_data(message: str) -> None:
    """Give a DataWarning that points to the first line outside the package."""
    warnings.warn(message, DataWarning, skip_file_prefixes=(PACKAGE,))


def warn_of_mutation_types_in_rows(row_names: np.ndarray, feature_names: np.ndarray) -> None:
    """Warn if the rows, and not the columns, are mutation types of one kind."""
    rows, features = read_types(row_names), read_types(feature_names)
    if rows is not None and features is None:
        number = f"the {len(rows.kind)}" if rows.is_complete else f"{len(rows.names)} of the {len(rows.kind)}"
        warn_of_data(
            f"counts have {number} mutation types ({rows.names[0]}, ...) in their rows, and rows must be "
            "samples; transpose them: counts.T, read_counts(path, transpose=True), or --transpose on the command line"
        )


def warn_of_normalised(counts: Counts) -> bool:
    """Warn about counts whose rows all have the same sum or norm, directly or before rounding or taking logarithms.

    Return whether nothing is left to be told.
    """
    raw = 'pass the raw counts, such as adata.layers["counts"] or adata.raw'
    if counts.is_integer:
        _warn_of_rounded(counts, raw)
        return True
    if norm := _common_sum(counts, np.square):
        if abs(norm - 1) <= EQUAL and not _common_sum(counts, np.asarray):  # else the same numbers in each row
            warn_of_data(f"counts look normalised: they are not whole numbers, and every row has the norm 1; {raw}")
        return True
    logs = ((np.e, "exp(x) - 1"), (2.0, "2**x - 1"), (10.0, "10**x - 1"))
    if total := _common_sum(counts, np.asarray):
        warn_of_data(
            f"counts look normalised: they are not whole numbers, and every row adds up to {total:,.6g}; {raw}, since "
            "the models account for the row totals"
        )
        return True
    largest = counts.matrix.data.max()
    for log_base, inverse in ((np.log(base), inverse) for base, inverse in logs):
        if largest * log_base > LARGEST_LOG:
            break
        if total := _common_sum(counts, partial(_undone, log_base)):
            warn_of_data(
                f"counts look log-normalised: they are not whole numbers, and {inverse} adds up to {total:,.6g} in "
                f"every row; {raw}"
            )
            return True
    return False


def _warn_of_rounded(counts: Counts, raw: str) -> None:
    """Warn if whole numbers add up to a little less or more than a power of ten in every row."""
    sums = counts.row_totals[counts.row_totals > 0]
    if len(sums) < FEWEST_ROWS or not sums.max() < np.inf:
        return
    power = 10.0 ** np.rint(np.log10(sums[0]))
    if power >= SMALLEST_TOTAL and sums.min() < power < sums.max() and np.all(np.abs(sums / power - 1) <= EQUAL):
        warn_of_data(f"counts look normalised and rounded: every row adds up to about {power:,.6g}; {raw}")


def _undone(log_base: float, logs: np.ndarray) -> np.ndarray:
    """Return base**logs − 1."""
    return np.expm1(log_base * logs)


def _common_sum(counts: Counts, function: Callable[[np.ndarray], np.ndarray]) -> float | None:
    """Return the sum of a function of the counts that all nonempty rows have in common; None if they differ."""
    for rows in sorted({min(MOST_ROWS, counts.shape[0]), counts.shape[0]}):
        starts, ends = counts.matrix.indptr[:rows], counts.matrix.indptr[1 : rows + 1]
        filled = starts[starts < ends]
        if len(filled) < FEWEST_ROWS:
            return None
        with np.errstate(over="ignore"):
            sums = np.add.reduceat(function(counts.matrix.data[: ends[-1]].astype(np.float64)), filled)
        if not sums.max() <= sums.min() * (1 + EQUAL):
            return None
    return float(sums.mean())
