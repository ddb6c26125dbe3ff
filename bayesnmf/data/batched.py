"""Counts in batches, as the routines for Poisson counts see them, around counts with any noise.

Given the factors b_gj of batches and features, the counts of an entry have the mean b_g(i)j times what they would have,
whatever their noise. So factors multiply the exposures of the counts inside: those of rows, e_i, become e_i C_g with
the largest factor C_g of a batch, of which its entries lack the shares 1 − b_gj / C_g beside what they lack already.

Given loadings, components, and the clusters or the rates of entries where the noise has these, a factor is
Gamma(a + x_gj, a + R_gj), for the counts x_gj of the batch, or the clusters, and their mean R_gj without factors. So
with the factors integrated out x_gj is negative binomial with mean R_gj and the dispersion 1/a of quadratic variance,
which is exact for Poisson counts. For others, q of the factors is independent of that of clusters or rates: a bound.
Clusters are allocated at b̃ = exp E log b, and the spreads of their means are divided by it.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import numpy as np
from scipy.sparse import csr_array
from scipy.special import gammaln

from bayesnmf.data.batches import Batches
from bayesnmf.data.mask import Mask
from bayesnmf.data.unexposed import UnexposedGroups, missing_in_groups
from bayesnmf.data.wrapped import WrappedCounts, of_inner
from bayesnmf.noise.negative_binomial import LEAST, NegativeBinomial, log_rising
from bayesnmf.types import Array

SHAPE = "batch_shape"  # name of the drawn one among what is drawn beside both sides
FIRST = 0.1  # dispersion 1/a that learning begins with
OF_FACTORS = NegativeBinomial("quadratic", FIRST)  # noise of the counts of whole batches, whose prior is that of 1/a
EVENLY = (
    0.7548776662466927,
    0.5698402909980532,
)  # steps whose multiples fill the unit interval evenly, in two directions
TINY = np.finfo(np.float64).tiny


@dataclass(frozen=True, eq=False, repr=False)
class BatchedCounts(WrappedCounts):
    """Counts whose batches have factors; without any yet, they have the exposures of the counts inside.

    Attributes
    ----------
    noisy : Counts
        The counts inside, with their noise.
    shape_of_factors : float
        Shape a of the prior of factors.
    learns_shape : bool
        Whether it changes with a fit.
    factors : ndarray (B, m) or None
        Expected factors, drawn or known ones.
    geometric : ndarray (B, m) or None
        exp E log b that clusters are allocated at; drawn and known factors themselves.
    counted : ndarray (B, m) or None
        Counts, or expected clusters, that expected factors are given.
    gain : float
        What expected factors add to the objective, in nats.
    state : State or None
        State that expected factors are those of.
    held : bool
        Whether factors stay as they are, whatever the state: they are known, or these are some rows of others.
    drawn : bool
        Whether factors are drawn ones.
    known : dict
        What has been computed of these rows, whatever their factors.
    """

    noisy: Any = None
    shape_of_factors: float = 1 / FIRST
    learns_shape: bool = False
    factors: Array | None = None
    geometric: Array | None = None
    counted: Array | None = None
    gain: float = 0.0
    state: Any = None
    held: bool = False
    drawn: bool = False
    known: dict[str, Any] = field(default_factory=dict, repr=False)
    has_factors: ClassVar[bool] = True
    holds: ClassVar[str] = "noisy"

    noise = of_inner("noise")
    learned = of_inner("learned")
    in_clusters = of_inner("in_clusters")
    has_entry_rates = of_inner("has_entry_rates")
    given_totals = of_inner("given_totals")
    dispersions = of_inner("dispersions")
    plain = of_inner("plain")
    entries = of_inner("entries")
    of_entries = of_inner("of_entries")
    unrated = of_inner("unrated")
    with_rates_alone = of_inner("with_rates_alone")
    gain_of_rates = of_inner("gain_of_rates")
    spread_of_means = of_inner("spread_of_means")
    log_exposure = of_inner("log_exposure")

    @classmethod
    def in_batches(cls, noisy: Any, shape: float | None = None, learned: bool = False) -> BatchedCounts:
        """Return counts with the batches of their rows, and factors with this shape or that where learning begins."""
        names, given = (noisy.row_names, noisy.feature_names), (noisy.row_exposure, noisy.feature_exposure)
        own: Any = {"noisy": noisy, "shape_of_factors": 1 / FIRST if shape is None else shape, "learns_shape": learned}
        return cls(noisy.matrix, *names, *given, noisy.mask, **own)

    def around(self, inner: Any, rows: Any = None) -> BatchedCounts:
        """Return the same around other counts, or around some rows of these, whose factors are held."""
        found = self.in_batches(inner, self.shape_of_factors, self.learns_shape)
        return found if rows is None or self.factors is None else found.with_factors(self.factors, self.geometric)

    @property
    def batches(self) -> Batches:
        """Batches of the rows."""
        batches: Batches = self.plain.batch
        return batches

    @property
    def of_batches(self) -> Array:
        """Counts of each batch, (B, m)."""
        if "totals" not in self.known:
            self.known["totals"] = self.batches.totals(self.noisy)
        totals: Array = self.known["totals"]
        return totals

    @property
    def missing_parts(self) -> list[tuple[Array, Mask]]:
        """Rows of each batch, and what they lack without factors; empty if that is nothing."""
        mask, parts = self.known.get("missing", (None, []))
        if mask is not self.noisy.mask:
            mask, parts = self.noisy.mask, missing_in_groups(self.noisy.mask, self.batches)
            self.known["missing"] = mask, parts
        return parts

    @property
    def summed_out(self) -> bool:
        """Whether expected factors integrate the factors out exactly: given these, counts are Poisson."""
        return not (self.in_clusters or self.has_entry_rates)

    @property
    def expects_factors(self) -> bool:
        """Whether factors are those that are expected at a state."""
        return not self.held and (self.summed_out or not self.drawn)

    def waits_for(self, state: Any, moving: Array | None) -> bool:
        """Return whether factors are to be those of a state, which belong to all rows together, or rates of entries."""
        if moving is not None or not self.expects_factors:
            return bool(self.noisy.waits_for(state, moving))
        return self.state is not state

    @property
    def exposures_move(self) -> bool:
        """Whether exposures may have changed since a pass over the rows has written the loadings."""
        return True

    def spread(self, factor: Array | None, other: Array | None) -> Any:
        """Return the spreads of clusters, for each batch; None without clusters."""
        spread = self.noisy.spread(factor, other)
        if spread is None or self.geometric is None:
            return spread
        rows, features = spread
        return rows, ((1.0 if features is None else features) / np.maximum(self.geometric, TINY), self.batches.codes)

    @property
    def to_start_from(self) -> Any:
        """The counts without what batches have more or less of than all rows, if these all had the same means.

        A start from the counts as they are has components for batches, and what they take the factors do not get.
        They are whole numbers, as those on disk are: above or below by the place of an entry, without a bias.
        """
        x, a = self.of_batches, self.shape_of_factors
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

    def expecting(self, counted: Array, means: Array, geometric: Array, state: Any) -> BatchedCounts:
        """Return the same counts with factors that are expected at a state, given what is counted and its means."""
        a = self.shape_of_factors
        factors = (a + counted) / (a + means)
        gain = log_rising(counted, 1 / a)[0] + factors * means - (counted + a) * np.log1p(means / a)
        if self.in_clusters:
            gain = gain + (self.of_batches - counted) * np.log(np.maximum(geometric, TINY))
        own: Any = {"geometric": geometric, "counted": counted, "gain": float(gain.sum()), "state": state}
        return self._exposed(self.noisy, factors, **own, drawn=False)

    def with_factors(self, factors: Array, geometric: Array | None = None, *, drawn: bool = False) -> BatchedCounts:
        """Return the same counts with factors (B, m) that are known, or drawn."""
        own = factors if geometric is None else geometric
        return self._exposed(self.noisy, factors, geometric=own, state=None, held=not drawn, drawn=drawn)

    def with_rates(self, rates: Any, state: Any = None) -> BatchedCounts:
        """Return the same counts with rates of entries, and with the factors that they have."""
        return self.with_noise(self.noisy.with_rates(rates, state))

    def with_noise(self, noisy: Any) -> BatchedCounts:
        """Return counts with the same factors around the same counts, whose noise has changed."""
        if self.factors is not None:
            return self._exposed(noisy, self.factors)
        given: Any = {"row_exposure": noisy.row_exposure, "feature_exposure": noisy.feature_exposure}
        return replace(self, noisy=noisy, mask=noisy.mask, **given)

    def _exposed(self, noisy: Any, factors: Array, **changed: Any) -> BatchedCounts:
        """Return the same with exposures of factors around counts of the same rows."""
        highest = factors.max(axis=1)
        ceilings = np.where(highest > 0, highest, 1.0)
        lost, inside = np.clip(1.0 - factors / ceilings[:, None], 0.0, 1.0), replace(self, noisy=noisy)
        mask = UnexposedGroups.of_groups(lost, self.batches, noisy.mask, inside.missing_parts)
        exposure = ceilings[self.batches.codes] * noisy.row_factor[:, 0]
        given: Any = {"feature_exposure": noisy.feature_exposure, "row_exposure": exposure, "mask": mask}
        return replace(inside, factors=factors, **given, **changed)

    @property
    def with_exposures_alone(self) -> BatchedCounts:
        """The counts without their noise, exposed to the factors."""
        found = self.around(self.plain)
        return found if self.factors is None else found.with_factors(self.factors)

    def with_exposure(self, row_exposure: Array | None, feature_exposure: Array | None) -> Any:
        """Return the same counts with other exposures, and without noise and factors."""
        return self.noisy.with_exposure(row_exposure, feature_exposure)

    def with_dispersions(self, dispersions: Array) -> BatchedCounts:
        """Return the same counts with other dispersions of their noise."""
        return replace(self.with_noise(self.noisy.with_dispersions(dispersions)), state=None)

    def with_shape(self, shape: float) -> BatchedCounts:
        """Return the same counts with another shape of factors."""
        return replace(self, shape_of_factors=shape, state=None)

    @property
    def parameters(self) -> Array:
        """Dispersions that are learned, then 1/a if it is."""
        own = [1 / self.shape_of_factors] if self.learns_shape else []
        return np.concatenate([self.noisy.parameters, own])

    def with_parameters(self, parameters: Array) -> BatchedCounts:
        """Return the same counts with others of what is learned."""
        number = len(self.noisy.parameters)
        found = replace(self.with_noise(self.noisy.with_parameters(parameters[:number])), state=None)
        limits = LEAST, OF_FACTORS.largest
        return found.with_shape(1 / float(np.clip(parameters[-1], *limits))) if self.learns_shape else found

    @property
    def memory(self) -> Any:
        """What a checkpoint keeps: what is learned, and the factors that their next search begins with."""
        return self.noisy.memory, self.shape_of_factors, self.factors, self.counted

    def recalled(self, memory: Any) -> BatchedCounts:
        """Return the same counts as a checkpoint has kept them."""
        noisy, shape, factors, counted = memory
        found = self.around(self.noisy.recalled(noisy)).with_shape(shape)
        return found if factors is None else found._exposed(found.noisy, factors, counted=counted)

    def __getstate__(self) -> dict[str, Any]:
        """Return the state without what can be computed again."""
        return {**super().__getstate__(), "known": {}}

    def log_of_means(self, means: Array) -> float:
        """Return what factors, integrated out, add to the Poisson log-likelihood at means R (B, m) of batches."""
        s, x = 1 / self.shape_of_factors, self.of_batches
        return float((log_rising(x, s)[0] + means - (x + 1 / s) * np.log1p(s * means)).sum())

    @property
    def log_noise(self) -> float:
        """What noise and factors add to the log-likelihood, and to the log prior of what is learned, in nats."""
        found, a = float(self.noisy.log_noise), self.shape_of_factors
        if self.learns_shape and not self.held:
            found += float(OF_FACTORS.log_prior(np.array(1 / a)))
        if self.expects_factors:
            return found + self.gain
        own: Any = self.geometric
        logs = np.log(np.maximum(own, TINY))
        found += float((self.of_batches * logs).sum())
        density = a * np.log(a) - gammaln(a) + (a - 1) * logs - a * own if self.drawn else np.zeros(1)
        return found + float(density.sum())
