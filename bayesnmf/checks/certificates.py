"""Checks of what certificates are asked for."""

from __future__ import annotations

from typing import Any

from bayesnmf.checks.values import check_choice, check_count, check_size, check_words, make_plain
from bayesnmf.counts import Counts
from bayesnmf.specification import MODELS

LARGEST_DRAWS = 2**30  # bytes


def check_effort(effort: Any) -> None:
    """Refuse an effort that makes no sense: at least 2 draws, so that they have a standard error."""
    make_plain(effort)
    check_draws_of_bound(effort.draws)
    for name in ("svi_steps", "cells", "particles"):
        check_count(getattr(effort, name), name)
    if effort.svi_models != ():
        for model in check_words(effort.svi_models, "svi_models"):
            check_choice(model, "svi_models", MODELS)


def check_draws_of_bound(draws: Any) -> int:
    """Return how many draws a bound is estimated by: at least 2, so that they have a standard error."""
    number = check_count(draws, "draws", minimum=2)
    check_size(8 * number, LARGEST_DRAWS, "the log-likelihoods of all draws", "ask for fewer draws")
    return number


def check_some_counts(counts: Counts) -> None:
    """Refuse counts that are all zero: every statement would be about nothing."""
    if counts.nnz == 0:
        raise ValueError("counts must hold at least one count: all are zero; give a matrix that is not empty")
