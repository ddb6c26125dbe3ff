"""How often labels switch within chains, and whether draws can be matched at all."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from bayesnmf.inference import alignment

Array = NDArray[Any]
SWITCHED, AMBIGUOUS, AMBIGUOUS_LIMIT = 0.5, 0.25, 0.05


def label_switching(components: Array, orders: Array) -> dict[str, float]:
    """Tell how often labels switched within chains, and how surely draws can be matched at all.

    Two components that are nearly equal swap at random. A switch is therefore counted only if it raises the total
    cosine by at least half (`SWITCHED`) of what it would raise it by if the draw were the relabelled mean. A draw is
    ambiguous if, for some pair of components, the order that was found gains less than a quarter (`AMBIGUOUS`) of that
    over the order in which the pair is swapped.

    Parameters
    ----------
    components : ndarray (chains, draws, K, m)
        Matched.
    orders : ndarray (chains, draws, K)
        As `match` returns them.
    """
    pairs = np.triu_indices(orders.shape[-1], 1)
    switches = ambiguous = 0
    for chain, chain_orders in zip(components, orders, strict=True):
        reference = chain.mean(axis=0)  # its own: it may be in another mode than the first
        alike = alignment.cosine(reference, reference)
        swapped = 2 - alike - alike.T  # what the swap of two components of the reference loses, (K, K)
        current = chain_orders[0]
        for draw, order in zip(chain, chain_orders, strict=True):
            similar = alignment.cosine(draw, reference)
            kept = np.diag(similar)
            gains = kept[:, None] + kept - similar - similar.T
            ambiguous += bool(np.any(gains[pairs] < AMBIGUOUS * swapped[pairs]))
            if np.array_equal(order, current):
                continue
            before = np.argsort(order)[current]  # of the matched draw, the component that stood for each until now
            gain = kept.sum() - similar[before, np.arange(len(before))].sum()
            if gain >= SWITCHED * (len(before) - alike[before, np.arange(len(before))].sum()):
                switches += 1
                current = order
    draws = orders.shape[0] * orders.shape[1]
    return {"label_switches": float(switches), "ambiguous_draws": ambiguous / draws}
