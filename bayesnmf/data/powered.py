"""Counts as a power of the Poisson likelihood weighs them.

The likelihood Π Poisson(X; r c λ) to the power κ has the sufficient statistics κX and the exposure κ r c. So any
routine for Poisson counts fits it when it is given κX with rows exposed κ times as much.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from bayesnmf.data.clustered import ClusteredCounts
from bayesnmf.data.counts import Counts
from bayesnmf.data.dispersed import DispersedCounts
from bayesnmf.data.rated import RatedCounts
from bayesnmf.data.uniformised import UniformisedCounts
from bayesnmf.priors.noise import NegativeBinomial, Noise, Quasi
from bayesnmf.priors.specification import uniformises


@dataclass(frozen=True, eq=False, repr=False)
class PoweredCounts(Counts):
    """Counts times a power of the likelihood, exposed so many times as much.

    Attributes
    ----------
    power : float
        Power κ of the likelihood, above 0.
    """

    power: float = 1.0

    @cached_property
    def log_factorial(self) -> float:
        """κ Σ log X! + κ Σ X log κ: so the log-likelihood of these counts is κ times that of the counts."""
        counts = Counts(self.matrix / self.power, self.row_names, self.feature_names)
        return self.power * counts.log_factorial + self.total * float(np.log(self.power))


def working_counts(
    counts: Counts, noise: Noise, *, given_totals: bool, learned: bool = False, components: Any = None
) -> Counts:
    """Return the counts that routines for Poisson counts are given, so that they fit counts with this noise.

    With `given_totals` the model takes the totals of rows as given; a dispersion that is `learned` is a start. The
    prior of the components says whether features may have exposures of their own.
    """
    if isinstance(noise, NegativeBinomial):
        kind: type[DispersedCounts] = ClusteredCounts if noise.variance == "linear" else RatedCounts
        if components is not None and uniformises(noise, components):
            kind = UniformisedCounts
        return kind.of(counts, noise, learned, given_totals)
    if not isinstance(noise, Quasi) or noise.power == 1:
        return counts
    power = noise.power
    exposure = power * np.broadcast_to(counts.row_factor[:, 0], counts.shape[:1])
    matrix = (counts.matrix * power).astype(counts.dtype, copy=False)
    names = counts.row_names, counts.feature_names
    return PoweredCounts(matrix, *names, exposure, counts.feature_exposure, counts.mask, power)
