"""What makes a design of covariates: a formula and the levels of categories, or the names of columns of numbers.

It is data, and kept as text in files; formulas have no functions, so reading one runs no code. Columns of the design
are standardised for the prior of the effects, and effects are told in the units of the covariates.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from functools import cached_property
from typing import Self

import numpy as np

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
