"""Counts in batches, as the routines for Poisson counts see them.

Given the factors b_gj of batches and features, everything is Poisson with the exposure r_i c_j b_g(i)j of an entry.
This is written as for counts whose entries have rates (`bayesnmf.data.rated`): the exposure r_i C_g of a row, with the
largest factor C_g of its batch, of which its entries lack the shares 1 − b_gj / C_g. Given loadings and components, a
factor is Gamma(a + x_gj, a + R_gj), for the counts x_gj of the batch and their mean R_gj without factors: so with the
factors integrated out, x_gj is negative binomial with mean R_gj and the dispersion 1/a of quadratic variance.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
from scipy.sparse import csr_array

from bayesnmf.data.batches import Batches
from bayesnmf.data.mask import Mask
from bayesnmf.data.rated import RatedCounts
from bayesnmf.data.unexposed import UnexposedGroups, missing_in_groups
from bayesnmf.noise.negative_binomial import NegativeBinomial
from bayesnmf.types import Array

SHAPE = "batch_shape"  # name of the drawn one among what is drawn beside both sides
FIRST = 0.1  # dispersion 1/a that learning begins with
EVENLY = (
    0.7548776662466927,
    0.5698402909980532,
)  # steps whose multiples fill the unit interval evenly, in two directions


@dataclass(frozen=True, eq=False, repr=False)
class BatchedCounts(RatedCounts):
    """Counts whose batches have factors; without any yet, they have the exposures of Poisson counts.

    The noise is that of the counts of whole batches; their dispersion is 1/a.

    Attributes
    ----------
    factors : ndarray (B, m) or None
        Expected factors, or drawn ones.
    held : bool
        Whether factors stay as they are, whatever the state: they are known, or these are some rows of others.
    drawn : bool
        Whether factors are drawn ones.
    """

    factors: Array | None = None
    held: bool = False
    drawn: bool = False
    has_entry_rates: ClassVar[bool] = False
    has_factors: ClassVar[bool] = True

    @classmethod
    def in_batches(cls, plain: Any, shape: float | None = None, learned: bool = False) -> BatchedCounts:
        """Return counts with the batches of their rows, and factors with this shape or that where learning begins."""
        noise = NegativeBinomial("quadratic", FIRST if shape is None else 1.0 / shape)
        return cls.of(plain, noise, learned, False)

    def waits_for(self, state: Any, moving: Array | None) -> bool:
        """Return whether factors are to be those of a state: they belong to all rows together."""
        return not self.held and moving is None and self.state is not state

    @property
    def batches(self) -> Batches:
        """Batches of the rows."""
        batches: Batches = self.plain.batch
        return batches

    @property
    def shape_of_factors(self) -> float:
        """Shape a of the prior of factors."""
        return 1.0 / float(self.dispersions[0])

    @property
    def to_start_from(self) -> Any:
        """The counts without what batches have more or less of than all rows, if these all had the same means.

        A start from the counts as they are has components for batches, and what they take the factors do not get.
        Counts are whole numbers again, as those on disk are: above or below by the place of an entry, without a bias.
        """
        x, a = self.rated.toarray(), self.shape_of_factors
        expected = x.sum(axis=1, keepdims=True) * x.sum(axis=0) / max(x.sum(), 1.0)
        factors = (a + x) / (a + expected)

        def even(number: int, rows: slice, part: Any) -> csr_array:
            entries = part.matrix.tocoo()
            data = entries.data / factors[self.batches.codes[rows][entries.row], entries.col]
            places = ((rows.start + entries.row) * EVENLY[0] + entries.col * EVENLY[1]) % 1.0
            found = csr_array((np.floor(data + places), entries.coords), shape=part.shape)
            found.eliminate_zeros()
            return found.astype(self.dtype)

        return self.plain.rewritten(self.plain, even)

    @cached_property
    def rated(self) -> csr_array:
        """Counts of each batch, (B, m)."""
        found: Any = csr_array((self.batches.number, self.shape[1]), dtype=np.float64)
        for rows, part in self.plain.parts():
            found = found + self.batches.rows(rows).members @ part.matrix.astype(np.float64)
        return csr_array(found)

    @cached_property
    def sizes(self) -> tuple[Array, Array]:
        """The different counts of batches above 0, and how many there are of each."""
        return np.unique(self.rated.data, return_counts=True)

    @cached_property
    def missing_parts(self) -> list[tuple[Array, Mask]]:
        """Rows of each batch, and their missing entries; empty if there are none."""
        return missing_in_groups(self.plain.mask, self.batches)

    def entries(self, rows: slice) -> tuple[Array, None]:
        """Return the counts of some batches, (batches, m); none are missing as a whole."""
        return self.rated[rows].toarray(), None

    def with_rates(self, mask: Any, ceilings: Array, state: Any = None, gain: float = 0.0) -> BatchedCounts:
        """Return the same counts with factors: shares (B, m) that features lack of the largest (B,) of their batch."""
        lost = mask.lost
        found = self._with_factors((1.0 - lost) * ceilings[:, None], lost, ceilings)
        return self._knowing(replace(found, state=state, gain=gain, drawn=state is None))

    def with_factors(self, factors: Array) -> BatchedCounts:
        """Return the same counts with factors (B, m) that are known."""
        ceilings = factors.max(axis=1)
        return replace(self._with_factors(factors, 1.0 - factors / ceilings[:, None], ceilings), held=True)

    def _with_factors(self, factors: Array, lost: Array, ceilings: Array) -> BatchedCounts:
        exposure = ceilings[self.batches.codes] * self.plain.row_factor[:, 0]
        mask = UnexposedGroups.of_groups(lost, self.batches, self.plain.mask, self.missing_parts)
        return replace(self, row_exposure=exposure, mask=mask, ceilings=ceilings, factors=factors)

    def with_dispersions(self, dispersions: Array) -> BatchedCounts:
        """Return the same counts with another dispersion, (1,), and without factors."""
        noise = self.noise.with_dispersion(float(dispersions[0]))
        return self._knowing(self.of(self.plain, noise, self.learned, self.given_totals))

    def _knowing(self, other: BatchedCounts) -> BatchedCounts:
        """Return counts of the same rows with what has been computed of them."""
        for name in ("rated", "missing_parts"):
            if name in vars(self):
                vars(other)[name] = vars(self)[name]
        if "log_sizes" in vars(self) and other.noise == self.noise:
            vars(other)["log_sizes"] = self.log_sizes
        return other

    def around(self, inner: Any, rows: Any = None) -> BatchedCounts:
        """Return the same around other counts, or around some rows of these, whose factors are held."""
        found = self.of(inner, self.noise, self.learned, self.given_totals)
        return found if rows is None or self.factors is None else found.with_factors(self.factors)

    def log_of_means(self, means: Array) -> float:
        """Return what factors, integrated out, add to the Poisson log-likelihood at means R (B, m) of batches."""
        s, x = float(self.dispersions[0]), self.rated.toarray()
        return self.log_sizes + float((means - (x + 1 / s) * np.log1p(s * means)).sum())

    def without_names(self) -> BatchedCounts:
        """Return the same counts with numbers for names, and with the same factors."""
        inner = self.plain.without_names()
        named: Any = {"row_names": inner.row_names, "feature_names": inner.feature_names}
        return self._knowing(replace(self, plain=inner, matrix=inner.matrix, **named))

    @property
    def log_noise(self) -> float:
        """What factors add to the log-likelihood, and to the log prior of a learned shape, in nats."""
        if not self.held:
            return self.log_prior + self.log_sizes + self.gain
        x: Any = self.rated.tocoo()
        factors: Any = self.factors
        return float((x.data * np.log(factors[x.coords])).sum())
