"""Do intervals of effects of covariates hold what made the counts?

    python -m benchmarks.covariates [--parts coverage null two_step] [--cases ...] [--number 40] [--seed 0]

coverage: simulated counts with given effects of a number and of a category; the share of the effects that 90 %
intervals hold, without the intercepts, and theirs. null: newsgroups with the label as a covariate, beside numbers drawn
at random, whose effects are 0. two_step: effects beside those of a regression of the logarithms of sampled loadings of
a fit without covariates.
"""

from __future__ import annotations

import argparse
import time
import warnings
from itertools import product
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

import bayesnmf
from bayesnmf import Dirichlet, Gamma, Gibbs, Priors
from bayesnmf.datasets import real
from bayesnmf.inference.alignment import match_components

INTERVAL = 0.9
CHAINS = {"chains": 2, "draws": 400, "warmup": 200}


class Case(NamedTuple):
    """Counts to simulate: model, rows, features, components, shape of loadings (or concentration), and mean total."""

    model: str = "gamma_poisson"
    size: tuple[int, int] = (200, 30)
    rank: int = 3
    shape: float = 2.0
    total: float = 300.0


CASES = {
    "plain": Case(),
    "few counts": Case(total=60.0),
    "few rows": Case(size=(60, 30)),
    "sparse loadings": Case(shape=0.5),
    "more components": Case(rank=6, total=1000.0),
    "proportions": Case(model="dirichlet_poisson", shape=1.0),
    "proportions with scale": Case(model="dirichlet_gamma", shape=1.0),
}


def simulated(case: Case, seed: int) -> tuple[Any, pd.DataFrame, np.ndarray, np.ndarray]:
    """Return counts, covariates, effects with the intercept first, and components."""
    rng, n, rank = np.random.default_rng(seed), case.size[0], case.rank
    frame = pd.DataFrame({"x": rng.normal(size=n), "g": rng.choice(["a", "b"], n)})
    effects = rng.normal(0, 0.5, (3, rank))
    positive = case.model == "gamma_poisson"
    effects[0] = np.log(case.total / rank if positive else case.shape)
    loadings: Any = Gamma(case.shape, case.shape * rank / case.total) if positive else None
    if case.model == "dirichlet_gamma":
        loadings = bayesnmf.ScaledDirichlet(case.shape, 2.0, 2.0 / case.total)
    totals = rng.poisson(case.total, n) if case.model == "dirichlet_poisson" else None
    drawn = bayesnmf.simulate(
        case.model, case.size, rank, priors=Priors(loadings, Dirichlet(0.3)), totals=totals, seed=seed,
        formula="~ x + g", covariates=frame, effects=effects,
    )  # fmt: skip
    return drawn.counts, frame, effects, drawn.components


def held(table: pd.DataFrame, truth: np.ndarray, order: np.ndarray) -> np.ndarray:
    """Return which effects the intervals hold, (p, K)."""
    low, high = (table[name].to_numpy().reshape(len(order), -1)[order].T for name in ("low", "high"))
    return np.asarray((low < truth) & (truth < high))


def coverage(name: str, number: int, first: int) -> None:
    """Print how many effects intervals of each kind hold."""
    case, found = CASES[name], dict[str, list[np.ndarray]]()
    seconds = dict[str, float]()
    for seed in range(first, first + number):
        counts, frame, effects, components = simulated(case, seed)
        given = {"formula": "~ x + g", "covariates": frame, "seed": seed}
        for kind, method, options in (("vi", "vi", None), ("gibbs", "gibbs", Gibbs(**CHAINS))):
            began = time.perf_counter()
            fit = bayesnmf.fit(counts, case.model, case.rank, method, options=options, **given)
            order = match_components(fit.components, components)
            tables = {kind: fit}
            if method == "vi":
                tables = {"vi, sampled": fit.with_intervals("sampled"), "vi, Laplace": fit.with_intervals("mean_field")}
            for (label, each), variation in product(tables.items(), ("rows", "prior")):
                inside = held(each.effects(INTERVAL, variation), effects, order)
                found.setdefault(f"{label}, variation by {variation}", []).append(inside)
            seconds[kind] = seconds.get(kind, 0.0) + time.perf_counter() - began
    for label, each in found.items():
        inside = np.array(each)
        print(f"{name}, {label}: {inside[:, 1:].mean():.1%} of {inside[:, 1:].size} effects, "
              f"{inside[:, 0].mean():.1%} of {inside[:, 0].size} intercepts")  # fmt: skip
    print(f"{name}: " + ", ".join(f"{kind} {each / number:.1f} s a fit" for kind, each in seconds.items()), flush=True)


