"""How much memory the draws of samplers take, and when Gibbs keeps only some of them."""

from __future__ import annotations

from bayesnmf.inference.sampling.running_moments import BATCHES
from bayesnmf.options import NUTS, Gibbs

ALL, THINNED = 2**30, 2**29  # bytes: up to which keep="auto" keeps all draws, and what thinned ones take


def size_of_draws(options: Gibbs | NUTS, rank: int, shape: tuple[int, int]) -> int:
    """Bytes that all draws of all chains take."""
    return 8 * options.chains * options.draws * rank * sum(shape)


def keeps_moments(options: Gibbs | NUTS, rank: int, shape: tuple[int, int]) -> bool:
    """Whether running moments of all draws are kept, and the draws themselves are thinned if they are many."""
    if not isinstance(options, Gibbs):
        return False
    return options.keep == "moments" or (options.keep == "auto" and size_of_draws(options, rank, shape) > ALL)


def size_kept(options: Gibbs | NUTS, rank: int, shape: tuple[int, int]) -> int:
    """Bytes that what is kept of all chains takes, running sums of batches included."""
    size = size_of_draws(options, rank, shape)
    if not keeps_moments(options, rank, shape):
        return size
    running = (BATCHES + 2) * size // options.draws
    return min(size, max(THINNED, size // options.draws)) + running
