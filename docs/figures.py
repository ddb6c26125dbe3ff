"""Make the pictures of the README from whole real matrices: `BAYESNMF_DATA=… python docs/figures.py`.

The folder must contain pbmc_facs (3,774 cells × 16,791 genes, sorted by FACS before they were sequenced; from the R
package fastTopics) as .npz and .json files; pcawg_breast_sbs96 (192 tumours × 96 mutation types; from salamander) is
downloaded if it is not there.
"""

from __future__ import annotations

from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes

import bayesnmf
from bayesnmf import plots

FOLDER = Path(__file__).parent
CELLS = ("T cell", "NK cell", "B cell", "CD14+", "CD34+")
NAMES = {"T cell": "T cells", "NK cell": "NK cells", "B cell": "B cells", "CD14+": "monocytes", "CD34+": "progenitors"}


def draw_cells(path: Path) -> None:
    """Draw the composition of every cell, by the label that FACS gave it; the fit has not seen the labels."""
    import pandas as pd

    counts, cells, _ = bayesnmf.datasets.real("pbmc_facs")
    groups = pd.Series(pd.Categorical(cells["subpop"], CELLS), index=counts.row_names)
    fit = bayesnmf.fit(counts, rank=6, seed=0)
    fit = fit.rename(names_by_group(fit, groups.to_numpy()))
    figure, axes = plt.subplots(figsize=(9, 2.6), layout="constrained")
    plots.structure(fit, groups, axes=axes)
    axes.set_ylabel("share of a cell's counts")
    axes.set_xlabel("3,774 cells, sorted by surface proteins before they were sequenced")
    figure.savefig(path, dpi=110)


def names_by_group(fit: bayesnmf.Fit, groups: np.ndarray) -> dict[int, str]:
    """Name each component after the group in which its share is most above its mean; what all cells share, last."""
    shares = bayesnmf.to_topic_model(fit).proportions
    means = np.array([shares[groups == group].mean(axis=0) for group in CELLS])
    shared = int(means.min(axis=0).argmax())
    return {
        k: "in all cells" if k == shared else NAMES[CELLS[int(means[:, k].argmax())]] for k in range(shares.shape[1])
    }


def draw_signature(path: Path) -> None:
    """Draw the component with most C>G at TCA and TCT, which APOBEC enzymes make, with intervals of Gibbs sampling."""
    counts = bayesnmf.datasets.real("pcawg_breast_sbs96").counts
    fit = bayesnmf.fit(counts, rank=8, method="gibbs", seed=0, options=bayesnmf.Gibbs(warmup=2000, draws=2000))
    types = [fit.feature_names.tolist().index(name) for name in ("T[C>G]A", "T[C>G]T")]
    found = int((fit.components[:, types].sum(axis=1) / fit.components.sum(axis=1)).argmax())
    figure, shown = plt.subplots(figsize=(9, 2.3), layout="constrained")
    unused, others = plt.subplots(fit.rank - 1, 1)
    axes: list[Axes] = list(others)
    axes.insert(found, shown)
    plots.signatures(fit.rename({found: "APOBEC"}), axes=np.array(axes))
    ticks = [text.get_text() for text in axes[-1].get_xticklabels()]  # only the last panel has them
    shown.set_xticks(axes[-1].get_xticks(), ticks, fontsize=9)
    shown.set_xlabel(axes[-1].get_xlabel(), fontsize=9)
    plt.close(unused)
    figure.savefig(path, dpi=110)


def main() -> None:
    """Make all pictures."""
    images = FOLDER / "images"
    images.mkdir(exist_ok=True)
    draw_cells(images / "cells.png")
    draw_signature(images / "signature.png")


if __name__ == "__main__":
    main()
