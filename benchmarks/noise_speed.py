"""How long does an iteration take with each noise, beside one of Poisson counts, and a selection of rank and noise?

    python -m benchmarks.noise_speed [--sizes 400x1500x10 …] [--noises nb1 nb2 …] [--dtype float32] [--select]
    python -m benchmarks.noise_speed --sizes --real pbmc_facs:10

Counts of the sizes N x M x K are simulated, 150 K a row and rates that vary by 30 %, and fitted by vi with the default
options but for a fixed number of iterations. Milliseconds are processor time on one thread, by the difference of fits
of 40 and of 140 iterations; a noise that is learned begins with a Poisson fit of as many, whose time is taken off.
`whole` is the time of a fit by default options over its iterations, with its Poisson fit, starts and exchanges.

--real: ``fit(counts, rank, noise="nb2")`` of whole real matrices, with its Poisson fit.

--select: `bayesnmf.select(counts, ranks=range(2, 13), noise=("poisson", "nb2"))` of 311 tumours with six signatures of
COSMIC, 3,000 mutations each (median) and rates that vary by 30 %.
"""

from __future__ import annotations

import argparse
import time
import warnings
from typing import Any

import numpy as np
from numpy.typing import NDArray

import bayesnmf
from bayesnmf import VI

Array = NDArray[Any]
FEW, MANY, SPREAD = 40, 140, 0.3
SIGNATURES = ("SBS1", "SBS5", "SBS2", "SBS13", "SBS3", "SBS18")


def counts_of(n: int, m: int, rank: int) -> Array:
    """Return simulated counts whose rates vary."""
    rng = np.random.default_rng(1)
    means = rng.gamma(1, 1, (n, rank)) @ rng.dirichlet(np.full(m, 0.2), rank) * 150
    return rng.poisson(means * rng.gamma(SPREAD**-2, SPREAD**2, means.shape))


def tumours() -> Array:
    """Return mutations of 311 simulated tumours."""
    from benchmarks.assign import catalogue

    rng, known = np.random.default_rng([311, 0]), catalogue().loc[list(SIGNATURES)]
    there = rng.random((311, len(known))) < 0.7
    there[np.arange(311), rng.integers(len(known), size=311)] = True
    shares = rng.exponential(size=there.shape) * there
    totals = 3000 * np.exp(rng.normal(0, np.log(2), 311))
    rates = (totals / shares.sum(axis=1))[:, None] * shares @ known.to_numpy()
    return rng.poisson(rates * rng.gamma(SPREAD**-2, SPREAD**2, rates.shape))


def fitted(counts: Array, rank: int, noise: str, **settings: Any) -> tuple[bayesnmf.Fit, float]:
    """Return a fit on one thread, and its processor seconds."""
    began = time.process_time()
    fit = bayesnmf.fit(counts, "gamma_poisson", rank, seed=0, noise=noise, options=VI(threads=1, **settings))
    return fit, time.process_time() - began


def of_iterations(counts: Array, rank: int, noise: str, **settings: Any) -> float:
    """Return the milliseconds of an iteration by difference, with those of a Poisson fit before if there is one."""
    few, many = (fitted(counts, rank, noise, max_iter=each, tol=0.0, **settings)[1] for each in (FEW, MANY))
    return 1e3 * (many - few) / (MANY - FEW)


def main() -> None:
    """Print the tables."""
    words = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    words.add_argument("--sizes", nargs="*", default=["311x96x6", "400x400x5", "400x1500x10"])
    words.add_argument("--noises", nargs="+", default=["nb1", "nb2", "zip"])
    words.add_argument("--dtype", default="float64", choices=("float64", "float32"))
    words.add_argument("--real", nargs="*", default=[], metavar="NAME:K")
    words.add_argument("--select", action="store_true")
    given = words.parse_args()
    warnings.simplefilter("ignore")
    print("| counts | noise | ms an iteration | times Poisson | whole | iterations |\n|---|---|--:|--:|--:|--:|")
    for size in given.sizes:
        n, m, rank = map(int, size.split("x"))
        counts, plain = counts_of(n, m, rank), 0.0
        for noise in ("poisson", *given.noises):
            fitted(counts, rank, noise, max_iter=3, tol=0.0, dtype=given.dtype)  # which compiles
            own = of_iterations(counts, rank, noise, dtype=given.dtype) - plain
            plain = plain or own
            fit, seconds = fitted(counts, rank, noise, dtype=given.dtype)
            done = fit.status.iterations
            print(
                f"| {size} | {noise} | {own:.1f} | {own / plain:.1f} | {1e3 * seconds / done:.1f} | {done} |",
                flush=True,
            )
    for name, rank in (each.split(":") for each in given.real):
        counts, began = bayesnmf.datasets.real(name).counts, time.process_time()
        fit = bayesnmf.fit(counts, rank=int(rank), seed=0, noise="nb2")
        print(f"\n{name}, K = {rank}: {time.process_time() - began:.0f} s\n\n{fit}")
    if given.select:
        counts, began = tumours(), time.process_time()
        found = bayesnmf.select(counts, ranks=range(2, 13), noise=("poisson", "nb2"))
        print(f"\n{time.process_time() - began:.0f} s\n\n{found}")


if __name__ == "__main__":
    main()
