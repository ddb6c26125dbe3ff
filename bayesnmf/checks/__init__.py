"""The only place that raises on user input; every message names the argument, the rule and the cure."""

from bayesnmf.checks.counts import as_counts, check_integer_counts
from bayesnmf.checks.options import (
    check_coordinate_ascent,
    check_family,
    check_natural_basis,
    check_options,
    check_posterior_exists,
    check_priors,
    check_same_features,
    check_sampler,
    check_start,
    check_start_distribution,
    check_start_factor,
    check_threads,
)
from bayesnmf.checks.values import (
    check_choice,
    check_count,
    check_fraction,
    check_nonnegative,
    check_positive,
    check_rank,
    check_seed,
    check_size,
)

__all__ = [
    "as_counts",
    "check_choice",
    "check_coordinate_ascent",
    "check_count",
    "check_family",
    "check_fraction",
    "check_integer_counts",
    "check_natural_basis",
    "check_nonnegative",
    "check_options",
    "check_positive",
    "check_posterior_exists",
    "check_priors",
    "check_rank",
    "check_same_features",
    "check_sampler",
    "check_seed",
    "check_size",
    "check_start",
    "check_start_distribution",
    "check_start_factor",
    "check_threads",
]
