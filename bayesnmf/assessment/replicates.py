"""Draw a replicate of the counts of a fit, with the same entries missing."""

from __future__ import annotations

import numpy as np
from scipy.sparse import csr_array, vstack

from bayesnmf.data.mask import Mask
from bayesnmf.kernels.cpu.replication import replicated_counts
from bayesnmf.noise.abilities import Distributed, distribution_of
from bayesnmf.noise.poisson import POISSON
from bayesnmf.priors.specification import MODELS
from bayesnmf.results.record import FitRecord
from bayesnmf.types import Array

ENTRIES = 2**18  # entries at a time


def totals_to_replicate(fit: FitRecord) -> Array | None:
    """Return the totals of rows that replicates have, as whole numbers in float64; None if totals are not given."""
    return np.rint(fit.counts.row_totals).astype(np.float64) if MODELS[fit.model].given_totals else None


def replicate_of(
    fit: FitRecord, loadings: Array, components: Array, seed: int, threads: int | None = None
) -> csr_array:
    """Return counts (n, m) around the means, loadings (n, K) @ components (K, m), with the noise of the fit.

    Missing entries have none. Given totals are those of the observed entries, whose counts are multinomial.
    """
    counts, totals = fit.counts, totals_to_replicate(fit)
    if counts.mask is not None and totals is not None:
        return _of_observed_entries(counts.mask, loadings, components, totals, np.random.default_rng(seed))
    noise = distribution_of(fit.noise)
    if (compiled := noise.compiled(counts.shape)) is not None:
        drawn = replicated_counts(loadings, components, totals, seed, threads, compiled)
    else:
        drawn = _drawn_by_blocks(noise, loadings, components, np.random.default_rng(seed))
    return drawn if counts.mask is None else counts.mask.apply(drawn)


def _drawn_by_blocks(noise: Distributed, loadings: Array, components: Array, rng: np.random.Generator) -> csr_array:
    """Return counts (n, m) with a noise that compiled draws do not know, some rows at a time."""
    step = max(ENTRIES // components.shape[1], 1)
    rows = [slice(first, first + step) for first in range(0, len(loadings), step)]
    parts = [csr_array(noise.of_rows(each).draw(loadings[each] @ components, rng)) for each in rows]
    return csr_array(vstack(parts, format="csr").astype(np.float64))


def _of_observed_entries(
    mask: Mask, loadings: Array, components: Array, totals: Array, rng: np.random.Generator
) -> csr_array:
    """Return multinomial counts of the observed entries of each row, some rows at a time."""
    parts, step = [], max(ENTRIES // components.shape[1], 1)
    for first in range(0, len(loadings), step):
        rows = slice(first, first + step)
        shares = np.where(mask.hidden(rows), 0.0, loadings[rows] @ components)
        sums = shares.sum(axis=1, keepdims=True)
        np.divide(shares, sums, out=shares, where=sums > 0)
        parts.append(csr_array(POISSON.draw_given_totals(totals[rows].astype(np.int64), shares, rng)))
    return csr_array(vstack(parts, format="csr").astype(np.float64))
