"""The allocation step at a state, by the kernel that suits the counts."""

from __future__ import annotations

from typing import Any

import numpy as np

from bayesnmf.data.clustered import ClusteredCounts
from bayesnmf.data.counts import Counts
from bayesnmf.inference.problem import Problem, State
from bayesnmf.inference.side import Side
from bayesnmf.kernels.cpu.allocation import Sides, Totals, expected_allocations, gathers_columns
from bayesnmf.kernels.cpu.dense import dense_allocations, is_dense
from bayesnmf.kernels.cpu.underflow import Spread
from bayesnmf.types import Array


def spread_at(counts: Counts, state: State) -> Spread | None:
    """Return the spreads of counts that cluster, for the geometric means of a state; None for other counts."""
    if not isinstance(counts, ClusteredCounts):
        return None
    return counts.spread(*(_factor_of(side) for side in state))


def _factor_of(side: Side) -> Array | None:
    return None if side.log_shift is None else np.exp(np.asarray(side.log_shift, np.float64).ravel())


def in_own_unit(side: Side) -> Side:
    """Return loadings whose geometric means include the factors of rows, which matter where counts cluster."""
    if side.log_shift is None:
        return side
    return Side(side.value, (side.geometric * np.exp(side.log_shift)).astype(side.dtype), None, 0.0)


def allocate_at_means(counts: Counts, loadings: Array, components: Array, threads: int | None = None) -> Totals:
    """Return the totals of an allocation step at factors (n, K) and (K, m) whose products are the means."""
    spread = counts.spread_of_means() if isinstance(counts, ClusteredCounts) else None
    return expected_allocations(counts.matrix, loadings, components, threads, spread=spread)


def _allocate_on_device(cells: Any, loadings: Any, components: Any, sides: Sides) -> Totals:
    """Return the totals of an allocation step on the devices that hold the counts."""
    from bayesnmf.kernels.gpu.allocation import Cells, compiled_allocations
    from bayesnmf.kernels.gpu.sharding import compiled_on_shards

    allocations = compiled_allocations if isinstance(cells, Cells) else compiled_on_shards
    return allocations(cells, loadings, components, sides=sides)


def allocate(problem: Problem, state: State, threads: int | None, sides: Sides = "both") -> Totals:
    """Return the totals, of both sides or of one, from an allocation step at the geometric means of both sides."""
    if state.loadings.allocate is not None:
        return state.loadings.allocate(problem, state.components, sides)
    counts, U, V = problem.counts, state.loadings.geometric, state.components.geometric
    if problem.cells is not None:
        return _allocate_on_device(problem.cells, U, V, sides)
    spread = spread_at(counts, state)
    if is_dense(counts.matrix):
        totals = dense_allocations(counts.dense, U, V, sides, spread, threads)
        if totals is not None:
            return totals
    apart = sides != "loadings" and gathers_columns(counts.matrix, U.shape[1], spread)
    return expected_allocations(
        counts.matrix, U, V, threads, transposed=counts.transposed if apart else None, sides=sides, spread=spread
    )
