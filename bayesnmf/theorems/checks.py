"""Checks of the arguments of `equivalences`."""

from __future__ import annotations

from typing import Any

from bayesnmf.assessment.checks import check_draws_of_bound
from bayesnmf.checks import check_count, check_words, make_plain
from bayesnmf.data.counts import Counts
from bayesnmf.priors.specification import check_model


def check_effort(effort: Any) -> None:
    """Refuse an invalid effort; it needs at least 2 draws for a standard error."""
    make_plain(effort)
    check_draws_of_bound(effort.draws)
    for name in ("svi_steps", "entries", "particles"):
        check_count(getattr(effort, name), name)
    if effort.svi_models != ():
        for model in check_words(effort.svi_models, "svi_models"):
            check_model(model, "svi_models")


def check_some_counts(counts: Counts) -> None:
    """Refuse counts that are all zero, for which every statement would be empty."""
    if counts.nnz == 0:
        raise ValueError("counts must contain at least one count: all are zero; give a matrix that is not empty")
