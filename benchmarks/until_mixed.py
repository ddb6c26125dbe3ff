"""How long Gibbs sampling takes until its chains have mixed: `Gibbs(draws="auto")` on counts of several kinds.

    python -m benchmarks.until_mixed [--data tumours pcawg6] [--seeds 0 1 2] [--budget 300]

Default options but for the budget, and default priors or flat ones (shape and concentration 1). A run that is done is a
line of `until_mixed.jsonl` in `--keep` and is not repeated; the table of all lines is printed. Seconds are processor
seconds of the process divided by 2, without compilation: what a run takes on two cores that nothing else uses.
"""

from __future__ import annotations

import argparse
import json
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import bayesnmf
from bayesnmf import Dirichlet, Gamma, Gibbs, Priors
from bayesnmf.data.counts import Counts
from benchmarks.data import ROOT, read

CORES = 2
SIGNATURES = ("SBS1", "SBS2", "SBS3", "SBS5", "SBS13", "SBS18")  # of breast cancers


def tumours(rows: int = 311, seed: int = 0) -> Counts:
    """Draw mutations of tumours from six signatures: totals of 200 to 50,000, median 3,000, and uneven exposures."""
    import pandas as pd

    table = pd.read_csv(ROOT.parent / "shared" / "data" / "COSMIC_v3.3.1_SBS_GRCh38.csv", index_col=0)
    components = table[list(SIGNATURES)].to_numpy().T
    rng = np.random.default_rng(seed)
    totals = np.clip(np.exp(rng.normal(np.log(3000), 1.1, rows)), 200, 50_000)
    shares = rng.gamma(0.5, 1.0, (rows, len(SIGNATURES)))
    means = (shares / shares.sum(axis=1, keepdims=True) * totals[:, None]) @ components
    return bayesnmf.as_counts(rng.poisson(means / components.sum(axis=1).mean()))


@dataclass(frozen=True)
class Case:
    """Counts with a rank, and default or flat priors."""

    read: Callable[[], Counts]
    rank: int
    flat: bool = False

    def priors(self, counts: Counts) -> Priors:
        """Return the priors."""
        if not self.flat:
            return Priors()
        return Priors(Gamma(1.0, self.rank * counts.shape[0] / counts.total), Dirichlet(1.0))


CASES = {
    "tumours": Case(tumours, 6),
    "tumours, flat": Case(tumours, 6, flat=True),
    "pcawg5": Case(lambda: read("pcawg_breast_sbs96", 5, 0), 5),
    "pcawg5, flat": Case(lambda: read("pcawg_breast_sbs96", 5, 0), 5, flat=True),
    "pcawg6": Case(lambda: read("pcawg_breast_sbs96", 6, 0), 6),
    "pbmc_small": Case(lambda: read("pbmc_small", 6, 0), 6),
    "pbmc_small, flat": Case(lambda: read("pbmc_small", 6, 0), 6, flat=True),
}


def run(case: Case, seed: int, budget: float) -> dict[str, Any]:
    """Fit until the chains have mixed or the budget is spent, and return the figures."""
    counts = case.read()
    priors = case.priors(counts)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        few = Gibbs(priors=priors, draws=2, warmup=1)
        bayesnmf.fit(counts, rank=case.rank, method="gibbs", seed=0, options=few)  # compiles
        began = time.process_time()
        options = Gibbs(priors=priors, budget=budget)
        fit = bayesnmf.fit(counts, rank=case.rank, method="gibbs", seed=seed, options=options)
    figures = {name: float(value) for name, value in fit.diagnostics.items()}
    seconds = (time.process_time() - began) / CORES
    return {"seconds": seconds, "wall": fit.seconds, "converged": fit.status.converged, **figures}


def row_of(name: str, seed: int, found: dict[str, Any]) -> str:
    """Return a row of the table."""
    return (
        f"| {name} | {seed} | {'yes' if found['converged'] else 'no'} | {found['seconds']:.0f} "
        f"| {found['sweeps']:,.0f} | {found['max_r_hat']:.3f} | {found['share_unsettled']:.1%} "
        f"| {found['min_ess']:.0f} | {found['ess_log_joint']:.0f} | {found['ess_shares']:.0f} |"
    )


def main() -> None:
    """Run what has not run yet, and print the table."""
    parser = argparse.ArgumentParser(description="Seconds until chains have mixed.")
    parser.add_argument("--data", nargs="+", default=list(CASES), choices=list(CASES))
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2])
    parser.add_argument("--budget", type=float, default=300.0)
    parser.add_argument("--keep", type=Path, default=ROOT / "results" / "until_mixed")
    given = parser.parse_args()
    given.keep.mkdir(parents=True, exist_ok=True)
    file = given.keep / "until_mixed.jsonl"
    lines = [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []
    done = {(each["data"], each["seed"], each["budget"]): each for each in lines}
    print("| counts | seed | converged | s | sweeps | largest R-hat | above 1.01 | smallest ESS | log joint | shares |")
    print("|---|--:|---|" + "--:|" * 7)
    for name in given.data:
        for seed in given.seeds:
            key = (name, seed, given.budget)
            if key not in done:
                done[key] = {"data": name, "seed": seed, "budget": given.budget, **run(CASES[name], seed, given.budget)}
                with file.open("a") as opened:
                    opened.write(json.dumps(done[key]) + "\n")
            print(row_of(name, seed, done[key]), flush=True)


if __name__ == "__main__":
    main()
