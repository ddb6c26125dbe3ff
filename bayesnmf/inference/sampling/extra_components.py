"""Draw components that a catalogue lacks, beside those that it has, given loadings of which many are 0.

Each has a flat prior on the simplex but for its concentration below 1. Given the loadings u, a component v has of the
counts, or of the clusters of linear variance, its share y, and

    p(v | y, u) ∝ Π_j v_j^(a + y_j − 1) exp(−v_j c_j),        c_j = Σ_i u_i ε_ij,

where the rates ε of entries are 1, or log(1 + s) / s of clusters, those of quadratic variance are drawn, and those of
missing entries are 0. With counts z_j ~ Poisson(v_j (max c − c_j)) that nobody saw, the exponents do not depend on v,
and it is Dirichlet(a + y + z).
"""

from __future__ import annotations

import numpy as np

from bayesnmf.kernels.cpu.clusters import drawn_clusters_of_entries
from bayesnmf.kernels.cpu.supports import LINEAR, QUADRATIC
from bayesnmf.types import Array

CONCENTRATION = 0.5
LEAST = 1e-290  # of means


def draw_extra(
    entries: tuple[Array, Array], loadings: Array, components: Array, known: int, noise: tuple[int, float],
    rng: np.random.Generator,
) -> None:  # fmt: skip
    """Replace the components from number `known` on by draws given everything else.

    Parameters
    ----------
    entries : tuple of ndarray (n, m)
        Counts, and which entries are missing, or no rows if none is.
    components : ndarray (K, m)
        Components, which are written into.
    noise : tuple
        Variance and dispersion (`bayesnmf.kernels.cpu.supports`).
    """
    (counts, missing), (variance, spread) = entries, noise
    rates, counted = np.ones(counts.shape), counts
    means = np.maximum(loadings @ components, LEAST)
    if variance == QUADRATIC:
        rates = rng.gamma(counts + 1 / spread) / (means + 1 / spread)
    if variance == LINEAR:
        some = counts > 0
        counted = np.zeros(counts.shape)
        rates *= np.log1p(spread) / spread
        counted[some] = drawn_clusters_of_entries(counts[some], means[some] / spread, int(rng.integers(2**63)))
    if len(missing):
        rates[missing] = 0.0
    counted = counted.astype(np.int64)
    for k in range(known, len(components)):
        share = loadings[:, k, None] * components[k] / np.maximum(loadings @ components, LEAST)
        own = rng.binomial(counted, np.minimum(share, 1.0)).sum(axis=0)
        spent = loadings[:, k] @ rates
        unseen = rng.poisson(components[k] * (spent.max() - spent))
        drawn = np.maximum(rng.gamma(CONCENTRATION + own + unseen), LEAST)
        components[k] = drawn / drawn.sum()
