"""The totals of the components: gathered over the transposed counts, beside scattered by rows.

    python -m benchmarks.gathering [--data nips newsgroups] [--times 1 8] [--rank 20 50]

repeats the rows of each matrix, shuffled, and prints milliseconds of an allocation step in both ways, their ratio, the
size of the loadings, and which way `bayesnmf.kernels.cpu.allocation.gathers_columns` chooses.
"""

from __future__ import annotations

import argparse
from typing import Any

import numpy as np

from bayesnmf.data.conversion import as_counts
from bayesnmf.kernels.cpu.allocation import expected_allocations, gathers_columns
from bayesnmf.kernels.cpu.factors import padded_copy
from benchmarks.data import read
from benchmarks.limit import seconds_of

REPEATS = 5


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", nargs="+", default=["nips", "newsgroups"])
    parser.add_argument("--times", nargs="+", type=int, default=[1, 8])
    parser.add_argument("--rank", nargs="+", type=int, default=[20, 50])
    options = parser.parse_args()
    print("data, times, type, K, threads | scatter ms, gather ms, ratio | loadings MB | chosen")
    for name in options.data:
        for times in options.times:
            for dtype in ("float32", "float64"):
                for rank in options.rank:
                    for threads in (1, 2):
                        print(
                            name, times, dtype, rank, threads, "|", row(name, times, dtype, rank, threads), flush=True
                        )


def row(name: str, times: int, dtype: str, rank: int, threads: int) -> str:
    """Return the figures of one allocation step."""
    matrix, rng = read(name, rank, 0).matrix, np.random.default_rng(0)
    counts = as_counts(matrix[rng.permutation(np.tile(np.arange(matrix.shape[0]), times))], dtype=dtype)
    n, m = counts.shape
    U = padded_copy(rng.random((n, rank)).astype(dtype))
    V = padded_copy(rng.random((m, rank)).astype(dtype)).T
    ways: list[Any] = [None, counts.transposed]
    seconds = [
        min(
            seconds_of(lambda way=way: expected_allocations(counts.matrix, U, V, threads, transposed=way))
            for _ in range(REPEATS)
        )
        for way in ways
    ]
    chosen = "gather" if gathers_columns(counts.matrix, rank) else "scatter"
    milliseconds = ", ".join(f"{each * 1e3:.1f}" for each in seconds)
    return f"{milliseconds}, {seconds[1] / seconds[0]:.2f} | {U.nbytes / 1e6:.1f} | {chosen}"


if __name__ == "__main__":
    main()
