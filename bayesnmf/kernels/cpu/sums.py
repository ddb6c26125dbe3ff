"""Sums over the rows of a factor: what the exposures of the other side are made of."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from bayesnmf.kernels.cpu.compiling import FAST, kept

Array = NDArray[Any]


@kept(nogil=True, fastmath=FAST)
def _sum_rows(factor: Array, sums: Array) -> None:
    for i in range(factor.shape[0]):
        for k in range(factor.shape[1]):
            sums[k] += factor[i, k]


def sum_rows(factor: Array) -> Array:
    """Return Σ_i factor_ik, (K,), of a factor (r, K), in float64: in float32, long sums would lose three digits."""
    sums = np.zeros(factor.shape[1])
    _sum_rows(np.ascontiguousarray(factor), sums)
    return sums
