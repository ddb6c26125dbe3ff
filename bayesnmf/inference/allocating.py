"""The allocation step at a state, by the kernel that suits the counts."""

from __future__ import annotations

from typing import Any

from bayesnmf.inference.sides import Problem, State
from bayesnmf.kernels.cpu.allocation import Sides, Totals, expected_allocations, gathers_columns
from bayesnmf.kernels.cpu.dense import dense_allocations, is_dense


def on_device(cells: Any, loadings: Any, components: Any, sides: Sides) -> Totals:
    """Take an allocation step on the device where the counts are."""
    from bayesnmf.kernels.gpu.allocation import compiled_allocations

    return compiled_allocations(cells, loadings, components, sides=sides)


def allocate(problem: Problem, state: State, threads: int | None, sides: Sides = "both") -> Totals:
    """Take one allocation step at the geometric means of both sides, for the totals of both or of one."""
    counts, U, V = problem.counts, state.loadings.geometric, state.components.geometric
    if problem.cells is not None:
        return on_device(problem.cells, U, V, sides)
    if is_dense(counts.matrix):
        totals = dense_allocations(counts.dense, U, V, sides)
        if totals is not None:
            return totals
    apart = sides != "loadings" and gathers_columns(counts.matrix, U.shape[1], threads)
    return expected_allocations(
        counts.matrix, U, V, threads, transposed=counts.transposed if apart else None, sides=sides
    )
