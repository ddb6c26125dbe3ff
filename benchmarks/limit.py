"""Time the allocation step of `limit.c`, which shows what the machine can do, next to ours in the same run.

    python -m benchmarks.limit [--data newsgroups pbmc_facs] [--rank 10 20 50] [--repeats 9]

prints both, measured alternately: one step with both totals and ℓ = Σ X log(UV), the minimum of several repeats. Beside
them stands a product with the tangent of the step, with which linear response is solved for. It needs a C compiler.
"""

from __future__ import annotations

import argparse
import ctypes
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable
from functools import cache
from pathlib import Path

import numpy as np
from scipy.sparse import csr_array

from bayesnmf.kernels.cpu.allocation import expected_allocations, gathers_columns
from bayesnmf.kernels.cpu.tangent import Tangent

AHEAD = 16  # as in limit.c, which reads indices this far beyond the end
MOST_VECTORS = 8  # the cases of limit.c
REALS = {"float32": ctypes.c_float, "float64": ctypes.c_double}


class NoCompilerError(RuntimeError):
    """No C compiler was found."""


@cache
def compiled(dtype: str) -> ctypes.CDLL:
    """Compile limit.c for one dtype and return the loaded library."""
    compiler = shutil.which("gcc") or shutil.which("cc")
    if compiler is None:
        raise NoCompilerError("no gcc or cc on the PATH")
    folder = Path(tempfile.mkdtemp(prefix="limit"))
    flags = ["-Ofast", "-march=native", "-mprefer-vector-width=512", "-fno-math-errno", "-fPIC"]
    real = ["-DREAL=float", "-DFLOAT=1"] if dtype == "float32" else ["-DREAL=double", "-DFLOAT=0"]
    source = Path(__file__).with_name("limit.c")
    library, compiled_alone = folder / f"limit_{dtype}.so", folder / f"limit_{dtype}.o"
    subprocess.run([compiler, *flags, *real, "-c", str(source), "-o", str(compiled_alone)], check=True)
    # Linked with -Ofast, a library would flush denormal numbers to zero in all later computations of the process.
    subprocess.run([compiler, "-shared", str(compiled_alone), "-o", str(library), "-lm"], check=True)
    loaded = ctypes.CDLL(str(library))
    loaded.limit_pass.restype = ctypes.c_double
    return loaded


