"""What makes a design of covariates: a formula and the levels of categories, or the names of columns of numbers.

It is data, and kept as text in files; formulas have no functions, so reading one runs no code. Columns of the design
are standardised for the prior of the effects, and effects are told in the units of the covariates.

Levels of categories are text, under which numbers are the same however they are stored: 1, 1.0, True of NumPy or Python
and the text "1" of a file are one level, as a table does not keep its types when it is written and read again.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from functools import cached_property
from numbers import Real
from typing import Any, Self

import numpy as np

from bayesnmf.text import readable
from bayesnmf.types import Array

INTERCEPT = "Intercept"


@dataclass(frozen=True)
class Coding:
    """What makes a design of covariates.

    Attributes
    ----------
    formula : str or None
        Formula; without one, columns are the covariates.
    terms : list of str
        Names of the columns of the design, the intercept first.
    columns : list of str
        Names of the covariates that are used.
    levels : dict
        Levels of each category, the first of which is the reference.
    means, sds : list of float
        Means and standard deviations of the columns of the design over the fitted rows; 0 and 1 of the intercept.
    scales : dict
        Mean and standard deviation of each column of numbers that is standardised before it is multiplied with others.
        A product of columns that are far from 0 is nearly one of them, and its effect would be lost in its prior.
    matrix : list of list of float
        What turns effects into those of the columns, if some are products; of others it is known (`unit`).
    """

    formula: str | None
    terms: list[str]
    columns: list[str]
    levels: dict[str, list[str]]
    means: list[float]
    sds: list[float]
    scales: dict[str, list[float]] = field(default_factory=dict)
    matrix: list[list[float]] = field(default_factory=list)

    @property
    def text(self) -> str:
        """The coding as text."""
        return json.dumps(asdict(self))

    @classmethod
    def of_text(cls, text: str) -> Self:
        """Return the coding that a text describes."""
        return cls(**json.loads(text))

    def standardised(self, design: Array) -> Array:
        """Return a design (n, p), made of covariates in their units but for `scales`, with its columns standardised."""
        return np.ascontiguousarray((design - np.array(self.means)) / np.array(self.sds))

    @cached_property
    def unit(self) -> Array:
        """Matrix (p, p) that turns effects of standardised columns into those of the columns."""
        if self.matrix:
            return np.array(self.matrix)
        found = np.diag(1 / np.array(self.sds))
        found[0, 1:] = -np.array(self.means[1:]) / np.array(self.sds[1:])
        return found


def scales_of(design: Array) -> tuple[list[float], list[float]]:
    """Return means and standard deviations of the columns of a design; 0 and 1 of the first, the intercept.

    They lose no digits far from 0, and do not overflow.
    """
    first, width = design[0], np.ptp(design, axis=0)
    width = np.where(width > 0, width, 1.0)
    inside = (design - first) / width
    means, sds = first + width * inside.mean(axis=0), width * inside.std(axis=0)
    means[0], sds[0] = 0.0, 1.0
    return means.tolist(), sds.tolist()


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
