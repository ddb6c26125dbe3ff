"""Make the problems: counts, and one start for all tools."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

import bayesnmf
from bayesnmf import MAP, Dirichlet, Gamma, Priors
from bayesnmf.data.conversion import as_counts
from bayesnmf.data.counts import Counts
from bayesnmf.data.splitting import thin_counts
from bayesnmf.datasets import digits

Array = NDArray[Any]

ROOT = Path(__file__).resolve().parents[1]
WARM_UP = 4  # EM iterations of the start
EM: Any = {"algorithm": "em", "extrapolate": False}
KEEP = 0.8  # probability with which thinning keeps a count


@dataclass(frozen=True)
class Problem:
    """Counts to fit, with a start.

    Attributes
    ----------
    name : str
        Name of the data.
    counts : Counts
        Counts to fit.
    held_out : Counts or None
        Counts set aside by thinning.
    rank : int
    start : dict of ndarray
        `loadings` (n, K) and `components` (K, m): uniform draws, then 4 EM iterations. `gamma` and `nu`: Dirichlet
        parameters drawn from Gamma(100, 100), as scikit-learn and gensim do.
    alpha, eta : float
        Concentrations of the priors of loadings and components.
    seed : int
    keep : float
        Probability with which an initial thinning kept a count.
    """

    name: str
    counts: Counts
    held_out: Counts | None
    rank: int
    start: dict[str, Array]
    alpha: float
    eta: float
    seed: int
    keep: float = 1.0


def read(name: str, rank: int, seed: int) -> Counts:
    """Return counts by name; NxM simulates them from gamma_poisson with this rank and 200 counts a row.

    "ap_like" has about the size of the Associated Press texts of Blei et al. (2003), and simulated sparse topics.
    """
    if size := re.fullmatch(r"([1-9]\d*)x([1-9]\d*)", name):
        priors = Priors(Gamma(1.0, rank / 200), Dirichlet(1.0))
        return bayesnmf.simulate("gamma_poisson", (int(size[1]), int(size[2])), rank, priors=priors, seed=seed).counts
    if name == "ap_like":
        priors = Priors(Gamma(0.1, 0.1 * rank / 194), Dirichlet(0.05))  # 194 words a text
        return bayesnmf.simulate("gamma_poisson", (2246, 10473), rank, priors=priors, seed=seed).counts
    if name == "digits":
        return digits()
    folder = Path(os.environ.get("BAYESNMF_DATA", ROOT.parent / "shared" / "data"))
    path = folder / f"{name}.npz"
    if not path.exists():
        raise SystemExit(f"{path} does not exist: set BAYESNMF_DATA to the folder that contains {name}.npz")
    if name.startswith("scsim"):  # counts of a simulator, with its truth beside them
        found = np.load(path)
        arrays = found["data"], found["indices"], found["indptr"]
        return as_counts(csr_array(arrays, shape=tuple(found["shape"])))
    return bayesnmf.read_counts(path)


@dataclass(frozen=True)
class Variant:
    """Preparation of the counts, and the priors.

    Attributes
    ----------
    keep : float
        Probability with which binomial thinning keeps a count; 1 for no thinning.
    concentrations : tuple of float or None
        Concentrations of loadings and components; by default 1/K, as in scikit-learn and gensim.
    """

    keep: float = 1.0
    concentrations: tuple[float, float] | None = None


PLAIN = Variant()


def filled(counts: Counts) -> Counts:
    """Return counts without empty rows and features, which tomotopy omits from its model."""
    rows, features = np.flatnonzero(counts.row_totals), np.flatnonzero(counts.feature_totals)
    return as_counts(counts.matrix[rows][:, features])


def problem(name: str, task: str, rank: int, seed: int, variant: Variant = PLAIN) -> Problem:
    """Return the problem: read counts, thin them on request and for the task "heldout", and draw the start."""
    counts, held_out = read(name, rank, seed), None
    rng = np.random.default_rng([seed, rank])
    if variant.keep < 1:
        counts, _ = thin_counts(counts, variant.keep, rng)
    if task == "gibbs":
        counts = filled(counts)
    if task == "heldout":
        counts, held_out = thin_counts(counts, KEEP, rng)
    n, m = counts.shape
    loadings, components = rng.uniform(0.1, 1, (n, rank)), rng.uniform(0.1, 1, (rank, m))
    components /= components.sum(axis=1, keepdims=True)
    drawn = bayesnmf.Start(loadings, components)
    options = MAP(priors=Priors(Gamma(1.0, 0.0), "parameter"), start=drawn, max_iter=WARM_UP, tol=0, **EM)
    begun = bayesnmf.fit(counts, "poisson", rank, "map", options=options, seed=seed)
    start = {"loadings": begun.loadings, "components": begun.components}
    start |= {"gamma": rng.gamma(100, 0.01, (n, rank)), "nu": rng.gamma(100, 0.01, (rank, m))}
    alpha, eta = variant.concentrations or (1 / rank, 1 / rank)
    return Problem(name, counts, held_out, rank, start, alpha, eta, seed, variant.keep)
