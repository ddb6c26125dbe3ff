"""Counts as a power of the Poisson likelihood weighs them.

The likelihood Π Poisson(X; r c λ) to the power κ has the sufficient statistics κX and the exposure κ r c. So any
routine for Poisson counts fits it when it is given κX with rows exposed κ times as much.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np

from bayesnmf.data.clustered import ClusteredCounts, UniformisedCounts
from bayesnmf.data.counts import Counts
from bayesnmf.data.dispersed import DispersedCounts
from bayesnmf.data.rated import RatedCounts
from bayesnmf.data.wrapped import WrappedCounts
from bayesnmf.noise.abilities import Dispersed, Noise
from bayesnmf.priors.specification import uniformises


@dataclass(frozen=True, eq=False, repr=False)
class PoweredCounts(WrappedCounts):
    """Counts times a power of the likelihood, exposed so many times as much.

    Attributes
    ----------
    scaled : Counts
        The counts times the power, with their own exposures.
    power : float
        Power κ of the likelihood, above 0.
    """

    scaled: Any = None
    power: float = 1.0
    holds: ClassVar[str] = "scaled"

    @classmethod
    def of(cls, counts: Counts, power: float) -> PoweredCounts:
        """Return counts with their likelihood to this power."""
        exposure, scaled = power * np.broadcast_to(counts.row_factor[:, 0], counts.shape[:1]), counts.times(power)
        names = counts.row_names, counts.feature_names
        more: Any = {"scaled": scaled, "power": power, "batch": counts.batch}
        return cls(scaled.matrix, *names, exposure, counts.feature_exposure, counts.mask, **more)

    def around(self, inner: Counts, rows: Any = None) -> PoweredCounts:
        """Return the same power around other scaled counts, or around some rows of these."""
        exposure, names = self.row_exposure, (inner.row_names, inner.feature_names)
        exposure = exposure if rows is None or exposure is None else exposure[rows]
        more: Any = {"scaled": inner, "power": self.power, "batch": inner.batch}
        return PoweredCounts(inner.matrix, *names, exposure, inner.feature_exposure, inner.mask, **more)

    @cached_property
    def log_factorial(self) -> float:
        """κ Σ log X! + κ Σ X log κ: so the log-likelihood of these counts is κ times that of the counts."""
        return self.power * self.scaled.log_factorial_of(self.power) + self.total * float(np.log(self.power))


def working_counts(
    counts: Counts, noise: Noise, *, given_totals: bool, learned: bool = False, components: Any = None
) -> Counts:
    """Return the counts that routines for Poisson counts are given, so that they fit counts with this noise.

    With `given_totals` the model takes the totals of rows as given; a dispersion that is `learned` is a start. The
    prior of the components says whether features may have exposures of their own.
    """
    if isinstance(noise, Dispersed):
        kind: type[DispersedCounts] = RatedCounts if noise.has_entry_rates else ClusteredCounts
        if components is not None and uniformises(noise, components):
            kind = UniformisedCounts
        return kind.of(counts, noise, learned, given_totals)
    return counts if noise.power == 1 else PoweredCounts.of(counts, noise.power)
