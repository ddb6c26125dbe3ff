"""The rates of entries whose counts have quadratic variance: expected ones for modes and mean fields, or drawn ones.

With q(ε) = Gamma(x + 1/α, ρ + 1/α), whose mean is (1 + αx) / (1 + αρ), the objective of the counts has, in place of
−E λ for Poisson counts, −ε E λ + ερ + L − (x + 1/α) log(1 + αρ): the expected log-likelihood given the rate, less the
divergence of q(ε) from the prior of the rate. It is largest at ρ = E λ, where it is L − (x + 1/α) log(1 + αE λ).

Blocks of rows are worked on one by one. No array has the expected rate of every entry: they are made again when another
sum over them is asked for, unless all are in one block. Drawn rates are kept.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np

from bayesnmf.data.mask import Mask
from bayesnmf.data.unexposed import Unexposed, nothing_missing
from bayesnmf.inference.problem import Problem, State
from bayesnmf.kernels.cpu.threads import in_blocks, one_blas_thread, threads_or_default
from bayesnmf.types import Array

ENTRIES = 2**15  # in a block of rows, which stays in the second-level cache
WORK = 40  # of an entry, in multiply-adds


def in_row_blocks[T](shape: tuple[int, int], work: Callable[[slice], T], threads: int | None = None) -> list[T]:
    """Return what a function of rows returns for each block of rows; blocks depend on no number of threads."""
    n, m = shape
    bounds = np.append(np.arange(0, n, max(ENTRIES // max(m, 1), 1)), n)
    threads = threads_or_default(threads, WORK * n * m)
    with one_blas_thread():
        return in_blocks(bounds, lambda _, first, last: work(slice(first, last)), threads)


class EntryMeans:
    """Means of entries of some rows, with exposures but without rates, and their counts.

    Parameters
    ----------
    counts : RatedCounts
        Counts without rates.
    loadings, components : ndarray of shape (n, K) and (K, m)
        Factors of the means, in float64.
    """

    def __init__(self, counts: Any, loadings: Array, components: Array) -> None:
        self.counts, self.loadings, self.components = counts, loadings, components
        self.batches: tuple[Array, Array] | None = None

    @classmethod
    def at(cls, problem: Problem, state: State) -> EntryMeans:
        """Return the means at a state, with factors of batches if there are any."""
        counts: Any = problem.counts
        loadings, components = (np.asarray(side.matrix, np.float64) for side in state)
        exposed = counts.plain.exposed_loadings(loadings), counts.plain.exposed_components(components)
        found = cls(counts.unrated, *exposed)
        if counts.factors is not None:
            found.batches = counts.factors, counts.batches.codes
        return found

    def of(self, rows: slice) -> Array:
        """Return the means of some rows, (rows, m)."""
        means = np.asarray(self.loadings[rows] @ self.components)
        if self.batches is None:
            return means
        factors, codes = self.batches
        return means * factors[codes[rows]]

    def beside(self, rows: slice) -> tuple[Array, Array, Array | None]:
        """Return counts and means of some rows, both 0 where entries are missing, and where these are if any can be."""
        (x, hidden), rho = self.counts.entries(rows), self.of(rows)
        if hidden is not None:
            rho[hidden] = 0.0
        return x, rho, hidden


@dataclass(frozen=True, eq=False)
class ExpectedRates(Mask):
    """The shares that entries lack of the ceilings of their rows, by the rates that are expected at their means.

    Attributes
    ----------
    means : EntryMeans
    ceilings : ndarray of shape (n,)
        Largest rate of each row.
    sums : ndarray of shape (n, K)
        Sums of the rates of each row times the components of the means.
    gain : float
        What the distribution of the rates adds to the objective, in nats.
    kept : ndarray or None
        Rates, if all rows are one block.
    threads : int or None
    """

    means: EntryMeans
    ceilings: Array
    sums: Array
    gain: float
    kept: Array | None
    threads: int | None

    @classmethod
    def at(cls, means: EntryMeans, threads: int | None) -> Self:
        """Return the rates at means."""
        counts, (n, m) = means.counts, means.counts.shape
        ceilings, sums, V = np.empty(n), np.empty((n, len(means.components))), means.components.T

        def fill(rows: slice) -> tuple[float, Array | None]:
            x, rho, hidden = means.beside(rows)
            rates, gain = counts.noise.expected_rates(x, rho, counts.of_entries(counts.dispersions, rows))
            if hidden is not None:
                rates[hidden] = 0.0
            ceilings[rows], sums[rows] = _highest(rates), rates @ V
            return gain, rates if len(rates) == n else None

        found = in_row_blocks((n, m), fill, threads)
        gain = float(sum(gain for gain, _ in found))
        return cls(nothing_missing((n, m)), True, means, ceilings, sums, gain, found[0][1], threads)

    def _rates(self, rows: slice) -> Array:
        if self.kept is not None:
            return self.kept[rows]
        counts, (x, rho, hidden) = self.means.counts, self.means.beside(rows)
        rates = counts.noise.expected_rates_alone(x, rho, counts.of_entries(counts.dispersions, rows))
        if hidden is not None:
            rates[hidden] = 0.0
        return np.asarray(rates)

    @property
    def seen_rows(self) -> Array:
        """Whether each row has an observed entry, (n,)."""
        mask = self.means.counts.plain.mask
        return np.ones(len(self.ceilings), bool) if mask is None else np.asarray(mask.seen_rows)

    @property
    def lost(self) -> Array:
        """The shares of all entries, (n, m)."""
        return _lacking(self._rates(slice(0, len(self.ceilings))), self.ceilings)

    def sums_by_row(self, factor: Array) -> Array:
        """Return, for each row, Σ of the rows of a factor (m, K) times the shares of its features, (n, K)."""
        sums = self.sums
        if not np.array_equal(factor.T, self.means.components):
            parts = in_row_blocks(self.pattern.shape, lambda rows: self._rates(rows) @ factor, self.threads)
            sums = np.concatenate(parts)
        return np.maximum(factor.sum(axis=0, dtype=np.float64) - sums / self.ceilings[:, None], 0.0)

    def sums_by_feature(self, factor: Array) -> Array:
        """Return, for each feature, Σ of the rows of a factor (n, K) times their shares, (m, K)."""
        left = factor / self.ceilings[:, None]
        parts = in_row_blocks(self.pattern.shape, lambda rows: left[rows].T @ self._rates(rows), self.threads)
        return np.maximum(factor.sum(axis=0, dtype=np.float64) - np.sum(parts, axis=0).T, 0.0)


def rated_problem(problem: Problem, state: State, threads: int | None = None, moving: Array | None = None) -> Problem:
    """Return the problem of counts with rates with those that are expected at a state, of all rows or of some."""
    counts: Any = problem.counts
    means, before = EntryMeans.at(problem, state), counts.with_rates_alone
    if counts.has_factors:  # whose mask holds the shares of all entries
        found = ExpectedRates.at(means, threads)
        lost, ceilings = found.lost, found.ceilings
        if moving is not None:
            lost[~moving], ceilings[~moving] = before.mask.lost[~moving], before.ceilings[~moving]
        rates: Any = Unexposed.shares(lost)
    else:
        if moving is not None:
            means.loadings = np.where(moving[:, None], means.loadings, before.mask.means.loadings)
        found = ExpectedRates.at(means, threads)
        rates, ceilings = found, found.ceilings
    of_state = () if moving is not None else (state, found.gain)
    return replace(problem, counts=counts.with_rates(rates, ceilings, *of_state))


def with_drawn_rates(problem: Problem, state: State, seed: int, threads: int | None = None) -> Problem:
    """Return the problem with rates drawn given the values of a state, from Gamma(x + 1/α, λ + 1/α)."""
    counts: Any = problem.counts
    lost, ceilings = np.empty(counts.shape, counts.dtype), np.empty(counts.shape[0])
    means = EntryMeans.at(problem, state)

    def fill(rows: slice) -> None:
        x, rho, hidden = means.beside(rows)
        drawn = counts.noise.drawn_rates(x, rho, counts.of_entries(counts.dispersions, rows), seed, rows.start)
        if hidden is not None:
            drawn[hidden] = 0.0
        ceilings[rows] = _highest(drawn)
        lost[rows] = _lacking(drawn, ceilings[rows])

    in_row_blocks(counts.shape, fill, threads)
    return replace(problem, counts=counts.with_rates(Unexposed.shares(lost), ceilings))


def _highest(rates: Array) -> Array:
    highest = rates.max(axis=1, initial=0.0)
    return np.where(highest > 0, highest, 1.0)


def _lacking(rates: Array, ceilings: Array) -> Array:
    return np.clip(1.0 - rates / ceilings[:, None], 0.0, 1.0)
