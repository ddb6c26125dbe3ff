"""Move between supports of known components, and between their loadings, by reversible jumps.

A move leaves one component of the support, or none, out of account, then proposes one in its place, or none, by the
gains of `support_gains.py`, in part almost whatever these are. It is accepted by the exact ratio of densities (Green
1995), in one of two ways:

- *all loadings move*: loadings are t = mode + L⁻ᵀ z around the mode of their support, with L Lᵀ = −Hessian there. The
  others keep their z as the support changes, and the new one draws its own from a t distribution of six degrees of
  freedom. Were the density normal, all loadings would be integrated out this way;
- *one loading moves*: the others keep their values, and only the new one is drawn. It is what leaves the tails, where
  the first way is far from the density.

Between moves z is drawn again, wholly or in part.
"""

from __future__ import annotations

import math

from bayesnmf.kernels.cpu.compiling import compiled_for_kernels
from bayesnmf.kernels.cpu.streams import normal, uniform
from bayesnmf.kernels.cpu.support_gains import fill_gains
from bayesnmf.kernels.cpu.supports import (
    Row,
    Space,
    Support,
    copy_support,
    fill_means,
    fill_weights,
    find_mode,
    log_density,
    log_determinant,
    put_last,
    solve_upper,
)
from bayesnmf.types import Array

FREEDOM = 6.0  # degrees of freedom of the t distribution
LOG_T = math.lgamma(3.5) - math.lgamma(3.0) - 0.5 * math.log(FREEDOM * math.pi)
PLAIN = 0.3  # share of the proposals that are blunt
KEPT = 0.9  # share of z that half of the draws of all loadings keep


@compiled_for_kernels()
def _log_t(z: float) -> float:
    return LOG_T - 3.5 * math.log1p(z * z / FREEDOM)


@compiled_for_kernels()
def _t_draw(state: Array) -> float:
    return normal(state) * math.sqrt(FREEDOM / (-2.0 * math.log(uniform(state) * uniform(state) * uniform(state))))


@compiled_for_kernels()
def _pick(state: Array, gains: Array, log_sum: float) -> int:
    """Draw a component by its weight; the number of components stands for none."""
    left = uniform(state)
    for k in range(len(gains)):
        left -= math.exp(gains[k] - log_sum)
        if left < 0.0:
            return k
    return len(gains) - 1


@compiled_for_kernels()
def _standardise(at: Support, z: Array) -> None:
    for a in range(at.size[0]):
        z[a] = 0.0
        for b in range(a, at.size[0]):
            z[a] += at.factor[b, a] * (at.logs[b] - at.mode[b])


@compiled_for_kernels()
def _place(at: Support, z: Array) -> None:
    """Write t = mode + L⁻ᵀ z."""
    solve_upper(at.factor, at.size[0], z, at.logs)
    for a in range(at.size[0]):
        at.logs[a] += at.mode[a]


@compiled_for_kernels()
def _leave_out(state: Array, at: Support, spare: Support) -> int:
    """Draw one of the members, which is put last, or none; return the size of the base without it."""
    size = at.size[0]
    slot = int(uniform(state) * (size + 1))
    if slot == size:
        return size
    if slot < size - 1:
        put_last(at, slot, spare)
    return size - 1


@compiled_for_kernels()
def move_all(state: Array, row: Row, at: Support, to: Support, z: Array, here: Space) -> bool:
    """Propose another support with all loadings, in `to`; return whether to accept it."""
    rank, size = len(row.shape), at.size[0]
    base = _leave_out(state, at, to)
    _standardise(at, z)
    copy_support(at, base, to)
    if base:
        find_mode(row, to, here)
    log_sum = fill_gains(row, to, True, uniform(state) < PLAIN, here)
    pick = _pick(state, here.gains, log_sum)
    old = at.members[base] if base < size else rank
    if (base == 0 and pick == rank) or (pick < rank and base == len(z)):
        return False
    ratio = here.gains[old] - here.gains[pick] + (_log_t(z[base]) if old < rank else 0.0)
    if pick == old:
        copy_support(at, size, to)
    elif pick < rank:
        to.size[0], to.members[base], to.mode[base] = base + 1, pick, here.found[pick]
        find_mode(row, to, here)
    if pick < rank:
        z[base] = _t_draw(state)
        ratio -= _log_t(z[base])
    _place(to, z)
    ratio += math.log((size + 1.0) / (to.size[0] + 1.0))
    ratio += log_density(row, to, here) - log_determinant(to.factor, to.size[0])
    ratio -= log_density(row, at, here) - log_determinant(at.factor, size)
    return math.log(uniform(state)) < ratio


@compiled_for_kernels()
def draw_again(state: Array, row: Row, at: Support, to: Support, z: Array, here: Space) -> bool:
    """Propose other loadings of the same support, in `to`; return whether to accept them."""
    size, kept = at.size[0], 0.0 if uniform(state) < 0.5 else KEPT
    _standardise(at, z)
    copy_support(at, size, to)
    ratio = 0.0
    for a in range(size):
        ratio -= 0.5 * z[a] * z[a]
        z[a] = kept * z[a] + math.sqrt(1.0 - kept * kept) * normal(state)
        ratio += 0.5 * z[a] * z[a]
    _place(to, z)
    ratio += log_density(row, to, here) - log_density(row, at, here)
    return math.log(uniform(state)) < ratio


@compiled_for_kernels()
def move_one(state: Array, row: Row, at: Support, to: Support, here: Space) -> bool:
    """Propose a support in which the others keep their loadings, in `to`, without its mode; return whether to accept.

    A support whose mode is to be found has the old mode, or a first guess, as its mode.
    """
    rank, size = len(row.shape), at.size[0]
    base = _leave_out(state, at, to)
    if base == 0:
        return False
    copy_support(at, base, to)
    for a in range(base):
        here.loadings[a] = math.exp(to.logs[a])
    fill_means(to.members, here.loadings, base, row.parts, here.means)
    fill_weights(row, here)
    log_sum = fill_gains(row, to, False, uniform(state) < PLAIN, here)
    pick = _pick(state, here.gains, log_sum)
    old = at.members[base] if base < size else rank
    if (pick == rank and old == rank) or (pick < rank and base == len(here.gradient)):
        return False
    ratio = here.gains[old] - here.gains[pick]
    if old < rank:
        width = math.sqrt(here.precision[old])
        ratio += _log_t((at.logs[base] - here.found[old]) * width) + math.log(width)
    if pick == old:
        copy_support(at, size, to)
    if pick < rank:
        width, z = math.sqrt(here.precision[pick]), _t_draw(state)
        ratio -= _log_t(z) + math.log(width)
        to.size[0], to.members[base], to.logs[base] = base + 1, pick, here.found[pick] + z / width
        if pick != old:
            to.mode[base] = to.logs[base]
    ratio += math.log((size + 1.0) / (to.size[0] + 1.0))
    ratio += log_density(row, to, here) - log_density(row, at, here)
    return math.log(uniform(state)) < ratio