def null(seed: int, texts: int = 3000, words: int = 3000, numbers: int = 10, rank: int = 10) -> None:
    """Print how often intervals of effects of random numbers leave out 0, and what the label does."""
    data = real("newsgroups")
    rng = np.random.default_rng(seed)
    rows = np.sort(rng.choice(data.counts.shape[0], texts, replace=False))
    topics = data.rows["topic"].to_numpy().astype(str)[rows]
    whole = data.counts.rows(rows)
    kept = np.sort(np.argsort(-whole.feature_totals)[:words])
    matrix, names = whole.matrix[:, kept], np.array(whole.feature_names)[kept]
    filled = np.asarray(matrix.sum(axis=1)).ravel() > 0
    frame = pd.DataFrame(rng.standard_normal((texts, numbers)), columns=[f"random{j}" for j in range(numbers)])
    frame["sport"] = np.where(np.char.startswith(topics, "rec.sport"), "yes", "no")
    totals = np.asarray(matrix[filled].sum(axis=1), np.float64).ravel()
    kinds = {
        "gamma_poisson": None,
        "gamma_poisson, with row_exposure": totals / totals.mean(),
        "dirichlet_poisson": None,
    }
    for title, exposure in kinds.items():
        model = title.split(",")[0]
        began = time.perf_counter()
        formula = "~ sport + " + " + ".join(frame.columns[:-1])
        fit = bayesnmf.fit(
            matrix[filled], model, rank, seed=seed, formula=formula,
            covariates=frame[filled].reset_index(drop=True), feature_names=names, row_exposure=exposure,
        )  # fmt: skip
        fitted = time.perf_counter() - began
        for kind in ("sampled", "mean_field"):
            table = fit.with_intervals(kind).effects(INTERVAL, "prior")
            out = (table.low > 0) | (table.high < 0)
            of_numbers = out[[term.startswith("random") for _, term in table.index]]
            sport = table.xs("sport[T.yes]", level="term")
            largest = sport.effect.idxmax()
            print(f"newsgroups, {title}, {kind}: 0 outside of {of_numbers.mean():.1%} of {len(of_numbers)} effects of "
                  f"random numbers; sport: largest {sport.effect[largest]:.2f} [{sport.low[largest]:.2f}, "
                  f"{sport.high[largest]:.2f}] on {', '.join(fit.top_features(6, "lift").iloc[:, int(largest)])}; "
                  f"fit {fitted:.0f} s, all {time.perf_counter() - began:.0f} s", flush=True)  # fmt: skip


def two_step(number: int, first: int) -> None:
    """Print effects beside those of a regression on sampled loadings of a fit without covariates."""
    joint, after, truths = [], [], []
    for seed in range(first, first + number):
        counts, frame, effects, components = simulated(CASES["plain"], seed)
        options = Gibbs(**CHAINS)
        fit = bayesnmf.fit(
            counts, rank=3, method="gibbs", seed=seed, options=options, formula="~ x + g", covariates=frame
        )
        plain = bayesnmf.fit(counts, rank=3, method="gibbs", seed=seed, options=options)
        one, two = (match_components(each.components, components) for each in (fit, plain))
        table = fit.effects(variation="prior")
        joint.append([table[name].to_numpy().reshape(3, -1)[one].T[1:] for name in ("effect", "sd")])
        design = np.column_stack([np.ones(len(frame)), frame.x, frame.g == "b"])
        draws: Any = plain.posterior
        logs = np.log(draws.loadings.reshape(-1, *plain.loadings.shape)[::4][:, :, two])
        ols = np.linalg.pinv(design) @ logs
        spread = np.linalg.inv(design.T @ design).diagonal()
        left = (logs - design @ ols).var(axis=1) * len(frame) / (len(frame) - 3)
        sd = np.sqrt(ols.var(axis=0) + spread[:, None] * left.mean(axis=0))
        after.append([ols.mean(axis=0)[1:], sd[1:]])
        truths.append(effects[1:])
    (a, sd_a), (b, sd_b) = (np.moveaxis(np.array(each), 1, 0) for each in (joint, after))
    truth = np.array(truths)
    alike, slope = np.corrcoef(a.ravel(), b.ravel())[0, 1], np.polyfit(a.ravel(), b.ravel(), 1)[0]
    print(
        f"two steps: correlation of effects {alike:.3f}, slope {slope:.2f}, ratio of sds {np.median(sd_b / sd_a):.2f}"
    )
    for label, mean, sd in (("with covariates", a, sd_a), ("two steps", b, sd_b)):
        off = np.abs(mean - truth)
        slope, inside = np.polyfit(truth.ravel(), mean.ravel(), 1)[0], (off < 1.645 * sd).mean()
        told = f"root mean square error {np.sqrt((off**2).mean()):.3f}, {inside:.1%} within 1.645 sd"
        print(f"  {label}: {told}, slope on the truth {slope:.2f}")


def main(given: list[str] | None = None) -> None:
    """Read the arguments and run the parts."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--parts", nargs="+", choices=("coverage", "null", "two_step"), default=["coverage", "null", "two_step"]
    )
    parser.add_argument("--cases", nargs="+", choices=CASES, default=[*CASES])
    parser.add_argument("--number", type=int, default=40)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args(given)
    warnings.simplefilter("ignore", bayesnmf.ConvergenceWarning)
    warnings.simplefilter("ignore", bayesnmf.DataWarning)
    for name in options.cases if "coverage" in options.parts else []:
        coverage(name, options.number, options.seed)
    if "two_step" in options.parts:
        two_step(options.number, options.seed)
    if "null" in options.parts:
        null(options.seed)


if __name__ == "__main__":
    main()
