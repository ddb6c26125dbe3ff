"""Passes over counts that are larger than memory: nonzeros a second, MB a second, and memory beyond imports.

    python -m benchmarks.sizes [--nonzeros 3e8 1e9] [--rank 20] [--passes 5] [--scratch DIR]

Counts of rows with some 200 nonzeros of 30,000 features, each row of one of 20 components, are made block by block and
written to a store in the scratch folder: 6 GB for 10⁹. Then EM (float32, random start, without extrapolation) makes
passes over them. Beside it, the allocation step alone runs on blocks that are in memory, by as many threads: that is
the rate that a pass would have without reading, updating and writing.
"""

from __future__ import annotations

import argparse
import resource
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numba
import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

import bayesnmf
from bayesnmf.data.blocks.sources import Source
from bayesnmf.data.blocks.store import Store, write_store
from bayesnmf.kernels.cpu.allocation import ComponentTotals
from bayesnmf.kernels.cpu.factors import padded_copy

Array = NDArray[Any]
FEATURES, PER_ROW, COMPONENTS = 30_000, 200, 20


@dataclass(frozen=True)
class Made:
    """Counts that are made when they are asked for, the same at every call."""

    rows: int

    @property
    def shape(self) -> tuple[int, int]:
        """Number of rows and of features."""
        return self.rows, FEATURES

    def __getitem__(self, rows: slice) -> csr_array:
        number, profiles = rows.stop - rows.start, np.random.default_rng(0).gamma(0.2, size=(COMPONENTS, FEATURES))
        sums = np.cumsum(profiles, axis=1)
        rng = np.random.default_rng([1, rows.start])
        kinds = rng.integers(COMPONENTS, size=number)
        features = np.empty((number, PER_ROW), np.int32)
        for kind in range(COMPONENTS):
            own = np.flatnonzero(kinds == kind)
            drawn = rng.random((len(own), PER_ROW)) * sums[kind, -1]
            features[own] = np.searchsorted(sums[kind], np.sort(drawn, axis=1).ravel()).reshape(drawn.shape)
        data = rng.geometric(0.6, size=features.size).astype(np.float64)
        starts = np.arange(number + 1) * PER_ROW
        made = csr_array((data, features.ravel(), starts), shape=(number, FEATURES))
        made.sum_duplicates()
        return made


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nonzeros", nargs="+", type=float, default=[3e8, 1e9])
    parser.add_argument("--rank", type=int, default=20)
    parser.add_argument("--passes", type=int, default=5)
    parser.add_argument("--scratch", default=tempfile.gettempdir())
    given = parser.parse_args()
    settings: Any = {"algorithm": "em", "start": "random", "tol": 0, "extrapolate": False, "dtype": "float32"}
    small = bayesnmf.simulate(size=(200, 100), rank=given.rank, totals=300, seed=0).counts
    bayesnmf.fit(small, rank=given.rank, method="map", options=bayesnmf.MAP(**settings, max_iter=2), seed=0)
    for wanted in given.nonzeros:
        folder = Path(given.scratch) / f"bayesnmf-sizes-{wanted:.0e}"
        began = time.perf_counter()
        if not folder.exists():
            rows = int(wanted / PER_ROW)
            write_store(folder, Source(Made(rows), "made counts", nnz=int(wanted)), lambda *_: None)
        print(f"{wanted:.0e} nonzeros wanted: made and written in {time.perf_counter() - began:.0f} s", flush=True)
        before = memory()
        times: list[float] = []

        def note(label: str, *_: Any, times: list[float] = times) -> None:
            if label != "reading counts":
                times.append(time.perf_counter())

        options = bayesnmf.MAP(**settings, max_iter=given.passes)
        source = bayesnmf.Blocks(folder, scratch=given.scratch)
        fit = bayesnmf.fit(source, rank=given.rank, method="map", options=options, seed=0, progress=note)
        seconds, peak = float(np.median(np.diff(times)[1:])), memory() - before
        nnz, n = fit.counts.nnz, fit.counts.shape[0]
        read = 6 * nnz + 4 * n * given.rank
        alone = kernel_seconds(Store.open(folder), fit, given.rank)
        print(
            f"{nnz:,} nonzeros, {n:,} rows, K = {given.rank}: {seconds:.2f} s a pass, {nnz / seconds / 1e6:.0f} M "
            f"nonzeros/s, {(read + 4 * n * given.rank) / seconds / 1e6:.0f} MB/s read and written, peak "
            f"{peak:.0f} MB beyond imports; the allocation step alone {alone:.2f} s ({seconds / alone:.2f} times)",
            flush=True,
        )


def kernel_seconds(store: Store, fit: Any, rank: int) -> float:
    """Return the seconds of the allocation step alone on all blocks, measured on some of them in memory."""
    threads, blocks = numba.get_num_threads(), fit.counts.blocks
    chosen = blocks[:: max(len(blocks) // 16, 1)][:16]
    parts = [store.read(rows.start, rows.stop) for rows in chosen]
    components = padded_copy(fit.components.astype(np.float32), 0)
    loadings = [padded_copy(np.asarray(fit.loadings[rows], np.float32)) for rows in chosen]

    def run(places: range) -> None:
        totals = ComponentTotals(components)
        for place in places:
            totals.add(parts[place], loadings[place])

    seconds = []
    for _ in range(4):
        began = time.perf_counter()
        with ThreadPoolExecutor(threads) as pool:
            list(pool.map(run, (range(first, len(parts), threads) for first in range(threads))))
        seconds.append(time.perf_counter() - began)
    return min(seconds) * store.nnz / sum(part.nnz for part in parts)


def memory() -> float:
    """Return the peak of memory so far, in MB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


if __name__ == "__main__":
    main()
