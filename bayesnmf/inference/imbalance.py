"""How far a mode is from stationary: the imbalance of one side, in counts ([C] A.3)."""

from __future__ import annotations

import numpy as np

from bayesnmf.inference.side import Side
from bayesnmf.inference.summaries import Summary
from bayesnmf.kernels.cpu.factors import largest_imbalance
from bayesnmf.priors import Distribution
from bayesnmf.priors.values import on_host, separate_scale
from bayesnmf.types import Array


def imbalance(
    prior: Distribution, summary: Summary, side: Side, total: Array, exposure: Array, component_axis: int
) -> float:
    """Return the largest |θ Σβ − A| of a side over all entries, prior included; components are in columns (1) or rows.

    It is 0 at a stationary mode.
    """
    value, _ = separate_scale(side.value)
    weight, added = prior.balance(value, total, exposure, 1.0 if summary.basis == "natural" else 0.0)
    if not on_host(value):
        return float(abs(value * weight - (total + added)).max())
    parts = [np.atleast_2d(each) for each in (value, total, weight, added)]
    return largest_imbalance(*(parts if component_axis == 1 else [each.T for each in parts]))
