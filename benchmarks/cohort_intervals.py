"""What 90 % intervals hold of the truth of cohorts with real signatures, and what is lost where they hold less.

    python -m benchmarks.cohort_intervals [--kinds none …] [--calls vi …] [--sets 3] [--report]

Cohorts are those of `benchmarks.cohorts`, 311 × 96 with six signatures of COSMIC, fitted at rank 6 with noise "nb2".
Calls: `vi`, with a chain of 50 + 250 sweeps beside it, as `with_intervals("sampled")` makes it; `truth`, the same,
started at the truth; `given`, at the true dispersion; `even`, with priors whose shapes and concentrations are 1; `from
even`, with the default priors, started at that fit; `sparse`, with components of concentration 0.1; `learned`, with
priors that vi learns; `restarts`, the best of eight; `quasi`; `long`, a
chain of 1,000 + 1,000 sweeps from the fit by vi, with its priors; `gibbs`, two chains of 500 + 500 sweeps with the
default priors of gibbs, whose shapes are 1; `gibbs, truth`, one of 1,000 + 1,000 from the truth.

Rows have the shares of true loadings, components and expected counts inside, and those of loadings and components of
signatures that were found, with a cosine above 0.9; how many these are; the objective, and whether residuals share
structure. What is done is in benchmarks/cohort_intervals.csv, and not run again; --report prints means over the sets.
"""

from __future__ import annotations

import argparse
import time
import warnings
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

import bayesnmf
from bayesnmf import VI, Dirichlet, Gamma, Gibbs, Priors
from bayesnmf.inference.alignment import match_components
from bayesnmf.inference.status import FitWarning
from bayesnmf.results.residuals import LEVEL, structures_of
from bayesnmf.writing import write_text
from benchmarks.cohorts import KINDS, RANK, Cohort, cohort
from benchmarks.structure import cosines

PATH, TAILS, ENTRIES = Path(__file__).with_suffix(".csv"), (0.05, 0.95), 2000
CALLS = (
    "vi",
    "truth",
    "given",
    "even",
    "from even",
    "sparse",
    "learned",
    "restarts",
    "quasi",
    "long",
    "gibbs",
    "gibbs, truth",
)
KEYS = ["kind", "call", "seed"]


def fitted(call: str, kind: str, made: Cohort) -> bayesnmf.Fit:
    """Fit a cohort by one of the calls."""
    start: Any = bayesnmf.Start(loadings=made.loadings, components=made.components)
    sampled: dict[str, Any] = {"intervals": "sampled"}
    noise: Any = "quasi" if call == "quasi" else "nb2"
    if call == "given" and " " in kind:
        noise = bayesnmf.NegativeBinomial("quadratic", float(kind.split()[1]) ** 2)
    rate = RANK / made.counts.sum(axis=1).mean()
    even = VI(priors=Priors(Gamma(1.0, rate), Dirichlet(1.0)), **sampled)
    if call == "from even":
        start = bayesnmf.fit(made.counts, rank=RANK, noise=noise, seed=0, options=replace(even, intervals="mean_field"))
    if call == "long":
        start = bayesnmf.fit(made.counts, rank=RANK, noise=noise, seed=0, options=VI(intervals="mean_field"))
    own: dict[str, Any] = {
        "truth": VI(start=start, **sampled),
        "even": even,
        "from even": VI(start=start, **sampled),
        "sparse": VI(priors=Priors(Gamma(0.3, 0.3 * rate), Dirichlet(0.1)), **sampled),
        "learned": VI(learn=("loadings", "components"), **sampled),
        "restarts": VI(restarts=8, **sampled),
        "long": Gibbs(priors=getattr(start, "priors", Priors()), chains=1, warmup=1000, draws=1000, start=start),
        "gibbs": Gibbs(chains=2, warmup=500, draws=500),
        "gibbs, truth": Gibbs(chains=1, warmup=1000, draws=1000, start=start),
    }
    return bayesnmf.fit(
        made.counts, rank=RANK, noise=noise, seed=0, method="gibbs" if "gibbs" in call or call == "long" else "vi",
        options=own.get(call, VI(**sampled)),
    )  # fmt: skip


