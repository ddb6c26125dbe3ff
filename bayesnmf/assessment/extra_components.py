"""Where components that a catalogue lacks begin, and which is which in several chains."""

from __future__ import annotations

import numpy as np
from scipy.sparse import csr_array

from bayesnmf.data.counts import Counts
from bayesnmf.fitting.fit import fit
from bayesnmf.inference.alignment import match_components
from bayesnmf.inference.sampling.presence import Drawn, draw_chain
from bayesnmf.noise.abilities import Noise
from bayesnmf.options import MAP
from bayesnmf.types import Array

ROUNDS = 30, 10  # of a chain without extra components: before, and kept
FAR = 1.5  # standard deviations from which counts above their means are looked at
LEAST = 1e-4  # of a feature at the beginning


def first_extra(counts: Counts, known: Array, number: int, noise: Noise, seed: int) -> Array:
    """Return components (number, m) of the counts that known components explain least, which rows sum to 1.

    They are those of a fit by EM to what counts are above the means of a short chain, in entries far above them.
    """
    if not number:
        return known[:0]
    nothing = known[:0]
    drawn = draw_chain(counts, (known, nothing), noise, ROUNDS, np.random.default_rng([seed, 0, 0]), lambda _: None)
    if not drawn.whole:
        raise KeyboardInterrupt
    means = np.asarray(drawn.loadings.mean(axis=0)).reshape(len(counts.row_totals), -1) @ known
    spread = drawn.shared[:, 1].mean()
    above = np.maximum(counts.dense - means, 0.0)
    above[above < FAR * np.sqrt(means * (1.0 + spread * (means if noise.has_entry_rates else 1.0)))] = 0.0
    if counts.mask is not None:
        above[counts.mask.missing.toarray() > 0] = 0.0
    found = fit(np.ceil(above), rank=number, method="map", seed=seed, options=MAP(max_iter=500)).components + LEAST
    return np.asarray(found / found.sum(axis=1, keepdims=True))


def aligned(chains: list[Drawn]) -> list[Drawn]:
    """Return the chains with extra components in the order of the first chain, matched by cosines of their means."""
    first, number = chains[0].extra.mean(axis=0), chains[0].extra.shape[1]
    if not number:
        return chains
    found = chains[:1]
    for each in chains[1:]:
        order = match_components(each.extra.mean(axis=0), first)
        n, rank = each.presence.shape
        columns = np.concatenate([np.arange(rank - number), rank - number + order])
        loadings = csr_array(each.loadings[:, (np.arange(n)[:, None] * rank + columns).ravel()])
        found.append(
            Drawn(loadings, each.presence[:, columns], each.prevalence[:, columns], each.shared, each.extra[:, order])
        )
    return found
