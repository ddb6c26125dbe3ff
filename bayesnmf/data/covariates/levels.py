"""Levels of categories: as text, under which numbers are the same however they are stored.

1, 1.0, True of NumPy or Python and the text "1" of a file are one level, as a table does not keep its types when it is
written and read again.
"""

from __future__ import annotations

from numbers import Real
from typing import Any

import numpy as np

from bayesnmf.text import readable
from bayesnmf.types import Array


def is_text(value: Any) -> bool:
    """Return whether a value is no number."""
    return not isinstance(value, Real | np.bool_)


def label_of(value: Any) -> str:
    """Return a value as the name of a level: whole numbers without a decimal point."""
    if isinstance(value, float | np.floating) and float(value).is_integer():
        return str(int(value))
    return readable(value)


def places_of_levels(values: Array, levels: list[str]) -> Array:
    """Return the place of each value among levels, −1 if it is none: by its text, else by its number."""
    places = {level: place for place, level in enumerate(levels)}
    numbers: dict[float, list[int]] = {}
    for level, place in places.items():
        if (number := _number_of(level)) is not None:
            numbers.setdefault(number, []).append(place)
    known: dict[Any, int] = {}
    for value in values:
        key = (is_text(value), value)
        if key not in known:
            same = numbers.get(_number_of(label_of(value)), [])  # type: ignore[arg-type]
            known[key] = places.get(label_of(value), same[0] if len(same) == 1 else -1)
    return np.array([known[is_text(value), value] for value in values], np.intp)


def _number_of(label: str) -> float | None:
    """Return the number that a level is written as; None for words."""
    if label in ("True", "False"):
        return float(label == "True")
    try:
        found = float(label)
    except ValueError:
        return None
    return found if np.isfinite(found) else None
