"""Checks of what needs loadings and components integrated out."""

from __future__ import annotations

from typing import Any

import numpy as np

from bayesnmf.checks.values import as_numbers, shown
from bayesnmf.priors import Dirichlet
from bayesnmf.specification import PARAMETER


def check_integrates_out(components: Any, what: str, cure: str) -> None:
    """Refuse `what` where loadings and components do not integrate out together in closed form."""
    if not isinstance(components, Dirichlet):
        found = repr(PARAMETER) if components == PARAMETER else type(components).__name__
        raise ValueError(
            f"priors.components must be Dirichlet for {what}, else loadings and components do not integrate out "
            f"together: found {found}; give Dirichlet(...), or {cure}"
        )


def check_proper_loadings(loadings: Any, what: str) -> None:
    """Refuse `what` without a prior of the loadings that integrates to one."""
    if loadings is None or not loadings.proper:
        raise ValueError(
            f"priors.loadings must be a proper prior for {what}: found {shown(loadings)}; give one, with a rate above 0"
        )


def check_visits(total: float, each: int, most: int) -> None:
    """Refuse a pass over single counts that would take days, given the work of each."""
    work = max(int(total), 1) * each
    if work > most:
        raise ValueError(
            f"method='smc' takes every particle of every run through every single count: {total:,.0f} counts times "
            f"rank, particles and runs must be at most {most:.0e}: found {min(work, 10**300):.3g}; give fewer rows, "
            "particles or runs, or bound the evidence by elbo_marginal of a fit by method='vi'"
        )


def check_enumerable(allocations: float, most: int) -> None:
    """Refuse to enumerate more than so many allocations."""
    if allocations > most:
        raise ValueError(
            f"method='exact' sums over at most {most:,} allocations: these counts and rank have "
            f"{allocations:.3g}; use method='smc'"
        )


def check_allocation(value: Any) -> np.ndarray:
    """Return an allocation as an array (n, K, m) of nonnegative, finite float64."""
    array = as_numbers(value, "allocations", "an array of numbers, shape (n, K, m)")
    if array.ndim != 3 or 0 in array.shape:
        raise ValueError(f"allocations must have shape (n, K, m), samples first: found {array.shape}")
    if not np.all(np.isfinite(array)) or np.any(array < 0):
        raise ValueError("allocations must be nonnegative and finite; replace the entries that are not")
    return array
