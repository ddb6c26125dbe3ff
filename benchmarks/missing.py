"""Imputed counts beside those of rivals: `python -m benchmarks.missing [--shares 0.1 0.3] [--seeds 3]`.

Entries of pcawg_breast_sbs96 are masked at random and predicted by `fit.expected` at rank 6, by row × column means, and
by a soft-thresholded SVD of the square roots of the counts, whose threshold is chosen by a twentieth of the observed
entries. Printed are mean deviances of the masked counts, and the share of them in 90 % predictive intervals.
"""

from __future__ import annotations

import argparse
import time

import numpy as np

import bayesnmf
from bayesnmf.types import Array

RANK, DRAWS = 6, 400
THRESHOLDS = (2, 4, 8, 16, 32, 64)


def deviance(counts: Array, means: Array) -> float:
    """Return the mean Poisson deviance of counts around means."""
    means = np.maximum(means, 1e-10)
    logs = counts * np.log(np.where(counts > 0, counts, 1) / means)
    return float(2 * (np.where(counts > 0, logs, 0) - counts + means).mean())


def of_margins(counts: Array, observed: Array) -> Array:
    """Return products of factors of rows and columns that fit the observed entries' sums."""
    seen, columns = np.where(observed, counts, 0), np.ones(counts.shape[1])
    for _ in range(50):
        rows = seen.sum(axis=1) / (observed @ columns)
        columns = seen.sum(axis=0) / (observed.T @ rows)
    return np.outer(rows, columns)


def softly(values: Array, observed: Array, threshold: float) -> Array:
    """Return a matrix with thresholded singular values that completes the observed entries (softImpute)."""
    filled = np.where(observed, values, values[observed].mean())
    for _ in range(60):
        u, s, v = np.linalg.svd(filled, full_matrices=False)
        low = (u * np.maximum(s - threshold, 0)) @ v
        filled = np.where(observed, values, low)
    return low


def of_roots(counts: Array, observed: Array, rng: np.random.Generator) -> Array:
    """Return squares of the completed square roots, with the threshold that predicts a twentieth of them best."""
    inner = observed & (rng.random(counts.shape) >= 0.05)
    held, roots = observed & ~inner, np.sqrt(counts)
    scores = [deviance(counts[held], softly(roots, inner, each)[held] ** 2) for each in THRESHOLDS]
    return softly(roots, observed, THRESHOLDS[int(np.argmin(scores))]) ** 2


def main() -> None:
    """Print a row for each mask and noise."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--shares", type=float, nargs="*", default=[0.1, 0.3])
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--noises", nargs="*", default=["poisson", "nb1", "nb2"])
    given = parser.parse_args()
    counts = bayesnmf.datasets.real("pcawg_breast_sbs96").counts.matrix.toarray()
    for share in given.shares:
        for seed in range(given.seeds):
            rng = np.random.default_rng(seed)
            observed = rng.random(counts.shape) >= share
            hidden, rivals = ~observed, (of_margins(counts, observed), of_roots(counts, observed, rng))
            scores = " ".join(f"{deviance(counts[hidden], each[hidden]):.2f}" for each in rivals)
            print(f"{share} {seed}: margins and SVD {scores}", flush=True)
            for noise in given.noises:
                begun = time.process_time()
                fit = bayesnmf.fit(counts, rank=RANK, seed=seed, observed=observed, noise=noise)
                table = fit.expected()["mean"].to_numpy().reshape(counts.shape)
                replicates = fit.with_intervals("sampled", draws=DRAWS).sample_posterior_predictive(DRAWS)[:, hidden]
                low, high = np.quantile(replicates, (0.05, 0.95), axis=0)
                inside = np.mean((low <= counts[hidden]) & (counts[hidden] <= high))
                found = deviance(counts[hidden], table[hidden])
                print(f"    {noise} {found:.2f}, inside {inside:.3f}, {time.process_time() - begun:.0f} s", flush=True)


if __name__ == "__main__":
    main()
