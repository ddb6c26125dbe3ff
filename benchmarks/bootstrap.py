"""What the intervals of a bootstrap hold of a known truth, beside those of a short chain and of Gibbs sampling.

    python -m benchmarks.bootstrap [--cases poisson nb2 breast5 breast8] [--seeds 0 1 2] [--draws 100]

Counts are simulated, 200 × 96 from 5 components with 2,000 counts a row (loadings ~ Gamma(1), components ~
Dirichlet(0.3)), Poisson or nb2 with a dispersion of 0.05, of which fits know only the noise's name; or all counts of
pcawg_breast_sbs96, whose truth is unknown, so that only widths are compared. A case that is done is a line of
`bootstrap.jsonl` in `--keep` and is not repeated; the table of all lines is printed. Options and priors are the
defaults, but for the length of the four chains. Seconds are processor seconds, without compilation.
"""

from __future__ import annotations

import argparse
import json
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import bayesnmf
from bayesnmf import Fit, Gibbs
from bayesnmf.inference.alignment import match_components
from bayesnmf.results.intervals import for_intervals
from benchmarks.data import ROOT, read

ROWS, FEATURES, RANK, TOTAL, DISPERSION = 200, 96, 5, 2000.0, 0.05
REAL = {"breast5": ("pcawg_breast_sbs96", 5), "breast8": ("pcawg_breast_sbs96", 8)}
CASES = ("poisson", "nb2", *REAL)
LARGE = {"loadings": 0.01, "components": 1e-3}  # shares from which entries are large
COLUMNS = ("held", "of large ones", "of shares", "width / chain's", "s of the fit", "s of intervals")

Truth = tuple[np.ndarray, np.ndarray]


def simulated(noise: str, seed: int) -> tuple[np.ndarray, Truth]:
    """Return counts, and the loadings and components that they come from."""
    rng = np.random.default_rng(seed)
    components = rng.dirichlet(np.full(FEATURES, 0.3), RANK)
    loadings = rng.gamma(1.0, 1.0, (ROWS, RANK))
    loadings *= TOTAL / loadings.sum(axis=1, keepdims=True)
    means = loadings @ components
    if noise == "nb2":
        means = means * rng.gamma(1 / DISPERSION, DISPERSION, means.shape)
    return rng.poisson(means), (loadings, components)


