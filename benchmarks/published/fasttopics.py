"""Compare Poisson NMF of newsgroups and nips, K = 2 … 12, with the log-likelihoods of fastTopics ([C] fig. 2).

Theirs: 1,000 iterations of EM, then 2,000 of four algorithms; the best of these. Ours: `--restarts` random starts,
one from the data, and the best fit of one rank less with each of its components split in two. Each start gets 4
iterations of EM and `--race` iterations of coordinate descent with extrapolation. The best `--finalists` continue
until the log-likelihood settles to 1e-11. Negative differences are reported too.

The published numbers are Σ X log(λ + 1e-8) − … (`eps` of fastTopics), slightly above the log-likelihood; the last
difference evaluates our fit by their formula.
"""

from __future__ import annotations

import csv
from collections import defaultdict
from typing import Any

import numpy as np
from common import Clock, parse, real_counts, shared

import bayesnmf
from bayesnmf import MAP, Gamma, Priors, Start
from bayesnmf.data.counts import Counts
from bayesnmf.kernels.cpu.likelihood import entry_rates

LIKELIHOOD = Priors(Gamma(1.0, 0.0), "parameter")


def published() -> dict[tuple[str, int], float]:
    """Return the best published Poisson log-likelihood of every data set and rank."""
    best: dict[tuple[str, int], float] = defaultdict(lambda: float("-inf"))
    with shared("golden", "fasttopics_logliks.csv").open(encoding="utf-8") as file:
        for row in csv.DictReader(file):
            key = (row["dataset"], int(row["K"]))
            best[key] = max(best[key], float(row["loglik_poisson"]))
    return dict(best)


def starts(rank: int, restarts: int, seed: int, smaller: bayesnmf.Fit | None) -> list[Any]:
    """Return the starts: names of methods, and splits of a fit of one rank less."""
    rng = np.random.default_rng([seed, rank])
    split: list[Any] = []
    for k in range(rank - 1 if smaller is not None else 0):
        half, component = smaller.loadings[:, [k]] / 2, smaller.components[[k]]
        loadings = np.hstack([smaller.loadings, half])
        loadings[:, [k]] = half
        components = np.vstack([smaller.components, component])
        components[[k, -1]] *= rng.gamma(2.0, 0.5, (2, component.shape[1]))
        split.append(Start(loadings, components / components.sum(axis=1, keepdims=True)))
    return ["random"] * restarts + ["svd"] + split


def race(counts: Counts, rank: int, seed: int, settings: tuple[int, int, int], smaller: Any) -> bayesnmf.Fit:
    """Return the best of several starts."""
    restarts, heats, finalists = settings
    runs = []
    for number, start in enumerate(starts(rank, restarts, seed, smaller)):
        options = MAP(priors=LIKELIHOOD, start=start, algorithm="em", extrapolate=False, max_iter=4, tol=0)
        begun = bayesnmf.fit(counts, "poisson", rank, "map", seed=1000 * seed + number, options=options)
        runs.append(descend(counts, rank, begun, heats, 0.0))
    runs.sort(key=lambda fit: -fit.trace[-1])
    ends = [descend(counts, rank, fit, 2000, 1e-11) for fit in runs[:finalists]]
    return max(ends, key=lambda fit: fit.trace[-1])


def excess(fit: bayesnmf.Fit) -> float:
    """Return Σ X log(1 + 1e-8 / λ), which the published formula adds."""
    rates = entry_rates(fit.counts.matrix, fit.loadings, fit.components)
    return float(fit.counts.matrix.data @ np.log1p(1e-8 / rates))


def descend(counts: Counts, rank: int, start: bayesnmf.Fit, iterations: int, tol: float) -> bayesnmf.Fit:
    """Continue a fit by coordinate descent with extrapolation."""
    options = MAP(
        priors=LIKELIHOOD, algorithm="scd", extrapolate=True, start=start, max_iter=iterations, tol=tol
    )  # fmt: skip
    return bayesnmf.fit(counts, "poisson", rank, "map", options=options)


def main() -> None:
    """Print the table and write it as CSV."""
    arguments = parse(
        __doc__,
        data={"nargs": "+", "default": ["nips", "newsgroups"]},
        ranks={"nargs": "+", "type": int, "default": list(range(2, 13))},
        restarts={"type": int, "default": 10},
        race={"type": int, "default": 20},
        finalists={"type": int, "default": 3},
    )
    theirs = published()
    rows = [("dataset", "K", "ours", "published", "ours - published", "at their formula", "iterations", "seconds")]
    print("{:<12}{:>4}{:>16}{:>16}{:>18}{:>18}{:>12}{:>9}".format(*rows[0]))
    settings = (arguments.restarts, arguments.race, arguments.finalists)
    for name in arguments.data:
        counts = real_counts(name)
        fit = None
        for rank in arguments.ranks:
            clock = Clock()
            fit = race(counts, rank, arguments.seed, settings, fit if fit and fit.rank == rank - 1 else None)
            ours = float(fit.trace[-1])
            gap = ours - theirs[name, rank]
            row = (name, rank, ours, theirs[name, rank], gap, gap + excess(fit), fit.status.iterations, clock())
            rows.append(row)
            print("{:<12}{:>4}{:>16,.1f}{:>16,.1f}{:>+18,.1f}{:>+18,.1f}{:>12}{:>9.1f}".format(*row), flush=True)
    with (arguments.out / "fasttopics.csv").open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows(rows)


if __name__ == "__main__":
    main()
