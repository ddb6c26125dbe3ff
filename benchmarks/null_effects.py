"""Do intervals of effects that are 0 hold 0 on real counts, and are effects that are there found?

    python -m benchmarks.null_effects [--parts effects power groups markers rows batches] [--data ...] [--number 30]
                                      [--laplace] [--out null_effects.csv]

A line for each permutation is added to the file, and those that it has are not run again; the table of all lines is
printed at the end: the share of 90 % intervals that leave out what is true, with two standard errors clustered by
permutation. Counts are pcawg_breast_sbs96 (192 × 96, K = 6), mcf7 (41 samples, the 2,000 features with most counts,
K = 5) and pbmc_facs (400 cells drawn once, the 600 genes with most counts, K = 6).

effects: ten random numbers as covariates of one fit, by gamma_poisson and dirichlet_poisson; of tables with real
labels, these permuted, too. groups: `group_contrasts` of a fit without covariates, between permuted groups. markers:
contrasts of features between components, of fits of two random halves of the rows, for features of which both have ten
counts and more; the difference between halves is 0. rows: the same by the posterior and by a bootstrap of rows, and
what is found of features that lose counts in the second half. batches: factors of two random batches, for features
with 100 counts and more. power: the counts of one component are thinned to two thirds in a random half of the rows; the
share of runs whose effect is found (its sign is right and 0 outside), and of effects on other components that leave
out 0, beside a regression of logarithms of shares, or of loadings, of a fit without covariates, with HC3 errors.
"""

from __future__ import annotations

import argparse
import csv
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from scipy.stats import t as student

import bayesnmf
from bayesnmf.datasets import real
from bayesnmf.inference.alignment import match_components
from bayesnmf.priors.values import component_sums, rows_to_shares
from bayesnmf.results.markers import component_draws, contrasts

COLUMNS = ("part", "data", "kind", "permutation", "out", "of", "seconds")
MODELS = ("gamma_poisson", "dirichlet_poisson")
KEPT = 2 / 3  # of the counts of a component in one half of the rows
REPLICATES = 30
KINDS = [("sampled", "rows"), ("mean_field", "rows"), ("mean_field", "prior")]  # of intervals, and of variation
NUMBERS = [f"random{j}" for j in range(10)]


class Table(NamedTuple):
    """Real counts (n, m), labels of the rows if there are some, and the number of components to fit."""

    counts: Any
    labels: np.ndarray | None
    rank: int


Found = Iterator[tuple[str, int, int]]


def leading(matrix: Any, number: int) -> Any:
    """Return the columns with most counts."""
    totals = np.asarray(matrix.sum(axis=0)).ravel()
    return matrix[:, np.sort(np.argsort(-totals)[:number])]


def table(name: str) -> Table:
    """Return the counts of this name."""
    whole = real(name)
    matrix = whole.counts.matrix
    if name == "mcf7":
        return Table(leading(matrix, 2000), whole.rows.label.to_numpy().astype(str), 5)
    if name == "pbmc_facs":
        rows = np.sort(np.random.default_rng(1).choice(len(whole.rows), 400, replace=False))
        return Table(leading(matrix[rows], 600), whole.rows.subpop.to_numpy().astype(str)[rows], 6)
    return Table(matrix, None, 6)


def left_out(effects: pd.DataFrame, prefixes: tuple[str, ...]) -> tuple[int, int]:
    """Return how many effects of terms with such names leave out 0, and how many there are."""
    chosen = effects[[str(term).startswith(prefixes) for _, term in effects.index]]
    return int(((chosen.low > 0) | (chosen.high < 0)).sum()), len(chosen)


def effects(data: Table, seed: int) -> Found:
    """Yield what effects of random numbers, and of permuted labels, leave out 0."""
    rng = np.random.default_rng(seed)
    frames = {"ten numbers": pd.DataFrame(rng.standard_normal((data.counts.shape[0], 10)), columns=NUMBERS)}
    if data.labels is not None:
        frames["labels"] = pd.DataFrame({"label": rng.permutation(data.labels)})
    for title, frame in frames.items():
        for model in MODELS:
            formula = "~ " + " + ".join(frame.columns)
            fit = bayesnmf.fit(data.counts, model, data.rank, seed=seed, formula=formula, covariates=frame)
            for kind, variation in KINDS:
                found = fit.with_intervals(kind).effects(variation=variation)
                yield f"{model}, {title}, {kind}, {variation}", *left_out(found, ("random", "label"))


