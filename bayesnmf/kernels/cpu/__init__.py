"""The kernels for CPUs, compiled by Numba. Arrays in, arrays out; no validation, no objects."""

from bayesnmf.kernels.cpu.allocation import Totals, expected_allocations, row_blocks
from bayesnmf.kernels.cpu.decomposition import (
    Gradients,
    cell_allocations,
    decomposition_gradients,
    log_gamma_and_digamma,
)
from bayesnmf.kernels.cpu.likelihood import cell_rates, poisson_loglik
from bayesnmf.kernels.cpu.particles import Particles, filter_row
from bayesnmf.kernels.cpu.regression import poisson_regression
from bayesnmf.kernels.cpu.sampling import sampled_allocations
from bayesnmf.kernels.cpu.urn import Tokens, Urn, assign_tokens, reassign_tokens

__all__ = [
    "Gradients",
    "Particles",
    "Tokens",
    "Totals",
    "Urn",
    "assign_tokens",
    "cell_allocations",
    "cell_rates",
    "decomposition_gradients",
    "expected_allocations",
    "filter_row",
    "log_gamma_and_digamma",
    "poisson_loglik",
    "poisson_regression",
    "reassign_tokens",
    "row_blocks",
    "sampled_allocations",
]