def shares(fit: bayesnmf.Fit, made: Cohort) -> dict[str, float]:
    """Return the shares of true values inside 90 % intervals of the draws of a fit, components with sum 1."""
    held: Any = fit.intervals.draws if fit.intervals else fit.estimate
    order = match_components(fit.components, made.components)
    theta, beta = (np.concatenate(list(side)) for side in (held.loadings, held.components))
    theta, beta = theta[:, :, order], beta[:, order]
    sums = beta.sum(axis=2)
    theta, beta = theta * sums[:, None], beta / sums[..., None]
    rng = np.random.default_rng(0)
    i, j = rng.integers(len(made.loadings), size=ENTRIES), rng.integers(made.components.shape[1], size=ENTRIES)
    expected = np.einsum("drk,dkr->dr", theta[:, i], beta[:, :, j])
    true = np.einsum("rk,kr->r", made.loadings[i], made.components[:, j])
    cosine = cosines(fit, made.components)
    known = cosine > 0.9
    inside = {}
    for name, drawn, value in (("loadings", theta, made.loadings), ("components", beta, made.components),
                               ("expected", expected, true)):  # fmt: skip
        low, high = np.quantile(drawn, TAILS, axis=0)
        inside[name] = (low <= value) & (value <= high)
    own = {"loadings": inside["loadings"][:, known], "components": inside["components"][known]}
    return (
        {name: float(each.mean()) for name, each in inside.items()}
        | {f"{name} found": float(each.mean()) if known.any() else np.nan for name, each in own.items()}
        | {"found": int(known.sum()), "least cosine": float(cosine.min())}
    )


def measured(kind: str, call: str, seed: int) -> dict[str, Any]:
    """Fit one cohort by one call, and return what its intervals hold."""
    made, began = cohort(kind, seed), time.process_time()
    fit = fitted(call, kind, made)
    took, own = time.process_time() - began, structures_of(fit).get("")
    told = {"objective": float(fit.trace.mean() if fit.trace.ndim == 2 else fit.trace[-1]), "seconds": took}
    told |= {
        "structure": np.nan if own is None else own.p_value,
        "dispersion": getattr(fit.noise, "dispersion", np.nan),
    }
    return {"kind": kind, "call": call, "seed": seed} | shares(fit, made) | told


def report(table: pd.DataFrame) -> None:
    """Print means over the sets."""
    print(
        "| noise on the rates | call | loadings / components / expected | of found signatures | found | structure | s |"
    )
    print("|---|---|--:|--:|--:|--:|--:|")
    for (kind, call), part in table.groupby(["kind", "call"], sort=False):
        mean = part.mean(numeric_only=True)
        three = " / ".join(f"{mean[name]:.2f}" for name in ("loadings", "components", "expected"))
        two = " / ".join(f"{mean[f'{name} found']:.2f}" for name in ("loadings", "components"))
        found, told = f"{part['found'].sum()} of {RANK * len(part)}", (part["structure"] < LEVEL).sum()
        print(f"| {kind} | {call} | {three} | {two} | {found} | {told} of {len(part)} | {mean['seconds']:.1f} |")


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kinds", nargs="+", default=KINDS, choices=KINDS)
    parser.add_argument("--calls", nargs="+", default=CALLS, choices=CALLS)
    parser.add_argument("--sets", type=int, default=3)
    parser.add_argument("--report", action="store_true")
    asked = parser.parse_args()
    rows = pd.read_csv(PATH).to_dict("records") if PATH.exists() else []
    done = {tuple(row[key] for key in KEYS) for row in rows}
    for seed, kind, call in [] if asked.report else product(range(asked.sets), asked.kinds, asked.calls):
        if (kind, call, seed) in done:
            continue
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FitWarning)
            rows.append(measured(kind, call, seed))
        write_text(PATH, pd.DataFrame(rows).to_csv(index=False, float_format="%.6g"))
    report(pd.DataFrame(rows))


if __name__ == "__main__":
    main()
