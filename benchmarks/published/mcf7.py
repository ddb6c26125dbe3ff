"""Show that EM gets stuck and coordinate descent does not: [C] figure 1 on the mcf7 RNA-seq counts, K = 3.

After a random start and 4 iterations of EM come 200 iterations of EM (4 inner sweeps), EM with extrapolation,
coordinate descent (scd), or coordinate descent with extrapolation. The gap is to the best log-likelihood of all runs.
[C] report EM more than 1e4 units behind after 200 iterations. The structure plot shows the loadings of the last fit.
"""

from __future__ import annotations

import csv
from typing import Any

import matplotlib
import numpy as np
from common import parse, real_counts, row_labels

import bayesnmf
from bayesnmf import MAP, Fit, Gamma, Priors

matplotlib.use("Agg")
import matplotlib.pyplot as plt

LIKELIHOOD = Priors(Gamma(1.0, 0.0), "parameter")
RANK, ITERATIONS = 3, 200
METHODS: dict[str, dict[str, Any]] = {
    "EM": {"schedule": "alternating", "sweeps": 4},
    "EM + extrapolation": {"schedule": "alternating", "sweeps": 4, "extrapolate": True},
    "CD": {"algorithm": "scd"},
    "CD + extrapolation": {"algorithm": "scd", "extrapolate": True},
}
SHOWN = (0, 20, 40, 60, 100, 200)


def runs(counts: Any, seed: int) -> dict[str, Fit]:
    """Fit by all methods from one start."""
    begin = MAP(priors=LIKELIHOOD, start="random", algorithm="em", extrapolate=False, max_iter=4, tol=0)
    start = bayesnmf.fit(counts, "poisson", RANK, "map", seed=seed, options=begin)
    fits = {}
    for name, settings in METHODS.items():
        options = MAP(priors=LIKELIHOOD, start=start, max_iter=ITERATIONS, tol=0, **settings)
        fits[name] = bayesnmf.fit(counts, "poisson", RANK, "map", options=options)
    return fits


def treatments() -> np.ndarray:
    """Return the one of 2 × 2 treatments of every sample, without dose and replicate."""
    names = [label.removeprefix("RNA-seq ") for label in row_labels("mcf7", "treatment")]
    return np.array([name[: name.index("-dose")].rsplit("-", 1)[0].replace("-and-", " + ") for name in names])


def draw_gaps(gaps: dict[str, np.ndarray], path: Any) -> None:
    """Redraw [C] figure 1: gap to the optimum on a log axis."""
    figure, axes = plt.subplots(figsize=(6, 4), layout="constrained")
    for name, gap in gaps.items():
        axes.plot(np.maximum(gap, 1e-3), label=name)
    axes.set(yscale="log", xlabel="iteration", ylabel="log-likelihood units behind the best", title="mcf7, K = 3")
    axes.axhline(1, color="grey", linewidth=0.8, linestyle=":")
    axes.legend()
    figure.savefig(path, dpi=150)


def main() -> None:
    """Print the gaps of several starts, and draw the first."""
    arguments = parse(__doc__, starts={"type": int, "default": 3})
    counts = real_counts("mcf7")
    rows = [("start", "method", *(f"gap at {i}" for i in SHOWN), "seconds")]
    for seed in range(arguments.seed, arguments.seed + arguments.starts):
        fits = runs(counts, seed)
        best = max(fit.trace.max() for fit in fits.values())
        gaps = {name: best - fit.trace for name, fit in fits.items()}
        rows += [(seed, name, *(round(gaps[name][i], 3) for i in SHOWN), round(fits[name].seconds, 1)) for name in fits]
        if seed == arguments.seed:
            draw_gaps(gaps, arguments.out / "mcf7_gaps.png")
            labels = treatments()
            axes = bayesnmf.plots.structure(fits["CD + extrapolation"], labels)
            axes.figure.savefig(arguments.out / "mcf7_structure.png", dpi=150)
            shares = bayesnmf.to_topic_model(fits["CD + extrapolation"]).proportions
            print(f"optimum {best:,.2f}; mean proportions by treatment:")
            for label in dict.fromkeys(labels.tolist()):
                print(f"  {label:<12}", shares[labels == label].mean(axis=0).round(3))
    for row in rows:
        print("{:<6} {:<20}".format(*row[:2]) + "".join(f"{value:>15}" for value in row[2:]))
    with (arguments.out / "mcf7.csv").open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows(rows)


if __name__ == "__main__":
    main()
