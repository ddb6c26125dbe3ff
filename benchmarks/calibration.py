"""Run simulation-based calibration of every model by every method with a posterior, and save the ranks.

``python benchmarks/calibration.py [NAME …]`` runs all cases, or those whose names begin with a NAME
(``gamma_poisson-vi``), writes the ranks of each to ``benchmarks/calibration/NAME.csv``, and ``README.md`` in that
folder from all files. ``--table`` only writes that file. Data sets are 6 × 5, rank 2, about 20 counts a row; seeds are
fixed.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import numpy as np

import bayesnmf
from bayesnmf import Calibration, Gamma, Gibbs, Priors

FOLDER = Path(__file__).parent / "calibration"
SEED, ALPHA = 2024, 0.01
MODELS: dict[str, Priors | None] = {
    "poisson": Priors(Gamma(1.2, 0.3), Gamma(1.5, 2.0)),  # its default prior is flat and cannot be sampled
    "gamma_poisson": None,
    "dirichlet_poisson": None,
    "dirichlet_gamma": None,
}
COLLAPSED = Gibbs(start="random", chains=1, warmup=400, draws=99, thin=20, threads=1, collapsed=True)
METHODS: dict[str, tuple[str, dict[str, Any]]] = {
    "gibbs": ("gibbs", {"simulations": 400}),
    "collapsed_gibbs": ("gibbs", {"simulations": 400, "options": COLLAPSED}),
    "nuts": ("nuts", {"simulations": 250}),
    "vi": ("vi", {"simulations": 500}),
}


def names() -> list[str]:
    """Return all cases, ordered by method; collapsed Gibbs needs components on the simplex."""
    return [
        f"{model}-{method}"
        for method in METHODS
        for model in MODELS
        if (model, method) != ("poisson", "collapsed_gibbs")
    ]


def run(name: str) -> Calibration:
    """Run one calibration with its own seed."""
    model, _, method = name.partition("-")
    by, settings = METHODS[method]
    seed = SEED + names().index(name)
    return bayesnmf.calibrate(model, by, priors=MODELS[model], seed=seed, progress=True, **settings)


def small(p: float) -> str:
    """Return a p-value as text."""
    return "< 1e-12" if p < 1e-12 else f"{p:.2g}"


def summary(found: dict[str, Calibration]) -> str:
    """Return one line for each calibration: p-values, direction of errors, coverage, effective draws, time."""
    lines = [
        "| model | method | simulations | least p, of | p together | rejected | mean 50 % | mean 90 % "
        "| least 90 % | median ESS of 99, least | minutes |",
        "|---|---|--:|--:|--:|:-:|--:|--:|--:|--:|--:|",
    ]
    for name, result in found.items():
        model, _, method = name.partition("-")
        p = result.p_values()
        half, ninety = (list(result.coverage(level).values()) for level in (0.5, 0.9))
        lines.append(
            f"| {model} | {method} | {result.simulations} | {small(min(p.values()))}, {min(p, key=lambda q: p[q])} "
            f"| {small(result.p_value)} | {'**yes**' if result.p_value < ALPHA else 'no'} | {np.mean(half):.3f} "
            f"| {np.mean(ninety):.3f} | {min(ninety):.3f} | {result.ess.min():.0f} | {result.seconds / 60:.1f} |"
        )
    return "\n".join(lines)


def interruptions(found: dict[str, Calibration]) -> str:
    """Return a line about runs that Ctrl-C ended early; they are the first simulations of a complete run."""
    short = [name for name, one in found.items() if one.simulations < METHODS[name.partition("-")[2]][1]["simulations"]]
    return f"Ended early by Ctrl-C: {', '.join(short)}." if short else ""


def judgement(found: dict[str, Calibration]) -> str:
    """Return the joint judgement of the samplers, and that of vi."""
    lines = []
    for label, methods in (("gibbs, collapsed gibbs and nuts", ("gibbs", "nuts")), ("vi", ("vi",))):
        chosen = [result for result in found.values() if result.method in methods]
        p = np.array([value for result in chosen for value in result.p_values().values()])
        lines.append(
            f"{label}: {p.size} tests; p below 0.05 in {np.sum(p < 0.05)}, below 0.01 in {np.sum(p < 0.01)}, below "
            f"0.001 in {np.sum(p < 0.001)}; least p times their number {small(min(1.0, p.size * p.min()))}."
        )
    return "\n\n".join(lines)


def false_alarms(samples: int = 4000, simulations: int = 500, draws: int = 99) -> str:
    """Return how often the test rejects uniform ranks."""
    from arviz_stats.base import array_stats

    rng = np.random.default_rng(SEED)
    pit = (rng.integers(0, draws + 1, (samples, simulations)) + rng.random((samples, simulations))) / (draws + 1)
    p = np.asarray(array_stats.uniformity_test(pit, axis=-1, method="pot_c")[0])
    rates = ", ".join(f"{np.mean(p < level):.2%} of p-values are below {level:g}" for level in (0.05, 0.01, 0.001))
    return f"Of {samples:,} samples of {simulations} uniform ranks each, {rates} and {np.mean(p > 0.5):.2%} above 0.5."


def report(found: dict[str, Calibration]) -> str:
    """Return the text of README.md."""
    tables = "\n\n".join(f"### {name}\n\n```\n{result!r}\n```" for name, result in found.items())
    return f"""# Simulation-based calibration: what `benchmarks/calibration.py` printed

True values ranked among 99 posterior draws, over data sets drawn from the prior: 6 × 5 counts, rank 2, about 20 counts
a row. `p` is from ArviZ's test of uniform ranks (`pot_c`); "p together" is the smallest of a calibration's p-values
times their number, and a calibration is rejected if it is below {ALPHA}. Each table shows the direction of the errors:
`shift` (mean rank; positive if draws are too low), `outer` (share of ranks in the outer tenths, 0.2 if correct, more if
posteriors are too narrow), coverage of central intervals. The ranks are in the `.csv` files
(`bayesnmf.Calibration.load`).

## All

{summary(found)}

{interruptions(found)}

## Together

{judgement(found)}

Among many tests some are below 0.05 by chance, and the tests of one calibration are correlated. {false_alarms()}
So judge by the small p-values, not by the distribution of all.

## Each

{tables}
"""


def main() -> None:
    """Run the requested calibrations; write their ranks, and the report on all existing ones."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help="beginnings of names; all by default")
    parser.add_argument("--table", action="store_true", help="run nothing; write the report")
    asked = parser.parse_args()
    FOLDER.mkdir(exist_ok=True)
    for name in names():
        if not asked.table and name.startswith(tuple(asked.names) or ""):
            result = run(name)
            result.save(FOLDER / f"{name}.csv")
            print(name, result, sep="\n", flush=True)
    found = {name: Calibration.load(FOLDER / f"{name}.csv") for name in names() if (FOLDER / f"{name}.csv").exists()}
    (FOLDER / "README.md").write_text(report(found), encoding="utf-8")
    print(summary(found), judgement(found), sep="\n\n")


if __name__ == "__main__":
    main()
