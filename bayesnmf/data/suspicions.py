"""Warnings about matrices that are valid counts, but whose names or numbers show a likely mistake."""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from bayesnmf.checks import is_counted
from bayesnmf.data.counts import Counts
from bayesnmf.data.labels import is_missing
from bayesnmf.data.mutations import read_types
from bayesnmf.types import Array

PACKAGE = str(Path(__file__).parent.parent)
FEWEST_ROWS = 3  # rows that are not empty; with fewer, equal sums may be chance
MOST_ROWS = 1000  # rows examined first, which exclude most matrices
SMALLEST_TOTAL = 1e4  # of a power of ten that rounded rows add up to
LARGEST_LOG = 30.0  # natural logarithm of the largest plausible count
EQUAL = 1e-3  # relative tolerance, since numbers in files are rounded
OF_TEXTS = "pass those of CountVectorizer, since the model itself accounts for frequent words"


class DataWarning(UserWarning):
    """Warning about counts whose names or numbers show a likely mistake; the message names the cure.

    See Also
    --------
    ConvergenceWarning : the warning of fits.

    Examples
    --------
    >>> import warnings
    >>> import bayesnmf
    >>> with warnings.catch_warnings(record=True) as caught:
    ...     warnings.simplefilter("always")
    ...     shares = bayesnmf.fit([[3, 0, 1], [0, 2, 4]], rank=1, seed=0).transform([[0, 0, 0]])
    >>> caught[-1].category.__name__
    'DataWarning'
    """


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
            "samples; transpose them: counts.T, bayesnmf.read_counts(path, transpose=True), or --transpose on the "
            "command line"
        )


def warn_of_empty_rows(counts: Counts) -> None:
    """Warn about new rows without a count, whose loadings say nothing of them."""
    empty = np.count_nonzero(counts.row_totals == 0)
    if empty:
        warn_of_data(
            f"{empty:,} of {counts.shape[0]:,} rows have no count of a feature of the fit, as texts without a known "
            "word: their loadings are those that the prior gives any such row; leave them out"
        )


def warn_of_normalised(counts: Counts, cure: Callable[[], str]) -> bool:
    """Warn about counts whose rows all have the same sum or norm, directly or before rounding or taking logarithms.

    Warn about TF-IDF weights, too. Return whether nothing is left to be told.
    """
    if counts.is_integer:
        _warn_of_rounded(counts, cure)
        return True
    if _are_tf_idf(counts):
        warn_of_data(f"counts look like TF-IDF weights, which are no counts of words; {OF_TEXTS}")
        return True
    if norm := _common_sum(counts, np.square):
        if abs(norm - 1) <= EQUAL and not _common_sum(counts, np.asarray):  # else the same numbers in each row
            warn_of_data(
                "counts look normalised: they are not whole numbers, and every row has the norm 1, as those of TF-IDF "
                f"weights; {cure()}; of texts, {OF_TEXTS}"
            )
        return True
    logs = ((np.e, "exp(x) - 1"), (2.0, "2**x - 1"), (10.0, "10**x - 1"))
    if total := _common_sum(counts, np.asarray):
        warn_of_data(
            f"counts look normalised: they are not whole numbers, and every row adds up to {total:,.6g}; {cure()}, "
            "since the models account for the row totals"
        )
        return True
    largest = counts.matrix.data.max()
    for log_base, inverse in ((np.log(base), inverse) for base, inverse in logs):
        if largest * log_base > LARGEST_LOG:
            break
        if total := _common_sum(counts, partial(_undone, log_base)):
            warn_of_data(
                f"counts look log-normalised: they are not whole numbers, and {inverse} adds up to {total:,.6g} in "
                f"every row; {cure()}"
            )
            return True
    return False


def _are_tf_idf(counts: Counts) -> bool:
    """Return whether the smallest number of nearly each column is the weight of a word that occurs in as many rows.

    That is, 1 plus the logarithm of n / d, or of (1 + n) / (1 + d), for d of n rows: the weight of one occurrence.
    """
    columns, data = counts.matrix.indices, counts.matrix.data
    rows, used = counts.shape[0], np.bincount(columns, minlength=counts.shape[1])
    least = np.full(counts.shape[1], np.inf)
    np.minimum.at(least, columns, data)
    least, used = least[used > 0], used[used > 0]
    if len(used) < FEWEST_LINES or np.all(least == least[0]):
        return False
    weights = (np.log(rows / used) + 1.0, np.log((1.0 + rows) / (1.0 + used)) + 1.0)
    return any(np.mean(np.abs(least - each) <= EQUAL * each) >= SHARE for each in weights)


