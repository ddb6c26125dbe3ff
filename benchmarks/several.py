"""What does a second matrix of the same rows bring?

    python -m benchmarks.several [--parts pairs rows noise genes apart tumours] [--sets 3]

pairs: simulated matrices of 200 rows with shared loadings, of which one has few counts in a row, fitted alone and
beside the other. Printed are the relative error of its loadings (the sum of absolute differences over that of the
truth), the total variation between its components and the truth, and the share of both inside 90 % intervals. rows:
the same, with three tenths of the rows missing in it; the error of their expected counts. noise: dispersions of each.
genes: those of pbmc_facs in two sets at random, fitted as two matrices, as one, and each alone: seconds, the largest
difference, and the normalised mutual information of cell types and largest components.

apart: 150 × 96 counts of six signatures of COSMIC beside a matrix of rank 4 that has nothing to do with them. tumours:
pcawg_breast_sbs96 beside indels of six processes, simulated from COSMIC's signatures of indels, of which two follow
what least squares give to SBS3. Fits have noise="nb2" of each there. What residuals share, of each alone. For each
rank of both: the cosines of what each matrix has alone to what it has in the fit of both, how many are at least 0.95
and the least; what the fit says of its own rank; and the rank that `select` chooses.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from scipy.optimize import linear_sum_assignment, nnls
from scipy.spatial.distance import cdist
from sklearn.metrics import normalized_mutual_info_score

import bayesnmf
from bayesnmf import VI, Gibbs
from bayesnmf.datasets import real
from bayesnmf.results.cautions import caution_of_matrices
from bayesnmf.results.residuals import structures_of
from benchmarks.assign import DATA, catalogue

N, RANK, SIZES, RICH = 200, 6, {"rich": 96, "poor": 83}, 500
SAMPLED = VI(intervals="sampled")


class Drawn(NamedTuple):
    """Two matrices with shared loadings, and the truth of the poor one: its loadings and its components."""

    matrices: dict[str, pd.DataFrame]
    loadings: np.ndarray
    components: np.ndarray


def draw(poor: float, seed: int) -> Drawn:
    """Draw two matrices; a row of the poor one has so many counts in the mean."""
    rng = np.random.default_rng(seed)
    shared = rng.gamma(0.5, 2 / RANK, (N, RANK))
    matrices, truth = {}, []
    for (name, m), total in zip(SIZES.items(), (RICH, poor), strict=True):
        components, size = rng.dirichlet(np.full(m, 0.3), RANK), rng.gamma(4, 0.25, RANK)
        loadings = total * shared * size
        matrices[name] = pd.DataFrame(rng.poisson(loadings @ components), [f"s{i}" for i in range(N)])
        truth = [loadings, components]
    return Drawn(matrices, *truth)


def relative(found: np.ndarray, truth: np.ndarray) -> float:
    """Return the sum of absolute differences over that of the truth."""
    return float(np.abs(found - truth).sum() / truth.sum())


def measured(fit: Any, drawn: Drawn) -> list[float]:
    """Return errors and coverage of a fit of the poor matrix."""
    table = bayesnmf.match(fit, drawn.components).table
    own, true = table["component"].to_numpy(), table["reference"].to_numpy(dtype=int)
    loadings, components = drawn.loadings[:, true], drawn.components[true]
    draws = fit.intervals.draws
    inside = []
    for values, truth in ((draws.loadings[0][..., own], loadings), (draws.components[0][:, own], components)):
        low, high = np.quantile(values, (0.05, 0.95), axis=0)
        inside.append(float(np.mean((low <= truth) & (truth <= high))))
    variation = float(np.abs(fit.components[own] - components).sum(axis=1).mean() / 2)
    return [relative(fit.loadings[:, own], loadings), variation, *inside]


def pairs(sets: int) -> None:
    """Print errors of the poor matrix alone and beside the other."""
    print(f"pairs: {N} rows, K = {RANK}, {RICH} counts a row in the rich matrix of {SIZES['rich']} features")
    print("counts a row | fit | error of loadings | variation of components | loadings, components inside | seconds")
    for poor in (20, 100, 500):
        for kind in ("alone", "both"):
            rows = []
            for seed in range(sets):
                drawn, began = draw(poor, seed), time.perf_counter()
                if kind == "alone":
                    fit = bayesnmf.fit(drawn.matrices["poor"], rank=RANK, seed=seed, options=SAMPLED)
                else:
                    fit = bayesnmf.fit(drawn.matrices, rank=RANK, seed=seed, options=SAMPLED).matrix("poor")
                rows.append([*measured(fit, drawn), time.perf_counter() - began])
            print(f"{poor} | {kind} |", " | ".join(f"{value:.2f}" for value in np.mean(rows, axis=0)))


def rows(sets: int) -> None:
    """Print the error of expected counts of rows that the poor matrix lacks, and of those that it has."""
    print("rows: expected counts of the poor matrix, 3 of 10 rows missing in it")
    print("counts a row | error, missing rows | the mean row instead | error, other rows")
    for poor in (20, 100, 500):
        found = []
        for seed in range(sets):
            drawn = draw(poor, seed)
            lacking = {**drawn.matrices, "poor": drawn.matrices["poor"].iloc[60:]}
            fit = bayesnmf.fit(lacking, rank=RANK, seed=seed)
            means = fit.expected_loadings @ fit.exposed_components[:, fit.counts.features_of("poor")]
            truth = drawn.loadings @ drawn.components
            flat = np.broadcast_to(lacking["poor"].mean(axis=0).to_numpy(), (60, SIZES["poor"]))
            found.append(
                [relative(means[:60], truth[:60]), relative(flat, truth[:60]), relative(means[60:], truth[60:])]
            )
        print(f"{poor} |", " | ".join(f"{value:.2f}" for value in np.mean(found, axis=0)))


def noise(sets: int) -> None:
    """Print dispersions of each matrix, of which one has more noise than Poisson's."""
    print("noise: learned dispersions of two matrices, of counts with a quadratic variance of 0.2 and Poisson counts")
    for method in ("map", "vi", "gibbs"):
        for seed in range(sets):
            drawn, rng = draw(500, seed), np.random.default_rng(seed)
            means = drawn.loadings @ drawn.components
            frame = pd.DataFrame(rng.poisson(means * rng.gamma(5, 0.2, means.shape)), drawn.matrices["rich"].index)
            options = Gibbs(draws=500, warmup=500, chains=2) if method == "gibbs" else None
            given: Any = {"rank": RANK, "method": method, "seed": seed, "noise": "nb2", "options": options}
            fit = bayesnmf.fit({**drawn.matrices, "poor": frame}, **given)
            print(f"{method}, seed {seed}: rich {fit.noise.dispersion[0]:.4f}, poor {fit.noise.dispersion[1]:.3f}")