def ways(chain: int, draws: int) -> dict[str, tuple[str, Callable[[Fit], Fit] | None, dict[str, Any]]]:
    """Return the ways to intervals: a method, what makes intervals of its fit, and settings of the fit."""

    def bootstrap(fit: Fit) -> Fit:
        return fit.with_intervals("bootstrap", draws=draws)

    return {
        "gibbs": ("gibbs", None, {"options": Gibbs(warmup=chain // 2, draws=chain)}),
        "map, bootstrap": ("map", bootstrap, {}),
        "vi, bootstrap": ("vi", bootstrap, {}),
        "vi, sampled": ("vi", lambda fit: fit.with_intervals("sampled"), {}),
        "vi, mean field": ("vi", lambda fit: fit.with_intervals("mean_field"), {}),
    }


def timed[T](run: Callable[[], T]) -> tuple[T, float]:
    """Return what a function returns, and its processor seconds."""
    began = time.process_time()
    return run(), time.process_time() - began


def ends_of(fit: Fit, order: np.ndarray) -> dict[str, np.ndarray]:
    """Return ends of 90 % intervals of both sides and of shares, with the components in an order."""
    read = for_intervals(fit)
    drawn = read.estimate.take(read, (4, 250) if read.estimate.held is None else read.estimate.held, 0, None)
    loadings, components = drawn.loadings[..., order], drawn.components[..., order, :]
    sides = {"loadings": loadings, "components": components, "shares": loadings / loadings.sum(-1, keepdims=True)}
    return {name: np.quantile(values, (0.05, 0.95), axis=(0, 1)) for name, values in sides.items()}


def run(case: str, seed: int, draws: int, chain: int) -> list[dict[str, Any]]:
    """Return the figures of all ways for one case."""
    rank = REAL[case][1] if case in REAL else RANK
    counts, truth = (read(*REAL[case], seed), None) if case in REAL else simulated(case, seed)
    noise = "nb2" if case == "nb2" else "poisson"
    rows, first, reference = [], {}, None if truth is None else truth[1]
    for way, (method, make, settings) in ways(chain, draws).items():
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            fit, of_fit = timed(
                lambda m=method, s=settings: bayesnmf.fit(counts, rank=rank, method=m, seed=seed, noise=noise, **s)
            )
            made, of_intervals = timed(lambda f=fit, m=make: f if m is None else m(f))
        reference = fit.components if reference is None else reference
        ends = ends_of(made, match_components(fit.components, reference))
        first = first or ends
        figures = {"status": fit.status.reason, "s of the fit": of_fit, "s of intervals": of_intervals}
        figures["width"] = [width(ends[side]) / width(first[side]) for side in ("loadings", "components")]
        if truth is not None:
            figures |= held(ends, truth)
        rows.append({"case": case, "seed": seed, "way": way, **figures})
    return rows


def width(ends: np.ndarray) -> float:
    """Return the mean width of intervals."""
    return float((ends[1] - ends[0]).mean())


def held(ends: dict[str, np.ndarray], truth: Truth) -> dict[str, Any]:
    """Return what intervals hold of the truth: of all entries, of large ones, and of shares of rows."""
    loadings, components = truth
    shares = loadings / loadings.sum(axis=1, keepdims=True)
    inside = {name: (low <= value) & (value <= high) for name, value, (low, high) in
              ((name, value, ends[name]) for name, value in
               (("loadings", loadings), ("components", components), ("shares", shares)))}  # fmt: skip
    large = {"loadings": shares >= LARGE["loadings"], "components": components >= LARGE["components"]}
    sides = ("loadings", "components")
    return {
        "held": [float(inside[side].mean()) for side in sides],
        "of large ones": [float(inside[side][large[side]].mean()) for side in sides],
        "of shares": float(inside["shares"].mean()),
    }


def table(rows: list[dict[str, Any]]) -> str:
    """Return the means over seeds as a table."""
    lines = [f"| counts | intervals | {' | '.join(COLUMNS)} |", "|---|---|" + "--:|" * len(COLUMNS)]
    for case, way in dict.fromkeys((row["case"], row["way"]) for row in rows):
        found = [row for row in rows if (row["case"], row["way"]) == (case, way)]

        def mean(name: str, form: str, found: list[dict[str, Any]] = found) -> str:
            if name not in found[0]:
                return "–"
            return " / ".join(
                form.format(each) for each in np.atleast_1d(np.mean([row[name] for row in found], axis=0))
            )

        cells = [mean(name, "{:.2f}") for name in (*COLUMNS[:3], "width")] + [
            mean(name, "{:.1f}") for name in COLUMNS[4:]
        ]
        lines.append(f"| {case} | {way} | {' | '.join(cells)} |")
    return "\n".join(lines)


def main() -> None:
    """Run what has not run yet, and print the table."""
    parser = argparse.ArgumentParser(description="What intervals of a bootstrap hold.")
    parser.add_argument("--cases", nargs="+", default=list(CASES), choices=CASES)
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2], help="seeds of simulated counts")
    parser.add_argument("--draws", type=int, default=100, help="number of replicates")
    parser.add_argument("--chain", type=int, default=500, help="draws of each of four chains, after half as many")
    parser.add_argument("--keep", type=Path, default=ROOT / "results" / "bootstrap", help="folder of what is done")
    given = parser.parse_args()
    given.keep.mkdir(parents=True, exist_ok=True)
    file = given.keep / "bootstrap.jsonl"
    rows = [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []
    asked = [(case, seed) for case in given.cases for seed in (given.seeds[:1] if case in REAL else given.seeds)]
    done = {(row["case"], row["seed"]) for row in rows}
    for at, (case, seed) in enumerate([each for each in asked if each not in done]):
        if not at:
            run(case, seed, 8, 8)  # compiles
        found = run(case, seed, given.draws, given.chain)
        rows += found
        with file.open("a") as opened:
            opened.writelines(json.dumps(row) + "\n" for row in found)
    print(f"bayesnmf {bayesnmf.__version__}, {given.draws} replicates; loadings / components\n")
    print(table([row for row in rows if row["case"] in given.cases]))


if __name__ == "__main__":
    main()
