"""Simulated cohorts of tumours: signatures of COSMIC and exposures of real tumours, which no prior here has made."""

from __future__ import annotations

from functools import cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import nnls

from benchmarks.assign import catalogue
from benchmarks.data import read
from benchmarks.signatures import ARTEFACTS

Array = NDArray[Any]

TUMOURS, RANK, MUTATIONS, SPREAD = 311, 6, 5000, 0.6  # the median of a tumour, and the spread of its logarithm
LEAST = 0.06  # share of the mutations of each of the first six, before the next is added
MORE = 0.05  # share of the mutations of a seventh signature
BREAST = ("SBS1", "SBS2", "SBS3", "SBS5", "SBS8", "SBS13", "SBS17", "SBS18", "SBS40", "SBS41", "SBS30")
KINDS = ("none", "gamma 0.3", "gamma 0.5", "lognormal 0.3", "lognormal 0.5", "outliers")


class Cohort(NamedTuple):
    """Counts of mutations with what they were drawn from.

    Attributes
    ----------
    counts : ndarray (n, 96)
    loadings, components : ndarray of shape (n, K) and (K, 96)
        Expected mutations of each signature, and the signatures.
    names : list of str
        Names of the signatures.
    """

    counts: Array
    loadings: Array
    components: Array
    names: list[str]


@cache
def exposures() -> Array:
    """Return exposures of 192 breast cancers to signatures of theirs, by least squares, (192, 11).

    Those of SBS17a and SBS17b, which nearly always come together, are added up.
    """
    known, counts = catalogue(), read("pcawg_breast_sbs96", 0, 0)
    parts = [*(name for name in BREAST if name != "SBS17"), "SBS17a", "SBS17b"]
    ordered = known.loc[parts, list(counts.feature_names)].to_numpy()
    found = np.array([nnls(ordered.T, row)[0] for row in counts.matrix.toarray().astype(float)])
    return np.column_stack([found[:, :-2], found[:, -2:].sum(axis=1)])


def cohort(kind: str, seed: int, signatures: int = RANK) -> Cohort:
    """Draw a cohort of six signatures, or of seven, of which the last has 5 % of the mutations.

    Signatures are any of COSMIC but artefacts. Exposures are those of breast cancers, drawn with replacement, to
    signatures drawn anew. The noise beside Poisson's is a Gamma or log-normal factor of every rate with this standard
    deviation; "outliers" are counts three times as large, in 5 % of the entries.
    """
    rng = np.random.default_rng([11, seed])
    known, own = catalogue(), exposures()
    names = [str(name) for name in rng.choice(known.index[~known.index.isin(ARTEFACTS)], RANK + 1, replace=False)]
    loadings = own[rng.integers(len(own), size=TUMOURS)][:, rng.choice(own.shape[1], RANK + 1, replace=False)] + 1e-3
    loadings[:, :RANK] /= loadings[:, :RANK].sum(axis=1, keepdims=True)
    for _ in range(5):
        loadings[:, :RANK] *= np.maximum(LEAST / loadings[:, :RANK].mean(axis=0), 1.0)
        loadings[:, :RANK] /= loadings[:, :RANK].sum(axis=1, keepdims=True)
    total = np.exp(rng.normal(np.log(MUTATIONS), SPREAD, TUMOURS))
    loadings[:, :RANK] *= total[:, None]
    loadings[:, RANK] *= MORE / (1 - MORE) * total.sum() / loadings[:, RANK].sum()
    loadings, names = loadings[:, :signatures], names[:signatures]
    components = known.loc[names].to_numpy()
    rates = loadings @ components
    rng = np.random.default_rng([12, seed, KINDS.index(kind), signatures])
    if " " in kind:
        law, number = kind.split()
        level = float(number)
        wide = np.log1p(level**2)
        rates = rates * (
            rng.gamma(level**-2, level**2, rates.shape)
            if law == "gamma"
            else rng.lognormal(-wide / 2, np.sqrt(wide), rates.shape)
        )
    counts = rng.poisson(rates)
    if kind == "outliers":
        counts[rng.random(counts.shape) < 0.05] *= 3
    return Cohort(counts, loadings, components, names)
