"""Count label switches within chains, and draws that cannot be matched reliably."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from bayesnmf.inference import alignment

Array = NDArray[Any]
SWITCHED, AMBIGUOUS, AMBIGUOUS_LIMIT = 0.5, 0.25, 0.05


def label_switching(components: Array, orders: Array) -> dict[str, float]:
    """Return the number of label switches within chains, and the share of ambiguous draws.

    Two nearly equal components swap at random. A switch is therefore counted only if it raises the total cosine by at
    least half (`SWITCHED`) of the gain for a draw equal to the relabelled mean. A draw is ambiguous if, for some
    pair of components, swapping the pair would lower the total cosine by less than a quarter (`AMBIGUOUS`) of the loss
    for a draw equal to the mean.

    Parameters
    ----------
    components : ndarray (chains, draws, K, m)
        Components in matched order.
    orders : ndarray (chains, draws, K)
        Orders from `bayesnmf.results.relabelling.match_all_draws`.
    """
    pairs = np.triu_indices(orders.shape[-1], 1)
    switches = ambiguous = 0
    for chain, chain_orders in zip(components, orders, strict=True):
        reference = chain.mean(axis=0)  # of this chain, which may be in another mode than the first chain
        alike = alignment.cosine(reference, reference)
        swapped = 2 - alike - alike.T  # loss when two components of the reference are swapped, (K, K)
        current = chain_orders[0]
        for draw, order in zip(chain, chain_orders, strict=True):
            similar = alignment.cosine(draw, reference)
            kept = np.diag(similar)
            gains = kept[:, None] + kept - similar - similar.T
            ambiguous += bool(np.any(gains[pairs] < AMBIGUOUS * swapped[pairs]))
            if np.array_equal(order, current):
                continue
            before = np.argsort(order)[current]  # components of the matched draw in the previous order
            gain = kept.sum() - similar[before, np.arange(len(before))].sum()
            if gain >= SWITCHED * (len(before) - alike[before, np.arange(len(before))].sum()):
                switches += 1
                current = order
    draws = orders.shape[0] * orders.shape[1]
    return {"label_switches": float(switches), "ambiguous_draws": ambiguous / draws}
