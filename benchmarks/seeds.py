"""Do named components land on what they are named after?

    python -m benchmarks.seeds [--sets pbmc_facs newsgroups] [--seed 0]

Plain fits with `seeds`, keywords or marker genes that were chosen by hand, beside plain fits without. Printed are, for
each named component, its mean share in the rows that have its label and in all others, the share of the rows whose
largest named component is their label, and the normalised mutual information of labels and largest components.
"""

from __future__ import annotations

import argparse
import time
from dataclasses import replace
from typing import NamedTuple

import numpy as np
from sklearn.metrics import normalized_mutual_info_score

import bayesnmf
from bayesnmf.datasets import real

MARKERS = {
    "B cell": ["CD79A", "MS4A1", "CD79B", "CD19"],
    "T cell": ["CD3D", "CD3E", "IL7R", "CD27"],
    "NK cell": ["GNLY", "NKG7", "PRF1", "KLRD1"],
    "CD14+": ["LYZ", "CD14", "S100A8", "S100A9"],
    "CD34+": ["CD34", "SPINK2", "PRSS57", "SOX4"],
}
KEYWORDS = {
    "alt.atheism": ["atheism", "atheists", "atheist"],
    "comp.graphics": ["graphics", "image", "polygon"],
    "comp.os.ms-windows.misc": ["windows", "dos", "microsoft"],
    "comp.sys.ibm.pc.hardware": ["ide", "scsi", "bios", "motherboard"],
    "comp.sys.mac.hardware": ["mac", "apple", "quadra"],
    "comp.windows.x": ["motif", "xterm", "widget", "x11r5"],
    "misc.forsale": ["sale", "shipping", "offer"],
    "rec.autos": ["car", "cars", "ford", "dealer"],
    "rec.motorcycles": ["bike", "motorcycle", "bikes", "dod"],
    "rec.sport.baseball": ["baseball", "pitcher", "braves"],
    "rec.sport.hockey": ["hockey", "nhl", "playoffs"],
    "sci.crypt": ["encryption", "clipper", "crypto"],
    "sci.electronics": ["circuit", "voltage", "electronics"],
    "sci.med": ["patients", "disease", "doctor"],
    "sci.space": ["space", "nasa", "orbit"],
    "soc.religion.christian": ["church", "christ", "christians"],
    "talk.politics.guns": ["gun", "guns", "firearms"],
    "talk.politics.mideast": ["israel", "armenian", "turkish"],
    "talk.politics.misc": ["clinton", "president", "tax"],
    "talk.religion.misc": ["koresh", "objective", "morality"],
}


class Case(NamedTuple):
    """A data set: the column with the labels of its rows, that with names of features, model, rank and seeds."""

    labels: str
    names: str | None
    model: str
    rank: int
    seeds: dict[str, list[str]]


CASES = {
    "pbmc_facs": Case("subpop", "symbol", "gamma_poisson", 10, MARKERS),
    "newsgroups": Case("topic", None, "dirichlet_poisson", 25, KEYWORDS),
}


def show(name: str, case: Case, seed: int) -> None:
    """Fit one data set with and without seeds, and print what was found."""
    data = real(name)
    counts, labels = data.counts, data.rows[case.labels].to_numpy().astype(str)
    if case.names is not None:
        counts = replace(counts, feature_names=data.features[case.names].to_numpy().astype(object))
    for kind, seeds in (("without seeds", None), ("with seeds", case.seeds)):
        began = time.perf_counter()
        fit = bayesnmf.fit(counts, case.model, case.rank, seed=seed, seeds=seeds)
        shares = fit.loadings / fit.loadings.sum(axis=1, keepdims=True)
        agreement = normalized_mutual_info_score(labels, shares.argmax(axis=1))
        seconds = time.perf_counter() - began
        print(f"{name}, K = {case.rank}, {kind}: bound {fit.trace[-1]:.0f}, NMI {agreement:.2f}, {seconds:.0f} s")
    largest = np.array(list(case.seeds))[shares[:, : len(case.seeds)].argmax(axis=1)]
    print(f"  the largest named component is the label of {np.mean(largest == labels):.1%} of the rows")
    for k, label in enumerate(case.seeds):
        own = labels == label
        print(f"  {label}: mean share {shares[own, k].mean():.2f} in its rows, {shares[~own, k].mean():.2f} in others")


def main(given: list[str] | None = None) -> None:
    """Read the arguments and show each data set."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sets", nargs="+", choices=CASES, default=[*CASES])
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args(given)
    for name in options.sets:
        show(name, CASES[name], options.seed)


if __name__ == "__main__":
    main()
