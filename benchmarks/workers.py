"""How many workers of a Dask cluster pay for which size of counts, and what they cost at the sizes of this machine.

    python -m benchmarks.workers [--rate 128 36] [--fixed 0.1] [--bandwidth 0.75]
    python -m benchmarks.workers --measure [--times 30] [--rank 10 50] [--scratch DIR]

The first prints seconds of a pass of EM by a model: nonzeros / (rate × cores) + fixed + bytes / bandwidth, where the
bytes are the totals of the components, K × m float32 numbers from every shard to the driver, and as many from the
driver to every worker. A core works on one shard at a time, so that more cores than shards do not help.

The second measures on newsgroups, `--times` times over, what the model is made of: seconds an iteration by threads of
one process and by workers of one thread each, and a round of messages alone, for several numbers of bytes.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from bayesnmf.data.blocks.opening import NONZEROS
from bayesnmf.inference.blocked.passes import SHARDS, shards_of
from benchmarks.on_disk import write

ITERATIONS, CORES = 8, 8  # of a fit; of a worker in the table
LOCAL: dict[str, Any] = {"threads_per_worker": 1, "dashboard_address": None}
WORKERS = (1, 2, 4, 8, 16, 32, 64)
SIZES = {  # nonzeros, features
    "newsgroups × 30": (7.3e7, 55_911),
    "10⁹, 10⁵ features": (1e9, 100_000),
    "10¹⁰, 2·10⁴ features": (1e10, 20_000),
    "2·10¹¹, 2·10⁴ features": (2e11, 20_000),
}


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rate", nargs=2, type=float, default=[128, 36], help="10⁶ nonzeros a second and core")
    parser.add_argument("--fixed", type=float, default=0.1, help="seconds of a round of empty messages")
    parser.add_argument("--bandwidth", type=float, default=0.75, help="GB/s through the driver")
    parser.add_argument("--measure", action="store_true")
    parser.add_argument("--times", type=int, default=30)
    parser.add_argument("--rank", nargs=2, type=int, default=[10, 50])
    parser.add_argument("--scratch", default=tempfile.gettempdir())
    options = parser.parse_args()
    if options.measure:
        measure(options)
    else:
        print_model(options)


def seconds_of_pass(nonzeros: float, sums: int, workers: int, rate: float, options: Any) -> tuple[float, float]:
    """Return seconds of computing and of communication in a pass with so many sums, K × m."""
    shards = len(shards_of(int(np.ceil(nonzeros / NONZEROS))))
    totals = 4 * sums / 1e9
    computing = nonzeros / (1e6 * rate * min(workers * CORES, shards))
    if workers == 1:
        return computing, 0.0
    return computing, options.fixed + (shards + workers) * totals / options.bandwidth


def print_model(options: Any) -> None:
    """Print seconds of a pass, and in brackets the share of communication, by size and number of workers."""
    print(f"workers of {CORES} cores; one worker stands for one machine without a cluster\n")
    print("| nonzeros | K | shards | " + " | ".join(map(str, WORKERS)) + " |\n|---|--:|--:|" + "--:|" * len(WORKERS))
    for name, (nonzeros, features) in SIZES.items():
        for rank, rate in zip(options.rank, options.rate, strict=True):
            row = [name, str(rank), str(len(shards_of(int(np.ceil(nonzeros / NONZEROS)))))]
            for workers in WORKERS:
                computing, sending = seconds_of_pass(nonzeros, rank * features, workers, rate, options)
                row.append(f"{computing + sending:.2g} ({sending / (computing + sending):.0%})")
            print("| " + " | ".join(row) + " |")


def measure(options: Any) -> None:
    """Print seconds an iteration by engine, and of a round of messages by their size."""
    from distributed import Client, LocalCluster

    folder = Path(options.scratch) / "bayesnmf-on-disk"
    path = folder / f"newsgroups-{options.times}.h5ad"
    write(path, options.times)
    print("| K | engine | s an iteration, median | least |\n|--:|---|--:|--:|")
    for rank in options.rank:
        for threads in (1, 2):
            print_row(rank, f"{threads} threads, one process", iterate(path, rank, threads))
        for workers in (1, 2):
            with (
                LocalCluster(n_workers=workers, threads_per_worker=1, dashboard_address=None) as cluster,
                Client(cluster),
            ):
                print_row(rank, f"{workers} workers of one thread", iterate(path, rank, None))
    print("\n| MB to each worker and from each of the shards | s a round, median |\n|--:|--:|")
    with LocalCluster(n_workers=2, **LOCAL) as cluster, Client(cluster) as client:
        for size in (1_000, 200_000, 600_000, 2_800_000):
            rounds = [one_round(client, np.ones(size, np.float32)) for _ in range(7)]
            print(f"| {4 * size / 1e6:.3g} | {np.median(rounds):.3f} |", flush=True)


def print_row(rank: int, engine: str, seconds: Any) -> None:
    """Print seconds an iteration."""
    print(f"| {rank} | {engine} | {np.median(seconds):.3f} | {np.min(seconds):.3f} |", flush=True)


def iterate(path: Path, rank: int, threads: int | None) -> Any:
    """Return seconds of the iterations of EM after the first."""
    import bayesnmf

    times: list[float] = []
    settings: Any = {"algorithm": "em", "start": "random", "tol": 0, "max_iter": ITERATIONS, "extrapolate": False}
    options = bayesnmf.MAP(**settings, dtype="float32", threads=threads)
    source: Any = bayesnmf.Blocks(path, scratch=path.parent)
    note = lambda label, *_: None if label == "reading counts" else times.append(time.perf_counter())  # noqa: E731
    bayesnmf.fit(source, rank=rank, method="map", options=options, seed=0, progress=note)
    return np.diff(times)[1:]


def one_round(client: Any, numbers: Any) -> float:
    """Return seconds to send numbers to all workers, and as many back from each of the shards."""
    begun = time.perf_counter()
    held = client.scatter(numbers, broadcast=True, hash=False)
    total = np.zeros(len(numbers))
    for future in [client.submit(np.multiply, held, float(shard), pure=False) for shard in range(SHARDS)]:
        total += future.result()
    return time.perf_counter() - begun


if __name__ == "__main__":
    main()
