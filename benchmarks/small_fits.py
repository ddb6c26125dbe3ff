"""Measure plain fits of small counts, and the studies that are made of them, in processor seconds.

    python -m benchmarks.small_fits [--sets 100] [--seed 1] [--against FILE] [--out FILE]

Bounds and seconds of `bayesnmf.fit(counts, rank=K, seed=0)` on sets of 15 to 200 rows, 12 to 100 features and 2 to 10
components: Poisson draws, draws that vary more than that (Gamma and log-normal rates), and rows and features of the
real tables that are found. Then plain fits of 30 × 20 and 300 × 100 counts, and one `select`, `modes` and `calibrate`,
each after a first call that reads what is compiled. With a file that another version wrote (`--out`), its seconds are
printed beside these, and by how much bounds are higher or lower, as a share of themselves.
"""

from __future__ import annotations

import argparse
import json
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

import bayesnmf

REAL = ("mcf7", "pbmc_facs", "nips", "pcawg_breast_sbs96", "newsgroups")


def sets(number: int, seed: int = 1) -> Iterator[tuple[np.ndarray, int]]:
    """Yield counts and a rank, one set after another; every fifth is a piece of a real table, if that is found."""
    for place in range(number):
        rng = np.random.default_rng([seed, place])
        n, m, rank = (int(rng.integers(*ends)) for ends in ((15, 200), (12, 100), (2, 11)))
        kind, table = place % 5, REAL[place // 5 % len(REAL)]
        try:
            counts = piece(table, n, m, rng) if kind == 4 else drawn(kind, n, m, rng)
        except FileNotFoundError:
            counts = drawn(kind, n, m, rng)
        yield counts, rank


def piece(table: str, n: int, m: int, rng: np.random.Generator) -> np.ndarray:
    """Return random rows of a real table, and m of its 5 m most frequent features."""
    matrix = bayesnmf.datasets.real(table).counts.matrix
    rows = rng.choice(matrix.shape[0], min(n, matrix.shape[0]), replace=False)
    some = matrix[np.sort(rows)]
    frequent = np.argsort(-np.asarray(some.sum(axis=0)).ravel())[: 5 * m]
    found: np.ndarray = some[:, np.sort(rng.choice(frequent, min(m, len(frequent)), replace=False))].toarray()
    return found


def drawn(kind: int, n: int, m: int, rng: np.random.Generator) -> np.ndarray:
    """Draw counts of 0.3 to 30 an entry from 2 to 12 components: Poisson, or with rates that vary besides."""
    rank = int(rng.integers(2, 13))
    mean = rng.gamma(rng.choice([0.2, 0.5, 2.0]), 1.0, (n, rank)) @ rng.dirichlet(
        np.full(m, rng.choice([0.1, 0.5, 1.0])), rank
    )
    mean *= rng.choice([0.3, 1, 5, 30]) / mean.mean()
    if kind in (1, 3):
        mean *= rng.gamma(2.0, 0.5, mean.shape)
    if kind == 2:
        mean *= rng.lognormal(0, 1, (n, 1))
    return rng.poisson(mean)


def plain(n: int, m: int, rank: int) -> np.ndarray:
    """Draw Poisson counts, 8 an entry."""
    rng = np.random.default_rng(0)
    mean = rng.gamma(0.5, 2.0, (n, rank)) @ rng.dirichlet(np.full(m, 0.3), rank)
    return rng.poisson(8 * mean / mean.mean())


def seconds_of(call: Callable[[], Any], times: int = 5) -> float:
    """Return the least processor seconds of some calls, after one that is not counted."""
    call()
    found = []
    for _ in range(times):
        began = time.process_time()
        call()
        found.append(time.process_time() - began)
    return min(found)


def measured(number: int, seed: int) -> dict[str, Any]:
    """Return the bound and the seconds of each set, and the seconds of each call by name."""
    counts, larger = plain(30, 20, 3), plain(300, 100, 10)
    calls: dict[str, float] = {
        "fit, 30 × 20, K = 3": seconds_of(lambda: bayesnmf.fit(counts, rank=3, seed=0)),
        "fit, 30 × 20, K = 5": seconds_of(lambda: bayesnmf.fit(counts, rank=5, seed=0)),
        "fit, 300 × 100, K = 10": seconds_of(lambda: bayesnmf.fit(larger, rank=10, seed=0)),
    }
    bounds, seconds = [], []
    for each, rank in sets(number, seed):
        began = time.process_time()
        fit = bayesnmf.fit(each, rank=rank, seed=0)
        seconds.append(time.process_time() - began)
        bounds.append(float(fit.trace[-1]))
    calls["fit, mean of all sets"] = float(np.mean(seconds))
    calls["select, 30 × 20, ranks 2 to 4"] = seconds_of(lambda: bayesnmf.select(counts, ranks=[2, 3, 4], seed=0), 1)
    calls["modes, 30 × 20, K = 3"] = seconds_of(lambda: bayesnmf.modes(counts, rank=3, seed=0), 1)
    calls["calibrate vi, 20 sets of 30 × 20, K = 3"] = seconds_of(
        lambda: bayesnmf.calibrate(method="vi", size=(30, 20), rank=3, simulations=20, seed=0), 1
    )
    return {"bounds": bounds, "seconds": seconds, "calls": calls}


def told(found: dict[str, Any], before: dict[str, Any] | None) -> str:
    """Return the seconds of every call, and how bounds compare, as text."""
    lines = []
    for name, value in found["calls"].items():
        earlier = "" if before is None else f"   before {before['calls'][name]:8.3f}"
        lines.append(f"{name:40s} {value:8.3f} s{earlier}")
    if before is not None:
        one, two = (np.array(each["bounds"]) for each in (found, before))
        gain = (one - two) / np.abs(two)
        lower, higher, same = (int(np.sum(each)) for each in (gain < -1e-4, gain > 1e-4, one == two))
        lines += [
            f"bounds: mean change {gain.mean():+.2e} of itself, least {gain.min():+.2e}, most {gain.max():+.2e}",
            f"of {len(gain)}: {lower} lower by over 1e-4, {higher} higher by as much, {same} the same to the bit",
        ]
    return "\n".join(lines)


def main() -> None:
    """Measure, print, and write the figures if a file is given."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sets", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1, help="seed of the sets")
    parser.add_argument("--against", type=Path, help="figures that another version wrote")
    parser.add_argument("--out", type=Path, help="where to write the figures, as JSON")
    args = parser.parse_args()
    warnings.simplefilter("ignore")
    found = measured(args.sets, args.seed)
    if args.out is not None:
        args.out.write_text(json.dumps(found))
    print(told(found, None if args.against is None else json.loads(args.against.read_text())))


if __name__ == "__main__":
    main()
