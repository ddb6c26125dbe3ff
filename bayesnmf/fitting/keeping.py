"""Compute the memory of a sampler's draws, and decide whether it keeps only some of them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from bayesnmf.fitting.checks import check_no_budget
from bayesnmf.inference.sampling.running_moments import BATCHES
from bayesnmf.options.algorithms import ALGORITHMS

BYTES_BY_FEATURE = 8  # of a nonzero, at most
ALL, THINNED = 2**30, 2**29  # bytes: largest size of all draws under keep="auto", and size of thinned draws
FIXED = 1000  # draws that "auto" is where the number must be known
MOST_KEPT, FEWEST_KEPT = 2000, 250  # draws of a chain that "auto" keeps


def with_draws(options: Any, rank: int, counts: Any) -> Any:
    """Return options of a sampler with a number of draws in place of "auto", where it has to be known."""
    few = _most_in_memory(options, rank, counts.shape) < FEWEST_KEPT
    if counts.rows_held and options.keep == "auto" and not few:
        return options
    check_no_budget(options, FEWEST_KEPT, FIXED)
    return replace(options, draws=FIXED)


def draws_to_keep(options: Any, rank: int, shape: tuple[int, int]) -> int:
    """Return the number of draws of a chain; of "auto", the largest number that is kept."""
    if options.draws != "auto":
        return int(options.draws)
    return min(_most_in_memory(options, rank, shape), MOST_KEPT)


def _most_in_memory(options: Any, rank: int, shape: tuple[int, int]) -> int:
    return ALL // (8 * options.chains * rank * sum(shape))


def size_of_draws(options: Any, rank: int, shape: tuple[int, int]) -> int:
    """Return the size of all draws of all chains, in bytes."""
    return 8 * options.chains * draws_to_keep(options, rank, shape) * rank * sum(shape)


def keeps_moments(options: Any, rank: int, shape: tuple[int, int]) -> bool:
    """Return whether to keep running moments of all draws, and to thin the draws if there are many."""
    keep = getattr(options, "keep", "draws")
    return keep == "moments" or (keep == "auto" and size_of_draws(options, rank, shape) > ALL)


def size_kept(options: Any, rank: int, shape: tuple[int, int]) -> int:
    """Return the size of the kept draws of all chains and of the running sums of batches, in bytes."""
    size = size_of_draws(options, rank, shape)
    if not keeps_moments(options, rank, shape):
        return size
    one = size // draws_to_keep(options, rank, shape)
    return min(size, max(THINNED, one)) + (BATCHES + 2) * one


def size_written(options: Any, rank: int, counts: Any) -> int:
    """Return the bytes that a fit of counts on disk writes beside its loadings.

    A sampler writes draws twice, and sums with squares; coordinate descent writes the counts by features, the marginal
    sampler those, and the clusters that counts may come in.
    """
    draws = 2 * size_kept(options, rank, counts.shape) if hasattr(options, "draws") else 0
    algorithm = getattr(options, "algorithm", None)
    needs = ALGORITHMS[algorithm].needs if algorithm else ()
    return draws + BYTES_BY_FEATURE * counts.nnz * (("regression" in needs) + 2 * ("entries" in needs))
