"""Counts with negative binomial noise of linear variance, as the routines for Poisson counts see them.

An entry with mean λ and dispersion s has a Poisson number of clusters with mean λ e, e = log(1 + s) / s, and in each
cluster a number of counts that depends on s alone. So routines for Poisson counts fit the clusters, which are exposed e
times as much; their expected number takes the place of the counts in an allocation step
(`bayesnmf.kernels.cpu.rising`). The probability of the counts is, with the spread s' = log(1 + s),

    log p = L(x, eλ, s') − eλ − x log e − x log(1 + s) − log x!

Given the totals N of the rows, the counts of a row are Dirichlet-multinomial with concentrations λ / s, whose sum N / s
is known, so that no exposure changes: log p is that of the multinomial with L(x, λ, s) − L(N, N, s) in place of
x log (λ / N).

Counts that cluster, with a dispersion for each feature and components on the simplex.

The clusters of feature j are exposed e_j = log(1 + s_j) / s_j times as much as its counts. Components on the simplex
rely on exposures that are equal for all features, so a share 1 − e_j of every entry counts as missing: as where whole
entries are missing, it receives the clusters that it would have (`bayesnmf.inference.missing`).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
from scipy.sparse import csr_array

from bayesnmf.data.counts import Counts
from bayesnmf.data.dispersed import DispersedCounts
from bayesnmf.data.unexposed import UnexposedGroups
from bayesnmf.kernels.cpu.allocation import Spread
from bayesnmf.kernels.cpu.clusters import sums_of_entries
from bayesnmf.noise.abilities import Dispersed
from bayesnmf.noise.negative_binomial import exposure_of
from bayesnmf.types import Array


@dataclass(frozen=True, eq=False, repr=False)
class ClusteredCounts(DispersedCounts):
    """Counts that cluster, with the exposure of their clusters."""

    in_clusters: ClassVar[bool] = True

    @classmethod
    def of(cls, plain: Counts, noise: Dispersed, learned: bool, given_totals: bool) -> ClusteredCounts:
        """Return counts with this noise."""
        given = plain.row_exposure, plain.feature_exposure
        if not given_totals:
            e, (n, m) = exposure_of(noise.of_lines(noise.dispersion)), plain.shape
            if noise.by_feature:
                given = given[0], e * np.broadcast_to(plain.feature_factor, (m,))
            else:
                given = e * np.broadcast_to(plain.row_factor[:, 0], (n,)), given[1]
        names = plain.row_names, plain.feature_names
        more: Any = {"plain": plain, "noise": noise, "learned": learned, "given_totals": given_totals}
        return cls(plain.matrix, *names, *given, plain.mask, **more)

    def of_clusters(self, clusters: csr_array) -> Counts:
        """Return numbers of clusters as Poisson counts, with their exposures."""
        return self.exposing(self.plain.with_matrix(clusters))

    def spread_of_means(self) -> Spread:
        """Return the spreads of counts whose means are given."""
        s, (n, _) = self.of_lines, self.shape
        if self.noise.by_feature:
            return np.ones(n), s
        return np.broadcast_to(s, (n,)).copy(), None

    def spread(self, factor: Array | None, other: Array | None) -> Spread:
        """Return the spreads of clusters whose means are products of two sides times factors of rows and features."""
        (n, _), s = self.shape, self.of_lines
        rows = 1.0 / np.broadcast_to(self.row_factor[:, 0], (n,))
        features = None if self.feature_weights is None else 1.0 / self.feature_weights
        if factor is not None:
            rows = rows / np.where(factor > 0, factor, 1.0)  # 0 for rows without counts, which have no clusters
        if other is not None:
            features = (1.0 if features is None else features) / other
        if self.given_totals:
            return rows * s / np.maximum(self.row_totals, 1.0), features
        if self.noise.by_feature:
            return rows, self.spreads_of_clusters * (1.0 if features is None else features)
        return rows * self.spreads_of_clusters, features

    @property
    def spreads_of_clusters(self) -> Array:
        """Spreads of the numbers of clusters, (n,), (m,) or (1,)."""
        return np.log1p(self.of_lines)

    @cached_property
    def log_noise(self) -> float:
        """What the noise adds to the log-likelihood, and to the log prior if the dispersion is learned, in nats."""
        s, found = self.of_lines, self.log_prior
        if self.given_totals:
            totals = self.row_totals
            return found - float(sums_of_entries(totals, np.ones_like(totals), s / np.maximum(totals, 1.0))[:, 0].sum())
        totals = self.feature_totals if self.noise.by_feature else self.row_totals
        return found - float((totals * (np.log(exposure_of(s)) + np.log1p(s))).sum())


class UniformisedCounts(ClusteredCounts):
    """Counts that cluster, of which features miss shares in place of having exposures."""

    @classmethod
    def of(cls, plain: Counts, noise: Dispersed, learned: bool, given_totals: bool) -> UniformisedCounts:
        """Return counts with this noise, which is that of features."""
        names, given = (plain.row_names, plain.feature_names), (plain.row_exposure, plain.feature_exposure)
        shares = 1.0 - exposure_of(np.asarray(noise.of_lines(noise.dispersion), np.float64))
        mask = UnexposedGroups.of_features(shares, plain.shape[0], plain.mask)
        more: Any = {"plain": plain, "noise": noise, "learned": learned, "given_totals": given_totals}
        return cls(plain.matrix, *names, *given, mask, **more)

    @property
    def spreads_of_clusters(self) -> Array:
        """Spreads of the numbers of clusters in units of their means without their exposure, (m,)."""
        return self.of_lines

    @cached_property
    def log_noise(self) -> float:
        """What the noise adds to the log-likelihood, and to the log prior if the dispersion is learned, in nats."""
        return self.log_prior - float((self.feature_totals * np.log1p(self.of_lines)).sum())