def genes(sets: int) -> None:
    """Print what fits of two sets of genes find, as two matrices, as one and each alone."""
    data = real("pbmc_facs")
    labels, whole = data.rows["celltype"].to_numpy().astype(str), data.counts.matrix
    print(f"genes: pbmc_facs, {whole.shape[0]:,} × {whole.shape[1]:,}, K = 7, genes in two sets at random")
    for seed in range(sets):
        order = np.random.default_rng(seed).permutation(whole.shape[1])
        parts = {"one": order[: len(order) // 2], "two": order[len(order) // 2 :]}
        matrices = {name: whole[:, np.sort(at)] for name, at in parts.items()}
        joined = whole[:, np.concatenate([np.sort(at) for at in parts.values()])]
        cases = {"as one": joined, "both": matrices, **{f"set {name} alone": each for name, each in matrices.items()}}
        fits = {}
        for name, counts in cases.items():
            began = time.perf_counter()
            fits[name] = fit = bayesnmf.fit(counts, rank=7, seed=seed)
            seconds = time.perf_counter() - began
            shares = fit.loadings / fit.loadings.sum(axis=1, keepdims=True)
            agreement = normalized_mutual_info_score(labels, shares.argmax(axis=1))
            print(f"seed {seed}, {name}: NMI {agreement:.3f}, {fit.status.iterations} iterations, {seconds:.1f} s")
        apart = np.abs(fits["as one"].loadings - fits["both"].loadings).max()
        print(f"  largest difference of loadings between one matrix and both: {apart:.1e}")


def beside(matrices: dict[str, Any], alone: dict[str, int], ranks: Iterable[int], noise: str) -> None:
    """Print what fits of two matrices keep of what each has alone, and which rank `select` chooses."""
    given: Any = {"noise": noise, "seed": 0}
    own = {name: bayesnmf.fit(matrices[name], rank=rank, **given) for name, rank in alone.items()}
    left = {name: structures_of(one)[""] for name, one in own.items()}
    print(
        "alone |", ", ".join(f"{name}: structure {each.ratio:.2f}, p {each.p_value:.1g}" for name, each in left.items())
    )
    for rank in ranks:
        fit = bayesnmf.fit(matrices, rank=rank, **given)
        told = []
        for name, one in own.items():
            between = 1 - cdist(one.components, fit.components[:, fit.counts.features_of(name)], "cosine")
            kept = np.zeros(one.rank)
            rows, columns = linear_sum_assignment(-between)
            kept[rows] = between[rows, columns]
            told.append(f"{name}: {np.sum(kept >= 0.95)} of {one.rank}, least {kept.min():.2f}")
        print(f"rank {rank} | {' | '.join(told)} | {caution_of_matrices(fit)}")
    chosen = bayesnmf.select(matrices, ranks=ranks, splits=2, check=False, **given)
    print(f"select: {chosen.best and chosen.best.rank} of {', '.join(map(str, ranks))}")


def apart(sets: int) -> None:
    """Print what a matrix keeps beside one that has nothing to do with it."""
    known = catalogue().loc[["SBS1", "SBS2", "SBS3", "SBS13", "SBS17b", "SBS18"]].to_numpy()
    for total in (500, 5000):
        rng, n = np.random.default_rng(1), 150
        loadings = rng.dirichlet(np.full(6, 0.5), n) * rng.gamma(4, 500, n)[:, None]
        first = rng.poisson(loadings @ known)
        other = rng.dirichlet(np.full(60, 0.2), 4)
        second = rng.poisson(total * rng.dirichlet(np.full(4, 0.5), n) @ other)
        print(f"apart: {total} counts a row in the other matrix")
        beside({"x": first, "y": second}, {"x": 6, "y": 4}, (6, 8, 10, 12), "poisson")


def tumours(sets: int) -> None:
    """Print what mutational signatures keep beside indels of the same tumours."""
    counts, known = real("pcawg_breast_sbs96").counts, catalogue()
    sbs = pd.DataFrame(counts.matrix.toarray(), counts.row_names, counts.feature_names)
    ids = indels(sbs, known)
    mutations, number = (each.to_numpy().sum() / len(sbs) for each in (sbs, ids))
    print(f"tumours: {len(sbs)}, with {mutations:,.0f} mutations and {number:.0f} indels each")
    beside({"sbs": sbs, "id": ids}, {"sbs": 8, "id": 5}, (6, 8, 10, 12, 14), "nb2")


def indels(sbs: pd.DataFrame, known: pd.DataFrame) -> pd.DataFrame:
    """Return indels of the same tumours: those of clocks, of one process of its own, and of repair by what SBS3 has."""
    of_indels = bayesnmf.read_catalogue(DATA / "COSMIC_v3.4_ID_GRCh37.txt")
    signatures = known[sbs.columns].to_numpy().T
    place = known.index.get_loc("SBS3")
    repair = np.array([nnls(signatures, row)[0][place] for row in sbs.to_numpy(dtype=float)])
    rng, n = np.random.default_rng(0), len(sbs)
    age = rng.gamma(4, 0.25, n)
    exposures = {
        "ID1": 60 * age * rng.gamma(2, 0.5, n), "ID2": 40 * age * rng.gamma(2, 0.5, n), "ID5": 60 * age,
        "ID9": 25 * rng.gamma(1, 1, n), "ID6": 0.06 * repair * rng.gamma(9, 1 / 9, n),
        "ID8": (0.03 * repair + 20 * age) * rng.gamma(9, 1 / 9, n),
    }  # fmt: skip
    means = sum(np.outer(each, of_indels.loc[name]) for name, each in exposures.items())
    return pd.DataFrame(rng.poisson(means), sbs.index, of_indels.columns)


PARTS = {part.__name__: part for part in (pairs, rows, noise, genes, apart, tumours)}


def main(given: list[str] | None = None) -> None:
    """Read the arguments and run the parts."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=[*PARTS])
    parser.add_argument("--sets", type=int, default=3)
    options = parser.parse_args(given)
    for name in options.parts:
        PARTS[name](options.sets)


if __name__ == "__main__":
    main()
