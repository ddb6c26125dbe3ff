"""Time each posterior by size: a fit by vi, its linear response, and Gibbs sampling with default options.

    python -m benchmarks.posteriors [--data pcawg_breast_sbs96 digits pbmc_facs newsgroups] [--gibbs pcawg_breast_sbs96]

All counts, default priors of gamma_poisson, two threads. Seconds are those of a clock, with those of the processor in
brackets: where they are more than twice the others, both cores were at work; where less, other work was in the way.
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np

import bayesnmf
from bayesnmf.inference.status import ConvergenceWarning
from benchmarks.data import read

RANKS = {"pcawg_breast_sbs96": 5, "digits": 8, "pbmc_small": 6, "pbmc_facs": 6, "newsgroups": 20, "nips": 10}


def timed[T](work: Callable[[], T]) -> tuple[T, str]:
    """Return the result of a call, and its seconds by the clock and by the processor."""
    started, used = time.perf_counter(), time.process_time()
    found = work()
    return found, f"{time.perf_counter() - started:.1f} ({time.process_time() - used:.1f})"


def row_of(name: str, gibbs: bool) -> list[str]:
    """Return the cells of one data set."""
    counts, rank = read(name, RANKS[name], 0), RANKS[name]
    fit, of_fit = timed(lambda: bayesnmf.fit(counts, rank=rank, seed=0))
    response, of_response = timed(lambda: bayesnmf.linear_response(fit))
    pair: Any = {(fit.row_names[0], 0): 1.0, (fit.row_names[1], 0): -1.0}
    _, of_contrast = timed(lambda: response.contrast(pair))
    _, of_row = timed(lambda: response.summary(rows=fit.row_names[:1]))
    spread, of_all = timed(lambda: response.spread("loadings"))
    error = "exact" if not spread.draws else f"{spread.draws} draws, at most {np.max(spread.error / spread.sd):.1%}"
    n, m = counts.shape
    cells = [name, f"{n:,} × {m:,}", str(rank), of_fit, of_response, of_contrast, of_row, f"{of_all}; {error}"]
    if not gibbs:
        return [*cells, "–"]
    chains, of_chains = timed(lambda: bayesnmf.fit(counts, rank=rank, method="gibbs", seed=0))
    about = chains.diagnostics
    judged = f"R-hat {about['max_r_hat']:.2f}, ESS {about['min_ess']:.0f}"
    return [*cells, f"{of_chains}; {chains.options.algorithm}, {judged}"]  # type: ignore[union-attr]


def main() -> None:
    """Print a row for every data set."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--data", nargs="+", default=["pbmc_small", "pcawg_breast_sbs96", "digits", "pbmc_facs"])
    parser.add_argument("--gibbs", nargs="*", default=["pbmc_small", "pcawg_breast_sbs96", "digits"])
    given = parser.parse_args()
    warnings.simplefilter("ignore", ConvergenceWarning)
    row_of("pbmc_small", gibbs=True)  # compiles
    print("| data | n × m | K | vi, s | continuing | a contrast | a row | all loadings | gibbs, defaults |")
    print("|---|---|--:|---|---|---|---|---|---|")
    for name in given.data:
        print(f"| {' | '.join(row_of(name, name in given.gibbs))} |", flush=True)


if __name__ == "__main__":
    main()
