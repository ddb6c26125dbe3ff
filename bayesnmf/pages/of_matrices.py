"""The section of several matrices on the page of a fit."""

from __future__ import annotations

from typing import Any

import numpy as np

from bayesnmf.fitting.fitted import Fit
from bayesnmf.pages.parts import Section, Table


def shared_among_matrices(fit: Fit) -> Section:
    """Return how the expected counts of each component are shared among matrices, with intervals."""
    shares = [_in_words(each) for each in fit.matrices().to_dict("records")]
    parts = np.reshape(shares, (fit.rank, -1)).tolist()
    rows = [[title, *part] for title, part in zip(fit.component_titles, parts, strict=True)]
    counts: Any = fit.counts
    return Section(
        "Matrices",
        ["Loadings are shared. These are parts of a component's expected counts, for a sample in all matrices."],
        tables=[Table(["component", *counts.matrices.names], rows)],
    )


def _in_words(row: dict[Any, Any]) -> str:
    ends = f" [{row['lower']:.1%}, {row['upper']:.1%}]" if "lower" in row else ""
    return f"{row['share']:.1%}{ends}"
