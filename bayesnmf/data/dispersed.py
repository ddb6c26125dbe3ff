"""Counts with negative binomial noise, as routines for Poisson counts see them: what both kinds of variance share."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Self

import numpy as np

from bayesnmf.data.counts import Counts
from bayesnmf.data.wrapped import WrappedCounts
from bayesnmf.noise.abilities import Dispersed
from bayesnmf.noise.negative_binomial import LEAST, NegativeBinomial
from bayesnmf.types import Array


@dataclass(frozen=True, eq=False, repr=False)
class DispersedCounts(WrappedCounts):
    """Counts with a dispersion.

    Attributes
    ----------
    plain : Counts
        The same counts without noise, with their own exposures.
    noise : Dispersed
        Noise with a known dispersion.
    learned : bool
        Whether the dispersion changes with a fit.
    given_totals : bool
        Whether the model takes the totals of rows as given.
    """

    plain: Any = None
    noise: Dispersed = field(default_factory=NegativeBinomial)
    learned: bool = False
    given_totals: bool = False

    @classmethod
    @abstractmethod
    def of(cls, plain: Counts, noise: Dispersed, learned: bool, given_totals: bool) -> Self:
        """Return counts with this noise."""

    def around(self, inner: Counts, rows: Any = None) -> Self:
        """Return the same noise around other counts, or around some rows of these."""
        noise = self.noise if rows is None else self.noise.of_rows(rows)
        return self.of(inner, noise, self.learned, self.given_totals)

    def _part(self, part: Counts, rows: slice) -> Self:
        made = self.around(part, rows)
        # The prior of a dispersion that all rows share belongs to the first block, as sums over blocks have it once.
        return made if rows.start == 0 or self.noise.by == "row" else replace(made, learned=False)

    def with_dispersions(self, dispersions: Array) -> Self:
        """Return the same counts with other dispersions, (n,), (m,) or (1,)."""
        own = float(dispersions[0]) if self.noise.by is None else dispersions
        return self.of(self.plain, self.noise.with_dispersion(own), self.learned, self.given_totals)

    @property
    def parameters(self) -> Array:
        """Dispersions that are learned, (n,), (m,), (1,) or (0,)."""
        return self.dispersions if self.learned else np.zeros(0)

    def with_parameters(self, parameters: Array) -> Self:
        """Return the same counts with other dispersions, as far as they are learned."""
        return self.with_dispersions(np.clip(parameters, LEAST, self.noise.largest)) if self.learned else self

    @property
    def memory(self) -> Array:
        """The dispersions."""
        return self.dispersions

    def recalled(self, memory: Array) -> Self:
        """Return the same counts with the dispersions that a checkpoint has kept."""
        return self.with_dispersions(memory)

    def with_exposure(self, row_exposure: Array | None, feature_exposure: Array | None) -> Counts:
        """Return the same counts with other exposures, and without noise."""
        return self.plain.with_exposure(row_exposure, feature_exposure)

    @cached_property
    def dispersions(self) -> Array:
        """Dispersion of each row, of each feature, of each matrix, or one, (n,), (m,), (matrices,) or (1,)."""
        return np.maximum(np.atleast_1d(np.asarray(self.noise.dispersion, np.float64)), LEAST)

    @property
    def of_lines(self) -> Array:
        """Dispersion of each row, or of each feature, or one, (n,), (m,) or (1,)."""
        return np.asarray(self.noise.of_lines(self.dispersions))

    @property
    def log_prior(self) -> float:
        """Log prior density of the logarithms of the dispersions, up to a constant, in nats; 0 if they are given."""
        return float((self.noise.log_prior(self.dispersions) * ~self.noise.held).sum()) if self.learned else 0.0
