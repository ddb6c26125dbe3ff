"""The truncated singular value decomposition of the "svd" start, beside those of scikit-learn and SciPy.

    python -m benchmarks.svd [--data digits nips] [--rank 10] [--seeds 3] [--repeats 5]

prints seconds of each, taken in turn on the square roots of the counts; how much less of their squares the subspace
found holds than the best one does; and where `bayesnmf.fit` by maximum likelihood ends from the start made of it.
"ours" is `decompose`; "scikit-learn" is `randomized_svd` as it is by default, and with as many iterations as ours;
"SciPy" is `svds`, by ARPACK. Before the table stand the seconds that importing scikit-learn's takes where a fit has
imported all else, and whether each way returns the same twice on counts of several equal blocks.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import warnings
from collections.abc import Callable
from unittest.mock import patch

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array
from scipy.sparse.linalg import svds
from sklearn.utils.extmath import randomized_svd

import bayesnmf
from bayesnmf import MAP
from bayesnmf.data.conversion import as_counts
from bayesnmf.data.counts import Counts
from bayesnmf.inference.problem import Problem
from bayesnmf.inference.side import Side
from bayesnmf.inference.starts import states
from bayesnmf.inference.starts.states import POWER_ITERATIONS, Decomposition, decompose, flat_problem
from bayesnmf.kernels.cpu.threads import one_blas_thread
from benchmarks.data import read
from benchmarks.limit import seconds_of

Array = NDArray[np.float64]
Triplets = tuple[Array, Array, Array]
TOLERANCE = 1e-2  # of ARPACK: a start needs no more


def _ours(matrix: csr_array, rank: int, rng: np.random.Generator) -> Triplets:
    with one_blas_thread():
        found = decompose(flat_problem(as_counts(matrix.power(2))), rank, rng)
    return found.rows.matrix @ found.to_left, found.singular, found.right


def _scikit_learn(matrix: csr_array, rank: int, rng: np.random.Generator) -> Triplets:
    return randomized_svd(matrix, rank, random_state=int(rng.integers(2**32)))


def _scikit_learn_as_long(matrix: csr_array, rank: int, rng: np.random.Generator) -> Triplets:
    return randomized_svd(matrix, rank, n_iter=POWER_ITERATIONS, random_state=int(rng.integers(2**32)))


def _scipy(matrix: csr_array, rank: int, rng: np.random.Generator) -> Triplets:
    left, singular, right = svds(matrix, rank, tol=TOLERANCE, v0=rng.standard_normal(min(matrix.shape)))
    order = np.argsort(-singular)
    return left[:, order], singular[order], right[order]


WAYS: dict[str, Callable[[csr_array, int, np.random.Generator], Triplets]] = {
    "ours": _ours,
    "scikit-learn": _scikit_learn,
    f"scikit-learn, {POWER_ITERATIONS} iterations": _scikit_learn_as_long,
    "SciPy": _scipy,
}


def seconds(matrix: csr_array, rank: int, repeats: int) -> Array:
    """Return seconds (repeats, ways), taken in turn."""

    def timed(way: Callable[..., Triplets], seed: int) -> float:
        return seconds_of(lambda: way(matrix, rank, np.random.default_rng(seed)))

    return np.array([[timed(way, seed) for way in WAYS.values()] for seed in range(repeats)])


def shortfalls(matrix: csr_array, rank: int, seeds: int) -> Array:
    """Return what subspaces (seeds, ways) lack, as a share of the sum of squares that the best one holds."""
    best = np.sum(svds(matrix, rank, tol=1e-10, v0=np.ones(min(matrix.shape)), return_singular_vectors=False) ** 2)

    def lacks(way: Callable[..., Triplets], seed: int) -> float:
        left, _, _ = way(matrix, rank, np.random.default_rng(seed))
        return 1 - float(np.linalg.norm(matrix.T @ left)) ** 2 / best

    return np.array([[lacks(way, seed) for way in WAYS.values()] for seed in range(seeds)])


def optima(counts: Counts, rank: int, seeds: int, start: str) -> Array:
    """Return the log-likelihoods (seeds, ways) that fits end with."""

    def ends(way: Callable[..., Triplets], seed: int) -> float:
        def decomposed(problem: Problem, rank: int, rng: np.random.Generator) -> Decomposition:
            matrix = problem.counts.matrix.sqrt()
            left, singular, right = way(matrix, rank, rng)
            return Decomposition(
                Side(left, left, None, 0.0), np.eye(len(singular)), singular, right, matrix.mean(), rank
            )

        with patch.object(states, "decompose", decomposed), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of fits that end before they converge
            return bayesnmf.fit(counts, "poisson", rank, "map", options=MAP(start=start), seed=seed).trace[-1]

    return np.array([[ends(way, seed) for way in WAYS.values()] for seed in range(seeds)])


def seconds_of_import() -> float:
    """Return how long scikit-learn takes to be imported where our start stands ready."""
    code = (
        "import time, bayesnmf.inference.starts.states; began = time.perf_counter()\n"
        "import sklearn.utils.extmath; print(time.perf_counter() - began)"
    )
    command = [sys.executable, "-W", "ignore", "-c", code]
    return min(float(subprocess.run(command, capture_output=True, check=True).stdout) for _ in range(3))


def repeats_itself(way: Callable[..., Triplets]) -> bool:
    """Whether a seed fixes the result where singular values are equal, and where most of them are 0."""
    matrix = csr_array(np.kron(np.eye(6), np.ones((50, 40))))
    found = [way(matrix, 10, np.random.default_rng(0)) for _ in range(5)]
    return all(np.array_equal(one, other) for each in found for one, other in zip(each, found[0], strict=True))


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    data = ["digits", "pcawg_breast_sbs96", "pbmc_small", "nips", "pbmc_facs", "newsgroups"]
    parser.add_argument("--data", nargs="+", default=data)
    parser.add_argument("--rank", nargs="+", type=int, default=[10])
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--start", default="svd", choices=["svd", "descent"], help="of the fits (default: %(default)s)")
    given = parser.parse_args()
    print(f"Importing scikit-learn's takes {seconds_of_import():.2f} s.")
    print("The same twice: " + ", ".join(f"{word} {repeats_itself(way)}" for word, way in WAYS.items()) + "\n")
    print("| data | K | | s | × ours | lacks | log-likelihoods, one a seed |")
    print("|---|--:|---|--:|--:|--:|---|")
    for name in given.data:
        counts = read(name, max(given.rank), 0)
        matrix = counts.matrix.astype(np.float64).sqrt()
        for rank in given.rank:
            times, lacking = seconds(matrix, rank, given.repeats), shortfalls(matrix, rank, given.seeds)
            ends = optima(counts, rank, given.seeds, given.start)
            for way, word in enumerate(WAYS):
                ratio, lacks = np.median(times[:, way] / times[:, 0]), max(float(np.median(lacking[:, way])), 0.0)
                heights = ", ".join(f"{end:,.1f}" for end in ends[:, way])
                spent = f"{np.median(times[:, way]):.2g} | {ratio:.2f} | {lacks:.1e}"
                print(f"| {name} | {rank} | {word} | {spent} | {heights} |", flush=True)


if __name__ == "__main__":
    main()
