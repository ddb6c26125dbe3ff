"""The rates of entries whose counts have quadratic variance: expected ones for modes and mean fields, or drawn ones.

With q(ε) = Gamma(x + 1/α, ρ + 1/α), whose mean is (1 + αx) / (1 + αρ), the objective of the counts has, in place of
−E λ for Poisson counts, −ε E λ + ερ + L − (x + 1/α) log(1 + αρ): the expected log-likelihood given the rate, less the
divergence of q(ε) from the prior of the rate. It is largest at ρ = E λ, where it is L − (x + 1/α) log(1 + αE λ).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from bayesnmf.inference.problem import Problem, State
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
    lost, ceilings = np.empty(counts.shape, counts.dtype), np.empty(counts.shape[0])

    def fill(rows: slice, entries: Entries) -> float:
        lost[rows] = _lacking(entries.rates, entries.ceilings)
        ceilings[rows] = entries.ceilings
        return entries.gain

    gains = by_blocks(problem, state, fill, threads)
    if moving is not None:
        lost[~moving], ceilings[~moving] = (each[~moving] for each in counts.rates)
        return replace(problem, counts=counts.with_rates(lost, ceilings))
    return replace(problem, counts=counts.with_rates(lost, ceilings, state, float(sum(gains))))


def with_drawn_rates(problem: Problem, state: State, seed: int, threads: int | None = None) -> Problem:
    """Return the problem with rates drawn given the values of a state, from Gamma(x + 1/α, λ + 1/α)."""
    counts: Any = problem.counts
    lost, ceilings = np.empty(counts.shape, counts.dtype), np.empty(counts.shape[0])
    means = _Means(problem, state)

    def fill(rows: slice) -> None:
        (x, hidden), alpha = counts.entries(rows), counts.of_entries(counts.dispersions, rows)
        drawn = counts.noise.drawn_rates(x, means.of(rows), alpha, seed, rows.start)
        if hidden is not None:
            drawn[hidden] = 0.0
        ceilings[rows] = _highest(drawn)
        lost[rows] = _lacking(drawn, ceilings[rows])

    in_row_blocks(counts.shape, fill, threads)
    return replace(problem, counts=counts.with_rates(lost, ceilings))


def by_blocks[T](
    problem: Problem, state: State, use: Callable[[slice, Entries], T], threads: int | None = None
) -> list[T]:
    """Return what a function of rows and their `Entries` at a state returns for each block of rows."""
    counts: Any = problem.counts
    means = _Means(problem, state)

    def work(rows: slice) -> T:
        return use(rows, _entries(counts, rows, means))

    return in_row_blocks(counts.shape, work, threads)


class _Means:
    """Means of entries of some rows, with exposures and factors of batches but without rates."""

    def __init__(self, problem: Problem, state: State) -> None:
        self.counts: Any = problem.counts
        plain = self.counts.plain
        loadings, components = (np.asarray(side.matrix, np.float64) for side in state)
        self.factors = plain.exposed_loadings(loadings), plain.exposed_components(components)

    def of(self, rows: slice) -> Array:
        means, counts = np.asarray(self.factors[0][rows] @ self.factors[1]), self.counts
        return means if counts.factors is None else means * counts.factors[counts.batches.codes[rows]]


def _entries(counts: Any, rows: slice, means: _Means) -> Entries:
    """Return the expected rates of some rows."""
    (x, hidden), s, rho = counts.entries(rows), counts.of_entries(counts.dispersions, rows), means.of(rows)
    rates, gain = counts.noise.expected_rates(x, rho, s, hidden)
    return Entries(rho, rates, _highest(rates), gain)


def _highest(rates: Array) -> Array:
    highest = rates.max(axis=1, initial=0.0)
    return np.where(highest > 0, highest, 1.0)


def _lacking(rates: Array, ceilings: Array) -> Array:
    return np.clip(1.0 - rates / ceilings[:, None], 0.0, 1.0)
