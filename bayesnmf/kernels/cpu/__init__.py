"""The kernels for CPUs, compiled by Numba. Arrays in, arrays out; no validation, no objects."""

from bayesnmf.kernels.cpu.allocation import Totals, expected_allocations, row_blocks
from bayesnmf.kernels.cpu.likelihood import cell_rates, poisson_loglik
from bayesnmf.kernels.cpu.sampling import sampled_allocations

__all__ = [
    "Totals",
    "cell_rates",
    "expected_allocations",
    "poisson_loglik",
    "row_blocks",
    "sampled_allocations",
]
