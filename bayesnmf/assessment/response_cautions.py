"""Cautions about linear response, as warnings that point to the user's line."""

from __future__ import annotations

import warnings
from pathlib import Path

from bayesnmf.inference.status import ConvergenceWarning

NOT_OPTIMAL = (
    "the fit was not continued to its optimum (gradient {:.1e}), and linear response holds there only; fit with a "
    "smaller tol, another seed or a smaller rank"
)
NOT_STRICT = (
    "the bound does not curve downwards in every direction: two components are equal or one is empty, and variances "
    "along that direction are NaN; fit with another seed or a smaller rank"
)
TOO_WIDE = (
    "the variance of a share is larger than that of any distribution on 0 to 1 with its mean, so its interval and "
    "draws are NaN: linear response does not describe it; use method='gibbs'"
)


def warn(message: str) -> None:
    """Issue a warning that points to the user's line."""
    warnings.warn(message, ConvergenceWarning, skip_file_prefixes=(str(Path(__file__).parents[1]),))
