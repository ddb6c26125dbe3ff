"""Warnings about names that cannot tell rows or features apart, and about rows and columns that are sums."""

from __future__ import annotations

from collections import Counter

import numpy as np
from numpy.typing import NDArray

from bayesnmf.checks import is_counted
from bayesnmf.data.counts import Counts
from bayesnmf.data.labels import is_missing
from bayesnmf.data.suspicions import warn_of_data

FEWEST = 4  # rows and columns with counts; of fewer, one may be the sum of the others by chance
EQUAL = 1e-6  # relative tolerance, for counts in float32


def warn_of_names(counts: Counts) -> None:
    """Warn about names that repeat or are missing, and about a row or column that is the sum of all others."""
    for side, names in (("row", counts.row_names), ("feature", counts.feature_names)):
        if not is_counted(names):
            _warn_of_repeats(side, names)
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


def _warn_of_sums(counts: Counts) -> None:
    """Warn about a row or column that is the sum of all others: a margin of the table."""
    with np.errstate(over="ignore"):
        rows, features, total = counts.row_totals, counts.feature_totals, counts.total
    if not np.isfinite(total) or min(np.count_nonzero(rows), np.count_nonzero(features)) < FEWEST:
        return
    for side, totals, names in (("row", rows, counts.row_names), ("column", features, counts.feature_names)):
        place = int(totals.argmax())
        if not np.isclose(2 * totals[place], total, rtol=EQUAL):
            continue
        entries = counts.matrix[[place]] if side == "row" else counts.matrix[:, [place]].T
        others = features if side == "row" else rows
        if np.allclose(2 * entries.toarray().ravel(), others, rtol=EQUAL):
            warn_of_data(
                f"counts have a {side} that is the sum of all others, {str(names[place])!r}: it is taken as data, and "
                "everything counts twice; leave it out"
            )
