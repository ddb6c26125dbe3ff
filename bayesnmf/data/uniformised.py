"""Counts that cluster, with a dispersion for each feature and components on the simplex.

The clusters of feature j are exposed e_j = log(1 + s_j) / s_j times as much as its counts. Components on the simplex
rely on exposures that are equal for all features, so a share 1 − e_j of every entry counts as missing: as where whole
entries are missing, it receives the clusters that it would have (`bayesnmf.inference.missing`).
"""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np
from scipy.sparse import csr_array

from bayesnmf.data.clustered import ClusteredCounts
from bayesnmf.data.counts import Counts
from bayesnmf.data.mask import Mask
from bayesnmf.noise.abilities import Dispersed
from bayesnmf.noise.negative_binomial import exposure_of
from bayesnmf.types import Array


class ShareMask(Mask):
    """A missing share of all entries of each feature; no entry is missing as a whole.

    Parameters
    ----------
    size : tuple of int
        Numbers of rows and features.
    shares : ndarray (m,)
        Missing shares, below 1.
    """

    shares: Array

    def __init__(self, size: tuple[int, int], shares: Array) -> None:
        super().__init__(csr_array(size, dtype=np.float64), True)
        vars(self)["shares"] = shares

    @property
    def seen_features(self) -> Array:
        """Whether something of each feature is observed, (m,)."""
        return np.ones(len(self.shares), bool)

    def sums_by_row(self, factor: Array) -> Array:
        """Return Σ of the rows of a factor (m, K) times their missing shares, (n, K), in float64."""
        return np.tile(self.shares @ np.asarray(factor, np.float64), (self.pattern.shape[0], 1))

    def sums_by_feature(self, factor: Array) -> Array:
        """Return, for each feature, its missing share of Σ of the rows of a factor (n, K), (m, K), in float64."""
        return self.shares[:, None] * factor.sum(axis=0, dtype=np.float64)

    def rows(self, index: Any) -> ShareMask:
        """Return the mask of some rows."""
        return ShareMask(self.pattern[index].shape, self.shares)


class UniformisedCounts(ClusteredCounts):
    """Counts that cluster, of which features miss shares in place of having exposures."""

    @classmethod
    def of(cls, plain: Counts, noise: Dispersed, learned: bool, given_totals: bool) -> UniformisedCounts:
        """Return counts with this noise, which is that of features."""
        names, given = (plain.row_names, plain.feature_names), (plain.row_exposure, plain.feature_exposure)
        shares = 1.0 - exposure_of(np.asarray(noise.of_lines(noise.dispersion), np.float64))
        more: Any = {"plain": plain, "noise": noise, "learned": learned, "given_totals": given_totals}
        return cls(plain.matrix, *names, *given, ShareMask(plain.shape, shares), **more)

    @property
    def spreads_of_clusters(self) -> Array:
        """Spreads of the numbers of clusters in units of their means without their exposure, (m,)."""
        return self.of_lines

    @cached_property
    def log_noise(self) -> float:
        """What the noise adds to the log-likelihood, and to the log prior if the dispersion is learned, in nats."""
        return self.log_prior - float((self.feature_totals * np.log1p(self.of_lines)).sum())
