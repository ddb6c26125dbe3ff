"""What does rarefying cost, and do groups that mean nothing differ?

    apt-get download r-bioc-phyloseq; dpkg-deb -x r-bioc-phyloseq_*.deb phyloseq
    python -m venv rivals; rivals/bin/pip install rdata
    python -m benchmarks.taxa --rivals rivals/bin/python --tables phyloseq/usr/lib/R/site-library/phyloseq/data

Taxa of samples from phyloseq: GlobalPatterns (26 samples of nine kinds × 19,216 taxa, 59 thousand to 2.4 million reads
each) and soilrep (56 samples of 24 plots × 16,825 taxa, 889 to 4,352 reads).

rarefied: a tenth of the reads of each sample is held out. Fits of all others, with Poisson noise and with nb1, are
compared with a fit of as many of them in each sample as the smallest has: the log-probability of the held-out reads, in
nats for each, and how often the sample with the nearest shares of components is of the same kind (soilrep: of the same
plot). groups: samples of a plot added up; the share of 90 % intervals of differences between warmed plots and others
(`group_contrasts`) that exclude 0, and of those between groups at random, of as many plots.
"""

from __future__ import annotations

import argparse
import subprocess
import tempfile
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
from scipy.sparse import csr_array
from scipy.spatial.distance import cdist

import bayesnmf

Array = np.ndarray[Any, Any]
HERE = Path(__file__).parent
LABELS = {"GlobalPatterns": "SampleType", "soilrep": "Sample"}
RANKS = {"GlobalPatterns": 8, "soilrep": 5}
HELD_OUT, FLOOR, PERMUTATIONS = 0.1, 1e-6, 40


def tables(rivals: str, folder: Path, name: str, label: str) -> tuple[Array, Array]:
    """Return counts (samples, taxa) and labels of the samples."""
    with tempfile.TemporaryDirectory() as place:
        result = f"{place}/{name}.npz"
        command = [rivals, "-P", str(HERE / "taxa_tables.py"), str(folder / f"{name}.RData"), label, result]
        subprocess.run(command, check=True)
        with np.load(result) as found:
            return found["counts"].astype(np.int64), found["labels"]


def rarefied(counts: Array, rng: np.random.Generator) -> Array:
    """Return as many reads of each sample, at random, as the smallest has."""
    depth = int(counts.sum(axis=1).min())
    return np.stack([rng.multivariate_hypergeometric(row, depth, method="marginals") for row in counts])


def shares_of(fit: Any) -> Array:
    """Return the shares of components in samples, (n, K)."""
    return np.asarray(bayesnmf.to_topic_model(fit).proportions)


def held_out_score(fit: Any, held: Array) -> float:
    """Return the log-probability of held-out reads of samples, in nats for each."""
    shares = fit.expected_loadings @ fit.exposed_components
    shares = (1 - FLOOR) * shares / shares.sum(axis=1, keepdims=True) + FLOOR / shares.shape[1]
    return float(np.sum(held * np.log(shares)) / held.sum())


def compare(name: str, counts: Array, labels: Array) -> None:
    """Print what fits of all reads, and of rarefied ones, know."""
    rng = np.random.default_rng(0)
    held = rng.binomial(counts, HELD_OUT)
    train = counts - held
    fewer = rarefied(train, rng)
    cases = {"all reads": (train, "poisson"), "all reads, nb1": (train, "nb1"), "rarefied": (fewer, "poisson")}
    for case, (used, noise) in cases.items():
        began = time.process_time()
        fit = bayesnmf.fit(csr_array(used), rank=RANKS[name], noise=noise, seed=0)
        apart = cdist(shares_of(fit), shares_of(fit), "cityblock")
        np.fill_diagonal(apart, np.inf)
        same = np.mean(labels[apart.argmin(axis=1)] == labels)
        told = f"{held_out_score(fit, held):.3f} | {same:.2f} | {time.process_time() - began:.1f}"
        print(f"| {name} | {case}, {used.sum():,} | {told} |", flush=True)


def groups(counts: Array, plots: Array, warmed: Array) -> None:
    """Print how many intervals of differences between groups of plots exclude 0."""
    names, place = np.unique(plots, return_inverse=True)
    sums = np.zeros((len(names), counts.shape[1]))
    np.add.at(sums, place, counts)
    label = np.array([warmed[plots == each][0] for each in names])
    fit = bayesnmf.fit(csr_array(sums), rank=RANKS["soilrep"], seed=0)
    rng = np.random.default_rng(0)

    def outside(labels: Array) -> float:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", bayesnmf.DataWarning)
            table = bayesnmf.group_contrasts(fit, labels)
        return float(np.mean((table["difference_low"] > 0) | (table["difference_high"] < 0)))

    print(f"soilrep, {len(names)} plots, {fit.rank} components: warmed or not, {outside(label):.2f} of the intervals")
    permuted = np.mean([outside(rng.permutation(label)) for _ in range(PERMUTATIONS)])
    print(f"at random, {PERMUTATIONS} times: {permuted:.3f}")


def main(given: list[str] | None = None) -> None:
    """Read the tables and print what is asked."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rivals", default="rivals/bin/python", help="interpreter with rdata")
    parser.add_argument("--tables", type=Path, required=True, help="folder of phyloseq's tables")
    parser.add_argument("--parts", nargs="+", choices=("rarefied", "groups"), default=("rarefied", "groups"))
    options = parser.parse_args(given)
    if "rarefied" in options.parts:
        print("| counts | reads | nats a read | nearest is of the same kind | CPU s |\n|---|---|---|---|---|")
        for name, label in LABELS.items():
            compare(name, *tables(options.rivals, options.tables, name, label))
    if "groups" in options.parts:
        counts, plots = tables(options.rivals, options.tables, "soilrep", "Sample")
        groups(counts, plots, tables(options.rivals, options.tables, "soilrep", "warmed")[1])


if __name__ == "__main__":
    main()
