"""The rates of entries whose counts have quadratic variance: expected ones for modes and mean fields, or drawn ones.

With q(ε) = Gamma(x + 1/α, ρ + 1/α), whose mean is (1 + αx) / (1 + αρ), the objective of the counts has, in place of
−E λ for Poisson counts, −ε E λ + ερ + L − (x + 1/α) log(1 + αρ): the expected log-likelihood given the rate, less the
divergence of q(ε) from the prior of the rate. It is largest at ρ = E λ, where it is L − (x + 1/α) log(1 + αE λ).

Where loadings receive counts of what entries lack of the ceiling C of their row (`bayesnmf.inference.missing`), both
sides raise a bound that is lower by (C − ε)(E λ − UV), summed over the entries of the row. Rates and ceiling together
make it largest with ρ = UV, but for entries whose rate would be above C, which have ε = C. Then the derivative by C
says Σ(ρ − UV) = Σ(E λ − UV), so that with the sums Σ' over entries at the ceiling

    C = Σ'(x + 1/α) / (Σ(E λ − UV) + Σ'(UV + 1/α))
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from bayesnmf.data.batched import BatchedCounts
from bayesnmf.inference.group_means import GroupMeans
from bayesnmf.inference.missing import geometric_of, raises_one_bound
from bayesnmf.inference.problem import Problem, State
from bayesnmf.kernels.cpu.gamma_draws import gamma_draws
from bayesnmf.kernels.cpu.threads import in_blocks, one_blas_thread, threads_or_default
from bayesnmf.types import Array

ENTRIES = 2**15  # in a block of rows, which stays in the second-level cache
WORK = 40  # of an entry, in multiply-adds


class Entries(NamedTuple):
    """Rates of the entries of some rows, (rows, m), the ceilings of these rows, and what the objective gains."""

    rho: Array
    rates: Array
    ceilings: Array
    gain: float


def in_row_blocks[T](shape: tuple[int, int], work: Callable[[slice], T], threads: int | None = None) -> list[T]:
    """Return what a function of rows returns for each block of rows; blocks depend on no number of threads."""
    n, m = shape
    bounds = np.append(np.arange(0, n, max(ENTRIES // max(m, 1), 1)), n)
    threads = threads_or_default(threads, WORK * n * m)
    with one_blas_thread():
        return in_blocks(bounds, lambda _, first, last: work(slice(first, last)), threads)


def rated_problem(problem: Problem, state: State, threads: int | None = None, moving: Array | None = None) -> Problem:
    """Return the problem of counts with rates with those that are expected at a state, of all rows or of some."""
    counts: Any = problem.counts
    lost, ceilings = np.empty(counts.rated.shape, counts.dtype), np.empty(counts.rated.shape[0])

    def fill(rows: slice, entries: Entries) -> float:
        lost[rows] = _lacking(entries.rates, entries.ceilings)
        ceilings[rows] = entries.ceilings
        return entries.gain

    gains = by_blocks(problem, state, fill, threads)
    if moving is not None:
        before: Any = counts
        lost[~moving], ceilings[~moving] = before.mask.lost[~moving], before.ceilings[~moving]
        return replace(problem, counts=counts.with_rates(lost, ceilings))
    return replace(problem, counts=counts.with_rates(lost, ceilings, state, float(sum(gains))))


def with_drawn_rates(problem: Problem, state: State, seed: int, threads: int | None = None) -> Problem:
    """Return the problem with rates drawn given the values of a state, from Gamma(x + 1/α, λ + 1/α)."""
    counts: Any = problem.counts
    lost, ceilings = np.empty(counts.rated.shape, counts.dtype), np.empty(counts.rated.shape[0])
    means = _means_at(problem, state)

    def fill(rows: slice) -> None:
        (x, hidden), alpha = counts.entries(rows), counts.of_entries(counts.dispersions, rows)
        drawn = gamma_draws(x + 1 / alpha, seed, 1, first_row=rows.start) / (means.of(rows) + 1 / alpha)
        if hidden is not None:
            drawn[hidden] = 0.0
        ceilings[rows] = _highest(drawn)
        lost[rows] = _lacking(drawn, ceilings[rows])

    in_row_blocks(counts.rated.shape, fill, threads)
    return replace(problem, counts=counts.with_rates(lost, ceilings))


def by_blocks[T](
    problem: Problem, state: State, use: Callable[[slice, Entries], T], threads: int | None = None
) -> list[T]:
    """Return what a function of rows and their `Entries` at a state returns for each block of rows."""
    imputes, means = raises_one_bound(problem, state.components), _means_at(problem, state)
    counts: Any = problem.counts

    def work(rows: slice) -> T:
        return use(rows, _entries(counts, rows, means, imputes))

    return in_row_blocks(counts.rated.shape, work, threads)


def _means_at(problem: Problem, state: State) -> Any:
    """Return the means of what has rates: single entries, or the entries of a batch together."""
    return GroupMeans(problem, state) if isinstance(problem.counts, BatchedCounts) else _Means(problem, state)


class _Means:
    """Means of entries of some rows, with exposures but without rates."""

    def __init__(self, problem: Problem, state: State) -> None:
        self.plain: Any = problem.counts.plain  # type: ignore[attr-defined]
        self.state = state
        self.factors = self._exposed(*(np.asarray(side.matrix, np.float64) for side in state))

    def _exposed(self, loadings: Array, components: Array) -> tuple[Array, Array]:
        return self.plain.exposed_loadings(loadings), self.plain.exposed_components(components)

    def of(self, rows: slice) -> Array:
        return np.asarray(self.factors[0][rows] @ self.factors[1])

    def geometric(self, rows: slice) -> Array:
        if not hasattr(self, "mean_factors"):
            self.mean_factors = self._exposed(*(geometric_of(side) for side in self.state))
        return np.asarray(self.mean_factors[0][rows] @ self.mean_factors[1])

    def gap(self, rows: slice) -> Array:
        """Return Σ(E λ − UV) over all entries of each row."""
        return np.maximum(self.of(rows) - self.geometric(rows), 0.0).sum(axis=1)


def _entries(counts: Any, rows: slice, means: Any, imputes: bool) -> Entries:
    """Return the expected rates of some rows; those of the looser bound where loadings receive counts."""
    (x, hidden), alpha = counts.entries(rows), counts.of_entries(counts.dispersions, rows)
    more = x + 1 / alpha
    if hidden is not None:
        more[hidden] = 0.0
    if not imputes:
        rho = means.of(rows)
        rates = more / (rho + 1 / alpha)
        ceilings = _highest(rates)
    else:
        geometric = means.geometric(rows)
        ceilings = _ceilings(more, geometric + 1 / alpha, means.gap(rows))
        rho = np.maximum(geometric, more / ceilings[:, None] - 1 / alpha)
        rates = more / (rho + 1 / alpha)
    if hidden is not None:
        rho[hidden] = 0.0
    gain = float((rates * rho - more * np.log1p(alpha * rho)).sum())
    return Entries(rho, rates, ceilings, gain)


def _ceilings(more: Array, less: Array, gap: Array) -> Array:
    """Return the largest Σ'more / (gap + Σ'less) over sets of entries of each row, by Dinkelbach's method; 1 for 0."""
    found = (more / (less + gap[:, None])).max(axis=1, initial=0.0)
    while True:
        above = more > found[:, None] * less
        tops = np.where(above, more, 0.0).sum(axis=1)
        bottoms = gap + np.where(above, less, 0.0).sum(axis=1)
        better = np.divide(tops, bottoms, out=found.copy(), where=above.any(axis=1))
        if not (better > found).any():
            return np.where(found > 0, found, 1.0)
        found = np.maximum(better, found)


def _highest(rates: Array) -> Array:
    highest = rates.max(axis=1, initial=0.0)
    return np.where(highest > 0, highest, 1.0)


def _lacking(rates: Array, ceilings: Array) -> Array:
    return np.clip(1.0 - rates / ceilings[:, None], 0.0, 1.0)