def groups(data: Table, seed: int) -> Found:
    """Yield what differences between permuted groups leave out 0."""
    fit, rng = plain(data, "gamma_poisson"), np.random.default_rng(seed)
    labels = data.labels if data.labels is not None else np.repeat(["a", "b"], data.counts.shape[0] // 2)
    names, sizes = np.unique(labels, return_counts=True)
    labels = np.where(np.isin(labels, names[sizes > 1]), labels, None)
    found = bayesnmf.group_contrasts(fit, rng.permutation(labels))
    for column in ("difference", "lfc"):
        out = (found[f"{column}_low"] > 0) | (found[f"{column}_high"] < 0)
        yield column, int(out.sum()), len(out)


_PLAIN: dict[tuple[int, str], Any] = {}


def plain(data: Table, model: str) -> Any:
    """Return the fit of the counts without covariates."""
    key = id(data.counts), model
    if key not in _PLAIN:
        _PLAIN[key] = bayesnmf.fit(data.counts, model, data.rank, seed=0)
    return _PLAIN[key]


def halves(data: Table, seed: int) -> tuple[np.ndarray, list[Any]]:
    """Return the features of which two random halves of the rows have ten counts each, and these halves."""
    order = np.random.default_rng(seed).permutation(data.counts.shape[0])
    found = [data.counts[np.sort(rows)] for rows in np.array_split(order, 2)]
    many = np.all([np.asarray(each.sum(axis=0)).ravel() >= 10 for each in found], axis=0)
    return many, [each[:, many] for each in found]


def markers(data: Table, seed: int) -> Found:
    """Yield what differences of contrasts of features between two halves of the rows leave out 0."""
    many, found = halves(data, seed)
    for noise in ("poisson", "nb2", "quasi"):
        drawn = [sampled(data, many, each, seed, noise) for each in found]
        out = outside(*drawn)
        yield f"against the rest, {noise}", int(out.sum()), out.size


def rows(data: Table, seed: int) -> Found:
    """Yield the same by intervals of the posterior and of a bootstrap of rows, and planted differences that are found.

    A tenth of the features, of those with 100 counts and more of one component in the second half, lose three quarters
    of these.
    """
    rng, (many, (first, second)) = np.random.default_rng([seed, 1]), halves(data, seed)
    means = [plain(data, "gamma_poisson").loadings, plain(data, "gamma_poisson").components[:, many]]
    order = np.random.default_rng(seed).permutation(data.counts.shape[0])
    of_second = means[0][np.sort(np.array_split(order, 2)[1])]
    k = seed % data.rank
    large = np.flatnonzero(of_second[:, k].sum() * means[1][k] >= 100)
    chosen = rng.choice(large, max(len(large) // 10, 1), replace=False)
    planted = np.asarray(second.toarray() if hasattr(second, "toarray") else second).astype(np.int64)
    share = of_second[:, k, None] * means[1][k] / (of_second @ means[1])
    of_component = rng.binomial(planted[:, chosen], share[:, chosen])
    planted[:, chosen] -= rng.binomial(of_component, 0.75)
    for kind, read in (("posterior", sampled), ("bootstrap of rows", resampled)):
        one, two, three = (read(data, many, each, seed) for each in (first, second, planted))
        out = outside(one, two)
        yield f"{kind}, halves", int(out.sum()), out.size
        found = outside(one, three, above=True)[k, chosen]
        yield f"{kind}, planted and found", int(found.sum()), len(chosen)


def sampled(data: Table, many: np.ndarray, half: Any, seed: int, noise: str = "poisson") -> np.ndarray:
    """Return contrasts of features by draws of a chain from a fit, (draws, K, m)."""
    fit = bayesnmf.fit(half, rank=data.rank, seed=seed, noise=noise)
    return _contrasts_of(data, many, fit.with_intervals("sampled"))


def resampled(data: Table, many: np.ndarray, half: Any, seed: int) -> np.ndarray:
    """Return contrasts of features by replicates of the rows, (replicates, K, m)."""
    fit = bayesnmf.fit(half, rank=data.rank, seed=seed)
    return _contrasts_of(data, many, fit.with_intervals("bootstrap", variation="rows", draws=REPLICATES))


def outside(one: np.ndarray, two: np.ndarray, above: bool = False) -> np.ndarray:
    """Return which 90 % intervals of the difference of independent draws leave out 0, or are above it, (K, m)."""
    moves = range(max(900 // len(one), 1))
    difference = np.concatenate([one - np.roll(two, move, axis=0) for move in moves])
    low, high = np.quantile(difference, [0.05, 0.95], axis=0)
    return np.asarray(low > 0) if above else (low > 0) | (high < 0)


def _contrasts_of(data: Table, many: np.ndarray, fit: Any) -> np.ndarray:
    """Return draws of the contrasts of features against the rest, in the order of the fit of all rows."""
    place = match_components(fit.components, plain(data, "gamma_poisson").components[:, many])
    read = bayesnmf.results.intervals.for_intervals(fit)
    shares = (rows_to_shares(each, component_sums(each)) for each in component_draws(read, 250, 0))
    return np.stack([contrasts(each, fit.expected_sizes)["rest"][place] for each in shares])


def batches(data: Table, seed: int) -> Found:
    """Yield what factors of random batches leave out 1."""
    rows = data.counts.shape[0]
    labels = np.random.default_rng(seed).permutation(np.resize(["a", "b"], rows))
    fit = bayesnmf.fit(data.counts, rank=data.rank, seed=seed, batch=labels)
    found = fit.batch_factors().reset_index()
    many = np.tile(np.asarray(data.counts.sum(axis=0)).ravel() >= 100, 2)
    out = ((found.lower > 1) | (found.upper < 1))[many]
    yield "factors", int(out.sum()), len(out)


def power(data: Table, seed: int) -> Found:
    """Yield whether a component with fewer counts in one half of the rows is found, and what else is."""
    rng, whole = np.random.default_rng(seed), plain(data, "gamma_poisson")
    n, k = data.counts.shape[0], seed % data.rank
    group = rng.permutation(np.resize(["a", "b"], n))
    thinned = np.asarray(data.counts.toarray() if hasattr(data.counts, "toarray") else data.counts).astype(np.int64)
    means = whole.loadings[:, :, None] * whole.components[None]
    of_component = rng.binomial(thinned, means[:, k] / means.sum(axis=1))
    lost = rng.binomial(of_component, 1 - KEPT)
    thinned[group == "b"] -= lost[group == "b"]
    frame = pd.DataFrame({"group": group})
    for model in MODELS:
        fit = bayesnmf.fit(thinned, model, data.rank, seed=seed, formula="~ group", covariates=frame)
        own = match_components(fit.components, whole.components)
        for kind, variation in KINDS:
            found = fit.with_intervals(kind).effects(variation=variation).xs("group[T.b]", level="term")
            low, high = found.low.to_numpy()[own], found.high.to_numpy()[own]
            yield f"{model}, {kind}, {variation}, found", int(high[k] < 0), 1
            others = np.delete((low > 0) | (high < 0), k)
            yield f"{model}, {kind}, {variation}, others", int(others.sum()), len(others)
        unaware = bayesnmf.fit(thinned, model, data.rank, seed=seed)
        own = match_components(unaware.components, whole.components)
        sizes = unaware.loadings * component_sums(unaware.components)
        for title, value in (("loadings", sizes), ("shares", rows_to_shares(sizes, sizes.sum(axis=1)))):
            low, high = regressed(np.log(np.maximum(value[:, own], 1e-12)), group == "b")
            yield f"{model}, two steps by {title}, found", int(high[k] < 0), 1
            others = np.delete((low > 0) | (high < 0), k)
            yield f"{model}, two steps by {title}, others", int(others.sum()), len(others)


def regressed(values: np.ndarray, second: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return 90 % intervals of the effect of a group on values (n, K), by least squares with HC3 errors."""
    design = np.column_stack([np.ones(len(second)), second])
    inverse = np.linalg.inv(design.T @ design)
    left = 1 - ((design @ inverse) * design).sum(axis=1)
    coefficients = inverse @ design.T @ values
    error = np.sqrt((((design @ inverse)[:, 1:] * (values - design @ coefficients) / left[:, None]) ** 2).sum(axis=0))
    far = student.isf(0.05, len(second) - 2) * error
    return coefficients[1] - far, coefficients[1] + far


PARTS: dict[str, Callable[[Table, int], Found]] = {
    each.__name__: each for each in (effects, power, groups, markers, rows, batches)
}


def summary(path: Path) -> pd.DataFrame:
    """Return the share outside, its two standard errors clustered by permutation, and the number of permutations."""
    lines = pd.read_csv(path)
    rows = {}
    for key, each in lines.groupby(["part", "data", "kind"]):
        share, number = each.out.sum() / each.of.sum(), len(each)
        error = np.sqrt(((each.out - share * each.of) ** 2).sum() * number / max(number - 1, 1)) / each.of.sum()
        rows[key] = {"outside": share, "two errors": 2 * error, "permutations": number, "of": each.of.sum()}
    return pd.DataFrame.from_dict(rows, orient="index").round(3)


def main(given: list[str] | None = None) -> None:
    """Run what the file does not have yet, and print its table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=[*PARTS])
    parser.add_argument("--data", nargs="+", default=["pcawg_breast_sbs96", "mcf7", "pbmc_facs"])
    parser.add_argument("--number", type=int, default=30)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--out", type=Path, default=Path("null_effects.csv"))
    parser.add_argument("--laplace", action="store_true", help="effects without draws, whose chains take longest")
    options = parser.parse_args(given)
    KINDS[:] = [each for each in KINDS if not options.laplace or each[0] == "mean_field"]
    warnings.simplefilter("ignore", bayesnmf.ConvergenceWarning)
    warnings.simplefilter("ignore", bayesnmf.DataWarning)
    if not options.out.exists():
        options.out.write_text(",".join(COLUMNS) + "\n", encoding="utf-8")
    done = {tuple(each) for each in pd.read_csv(options.out)[["part", "data", "permutation"]].to_numpy().tolist()}
    tables = {name: table(name) for name in options.data}
    for seed in range(options.first, options.first + options.number):
        for part in options.parts:
            for name, data in tables.items():
                if (part, name, seed) in done:
                    continue
                began = time.process_time()
                found = list(PARTS[part](data, seed))
                spent = round(time.process_time() - began, 1)
                with options.out.open("a", encoding="utf-8", newline="") as file:
                    csv.writer(file).writerows([part, name, kind, seed, out, of, spent] for kind, out, of in found)
    print(summary(options.out).to_string())


if __name__ == "__main__":
    main()
