"""Score priors and starts by what they predict: `python -m benchmarks.priors --data nips --rank 20 --priors 0.1,0.1`.

A fifth of the rows is withheld, the same for all. Half of the counts of each such row, drawn once, gives its loadings;
the score is the mean log-probability of the other half, in nats a count, as `BayesNMF.score` has it. A line is printed
for each pair of shapes or concentrations (loadings, components) and each start, and added to `priors.jsonl` in `--out`.
"""

from __future__ import annotations

import argparse
import json
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np

import bayesnmf
from bayesnmf import VI, Dirichlet, Gamma, Priors, ScaledDirichlet
from bayesnmf.assessment.scoring import background, score
from bayesnmf.data.counts import Counts
from bayesnmf.data.splitting import halves_of_rows
from benchmarks import data

DRAWS, MOST_DRAWS = 20, 200


def priors_of(model: str, counts: Counts, rank: int, loadings: float, components: float) -> Priors:
    """Return priors of these shapes or concentrations whose mean row total is that of the counts."""
    total = counts.total / counts.shape[0]
    sides: dict[str, Any] = {
        "gamma_poisson": Gamma(loadings, loadings * rank / total),
        "dirichlet_poisson": Dirichlet(loadings),
        "dirichlet_gamma": ScaledDirichlet(loadings, 1.0, 1 / total),
    }
    return Priors(sides[model], Dirichlet(components))


def split_rows(counts: Counts, share: float, seed: int) -> tuple[Counts, Counts]:
    """Return the rows to fit, and those withheld, with the features that the first have."""
    order = np.random.default_rng(seed).permutation(counts.shape[0])
    number = max(1, round(share * counts.shape[0]))
    fitted, withheld = (counts.rows(np.sort(rows)) for rows in (order[number:], order[:number]))
    used = np.flatnonzero(fitted.feature_totals)
    one, two = (bayesnmf.as_counts(each.matrix[:, used]) for each in (fitted, withheld))
    return one, two


def measure(train: Counts, test: Counts, model: str, rank: int, options: VI) -> dict[str, Any]:
    """Fit, and return the score, the bound, the seconds and the largest cosine of two components."""
    began = time.perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        fit = bayesnmf.fit(train, model, rank, "vi", seed=0, options=options)
        seconds = time.perf_counter() - began
        seen, held_out = halves_of_rows(test)
        found = score(fit.project(seen), held_out, background(train), DRAWS, 0, MOST_DRAWS).per_count
    unit = fit.components / np.linalg.norm(fit.components, axis=1, keepdims=True)
    cosine = float((unit @ unit.T - np.eye(rank)).max())
    return {
        "score": round(found, 4), "elbo": round(float(fit.trace[-1])), "seconds": round(seconds, 1),
        "iterations": fit.status.iterations, "largest cosine": round(cosine, 3),
    }  # fmt: skip


def main() -> None:
    """Measure each pair of priors from each start."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", nargs="+", required=True)
    parser.add_argument("--model", default="dirichlet_poisson")
    parser.add_argument("--rank", type=int, nargs="+", default=[20])
    parser.add_argument("--priors", nargs="+", default=["1,1", "0.3,0.1", "0.1,0.1"], help="loadings,components")
    parser.add_argument("--starts", nargs="+", default=["descent"])
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    for name in given.data:
        train, test = split_rows(data.read(name, given.rank[0], 0), 0.2, 0)
        for rank in given.rank:
            for pair in given.priors:
                for start in given.starts:
                    shapes = [float(each) for each in pair.split(",")]
                    options = VI(start=start, priors=priors_of(given.model, train, rank, *shapes))
                    found = measure(train, test, given.model, rank, options)
                    row = {"data": name, "model": given.model, "rank": rank, "priors": pair, "start": start, **found}
                    print(json.dumps(row), flush=True)
                    if given.out:
                        given.out.mkdir(parents=True, exist_ok=True)
                        with open(given.out / "priors.jsonl", "a", encoding="utf-8") as file:
                            file.write(json.dumps(row) + "\n")


if __name__ == "__main__":
    main()
