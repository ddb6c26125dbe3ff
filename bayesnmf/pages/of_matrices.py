"""The section of several matrices on the page of a fit."""

from __future__ import annotations

from typing import Any

from bayesnmf.fitting.fitted import Fit
from bayesnmf.pages.parts import Number, Section, Table, share


def shared_among_matrices(fit: Fit) -> Section:
    """Return how the expected counts of each component are shared among matrices, with intervals."""
    shares = [_in_words(each) for each in fit.matrices().to_dict("records")]
    counts: Any = fit.counts
    number = len(counts.matrices.names)
    rows = [[title, *shares[k * number : (k + 1) * number]] for k, title in enumerate(fit.component_titles)]
    return Section(
        "Matrices",
        ["Loadings are shared. These are parts of a component's expected counts, for a sample in all matrices."],
        tables=[Table(["component", *counts.matrices.names], rows)],
    )


def _in_words(row: dict[Any, Any]) -> Number:
    if "lower" not in row:
        return share(row["share"])
    text = f"{row['share']:.1%} [{row['lower']:.1%}, {row['upper']:.1%}]"
    return Number(text, row["share"], row["lower"], row["upper"])
