"""Entries of the allocation step whose mean underflows, which are shared out with logarithms."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from bayesnmf.kernels.cpu.compiling import compiled_for_kernels, compiled_on_disk
from bayesnmf.kernels.cpu.share_block import share_block
from bayesnmf.kernels.cpu.vectors import VECTOR_BYTES
from bayesnmf.types import Array

Spread = tuple[Array, Array | None]
weigh_block = share_block(scatter=False, take_log=False)


@compiled_for_kernels()
def spread_of_entry(own: float, spreads: Any, j: int) -> float:
    """Return the spread of an entry: that of its row, times that of its feature if there are any."""
    if spreads is None:
        return own
    return own * spreads[j]


@compiled_on_disk(nogil=True)
def share_out_underflowed(
    indptr: Array, indices: Array, values: Array, U: Array, V: Array, spread: Any, start: int, stop: int, rank: int,
    least: float, A: Array, Bt: Array,
) -> float:  # fmt: skip
    """Add the entries whose mean underflowed, computed with logarithms; return their ℓ.

    Where no component gives positive mass, factors of 0 are replaced by the smallest normal number.
    """
    step = VECTOR_BYTES // V.itemsize
    kept, sums = np.zeros(V.shape[1], dtype=U.dtype), np.zeros(step)
    loglik = 0.0
    for i in range(start, stop):
        u = U[i]
        last = indptr[i + 1]
        for p in range(indptr[i], last, step):
            entries = min(step, last - p)
            lost = weigh_block(p, entries, indices, values, u, V, kept, V, sums, least, None, None)
            for q in range(step):
                if lost >> q & 1:
                    j = indices[p + q]
                    x = values[p + q]
                    if spread is not None:  # one cluster, whose size has the rest of L: Σ log ts from t = 1 on
                        s = spread_of_entry(spread[0][i], spread[1], j)
                        loglik += (x - 1.0) * np.log(s) + math.lgamma(x)
                        x = 1.0
                    loglik += share_out_entry(x, u, V[j], A[i, :rank], Bt[j, :rank])
    return loglik


@compiled_for_kernels()
def share_out_entry(count: float, u: Array, v: Array, a: Array, b: Array) -> float:
    """Add the expected allocations of one entry to a and b (K,), computed with logarithms; return the entry's ℓ."""
    rank = len(a)
    smallest = np.finfo(u.dtype).tiny
    weight = np.empty(rank)
    top, total = -np.inf, 0.0
    for k in range(rank):
        weight[k] = np.log(u[k]) + np.log(v[k])
        top = max(top, weight[k])
    if top == -np.inf:
        for k in range(rank):
            weight[k] = np.log(max(u[k], smallest)) + np.log(max(v[k], smallest))
            top = max(top, weight[k])
    for k in range(rank):
        weight[k] = np.exp(weight[k] - top)
        total += weight[k]
    for k in range(rank):
        part = weight[k] * (count / total)
        a[k] += part
        b[k] += part
    return count * (top + np.log(total))
