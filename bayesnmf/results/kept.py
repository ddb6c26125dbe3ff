"""What is computed of a fit once, at first need, and kept with it: printing computes nothing twice."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from weakref import WeakKeyDictionary

from bayesnmf.results.record import FitRecord


def kept_with_fit[R](of_fit: Callable[[FitRecord], R]) -> Callable[[FitRecord], R]:
    """Return a function of a fit that computes its result once for each; a fit is never changed."""
    found: WeakKeyDictionary[FitRecord, R] = WeakKeyDictionary()

    @wraps(of_fit)
    def once(fit: FitRecord) -> R:
        if fit not in found:
            found[fit] = of_fit(fit)
        return found[fit]

    return once
