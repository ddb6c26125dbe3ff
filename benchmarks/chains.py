"""How soon chains mix: Gibbs sampling over allocations beside Gibbs sampling with the allocations summed out.

    python -m benchmarks.chains [--data pcawg_breast_sbs96 digits] [--algorithms marginal allocations] [--seeds 0 1 2]

All counts, default priors of gamma_poisson, four chains from draws of a closed-form fit, on two threads. For each run:
seconds of the whole call, the largest R-hat and the smallest bulk effective sample size over all loadings and
components, and effective draws a second, which are left out if the largest R-hat exceeds 1.05.
"""

from __future__ import annotations

import argparse
import warnings
from typing import Any

import numpy as np
from arviz_stats.base import array_stats
from numpy.typing import NDArray

import bayesnmf
from bayesnmf import Gibbs
from bayesnmf.inference.status import ConvergenceWarning
from benchmarks.data import read

Array = NDArray[np.float64]
RANKS = {"pcawg_breast_sbs96": 5, "digits": 8, "pbmc_small": 6}
MIXED = 1.05


def mixing_of(draws: Array) -> tuple[Array, Array]:
    """Return R-hat and bulk effective sample size of every entry of draws (chains, draws, …)."""
    flat = draws.reshape(*draws.shape[:2], -1)
    columns = [np.ascontiguousarray(flat[..., entry]) for entry in range(flat.shape[-1])]
    given: dict[str, Any] = {"chain_axis": 0, "draw_axis": 1}
    r_hat = np.array([array_stats.rhat(each, **given) for each in columns])
    return r_hat, np.array([array_stats.ess(each, method="bulk", **given) for each in columns])


def main() -> None:
    """Print a row for every data set, algorithm and seed."""
    parser = argparse.ArgumentParser(description="Seconds, R-hat and effective sample size of Gibbs sampling.")
    parser.add_argument("--data", nargs="+", default=list(RANKS))
    parser.add_argument("--algorithms", nargs="+", default=["marginal", "allocations"])
    parser.add_argument("--seeds", nargs="+", type=int, default=[0])
    parser.add_argument("--draws", type=int, default=4000)
    parser.add_argument("--warmup", type=int, default=1000)
    given = parser.parse_args()
    print(
        "| data | K | algorithm | seed | s | largest R-hat | smallest ESS | median ESS | smallest ESS/s |", flush=True
    )
    print("|---|--:|---|--:|--:|--:|--:|--:|--:|", flush=True)
    for name in given.data:
        counts = read(name, RANKS.get(name, 5), 0)
        for algorithm in given.algorithms:
            for seed in given.seeds:
                options = Gibbs(algorithm=algorithm, draws=given.draws, warmup=given.warmup, threads=2)
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore", ConvergenceWarning)
                    fit = bayesnmf.fit(counts, rank=RANKS.get(name, 5), method="gibbs", seed=seed, options=options)
                found = [mixing_of(side) for side in (fit.posterior.loadings, fit.posterior.components)]  # type: ignore[arg-type]
                r_hat, ess = (np.concatenate(each) for each in zip(*found, strict=True))
                rate = f"{ess.min() / fit.seconds:.2f}" if r_hat.max() <= MIXED else "–"
                print(
                    f"| {name} | {fit.rank} | {algorithm} | {seed} | {fit.seconds:.0f} | {r_hat.max():.3f} | "
                    f"{ess.min():.0f} | {np.median(ess):.0f} | {rate} |",
                    flush=True,
                )


if __name__ == "__main__":
    main()
