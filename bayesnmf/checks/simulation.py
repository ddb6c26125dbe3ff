"""Checks of what a simulation is asked for."""

from __future__ import annotations

from typing import Any

import numpy as np

from bayesnmf.checks.values import check_count, check_positive
from bayesnmf.specification import PARAMETER


def check_shape(size: Any, name: str) -> tuple[int, int]:
    """Return a size as two whole numbers of at least 1."""
    try:
        n, m = size
    except (TypeError, ValueError) as error:
        raise TypeError(f"{name} must be (rows, features): found {size!r}; give two whole numbers") from error
    return check_count(n, f"{name}[0]"), check_count(m, f"{name}[1]")


def check_simulated_components(components: Any) -> None:
    """Refuse to simulate components without a proper prior."""
    if components == PARAMETER or not components.proper:
        raise ValueError(
            f"priors.components must be a proper prior for a simulation: found {components!r}; "
            "give one, with a rate above 0 if it is a Gamma"
        )


def check_totals(totals: Any, n: int, given_totals: bool, by_default: bool, usual: float) -> np.ndarray:
    """Return the row totals of a model that is given them, or the one mean total of a default prior; `usual` for None.

    Refuse totals beside a prior of the loadings that has a scale of its own.
    """
    if totals is None:
        return np.full(n if given_totals else 1, usual)
    if not given_totals:
        if not by_default:
            raise ValueError(
                "totals must not be given together with priors.loadings, whose scale decides the totals; leave one out"
            )
        return np.array([check_positive(totals, "totals")])
    values = np.asarray(totals)
    if values.dtype.kind not in "iuf" or values.ndim > 1 or values.size not in (1, n):
        raise ValueError(f"totals must be a number or {n} numbers, one a row: found {totals!r}")
    if np.any(values < 0) or not np.all(values == np.rint(values)):
        raise ValueError(f"totals must be whole numbers of at least 0: found {totals!r}; round them")
    return np.broadcast_to(values.astype(np.float64), n)
