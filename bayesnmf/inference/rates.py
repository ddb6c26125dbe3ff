"""The rates of entries whose counts have quadratic variance: expected ones for modes and mean fields, or drawn ones.

With q(ε) = Gamma(x + 1/α, ρ + 1/α), whose mean is (1 + αx) / (1 + αρ), the objective of the counts has, in place of
−E λ for Poisson counts, −ε E λ + ερ + L − (x + 1/α) log(1 + αρ): the expected log-likelihood given the rate, less the
divergence of q(ε) from the prior of the rate. It is largest at ρ = E λ, where it is L − (x + 1/α) log(1 + αE λ).

Blocks of rows are worked on one by one. No array has the expected rate of every entry: they are made again when another
sum over them is asked for, unless all are in one block. Drawn rates are kept, but for those of counts on disk, which
are drawn again, with the same random numbers, from the loadings in files that they were drawn given.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np

from bayesnmf.data.mask import Mask
from bayesnmf.data.unexposed import Unexposed, nothing_missing
from bayesnmf.inference.problem import Problem, State
from bayesnmf.inference.side import Side
from bayesnmf.kernels.cpu.threads import in_blocks, one_blas_thread, threads_or_default
from bayesnmf.types import Array

ENTRIES = 2**15  # in a block of rows, which stays in the second-level cache
ROWS = 32  # in a block, or more, as products with fewer read the components again for each
WORK = 40  # of an entry, in multiply-adds
GROUPS = 32  # of blocks, whose sums are held at once


def in_row_blocks[T](shape: tuple[int, int], work: Callable[[slice], T], threads: int | None = None) -> list[T]:
    """Return what a function of rows returns for each block of rows; blocks depend on no number of threads."""
    threads = threads_or_default(threads, WORK * shape[0] * shape[1])
    with one_blas_thread():
        return in_blocks(_bounds(shape), lambda _, first, last: work(slice(first, last)), threads)


def _bounds(shape: tuple[int, int]) -> Array:
    n, m = shape
    return np.append(np.arange(0, n, max(ENTRIES // max(m, 1), ROWS)), n)


def sum_of_row_blocks(shape: tuple[int, int], work: Callable[[slice], Array], threads: int | None = None) -> Array:
    """Return the sum of new arrays that a function of rows returns for each block; few of them are held at once."""
    bounds = _bounds(shape)
    groups = np.linspace(0, len(bounds) - 1, min(GROUPS, len(bounds) - 1) + 1).astype(int)

    def add_up(_: int, first: int, last: int) -> Array:
        blocks = (slice(*bounds[block : block + 2]) for block in range(first, last))
        total = work(next(blocks))
        for rows in blocks:
            total += work(rows)
        return total

    threads = threads_or_default(threads, WORK * shape[0] * shape[1])
    with one_blas_thread():
        return np.asarray(np.sum(in_blocks(groups, add_up, threads), axis=0))


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
    def at(cls, counts: Any, state: State) -> EntryMeans:
        """Return the means of counts at a state of their rows, with factors of batches if there are any."""
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


class Summed(NamedTuple):
    """What a pass over rates finds.

    Attributes
    ----------
    ceilings : ndarray of shape (n,)
        Largest rate of each row.
    sums : ndarray of shape (n, K)
        Sums of the rates of each row times the components of the means.
    gain : float
        What the distribution of the rates adds to the objective, in nats; 0 where it was not asked for.
    kept : ndarray or None
        Rates, if all rows are one block.
    """

    ceilings: Array
    sums: Array
    gain: float
    kept: Array | None


@dataclass(frozen=True, eq=False)
class EntryRates(Mask):
    """The shares that entries lack of the ceilings of their rows, by the rates expected at their means, or drawn.

    Attributes
    ----------
    means : EntryMeans
    threads : int or None
    seed : int or None
        Seed of drawn rates; None for expected ones.
    first : int
        Number of the first of these rows, which drawn rates belong to.
    """

    means: EntryMeans
    threads: int | None = None
    seed: int | None = None
    first: int = 0

    @classmethod
    def at(cls, means: EntryMeans, threads: int | None = None, seed: int | None = None, first: int = 0) -> Self:
        """Return the rates at means."""
        return cls(nothing_missing(means.counts.shape), True, means, threads, seed, first)

    def _find(self, gains: bool) -> Summed:
        means, (n, m) = self.means, self.pattern.shape
        ceilings, sums, V = np.empty(n), np.empty((n, len(means.components))), means.components.T

        def fill(rows: slice) -> tuple[float, Array | None]:
            rates, gain = self.made(rows, gains)
            ceilings[rows], sums[rows] = _highest(rates), rates @ V
            return gain, rates if len(rates) == n else None

        found = in_row_blocks((n, m), fill, self.threads)
        return Summed(ceilings, sums, float(sum(gain for gain, _ in found)), found[0][1] if found else None)

    @cached_property
    def _gained(self) -> Summed:
        return self._find(gains=self.seed is None)

    @cached_property
    def _summed(self) -> Summed:
        return self._gained if "_gained" in vars(self) else self._find(gains=False)

    @property
    def gain(self) -> float:
        """What the distribution of the rates adds to the objective, in nats; 0 for drawn ones."""
        return self._gained.gain

    @property
    def ceilings(self) -> Array:
        """Largest rate of each row, (n,)."""
        return self._summed.ceilings

    def made(self, rows: slice, gains: bool = False) -> tuple[Array, float]:
        """Return the rates of some rows, 0 where entries are missing, and what their distribution adds if asked for."""
        counts, (x, rho, hidden), gain = self.means.counts, self.means.beside(rows), 0.0
        entry = x, rho, counts.of_entries(counts.dispersions, rows)
        if self.seed is not None:
            rates = counts.noise.drawn_rates(*entry, self.seed, self.first + rows.start)
        elif gains:
            rates, gain = counts.noise.expected_rates(*entry)
        else:
            rates = counts.noise.expected_rates_alone(*entry)
        if hidden is not None:
            rates[hidden] = 0.0
        return np.asarray(rates), gain

    @property
    def kept(self) -> Array | None:
        """Rates, if all rows are one block."""
        return self._summed.kept

    def _rates(self, rows: slice) -> Array:
        return self.made(rows)[0] if self.kept is None else self.kept[rows]

    @property
    def seen_rows(self) -> Array:
        """Whether each row has an observed entry, (n,)."""
        mask = self.means.counts.plain.mask
        return np.ones(self.pattern.shape[0], bool) if mask is None else np.asarray(mask.seen_rows)

    @property
    def lost(self) -> Array:
        """The shares of all entries, (n, m)."""
        return _lacking(self._rates(slice(0, self.pattern.shape[0])), self.ceilings)

    def sums_by_row(self, factor: Array) -> Array:
        """Return, for each row, Σ of the rows of a factor (m, K) times the shares of its features, (n, K)."""
        sums = self._summed.sums
        if not np.array_equal(factor.T, self.means.components):
            parts = in_row_blocks(self.pattern.shape, lambda rows: self._rates(rows) @ factor, self.threads)
            sums = np.concatenate(parts)
        return np.maximum(factor.sum(axis=0, dtype=np.float64) - sums / self.ceilings[:, None], 0.0)

    def sums_by_feature(self, factor: Array) -> Array:
        """Return, for each feature, Σ of the rows of a factor (n, K) times their shares, (m, K)."""
        left = factor / self.ceilings[:, None]
        kept = sum_of_row_blocks(self.pattern.shape, lambda rows: left[rows].T @ self._rates(rows), self.threads)
        return np.maximum(factor.sum(axis=0, dtype=np.float64) - kept.T, 0.0)


@dataclass(frozen=True, eq=False)
class KeptRates(Unexposed):
    """The shares that entries lack of the ceilings of their rows, of rates that are kept.

    Attributes
    ----------
    ceilings : ndarray of shape (n,)
        Largest rate of each row.
    gain : float
        What the distribution of the rates adds to the objective, in nats.
    """

    ceilings: Array
    gain: float = 0.0

    @classmethod
    def below(cls, lost: Array, ceilings: Array, gain: float = 0.0) -> Self:
        """Return these shares of the ceilings."""
        return cls(nothing_missing(lost.shape), True, lost, ceilings, gain)


@dataclass(frozen=True, eq=False)
class BlockRates(Mask):
    """The rates of entries of counts on disk, which are made again in every pass over a block.

    Attributes
    ----------
    reader : RowReader
        Where the loadings are that rates are expected at, or drawn given.
    components : Side
    seed : int or None
        Seed of drawn rates; None for expected ones.
    """

    reader: Any
    components: Side
    seed: int | None = None
    by_block: ClassVar[bool] = True

    @classmethod
    def at(cls, counts: Any, state: State, seed: int | None = None) -> Self:
        """Return the rates at a state."""
        return cls(nothing_missing(counts.shape), True, state.loadings.reader, state.components, seed)

    def of_block(self, part: Any, number: int, first: int) -> EntryRates:
        """Return the rates of the counts of a block without rates, whose first row is row `first`."""
        means = EntryMeans.at(part, State(self.reader.block(number), self.components))
        return EntryRates.at(means, None, self.seed, first)


def rated_problem(problem: Problem, state: State, threads: int | None = None, moving: Array | None = None) -> Problem:
    """Return the problem of counts with rates with those that are expected at a state, of all rows or of some."""
    counts: Any = problem.counts
    if state.loadings.add_up is not None:  # whose rows are in files
        return replace(problem, counts=counts.with_rates(BlockRates.at(counts, state), state))
    means, before = EntryMeans.at(counts, state), counts.with_rates_alone.rates
    if counts.has_factors:  # whose mask holds the shares of all entries
        found = EntryRates.at(means, threads)
        gain = found.gain if moving is None else 0.0
        lost, ceilings = found.lost, found.ceilings
        if moving is not None:
            lost[~moving], ceilings[~moving] = before.lost[~moving], before.ceilings[~moving]
        rates: Any = KeptRates.below(lost, ceilings, gain)
    else:
        if moving is not None:
            means.loadings = np.where(moving[:, None], means.loadings, before.means.loadings)
        rates = EntryRates.at(means, threads)
    return replace(problem, counts=counts.with_rates(rates, state if moving is None else None))


def with_drawn_rates(problem: Problem, state: State, seed: int, threads: int | None = None) -> Problem:
    """Return the problem with rates drawn given the values of a state, from Gamma(x + 1/α, λ + 1/α)."""
    counts: Any = problem.counts
    if state.loadings.add_up is not None:  # whose rows are in files
        return replace(problem, counts=counts.with_rates(BlockRates.at(counts, state, seed)))
    lost, ceilings = np.empty(counts.shape, counts.dtype), np.empty(counts.shape[0])
    rates = EntryRates.at(EntryMeans.at(counts, state), threads, seed)

    def fill(rows: slice) -> None:
        drawn, _ = rates.made(rows)
        ceilings[rows] = _highest(drawn)
        lost[rows] = _lacking(drawn, ceilings[rows])

    in_row_blocks(counts.shape, fill, threads)
    return replace(problem, counts=counts.with_rates(KeptRates.below(lost, ceilings)))


def _highest(rates: Array) -> Array:
    highest = rates.max(axis=1, initial=0.0)
    return np.where(highest > 0, highest, 1.0)


def _lacking(rates: Array, ceilings: Array) -> Array:
    return np.clip(1.0 - rates / ceilings[:, None], 0.0, 1.0)
