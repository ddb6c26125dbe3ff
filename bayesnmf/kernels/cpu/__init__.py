"""The kernels for CPUs, compiled by Numba. Arrays in, arrays out; no validation, no objects."""

from bayesnmf.kernels.cpu.allocation import Sides, Totals, expected_allocations, gathers_columns, row_blocks
from bayesnmf.kernels.cpu.decomposition import (
    Gradients,
    cell_allocations,
    decomposition_gradients,
    log_gamma_and_digamma,
)
from bayesnmf.kernels.cpu.dense import dense_allocations, is_dense
from bayesnmf.kernels.cpu.extrapolation import move, move_logarithms
from bayesnmf.kernels.cpu.gamma_draws import gamma_draws
from bayesnmf.kernels.cpu.likelihood import cell_rates, poisson_loglik
from bayesnmf.kernels.cpu.mean_field import Moments, digamma_with_excess, mean_field_moments
from bayesnmf.kernels.cpu.particles import Particles, filter_row
from bayesnmf.kernels.cpu.regression import poisson_regression
from bayesnmf.kernels.cpu.replication import CountStatistics, Misfits, misfits, replicated_statistics
from bayesnmf.kernels.cpu.sampling import sampled_allocations
from bayesnmf.kernels.cpu.settling import settled_totals
from bayesnmf.kernels.cpu.sums import largest_imbalance, scale_rows, sum_rows
from bayesnmf.kernels.cpu.urn import Tokens, Urn, assign_tokens, reassign_tokens
from bayesnmf.kernels.cpu.vectors import is_padded, padded_copy

__all__ = [
    "CountStatistics",
    "Gradients",
    "Misfits",
    "Moments",
    "Particles",
    "Sides",
    "Tokens",
    "Totals",
    "Urn",
    "assign_tokens",
    "cell_allocations",
    "cell_rates",
    "decomposition_gradients",
    "dense_allocations",
    "digamma_with_excess",
    "expected_allocations",
    "filter_row",
    "gamma_draws",
    "gathers_columns",
    "is_dense",
    "is_padded",
    "largest_imbalance",
    "log_gamma_and_digamma",
    "mean_field_moments",
    "misfits",
    "move",
    "move_logarithms",
    "padded_copy",
    "poisson_loglik",
    "poisson_regression",
    "reassign_tokens",
    "replicated_statistics",
    "row_blocks",
    "sampled_allocations",
    "scale_rows",
    "settled_totals",
    "sum_rows",
]
