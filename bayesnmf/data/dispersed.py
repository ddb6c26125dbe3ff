"""Counts with negative binomial noise, as routines for Poisson counts see them: what both kinds of variance share."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Self

import numpy as np
from scipy.sparse import csr_array

from bayesnmf.data.counts import Counts
from bayesnmf.priors.noise import NegativeBinomial

Array = np.ndarray
CENTRE, WIDTH = np.log(0.3), 2.0  # of the normal prior of the logarithm of a dispersion
LEAST = 1e-10  # dispersion; that of Poisson counts is 0


@dataclass(frozen=True, eq=False, repr=False)
class DispersedCounts(Counts):
    """Counts with a dispersion.

    Attributes
    ----------
    plain : Counts
        The same counts without noise, with their own exposures.
    noise : NegativeBinomial
        Noise with a known dispersion.
    learned : bool
        Whether the dispersion changes with a fit.
    given_totals : bool
        Whether the model takes the totals of rows as given.
    """

    plain: Any = None
    noise: NegativeBinomial = field(default_factory=NegativeBinomial)
    learned: bool = False
    given_totals: bool = False

    @classmethod
    def of(cls, plain: Counts, noise: NegativeBinomial, learned: bool, given_totals: bool) -> Self:
        """Return counts with this noise."""
        raise NotImplementedError

    def _around(self, plain: Counts, noise: NegativeBinomial | None = None) -> Self:
        made = self.of(plain, noise or self.noise, self.learned, self.given_totals)
        for name in ("transposed", "dense", "row_totals", "feature_totals"):  # cached values that no noise changes
            if plain.matrix is self.matrix and name in vars(self):
                vars(made)[name] = vars(self)[name]
        return made

    def with_dispersions(self, dispersions: Array) -> Self:
        """Return the same counts with other dispersions, (n,), (m,) or (1,)."""
        own = float(dispersions[0]) if self.noise.by is None else dispersions
        return self._around(self.plain, self.noise.with_dispersion(own))

    def rows(self, index: Any) -> Self:
        """Return the chosen rows, with their names, exposures and dispersions."""
        chosen = np.atleast_1d(np.arange(self.shape[0])[index])
        return self._around(self.plain.rows(chosen), self.noise.of_rows(chosen))

    def block(self, first: int, last: int) -> Self:
        """Return the rows from `first` to `last` (excluded), in memory shared with these counts."""
        made = self._around(self.plain.block(first, last), self.noise.of_rows(slice(first, last)))
        # The prior of a dispersion that all rows share belongs to the first block, as sums over blocks have it once.
        return made if first == 0 or self.noise.by == "row" else replace(made, learned=False)

    def with_exposure(self, row_exposure: Array | None, feature_exposure: Array | None) -> Counts:
        """Return the same counts with other exposures, and without noise."""
        return self.plain.with_exposure(row_exposure, feature_exposure)

    def with_mask(self, mask: Any) -> Counts:
        """Return the counts with these cells missing, and no others."""
        return self._around(self.plain.with_mask(mask))

    def with_matrix(self, matrix: csr_array) -> Counts:
        """Return counts with the same names, exposures and noise, and another canonical matrix of the same shape."""
        return self._around(self.plain.with_matrix(matrix))

    def with_features(self, matrix: csr_array, names: Array) -> Counts:
        """Return the same rows with other features, which have no exposures, and a canonical matrix of them."""
        return self._around(self.plain.with_features(matrix, names))

    @cached_property
    def dispersions(self) -> Array:
        """Dispersion of each row, or of each feature, or one, (n,), (m,) or (1,)."""
        return np.maximum(np.atleast_1d(np.asarray(self.noise.dispersion, np.float64)), LEAST)

    @property
    def log_prior(self) -> float:
        """Log prior density of the logarithms of the dispersions, up to a constant, in nats; 0 if they are given."""
        deviations = np.log(self.dispersions) - CENTRE
        return -float((deviations**2).sum() / (2 * WIDTH**2)) if self.learned else 0.0
