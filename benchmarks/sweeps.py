"""How long does a sweep of marginal Gibbs take, and how many effective draws a second does it give?

    python -m benchmarks.sweeps [--label after] [--data pbmc_facs nips] [--threads 1] [--folder benchmarks/sweeps]

From a fit by vi with the default priors, a chain of `--warmup` and `--draws` sweeps. Seconds are processor seconds of
the process. The effective sample size is the harmonic mean over at most 1,500 entries of each side, in logarithms.
Each run adds a row to FOLDER/sweeps.csv under its label, and is not repeated; the table has the labels side by side,
so that the script, run from two checkouts with two labels, compares them.
"""

from __future__ import annotations

import argparse
import csv
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import bayesnmf
from bayesnmf.fitting.problems import draws_problem
from bayesnmf.inference.sampling.marginal_gibbs import Factors
from bayesnmf.inference.status import ConvergenceWarning
from bayesnmf.results.mixing import r_hat_and_ess
from benchmarks.chains import Case

Array = NDArray[Any]
FOLDER = Path(__file__).parent / "sweeps"
CASES = (Case("pbmc_facs", 6), Case("pcawg_breast_sbs96", 5), Case("pbmc_small", 10), Case("nips", 10, 500))
JUDGED = 1500
COLUMNS = ("data", "K", "label", "threads", "sweeps", "ms a sweep", "ESS loadings", "ESS components", "seconds")


def fitted(case: Case) -> tuple[Any, Any]:
    """Return the counts and a fit by vi."""
    counts = case.counts()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return counts, bayesnmf.fit(counts, case.model, case.rank, "vi", seed=0)


def measured(case: Case, threads: int, warmup: int, draws: int) -> dict[str, Any]:
    """Run a chain; return its sweeps, the least milliseconds of one, effective sample sizes and seconds."""
    counts, fit = fitted(case)
    rng = np.random.default_rng(1)
    problem = draws_problem(counts, fit.priors, rng)
    factors = Factors(problem, np.array([fit.loadings]), np.array([fit.components]), rng)
    pick = np.random.default_rng(0)
    chosen = [np.sort(pick.permutation(side[0].size)[:JUDGED]) for side in (factors.theta, factors.beta)]
    factors.sweep(threads)  # compiles
    seconds, kept = [], ([], [])  # type: ignore[var-annotated]
    for done in range(warmup + draws):
        began = time.process_time()
        factors.sweep(threads)
        seconds.append(time.process_time() - began)
        if done >= warmup:
            for values, side, places in zip(kept, (factors.theta, factors.beta), chosen, strict=True):
                values.append(np.log(side[0].ravel()[places]))
    sizes = [1 / np.mean(1 / r_hat_and_ess(np.array(values)[None], 1)[1]) for values in kept]
    total = sum(seconds[warmup:])
    return {"sweeps": f"{warmup} + {draws}", "ms a sweep": f"{1e3 * min(seconds):.2f}", "seconds": f"{total:.1f}"} | {
        f"ESS {side}": f"{size:.1f}" for side, size in zip(("loadings", "components"), sizes, strict=True)
    }


def table(rows: list[dict[str, str]]) -> str:
    """Return the rows as a table, with effective draws a second."""
    lines = ["| data, K | label | threads | sweeps | ms a sweep | ESS a second: loadings | components |"]
    lines += ["|---|---|--:|--:|--:|--:|--:|"]
    for row in sorted(rows, key=lambda row: (row["data"], row["threads"], row["label"])):
        each = [f"{float(row[f'ESS {side}']) / float(row['seconds']):.2f}" for side in ("loadings", "components")]
        start = [f"{row['data']}, {row['K']}", row["label"], row["threads"], row["sweeps"], row["ms a sweep"]]
        lines.append(f"| {' | '.join(start + each)} |")
    return "\n".join(lines)


def main() -> None:
    """Run what has not run yet under this label, and print the table."""
    parser = argparse.ArgumentParser(description="Seconds and effective draws of sweeps of marginal Gibbs.")
    parser.add_argument("--label", default="now")
    parser.add_argument("--data", nargs="+", default=[case.data for case in CASES])
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--warmup", type=int, default=50)
    parser.add_argument("--draws", type=int, default=250)
    parser.add_argument("--folder", type=Path, default=FOLDER)
    given = parser.parse_args()
    given.folder.mkdir(parents=True, exist_ok=True)
    path = given.folder / "sweeps.csv"
    rows = list(csv.DictReader(path.open(encoding="utf-8"))) if path.exists() else []
    done = {(row["data"], row["label"], row["threads"]) for row in rows}
    for case in CASES:
        if case.data not in given.data or (case.name, given.label, str(given.threads)) in done:
            continue
        own = {"data": case.name, "K": str(case.rank), "label": given.label, "threads": str(given.threads)}
        rows.append(own | measured(case, given.threads, given.warmup, given.draws))
        with path.open("w", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, COLUMNS)
            writer.writeheader()
            writer.writerows(rows)
    print(table(rows))


if __name__ == "__main__":
    main()
