"""How often predictive checks call a right model misfitted, how often a wrong one, and what they cost.

    python -m benchmarks.predictive [--cases rank …] [--methods vi gibbs map] [--sets 200] [--part 0/2] [--report]

Right models, whose p-value of all statistics together should be below 0.05 in 5 % of the sets:

- right-small: 60 × 30 counts of rank 3, 300 a row, drawn from the sparse default priors of gamma_poisson;
- right-even: the same size, drawn from priors with shapes and concentrations of 1, which the fits do not have;
- right-large: 100 × 96 counts of rank 5, 1,000 a row, drawn from the default priors;
- right-clusters: as right-small, with a variance of three times the mean, and fitted with noise="nb1".

Wrong models, 60 × 30 counts of rank 3, about 1,000 a row:

- rank: fitted with rank 2;
- noise, faint: rates of single entries multiplied by Gamma noise with a standard deviation of 20 %, and of 5 %;
- shuffled, column: every feature permuted over the rows by itself, and one feature alone;
- dropouts, rare: 5 % of the entries set to 0, and 0.5 %;
- clusters: the counts of right-clusters, fitted with Poisson noise.

The results of a case and a method are a file in benchmarks/predictive/, to which a run adds the sets that are missing;
--part 0/2 and 1/2 share the cases among two processes. --report prints the table of docs/reliability.md. Seconds are of
processor time, on one thread.
"""

from __future__ import annotations

import argparse
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

import bayesnmf
from bayesnmf import MAP, VI, Gibbs
from bayesnmf.inference.status import FitWarning
from bayesnmf.priors.pair import with_defaults
from bayesnmf.priors.specification import EVEN
from bayesnmf.writing import write_text

FOLDER = Path(__file__).parent / "predictive"
METHODS: dict[str, Any] = {
    "vi": VI(threads=1),
    "gibbs": Gibbs(chains=1, warmup=100, draws=200, threads=1),
    "map": MAP(threads=1),
}
RIGHT = ("right-small", "right-even", "right-large", "right-clusters")
WRONG = ("rank", "noise", "faint", "shuffled", "column", "dropouts", "rare", "clusters")
NOISE, DROPPED = {"noise": 0.2, "faint": 0.05}, {"dropouts": 0.05, "rare": 0.005}


def simulated(case: str, seed: int) -> tuple[Any, int]:
    """Return counts, and the rank to fit."""
    if case in (*RIGHT, "clusters"):
        size, rank, total = ((100, 96), 5, 1000.0) if case == "right-large" else ((60, 30), 3, 300.0)
        given: dict[str, Any] = {"totals": total}
        if case == "right-even":
            priors = with_defaults(bayesnmf.Priors(), "gamma_poisson", total, rank, np.ones(size[1]), EVEN)
            given = {"priors": priors}
        if case.endswith("clusters"):
            given["noise"] = bayesnmf.NegativeBinomial(dispersion=2.0)
        return bayesnmf.simulate("gamma_poisson", size, rank, seed=seed, **given).counts, rank
    rng = np.random.default_rng([7, seed])
    means = rng.gamma(1.0, 1000 / 3, (60, 3)) @ rng.dirichlet(np.full(30, 0.5), 3)
    if case in NOISE:
        shape = NOISE[case] ** -2
        means = means * rng.gamma(shape, 1 / shape, means.shape)
    counts = rng.poisson(means)
    if case in DROPPED:
        counts[rng.random(counts.shape) < DROPPED[case]] = 0
    for feature in {"shuffled": range(30), "column": range(1)}.get(case, ()):
        counts[:, feature] = rng.permutation(counts[:, feature])
    return counts, 2 if case == "rank" else 3


def checked(case: str, method: str, seed: int) -> dict[str, Any]:
    """Return what the checks of one fit say, with seconds."""
    counts, rank = simulated(case, seed)
    begun = time.process_time()
    noise = "nb1" if case == "right-clusters" else "poisson"
    fit = bayesnmf.fit(counts, rank=rank, method=method, seed=seed, options=METHODS[method], noise=noise)
    fitted = time.process_time()
    found = bayesnmf.predictive_checks(fit, seed=seed)
    took = {"fit": fitted - begun, "checks": time.process_time() - fitted}
    return {"seed": seed, "p_value": found.p_value, "failed": "; ".join(found.failed), **took} | {
        name: round(float(p), 5) for name, p in found.table["p_value"].items()
    }


def run(case: str, method: str, sets: int) -> None:
    """Add the sets that the file of a case lacks."""
    path = FOLDER / f"{case}-{method}.csv"
    rows = pd.read_csv(path).to_dict("records") if path.exists() else []
    for seed in range(len(rows), sets):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FitWarning)
            rows.append(checked(case, method, seed))
        if len(rows) % 10 == 0 or len(rows) == sets:
            write_text(path, pd.DataFrame(rows).to_csv(index=False, float_format="%.5g"))


def report() -> None:
    """Print how often each case is called misfitted, with the median seconds of a fit and of its checks."""
    print("| case | method | sets | p < 0.05 | p < 0.01 | s of the fit | s of the checks |")
    print("|---|---|--:|--:|--:|--:|--:|")
    for case in (*RIGHT, *WRONG):
        for method in METHODS:
            path = FOLDER / f"{case}-{method}.csv"
            if not path.exists():
                continue
            table = pd.read_csv(path)
            below = [f"{np.mean(table['p_value'] < level):.1%}" for level in (0.05, 0.01)]
            seconds = [f"{table[part].median():.2f}" for part in ("fit", "checks")]
            print(f"| {case} | {method} | {len(table)} | {' | '.join([*below, *seconds])} |")


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cases", nargs="+", default=[*RIGHT, *WRONG], choices=[*RIGHT, *WRONG])
    parser.add_argument("--methods", nargs="+", default=["vi", "gibbs"], choices=list(METHODS))
    parser.add_argument("--sets", type=int, default=0, help="by default 200 of right models and 20 of wrong ones")
    parser.add_argument("--part", default="0/1")
    parser.add_argument("--report", action="store_true")
    asked = parser.parse_args()
    FOLDER.mkdir(exist_ok=True)
    number, parts = map(int, asked.part.split("/"))
    tasks = [(case, method) for case in asked.cases for method in asked.methods]
    for case, method in [] if asked.report else tasks[number::parts]:
        run(case, method, asked.sets or (200 if case in RIGHT else 20))
    report()


if __name__ == "__main__":
    main()