def _warn_of_rounded(counts: Counts, cure: Callable[[], str]) -> None:
    """Warn if whole numbers add up to a little less or more than a power of ten in every row."""
    sums = counts.row_totals[counts.row_totals > 0]
    if len(sums) < FEWEST_ROWS or not sums.max() < np.inf:
        return
    power = 10.0 ** np.rint(np.log10(sums[0]))
    if power >= SMALLEST_TOTAL and sums.min() < power < sums.max() and np.all(np.abs(sums / power - 1) <= EQUAL):
        warn_of_data(f"counts look normalised and rounded: every row adds up to about {power:,.6g}; {cure()}")


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


FEWEST_LINES = 4  # rows and columns with counts; of fewer, one may be the sum of the others by chance
BY_CHANCE = 14.0  # Σ log(1 + entry) of a line below which it may be the sum of all others by chance: one in a million
EQUAL_SINGLE = 1e-6  # relative tolerance, for counts in float32
MARGINS = ("total", "totals", "sum", "all", "grand total", "overall", "margin", "row total", "column total")


def warn_of_names(counts: Counts) -> None:
    """Warn about names that repeat or are missing, and about a row or column that is the sum of all others."""
    for side, names in (("row", counts.row_names), ("feature", counts.feature_names)):
        if not is_counted(names):
            _warn_of_repeats(side, names)
            _warn_of_nested(side, names)
    _warn_of_sums(counts)


def _warn_of_repeats(side: str, names: NDArray[np.generic]) -> None:
    listed = names.tolist()
    repeats = len(listed) - len(set(listed))
    if repeats:
        first, times = Counter(listed).most_common(1)[0]
        warn_of_data(
            f"names of {side}s repeat: {repeats:,} of {len(listed):,} are those of another one, such as {first!r} "
            f"({times} times); what is given for each {side} must then have the same names in the same order, or none; "
            "make names different to have them matched"
        )
    elif missing := sum(map(is_missing, listed)):
        warn_of_data(f"names of {side}s are missing for {missing:,} of {len(listed):,}; name them, or leave them out")


def _warn_of_nested(side: str, names: NDArray[np.generic]) -> None:
    """Warn about names of parts of others, as ``k__Bacteria|p__Firmicutes`` is of ``k__Bacteria``."""
    texts = {str(name) for name in names.tolist()}
    if parts := [each for each in texts if "|" in each and each.rpartition("|")[0] in texts]:
        part = min(parts)
        warn_of_data(
            f"{side}s are parts of others, as {part!r} is of {part.rpartition('|')[0]!r}, and have their counts once "
            "more; keep one level"
        )


def _warn_of_sums(counts: Counts) -> None:
    """Warn about a row or column that is the sum of all others: a margin of the table."""
    with np.errstate(over="ignore"):
        rows, features, total = counts.row_totals, counts.feature_totals, counts.total
    if not np.isfinite(total) or not total:
        return
    fewest = min(np.count_nonzero(rows), np.count_nonzero(features))
    for side, totals, names in (("row", rows, counts.row_names), ("column", features, counts.feature_names)):
        place = int(totals.argmax())
        named = str(names[place]).strip().lower() in MARGINS and np.count_nonzero(totals) > 2
        if not named and (fewest < FEWEST_LINES or not np.isclose(2 * totals[place], total, rtol=EQUAL_SINGLE)):
            continue
        entries = (counts.matrix[[place]] if side == "row" else counts.matrix[:, [place]].T).toarray().ravel()
        if not named and np.log1p(entries).sum() < BY_CHANCE:
            continue
        others = features if side == "row" else rows
        if np.allclose(2 * entries, others, rtol=EQUAL_SINGLE) or (named and np.all(2.000001 * entries >= others)):
            warn_of_data(
                f"counts have a {side} that is the sum of all others, {str(names[place])!r}: it is taken as data, and "
                "everything counts twice; leave it out"
            )


MOST_LINES = 100  # rows, and as many columns, whose ratios are looked at
MOST_ENTRIES = 1000  # of each
FEWEST_RATIOS = 3  # different ones in a row; with fewer, whole ones may be chance
SHARE = 0.9  # of rows that must be whole multiples
SMALLEST_RATIO, LARGEST_RATIO = 1.1, 25.0  # ratios looked at; larger ones are near whole numbers by chance
NEAR = 0.02
FEWEST_MULTIPLES = 6  # different ones in rows
MANY = 0.25  # of the different numbers in rows that must not be whole
MOST_UNITS = 4  # the smallest number of a row is at most so many units
TRANSFORMS: dict[str, Callable[[Array], Array]] = {
    "exp(x) - 1": np.expm1,
    "2**x - 1": lambda x: np.expm1(np.log(2.0) * x),
    "10**x - 1": lambda x: np.expm1(np.log(10.0) * x),
    "x**2": np.square,
}


