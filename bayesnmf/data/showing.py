"""What counts show of themselves: their sizes as text, and a card in a notebook."""

from __future__ import annotations

from typing import Any

import numpy as np

from bayesnmf.cards import Card

LARGEST = 8  # features that are named
CALLS = ("bayesnmf.select(counts)  # how many components", "bayesnmf.fit(counts, rank=10)  # a model of them")


def sizes_of(counts: Any) -> list[str]:
    """Return what counts are, in words, part by part."""
    n, m = counts.shape
    given = {"rows": counts.row_exposure, "features": counts.feature_exposure}
    exposed = " and ".join(side for side, exposure in given.items() if exposure is not None)
    sizes = [f"{n:,} rows × {m:,} features", f"{counts.nnz:,} nonzeros", f"total {counts.total:,.12g}"]
    sizes += [f"with exposures of {exposed}"] if exposed else []
    return sizes + ([] if counts.mask is None else [f"{counts.mask.number:,} entries missing"])


def card_of(counts: Any) -> Card:
    """Return what a notebook shows of counts."""
    n, m = counts.shape
    rows, features = counts.row_totals, counts.feature_totals
    low, middle, high = np.quantile(rows, (0.0, 0.5, 1.0)) if n else np.zeros(3)
    names = ", ".join(map(str, counts.feature_names[np.argsort(-features, kind="stable")[:LARGEST]]))
    lines = [
        ["entries with counts", f"{counts.nnz / max(n * m, 1):.2%} of {n * m:,}"],
        ["counts of a row", f"{middle:,.4g} in the median, {low:,.4g} to {high:,.4g}"],
        ["rows and features without any", f"{np.count_nonzero(rows == 0):,} and {np.count_nonzero(features == 0):,}"],
        ["features with most counts", names],
    ]
    return Card(f"Counts: {', '.join(sizes_of(counts))}", ["", ""], lines, calls=CALLS)
