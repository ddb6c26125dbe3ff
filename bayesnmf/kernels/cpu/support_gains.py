"""What a component gains when it is added to a support, by Laplace's method in one dimension."""

from __future__ import annotations

import math

from bayesnmf.kernels.cpu.compiling import compiled_for_kernels
from bayesnmf.kernels.cpu.supports import (
    LOOPS,
    NEVER,
    QUADRATIC,
    Row,
    Space,
    Support,
    factorise,
    product,
    scale_into,
    weighted_square,
)
from bayesnmf.types import Array

# Gains are proposals only: raising them to this power lets a sampler try what the approximation thinks little of.
POWER = 0.5
# Logarithms of the least and the largest weight, beside that of no component, which is 1. A quadratic gain may be far
# above the true one where means are near 0; were weights not bounded, the ratio of acceptance would be e^−1000 there.
BOUNDED = -7.0, 8.0
# The same for blunt proposals, half of which are no component, whatever the gains of the others.
BLUNT = -1.0, 1.0


@compiled_for_kernels(**LOOPS)
def _soften(ratio: bool, x: Array, means: Array, curvatures: Array, out: Array) -> None:
    """Write curvatures, which are smaller where counts are above the means: these rise as the component is added."""
    for j in range(len(x)):
        r = x[j] / means[j]
        out[j] = curvatures[j] / math.sqrt(r) if ratio and r > 1.0 else curvatures[j]


@compiled_for_kernels()
def _gain_of(row: Row, k: int, slope: float, curvature: float, here: Space) -> float:
    """Return log ∫ u^(a−1) exp(slope u − curvature u²/2) du; write where the integrand in log u is largest."""
    a = row.shape[k]
    root = math.sqrt(slope * slope + 4.0 * a * curvature)
    u = (slope + root) / (2.0 * curvature) if slope > 0.0 else 2.0 * a / (root - slope)
    here.found[k], here.precision[k] = math.log(u), a + curvature * u * u
    return a * math.log(u) + slope * u - 0.5 * curvature * u * u + 0.5 * math.log(2.0 * math.pi / here.precision[k])


@compiled_for_kernels()
def _gains_of_first(row: Row, here: Space) -> None:
    """Write the gains of a component that is alone, less the largest: its likelihood at the row's total."""
    top, rank = NEVER, len(row.shape)
    for k in range(rank):
        found = row.odds[k]
        for j in range(len(row.counts)):
            found += row.counts[j] * math.log(row.parts[k, j] + 1e-30)
        here.gains[k] = POWER * found
        here.found[k], here.precision[k] = -math.log(row.rate), 1.0 / row.rate
        top = max(top, here.gains[k])
    for k in range(rank):
        here.gains[k] -= top


@compiled_for_kernels()
def fill_gains(row: Row, base: Support, react: bool, blunt: bool, here: Space) -> float:
    """Write, for each component outside the base, the log weight with which it is proposed; return the log of the sum.

    The last weight is that of no component, 0 for an empty base. Means, weights, curvatures and `here.loadings` are
    those of the base. With `react`, the others change as a component is added, to second order; else they stay.
    """
    size, rank = base.size[0], len(row.shape)
    for k in range(rank):
        here.inside[k] = False
    for a in range(size):
        here.inside[base.members[a]] = True
    if size == 0:
        _gains_of_first(row, here)
    else:
        _gains_of_more(row, base, size if react else 0, here)
    least, most = BLUNT if blunt else BOUNDED
    total = 0.0
    for k in range(rank):
        if here.inside[k]:
            here.gains[k] = NEVER
        else:
            here.gains[k] = min(max(here.gains[k], least), most)
            total += math.exp(here.gains[k])
    here.gains[rank] = NEVER
    if size > 0:
        here.gains[rank] = math.log(total) if blunt and total > 0.0 else 0.0
        total += math.exp(here.gains[rank])
    return math.log(total)


@compiled_for_kernels()
def _gains_of_more(row: Row, base: Support, reacting: int, here: Space) -> None:
    shapes = total = 0.0
    for a in range(base.size[0]):
        shapes += row.shape[base.members[a]]
        total += here.loadings[a]
    _soften(row.variance != QUADRATIC, row.counts, here.means, here.curvatures, here.softened)
    for a in range(reacting):
        k = base.members[a]
        scale_into(here.loadings[a], row.parts[k], here.softened, here.crossed[a])
        for b in range(a + 1):
            here.square[a, b] = here.loadings[b] * product(here.crossed[a], row.parts[base.members[b]])
        here.square[a, a] += row.shape[k]
    factorise(here.square, reacting, here.square)
    begun, log_total = math.lgamma(shapes), math.log(total)
    for k in range(len(row.shape)):
        if not here.inside[k]:
            own = weighted_square(row.parts[k], here.softened)
            left = own
            for a in range(reacting):
                each = product(here.crossed[a], row.parts[k])
                for b in range(a):
                    each -= here.square[a, b] * here.solved[b]
                here.solved[a] = each / here.square[a, a]
                left -= here.solved[a] * here.solved[a]
            a_k = row.shape[k]
            slope = product(row.parts[k], here.weights) - row.exposure[k] - row.rate - (shapes + a_k - 1.0) / total
            gain = row.odds[k] + math.lgamma(shapes + a_k) - begun - math.lgamma(a_k) - a_k * log_total
            here.gains[k] = POWER * (gain + _gain_of(row, k, slope, max(left, 0.02 * own) + 1e-300, here))