def warn_of_scale(counts: Counts, cure: Callable[[], str]) -> None:
    """Warn about counts that were normalised, rescaled or transformed; `cure` says where raw counts are."""
    if not warn_of_normalised(counts, cure):
        warn_of_rescaled(counts, cure)


def warn_of_rescaled(counts: Counts, cure: Callable[[], str]) -> None:
    """Warn if fractional counts are whole multiples of another number in each row or column, at once or transformed."""
    rows, columns = (_lines(matrix) for matrix in (counts.matrix, counts.matrix[: 10 * MOST_LINES].T.tocsr()))
    every = np.concatenate(rows)
    if not every.size:
        return
    if _are_multiples(every, LARGEST_RATIO * MOST_LINES):
        _warn_of_unit(every, cure)
        return
    for lines, side in ((rows, "row"), (columns, "column")):
        if _are_scaled(lines):
            warn_of_data(
                f"counts look rescaled: they are not whole numbers, but multiples of one in each {side}"
                f"{', as TF-IDF weights are' if side == 'column' else ''}; {cure()}, since the models account for depth"
            )
            return
    for inverse, function in TRANSFORMS.items():
        found = np.unique(function(every[every <= LARGEST_LOG]))
        if every.max() <= LARGEST_LOG and len(found) >= FEWEST_LINES and _are_near_whole(found):
            warn_of_data(
                f"counts look transformed: they are not whole numbers, but {inverse} gives whole numbers, which may be "
                f"the counts; {cure()}"
            )
            return
        if (every.max() <= LARGEST_LOG or inverse == "x**2") and _are_scaled([function(line) for line in rows]):
            warn_of_data(
                f"counts look transformed: they are not whole numbers, but {inverse} gives multiples of one number in "
                f"each row; {cure()}, since the models account for depth"
            )
            return


def _warn_of_unit(every: Array, cure: Callable[[], str]) -> None:
    """Warn if numbers are multiples of one that are mostly not whole, as counts that were divided by it are.

    Halves that were added to counts, or that few of many numbers are, as of reads that fit in two places, are no sign.
    """
    values = np.unique(every)
    units = [values[0] / j for j in range(1, MOST_UNITS + 1)]
    unit = next(each for each in units if _are_near_whole(values[values <= LARGEST_RATIO * MOST_LINES * each] / each))
    parts = np.unique(np.round(values % 1.0, 6) % 1.0)
    if len(values) >= FEWEST_MULTIPLES and len(parts) > 1 and np.mean(np.abs(every - np.rint(every)) > EQUAL) >= MANY:
        warn_of_data(
            f"counts look rescaled: they are not whole numbers, but multiples of {unit:.6g}; {cure()}, or divide them "
            "by it, since the noise of the models is that of counts themselves"
        )


def _lines(matrix: object) -> list[Array]:
    """Return the different numbers of the first rows that have some."""
    data, starts = matrix.data, matrix.indptr  # type: ignore[attr-defined]
    filled = np.flatnonzero(np.diff(starts))[:MOST_LINES]
    return [np.unique(data[starts[row] : starts[row + 1]][:MOST_ENTRIES].astype(np.float64)) for row in filled]


def _are_scaled(lines: list[Array]) -> bool:
    """Return whether most lines that have enough ratios to tell are whole multiples of a number."""
    ratios = [line[1:] / line[0] for line in lines if len(line)]
    told = [
        each for each in ratios if np.count_nonzero((each > SMALLEST_RATIO) & (each <= LARGEST_RATIO)) >= FEWEST_RATIOS
    ]
    return len(told) >= FEWEST_ROWS and sum(map(_are_whole, told)) >= SHARE * len(told)


def _are_whole(ratios: Array, largest: float = LARGEST_RATIO) -> bool:
    chosen = ratios[ratios <= largest]
    return any(_are_near_whole(j * chosen) for j in range(1, MOST_UNITS + 1))


def _are_near_whole(values: Array) -> bool:
    return bool(np.all(np.abs(values - np.rint(values)) <= NEAR))


def _are_multiples(values: Array, largest: float) -> bool:
    return _are_whole(values / values.min(), largest)
