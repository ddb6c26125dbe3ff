"""Checks of single values: numbers, words, seeds, sizes."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches
from numbers import Integral, Real
from typing import Any

import numpy as np


def check_rank(rank: Any) -> int:
    """Return the number of components as an int, at least 1."""
    return check_count(rank, "rank")


def check_count(value: Any, name: str, minimum: int = 1) -> int:
    """Return a whole number of at least `minimum`; NumPy integers pass, booleans do not."""
    if isinstance(value, (bool, np.bool)) or not isinstance(value, Integral):
        raise TypeError(f"{name} must be a whole number of at least {minimum}, not {value!r}")
    if value < minimum:
        raise ValueError(f"{name} must be at least {minimum}: found {value}")
    return int(value)


def check_positive(value: Any, name: str) -> float:
    """Return a finite number above 0 as a float."""
    if isinstance(value, (bool, np.bool)) or not isinstance(value, Real):
        raise TypeError(f"{name} must be a positive number, not {value!r}")
    number = float(value)
    if not (number > 0 and np.isfinite(number)):
        raise ValueError(f"{name} must be positive and finite: found {value}")
    return number


def check_choice(value: Any, name: str, choices: Iterable[str]) -> str:
    """Return `value` if it is one of `choices`; else name them all, and the closest."""
    options = list(choices)
    if isinstance(value, str) and value in options:
        return value
    close = get_close_matches(value, options, n=1) if isinstance(value, str) else []
    hint = f"; did you mean {close[0]!r}?" if close else ""
    listed = ", ".join(repr(option) for option in options)
    raise ValueError(f"{name} must be one of {listed}: found {value!r}{hint}")


def check_seed(seed: Any) -> int | None:
    """Return a seed: an int of at least 0, or None for a different one each time."""
    return None if seed is None else check_count(seed, "seed", minimum=0)


def check_fraction(value: Any, name: str) -> float:
    """Return a number strictly between 0 and 1."""
    number = check_positive(value, name)
    if number >= 1:
        raise ValueError(f"{name} must be below 1: found {value}")
    return number


def check_nonnegative(value: Any, name: str) -> float:
    """Return a finite number of at least 0."""
    return 0.0 if not isinstance(value, bool) and value == 0 else check_positive(value, name)


def check_size(size: int, limit: int, what: str, cure: str) -> None:
    """Refuse `size` bytes above `limit`."""
    if size > limit:
        raise ValueError(
            f"{what} would take {size / 2**30:.1f} GiB, above the limit of {limit / 2**30:.1f} GiB; {cure}"
        )