def padded(factor: np.ndarray, lanes: int) -> np.ndarray:
    """Return (rows, K) padded with zero columns to whole vectors, aligned to 64 bytes."""
    rows, rank = factor.shape
    width = -(-rank // lanes) * lanes
    raw = np.zeros(rows * width * factor.itemsize + 64, dtype=np.uint8)
    start = -raw.ctypes.data % 64
    out = raw[start : start + rows * width * factor.itemsize].view(factor.dtype).reshape(rows, width)
    out[:, :rank] = factor
    return out


class Limit:
    """The allocation step at U (n, K) and V (K, m), in two variants.

    Parameters
    ----------
    matrix : csr_array
        Counts of the dtype of the factors.
    """

    def __init__(self, matrix: csr_array, U: np.ndarray, V: np.ndarray) -> None:
        self.dtype = str(matrix.dtype)
        self.library = compiled(self.dtype)
        lanes = 64 // matrix.dtype.itemsize
        self.rank = U.shape[1]
        self.U, self.V = padded(U.astype(matrix.dtype), lanes), padded(V.T.astype(matrix.dtype), lanes)
        self.A, self.B = np.zeros_like(self.U), np.zeros_like(self.V)
        self.A, self.B = padded(self.A, lanes), padded(self.B, lanes)
        self.vectors = self.U.shape[1] // lanes
        if self.vectors > MOST_VECTORS:
            raise ValueError(f"the C loop supports K up to {MOST_VECTORS * lanes} in {self.dtype}, not {self.rank}")
        self.by_row, self.by_column = self._sides(matrix), self._sides(matrix.T.tocsr())

    @staticmethod
    def _sides(matrix: csr_array) -> tuple[np.ndarray, ...]:
        indices = np.concatenate([matrix.indices, np.zeros(2 * AHEAD, matrix.indices.dtype)]).astype(np.int32)
        return matrix.indptr.astype(np.int32), indices, matrix.data

    def _pass(self, side: tuple[np.ndarray, ...], arrays: list[np.ndarray], scatter: bool, log: bool) -> float:
        pointers = [ctypes.c_void_p(each.ctypes.data) for each in (*side, *arrays)]
        flags = [self.vectors, int(scatter), int(log), len(side[0]) - 1]
        return float(self.library.limit_pass(*flags, *pointers))

    def half_passes(self, log: bool = True) -> tuple[np.ndarray, np.ndarray, float]:
        """Compute rows, then columns."""
        loglik = self._pass(self.by_row, [self.U, self.V, self.A, self.B], False, log)
        self._pass(self.by_column, [self.V, self.U, self.B, self.A], False, False)
        return self.A[:, : self.rank], self.B[:, : self.rank].T, loglik

    def one_pass(self, log: bool = True) -> tuple[np.ndarray, np.ndarray, float]:
        """Compute rows, and scatter the totals of the columns."""
        self.B[:] = 0
        loglik = self._pass(self.by_row, [self.U, self.V, self.A, self.B], True, log)
        self.B *= self.V
        return self.A[:, : self.rank], self.B[:, : self.rank].T, loglik

    def seconds(self, log: bool = True) -> tuple[float, float]:
        """Return the seconds of an allocation step in each variant."""
        return seconds_of(lambda: self.half_passes(log)), seconds_of(lambda: self.one_pass(log))


def seconds_of(work: Callable[[], object]) -> float:
    """Return the seconds of a call."""
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


def compare(matrix: csr_array, rank: int, repeats: int, rng: np.random.Generator) -> list[float]:
    """Return the minimum seconds of the C loop, of our step with one thread and with two, and of a tangent with one."""
    n, m = matrix.shape
    U, V = rng.gamma(1.0, size=(n, rank)) + 0.01, rng.gamma(1.0, size=(rank, m)) + 0.01
    U, V = U.astype(matrix.dtype), np.asfortranarray(V.astype(matrix.dtype))
    limit, transposed = Limit(matrix, U, V), matrix.T.tocsr()

    def ours(threads: int) -> None:
        apart = gathers_columns(matrix, rank)
        expected_allocations(matrix, U, V, threads, transposed=transposed if apart else None)

    totals = np.zeros((n, rank)), np.zeros((rank, m))  # of no consequence for the time
    tangent, change, inverse = Tangent(matrix, U, V, totals), np.ones((rank, m)), np.tile(np.eye(rank), (n, 1, 1))

    def product() -> None:
        tangent.row_responses(change, totals[0], inverse, 1)

    ways = (limit.half_passes, limit.one_pass, lambda: ours(1), lambda: ours(2), product)
    least = np.min([[seconds_of(way) for way in ways] for _ in range(repeats)], axis=0)
    return [float(least[:2].min()), *(float(each) for each in least[2:])]


def main() -> None:
    """Print the table."""
    from benchmarks.data import read

    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--data", nargs="+", default=["newsgroups", "pbmc_facs"])
    parser.add_argument("--rank", nargs="+", type=int, default=[10, 20, 50])
    parser.add_argument("--repeats", type=int, default=9)
    given = parser.parse_args()
    ours = "ours, 1 thread | ours / C | ours, 2 threads | 1 → 2 threads | tangent, 1 thread | / ours"
    print(f"| data | dtype | K | C loop, 1 thread, ms | {ours} |")
    print("|---|---|--:|--:|--:|--:|--:|--:|--:|--:|")
    rng = np.random.default_rng(0)
    for name in given.data:
        counts = read(name, max(given.rank), 0).matrix
        for dtype in REALS:
            matrix = counts.astype(np.dtype(dtype))
            for rank in given.rank:
                limit, one, two, product = compare(matrix, rank, given.repeats, rng)
                times = f"{limit * 1e3:.1f} | {one * 1e3:.1f} | {one / limit:.2f} | {two * 1e3:.1f} | {one / two:.2f}"
                tangent = (
                    f"{product * 1e3:.1f} | {product / one:.2f}" if dtype == "float64" else "– | –"
                )  # float64 only
                times += f" | {tangent}"
                print(f"| {name} | {dtype} | {rank} | {times} |", flush=True)


if __name__ == "__main__":
    main()
