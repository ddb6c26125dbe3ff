"""How often residuals are told to share structure, of right fits and of fits without one signature of 5 %.

    python -m benchmarks.structure [--kinds none …] [--noises nb2 …] [--sets 20] [--checks] [--report]

Cohorts are those of `benchmarks.cohorts`: 311 × 96, with signatures of COSMIC, exposures of real tumours, and Gamma or
log-normal noise on the rates. Fits are of rank 6, by vi: *right* where six signatures made the counts, *missing* where
a seventh did, with 5 % of the mutations. A fit has found a signature where a component has a cosine of 0.9 with it: a
fit of rank 6 to six signatures may miss one, too, and then has structure left. --checks runs `predictive_checks`, too.
What is done is in benchmarks/structure.csv, and is not run again; --report prints the table of docs/reliability.md.
"""

from __future__ import annotations

import argparse
import time
import warnings
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

import bayesnmf
from bayesnmf.inference.alignment import match_components
from bayesnmf.inference.status import FitWarning
from bayesnmf.results.residuals import LEVEL, structures_of
from bayesnmf.writing import write_text
from benchmarks.cohorts import KINDS, RANK, cohort

PATH, NOISES = Path(__file__).with_suffix(".csv"), ("nb2", "nb1", "poisson")
KEYS = ["kind", "noise", "signatures", "seed"]


def cosines(fit: bayesnmf.Fit, components: Any) -> Any:
    """Return the cosines of true components with those of a fit, one to one, as far as there are any."""
    found = fit.components
    if len(components) > len(found):
        each = (components / np.linalg.norm(components, axis=1, keepdims=True)) @ (
            found / np.linalg.norm(found, axis=1, keepdims=True)
        ).T
        return each.max(axis=1)
    found = found[match_components(found, components)]
    return np.sum(found * components, axis=1) / np.linalg.norm(found, axis=1) / np.linalg.norm(components, axis=1)


def checked(kind: str, noise: str, signatures: int, seed: int, with_checks: bool) -> dict[str, Any]:
    """Fit one cohort, and return what is said of its residuals."""
    made = cohort(kind, seed, signatures)
    began = time.process_time()
    fit = bayesnmf.fit(made.counts, rank=RANK, noise=noise, method="vi", seed=0)
    fitted = time.process_time()
    found = structures_of(fit).get("")
    told = time.process_time()
    if found is None:
        raise RuntimeError(f"the fit of {kind}, {noise}, {signatures}, {seed} did not converge: {fit.status.reason}")
    row = {"kind": kind, "noise": noise, "signatures": signatures, "seed": seed, "ratio": found.ratio}
    row |= {"p_value": found.p_value, "found": int((cosines(fit, made.components) > 0.9).sum())}
    row |= {"fit_s": fitted - began, "test_s": told - fitted}
    if with_checks:
        checks = bayesnmf.predictive_checks(fit)
        row |= {"p_checks": checks.table.loc["structure", "p_value"], "checks_s": time.process_time() - told}
    return row


def report(table: pd.DataFrame) -> None:
    """Print the share of fits of which structure is told."""
    print("| noise on the rates | fitted | right: told | – of those that found all six | missing: told | sets |")
    print("|---|---|--:|--:|--:|--:|")
    for (kind, noise), part in table.groupby(["kind", "noise"], sort=False):
        told = part["p_value"] < LEVEL
        right, missing = part["signatures"] == RANK, part["signatures"] > RANK
        whole = right & (part["found"] == RANK)
        shares = [f"{told[rows].sum()} of {rows.sum()}" for rows in (right, whole, missing)]
        print(f"| {kind} | {noise} | {' | '.join(shares)} | {part['seed'].nunique()} |")


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kinds", nargs="+", default=KINDS[:5], choices=KINDS)
    parser.add_argument("--noises", nargs="+", default=["nb2"], choices=NOISES)
    parser.add_argument("--sets", type=int, default=20)
    parser.add_argument("--checks", action="store_true")
    parser.add_argument("--report", action="store_true")
    asked = parser.parse_args()
    rows = pd.read_csv(PATH).to_dict("records") if PATH.exists() else []
    done = {tuple(row[key] for key in KEYS) for row in rows}
    tasks = product(range(asked.sets), asked.noises, asked.kinds, (RANK, RANK + 1))
    for seed, noise, kind, signatures in [] if asked.report else tasks:
        if (task := (kind, noise, signatures, seed)) in done:
            continue
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FitWarning)
            rows.append(checked(*task, asked.checks))
        write_text(PATH, pd.DataFrame(rows).to_csv(index=False, float_format="%.5g"))
    report(pd.DataFrame(rows))


if __name__ == "__main__":
    main()
