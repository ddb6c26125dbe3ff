"""Counts with negative binomial noise of quadratic variance, as the routines for Poisson counts see them.

The entry of a row i and a feature j, with mean λ and dispersion α, has a rate ε ~ Gamma(1/α, 1/α), and its count is
Poisson with mean ελ. So given rates, everything is Poisson with the exposure r_i c_j ε_ij of an entry. This is written
as the exposure r_i C_i of a row, with a ceiling C_i of its rates, of which the entry lacks the share 1 − ε / C: all of
it where it is missing. What holds for missing entries (`bayesnmf.inference.missing`) holds for shares of entries, too.
Rates are found where they are asked for; those of counts on disk, in each block again.
The probability of the counts is

    log p = ΣL(x, 1, α) + x log λ − (x + 1/α) log(1 + αλ) − log x!          L(x, 1, α) = Σ_{t<x} log(1 + αt)
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar, Self

import numpy as np

from bayesnmf.data.counts import Counts
from bayesnmf.data.dispersed import DispersedCounts
from bayesnmf.noise.abilities import Dispersed
from bayesnmf.types import Array


@dataclass(frozen=True, eq=False, repr=False)
class RatedCounts(DispersedCounts):
    """Counts whose entries have rates; without any yet, they have the exposures of Poisson counts.

    Attributes
    ----------
    rates : Mask or None
        Shares that entries lack of the ceilings of their rows, with these (`bayesnmf.inference.rates`).
    state : State or None
        State that the rates are expected at.
    """

    rates: Any = None
    state: Any = None
    has_entry_rates: ClassVar[bool] = True

    @classmethod
    def of(cls, plain: Counts, noise: Dispersed, learned: bool, given_totals: bool) -> Self:
        """Return counts with this noise, without rates."""
        names, given = (plain.row_names, plain.feature_names), (plain.row_exposure, plain.feature_exposure)
        more: Any = {"plain": plain, "noise": noise, "learned": learned, "given_totals": given_totals}
        return cls(plain.matrix, *names, *given, plain.mask, **more)

    @property
    def unrated(self) -> Self:
        """The same counts without rates."""
        return self.around(self.plain)

    def with_rates(self, rates: Any, state: Any = None) -> Self:
        """Return the same counts with rates: a mask of what entries lack of the ceilings of their rows."""
        made = replace(self, mask=rates, rates=rates, state=state)
        if "log_sizes" in vars(self):  # which no rate changes
            vars(made)["log_sizes"] = self.log_sizes
        return made

    def _part(self, part: Counts, rows: slice) -> Self:
        made = super()._part(part, rows)
        if self.rates is None or not self.rates.by_block:
            return made
        return made.with_rates(self.rates.of_block(made, self.plain.bounds.index(rows.start), rows.start))

    def empty_block(self, first: int, last: int) -> Self:
        """Return these rows, whose counts are read if they have rates, which depend on them."""
        return super().empty_block(first, last) if self.rates is None else self.block(first, last)

    @cached_property
    def row_weights(self) -> Array | None:
        """Exposure of the rows times their ceilings, (n,), or None if it is 1 for all."""
        if self.rates is None:
            return super().row_weights
        exposure: Array = self.rates.ceilings * self.plain.row_factor[:, 0]
        return None if np.all(exposure == 1) else exposure

    @property
    def exposures_move(self) -> bool:
        """Whether exposures may have changed since a pass over the rows has written the loadings."""
        return True

    @property
    def gain_of_rates(self) -> float:
        """What the distribution of the rates adds to the objective, in nats."""
        return 0.0 if self.rates is None else float(self.rates.gain)

    def waits_for(self, state: Any, moving: Array | None) -> bool:
        """Return whether rates are to be those of a state."""
        return self.state is not state

    @property
    def to_start_from(self) -> Counts:
        """The counts that a start is made from."""
        plain: Counts = self.plain
        return plain

    @property
    def with_rates_alone(self) -> Self:
        """The counts with their rates."""
        return self

    def entries(self, rows: slice) -> tuple[Array, Array | None]:
        """Return the counts of some rows, (rows, m), and which entries are missing, if any can be."""
        from bayesnmf.kernels.cpu.entry_rates import dense_rows  # compiled code takes time to import

        hidden = None if self.plain.mask is None else self.plain.mask.hidden(rows)
        return dense_rows(self.matrix, rows), hidden

    def of_entries(self, dispersions: Array, rows: slice) -> Array:
        """Return dispersions as those of the entries of some rows, (rows or 1, m or 1)."""
        if self.noise.by_feature:
            return np.asarray(self.noise.of_lines(dispersions))[None, :]
        return (dispersions[rows] if self.noise.by == "row" else dispersions)[:, None]

    @cached_property
    def log_sizes(self) -> float:
        """What the log-likelihood has without means: ΣL(x, 1, α) of negative binomial counts."""
        noise: Any = self.noise
        return float(noise.sums_of_sizes(self, self.dispersions)[:, 0].sum())

    @property
    def log_exposure(self) -> float:
        """Σ X log(r c), without rates."""
        return float(self.plain.log_exposure)

    @property
    def log_noise(self) -> float:
        """What the noise adds to the log-likelihood beside rates, and to the log prior of what is learned, in nats."""
        return self.log_prior + self.log_sizes

    def __getstate__(self) -> dict[str, Any]:
        """Return the state without that of the rates, which are made where they are asked for."""
        return {**super().__getstate__(), "state": None}
