"""Do intervals of sums of hidden counts hold by weighted modes where those of one mode do not?

    python -m benchmarks.stacked_modes [--data digits:8 newsgroups:20 …] [--rows 0] [--starts 20] [--blocks 200]

Blocks of 5 random rows × a twentieth of the features are hidden before anything is fitted; of the features, the 500
with most counts are taken, and with --rows some of the rows at random. `bayesnmf.modes` fits the others, and a chain of
Gibbs sampling follows from every mode that is scored. 500 replicates of the hidden counts come from the best mode,
from the one with the best held-out score, or from all by their stacking weights. Printed are the share of the blocks
whose sum is inside the central 90 % of the replicated sums, with its standard error, the median width, and the mean
CRPS.
"""

from __future__ import annotations

import argparse
import time
import warnings
from dataclasses import replace

import numpy as np

import bayesnmf
from bayesnmf.inference.status import FitWarning
from bayesnmf.types import Array
from benchmarks.data import read

WARMUP, DRAWS, FEATURES, LEVEL = 300, 500, 500, 0.9
HEADINGS = (
    "data", "rows × features, hidden", "K", "modes", "largest weight", "by", "inside 90 %", "median width", "CRPS", "s",
)  # fmt: skip


def blocks_of(shape: tuple[int, int], number: int, seed: int) -> list[tuple[Array, Array]]:
    """Return random rows and features of blocks."""
    rng, (n, m) = np.random.default_rng([seed, 1]), shape
    return [(rng.choice(n, 5, replace=False), rng.choice(m, max(m // 20, 3), replace=False)) for _ in range(number)]


def crps(draws: Array, truth: Array) -> float:
    """Return the mean continuous ranked probability score of draws (S, B) of numbers (B,)."""
    ordered, number = np.sort(draws, axis=0), len(draws)
    spread = ((2 * np.arange(1, number + 1) - number - 1)[:, None] * ordered).sum(axis=0) / number**2
    return float((np.abs(draws - truth).mean(axis=0) - spread).mean())


def compare(name: str, rank: int, rows: int, starts: int, number: int) -> None:
    """Print the lines of one data set."""
    began, counts = time.process_time(), read(name, rank, 0)
    if rows:
        counts = counts.rows(np.sort(np.random.default_rng(0).choice(counts.shape[0], rows, replace=False)))
    totals = np.asarray(counts.matrix.sum(axis=0)).ravel()
    counts = counts[:, np.sort(np.argsort(-totals)[:FEATURES])]
    blocks = blocks_of(counts.shape, number, 0)
    missing = np.zeros(counts.shape, bool)
    for chosen, features in blocks:
        missing[np.ix_(chosen, features)] = True
    matrix = counts.matrix.toarray()
    truth = np.array([matrix[np.ix_(*each)].sum() for each in blocks])
    modes = bayesnmf.modes(matrix, rank=rank, starts=starts, seed=0, jobs=1, missing=missing)
    weights = modes.stack.weights
    chains = [
        bayesnmf.fit(
            matrix, rank=rank, method="gibbs", seed=0, missing=missing,
            options=bayesnmf.Gibbs(chains=1, warmup=WARMUP, draws=DRAWS, start=each, priors=each.priors, threads=1),
        )
        for each in modes.fits[: len(weights)]
    ]  # fmt: skip
    modes, best = replace(modes, fits=chains), int(np.nanargmax(modes.table["held_out"]))
    size = f"{counts.shape[0]:,} × {counts.shape[1]:,}, {missing.mean():.0%}"
    for by, of in (("the best mode", chains[0]), ("the one that predicts best", chains[best]), ("by weight", modes)):
        sums = np.empty((DRAWS, number))
        for at, (chosen, features) in enumerate(blocks):
            replicated = of.sample_posterior_predictive(DRAWS, seed=at, rows=modes.best.row_names[chosen])
            sums[:, at] = replicated[:, :, features].sum(axis=(1, 2))
        low, high = np.quantile(sums, ((1 - LEVEL) / 2, (1 + LEVEL) / 2), axis=0)
        inside = np.mean((low <= truth) & (truth <= high))
        cells = [name, size, f"{rank}", f"{len(modes.table)} in {starts} runs", f"{weights.max():.2f}", by]
        cells += [f"{inside:.3f} ± {np.sqrt(inside * (1 - inside) / number):.3f}", f"{np.median(high - low):.1f}"]
        print(
            f"| {' | '.join([*cells, f'{crps(sums, truth):.2f}', f'{time.process_time() - began:.0f}'])} |", flush=True
        )


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", nargs="+", default=["digits:8"], help="name:rank")
    parser.add_argument("--rows", type=int, default=0)
    parser.add_argument("--starts", type=int, default=20)
    parser.add_argument("--blocks", type=int, default=200)
    given = parser.parse_args()
    warnings.simplefilter("ignore", FitWarning)
    print(f"| {' | '.join(HEADINGS)} |\n|{'---|' * len(HEADINGS)}", flush=True)
    for each in given.data:
        name, rank = each.split(":")
        compare(name, int(rank), given.rows, given.starts, given.blocks)


if __name__ == "__main__":
    main()
