"""Warnings about counts that were divided, multiplied or transformed, as the ratios of small numbers show.

In a row of counts that were divided by anything, each number is a whole multiple of a unit, or of a few units.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from bayesnmf.data.counts import Counts
from bayesnmf.data.suspicions import warn_of_data, warn_of_normalised

MOST_ROWS = 100  # looked at, and as many columns
MOST_ENTRIES = 1000  # of each
FEWEST_ROWS = 3
FEWEST_RATIOS = 3  # different ones in a row; with fewer, whole ones may be chance
SHARE = 0.9  # of rows that must be whole multiples
SMALLEST, LARGEST = 1.1, 25.0  # ratios looked at; larger ones are near whole numbers by chance
NEAR = 0.02
MOST_UNITS = 4  # the smallest number of a row is at most so many units
LARGEST_LOG = 30.0
Array = NDArray[np.float64]
TRANSFORMS: dict[str, Callable[[Array], Array]] = {
    "exp(x) - 1": np.expm1,
    "2**x - 1": lambda x: np.expm1(np.log(2.0) * x),
    "10**x - 1": lambda x: np.expm1(np.log(10.0) * x),
    "x**2": np.square,
}


def warn_of_scale(counts: Counts) -> None:
    """Warn about counts that were normalised, rescaled or transformed."""
    if not warn_of_normalised(counts):
        warn_of_rescaled(counts)


def warn_of_rescaled(counts: Counts) -> None:
    """Warn if fractional counts are whole multiples of another number in each row or column, at once or transformed."""
    cure = 'pass the raw counts, such as adata.layers["counts"] or adata.raw, since the models account for depth'
    rows, columns = (_lines(matrix) for matrix in (counts.matrix, counts.matrix[: 10 * MOST_ROWS].T.tocsr()))
    every = np.concatenate(rows)
    if not every.size or _are_multiples(every, LARGEST * MOST_ROWS):  # of one number, as halves are
        return
    for lines, side in ((rows, "row"), (columns, "column")):
        if _are_scaled(lines):
            warn_of_data(
                f"counts look rescaled: they are not whole numbers, but multiples of one in each {side}; {cure}"
            )
            return
    for inverse, function in TRANSFORMS.items():
        if (every.max() <= LARGEST_LOG or inverse == "x**2") and _are_scaled([function(line) for line in rows]):
            warn_of_data(
                f"counts look transformed: they are not whole numbers, but {inverse} gives multiples of one number in "
                f"each row; {cure}"
            )
            return


def _lines(matrix: object) -> list[Array]:
    """Return the different numbers of the first rows that have some."""
    data, starts = matrix.data, matrix.indptr  # type: ignore[attr-defined]
    filled = np.flatnonzero(np.diff(starts))[:MOST_ROWS]
    return [np.unique(data[starts[row] : starts[row + 1]][:MOST_ENTRIES].astype(np.float64)) for row in filled]


def _are_scaled(lines: list[Array]) -> bool:
    """Return whether most lines that have enough ratios to tell are whole multiples of a number."""
    ratios = [line[1:] / line[0] for line in lines if len(line)]
    told = [each for each in ratios if np.count_nonzero((each > SMALLEST) & (each <= LARGEST)) >= FEWEST_RATIOS]
    return len(told) >= FEWEST_ROWS and sum(map(_are_whole, told)) >= SHARE * len(told)


def _are_whole(ratios: Array, largest: float = LARGEST) -> bool:
    chosen = ratios[ratios <= largest]
    return any(np.all(np.abs(j * chosen - np.rint(j * chosen)) <= NEAR) for j in range(1, MOST_UNITS + 1))


def _are_multiples(values: Array, largest: float) -> bool:
    return _are_whole(values / values.min(), largest)
