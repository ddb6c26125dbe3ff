"""Which known components are present in each row, and how much of each: modes, gains, reversible jumps and refits.

A row has counts x_j with means λ_j = Σ_{k∈S} u_k β_kj, where S is the support: the components that are present. The
prior of u given S is Gamma(a_k, b) with the scale-free prior 1/b of the rate summed out, and a Gamma(1, r) prior of the
total τ = Σ u_k, so that the shares are Dirichlet(a). In t = log u the log density is, with odds o_k of presence, ::

    Σ_j ℓ(x_j, λ_j) + Σ_S (o_k − logΓ(a_k) + a_k t_k − r u_k) + logΓ(A) + (1 − A) log τ + log r,    A = Σ_S a_k

ℓ is x log λ − λ for Poisson counts, L − e λ for counts in clusters (`rising.py`), and for counts of quadratic variance
x log λ − (x + 1/α) log(1 + αλ), for which all observed entries are needed, not just the nonzeros.

What a component gains when it is added to a support is estimated by Laplace's method in one dimension (`fill_gains`). A
move leaves one component of the support, or none, out of account, then proposes one in its place, or none, by these
gains, in part almost whatever they are. It is accepted by the exact ratio of densities (Green 1995), in one of two
ways:

- *all loadings move*: loadings are t = mode + L⁻ᵀ z around the mode of their support, with L Lᵀ = −Hessian there. The
  others keep their z as the support changes, and the new one draws its own from a t distribution of six degrees of
  freedom. Were the density normal, all loadings would be integrated out this way;
- *one loading moves*: the others keep their values, and only the new one is drawn. It is what leaves the tails, where
  the first way is far from the density.

Between moves z is drawn again, wholly or in part. Draws depend on a seed and the number of the row alone. Beside them
stand what judges them, the log-likelihood and log density of loadings, and a refit to compare with: EM with all
components, then without those whose absence makes the log density higher.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from bayesnmf.kernels.cpu.compiling import FAST, compiled_for_kernels, compiled_on_disk
from bayesnmf.kernels.cpu.draws import normal, stream, uniform
from bayesnmf.kernels.cpu.rising import rising_sums
from bayesnmf.kernels.cpu.special import weighted_logarithms
from bayesnmf.kernels.cpu.threads import over_rows
from bayesnmf.kernels.cpu.vectors import VECTOR_BYTES
from bayesnmf.types import Array

POISSON, LINEAR, QUADRATIC = 0, 1, 2  # how the variance grows
LEAST = 1e-100  # of means: their logarithms, and the squares of their reciprocals, are finite
CLOSE, STEPS, LONGEST = 1e-6, 30, 1.5  # squared length at which Newton's method ends, most steps, largest change of t
NEVER = -1e300
NOTHING = -100.0  # logarithm of a loading below which there is none: sums of such ones underflow
LOOPS: Any = {"nogil": True, "fastmath": FAST, "error_model": "numpy"}


class Model(NamedTuple):
    """What rows share: components (K, m), missing entries (n or 0, m), prior and noise.

    `factors` (m,) are what multiplies means in the log-likelihood: 1 for Poisson counts, e for counts in clusters, 0
    for quadratic variance. `exposure` (n or 1, K) are the sums of the components times them over the observed entries,
    `shape` and `odds` (K,) the shapes of the loadings and the logits of the chances of presence, `dispersion` (m,) that
    of each feature.
    """

    components: Any
    missing: Any
    exposure: Any
    shape: Any
    odds: Any
    variance: int
    dispersion: Any
    factors: Any


class Row(NamedTuple):
    """A row: counts and dispersions (c,), components at these entries (K, c), what multiplies u in −Σ λ (K,), prior."""

    counts: Any
    parts: Any
    exposure: Any
    shape: Any
    odds: Any
    rate: float
    variance: int
    dispersion: Any


class Support(NamedTuple):
    """A support: its size (1,), components, t, mode of t, and −Hessian at the mode, whole and as a Cholesky factor."""

    size: Any
    members: Any
    logs: Any
    mode: Any
    hessian: Any
    factor: Any


class Space(NamedTuple):
    """Memory to work in: of entries (c,), of members, of all components."""

    means: Any
    weights: Any
    curvatures: Any
    softened: Any
    one: Any
    other: Any
    loadings: Any
    gradient: Any
    crossed: Any
    square: Any
    solved: Any
    gains: Any
    found: Any
    precision: Any
    inside: Any


@compiled_for_kernels()
def new_support(cap: int) -> Support:
    """Return an empty support with room for `cap` components."""
    square = np.empty((cap, cap)), np.empty((cap, cap))
    return Support(np.zeros(1, np.int64), np.empty(cap, np.int64), np.empty(cap), np.empty(cap), *square)


@compiled_for_kernels()
def new_space(entries: int, cap: int, rank: int) -> Space:
    """Return memory for a row of so many entries."""
    c, k = entries, rank
    return Space(
        np.empty(c), np.empty(c), np.empty(c), np.empty(c), np.empty(c), np.empty(c), np.empty(cap), np.empty(cap),
        np.empty((cap, c)), np.empty((cap, cap)), np.empty(cap), np.empty(k + 1), np.empty(k), np.empty(k),
        np.zeros(k, np.bool_),
    )  # fmt: skip


@compiled_for_kernels(**LOOPS)
def product(a: Array, b: Array) -> float:
    """Return Σ a b."""
    total = 0.0
    for j in range(len(a)):
        total += a[j] * b[j]
    return total


@compiled_for_kernels(**LOOPS)
def weighted_square(a: Array, b: Array) -> float:
    """Return Σ a² b."""
    total = 0.0
    for j in range(len(a)):
        total += a[j] * a[j] * b[j]
    return total


@compiled_for_kernels(**LOOPS)
def scale_into(factor: float, a: Array, b: Array, out: Array) -> None:
    """Write factor · a · b."""
    for j in range(len(a)):
        out[j] = factor * a[j] * b[j]


@compiled_for_kernels(**LOOPS)
def fill_means(members: Array, loadings: Array, size: int, parts: Array, out: Array) -> None:
    """Write λ."""
    for j in range(len(out)):
        out[j] = LEAST
    for a in range(size):
        u, k = loadings[a], members[a]
        for j in range(len(out)):
            out[j] += u * parts[k, j]


@compiled_for_kernels(**LOOPS)
def _few_weights(quadratic: bool, alpha: Array, x: Array, means: Array, w: Array, v: Array) -> None:
    if quadratic:
        for j in range(len(x)):
            v[j] = 1.0 / (means[j] * (1.0 + alpha[j] * means[j]))
            w[j] = (x[j] - means[j]) * v[j]
    else:
        for j in range(len(x)):
            w[j] = x[j] / means[j]
            v[j] = w[j] / means[j]


@compiled_for_kernels(**LOOPS)
def _exact_curvatures(alpha: Array, x: Array, means: Array, out: Array) -> None:
    """Write the curvature of ℓ in λ for quadratic variance: with it a mode is found in half as many steps."""
    for j in range(len(x)):
        slope = alpha[j] / (1.0 + alpha[j] * means[j])
        out[j] = x[j] / (means[j] * means[j]) - (x[j] + 1.0 / alpha[j]) * slope * slope


@compiled_for_kernels()
def fill_weights(row: Row, here: Space) -> None:
    """Write the slope of ℓ in λ, without −e, and its curvature; that of quadratic variance is the expected one.

    Gains need a curvature above 0, which the exact one is not where counts are 0 (`_exact_curvatures`).
    """
    if row.variance == LINEAR:
        rising_sums(len(row.counts), row.counts, here.means, row.dispersion, here.weights, None, here.curvatures)
    else:
        quadratic = row.variance == QUADRATIC
        _few_weights(quadratic, row.dispersion, row.counts, here.means, here.weights, here.curvatures)


@compiled_for_kernels()
def log_likelihood(row: Row, here: Space) -> float:
    """Return Σ ℓ at the means, without −e λ."""
    entries = len(row.counts)
    if row.variance == LINEAR:
        rising_sums(entries, row.counts, here.means, row.dispersion, here.weights, here.other, None)
        return here.other.sum()
    found = weighted_logarithms(entries, row.counts, here.means)
    if row.variance == QUADRATIC:
        for j in range(entries):
            here.one[j] = 1.0 + row.dispersion[j] * here.means[j]
            here.other[j] = row.counts[j] + 1.0 / row.dispersion[j]
        found -= weighted_logarithms(entries, here.other, here.one)
    return found


@compiled_for_kernels()
def log_density(row: Row, at: Support, here: Space) -> float:
    """Return the log density of a support and its t, up to a constant of the row; NEVER if a loading is nearly 0."""
    shapes = total = 0.0
    found = math.log(row.rate)
    for a in range(at.size[0]):
        if at.logs[a] < NOTHING:
            return NEVER
        k, u = at.members[a], math.exp(at.logs[a])
        here.loadings[a] = u
        shapes += row.shape[k]
        total += u
        found += row.odds[k] - math.lgamma(row.shape[k]) + row.shape[k] * at.logs[a] - (row.exposure[k] + row.rate) * u
    found += math.lgamma(shapes) + (1.0 - shapes) * math.log(total)
    fill_means(at.members, here.loadings, at.size[0], row.parts, here.means)
    return found + log_likelihood(row, here)


@compiled_for_kernels()
def factorise(matrix: Array, size: int, out: Array) -> bool:
    """Write the lower Cholesky factor of a matrix; return whether there is one."""
    for a in range(size):
        for b in range(a + 1):
            left = matrix[a, b]
            for k in range(b):
                left -= out[a, k] * out[b, k]
            if a == b:
                if left <= 1e-12:
                    return False
                out[a, a] = math.sqrt(left)
            else:
                out[a, b] = left / out[b, b]
    return True


@compiled_for_kernels()
def _factorise_surely(at: Support, size: int) -> None:
    """Write the factor of −Hessian, whose diagonal grows as long as it has none.

    One that is hardly positive definite may have a factor in one order of the members, and by rounding none in another.
    """
    growth = 1e-12
    while not factorise(at.hessian, size, at.factor):
        for a in range(size):
            at.hessian[a, a] *= 1.0 + growth
        growth *= 10.0


@compiled_for_kernels()
def solve_upper(factor: Array, size: int, right: Array, out: Array) -> None:
    """Write the solution of Lᵀ x = right."""
    for a in range(size - 1, -1, -1):
        left = right[a]
        for b in range(a + 1, size):
            left -= factor[b, a] * out[b]
        out[a] = left / factor[a, a]


@compiled_for_kernels()
def _fill_hessian(row: Row, at: Support, here: Space, curvatures: Array, whole: float) -> None:
    """Write −Hessian in t at the mode: D β V βᵀ D + diag(a) − whole · u uᵀ, with curvatures V."""
    u, size = here.loadings, at.size[0]
    for a in range(size):
        scale_into(u[a], row.parts[at.members[a]], curvatures, here.one)
        for b in range(a + 1):
            found = u[b] * product(here.one, row.parts[at.members[b]]) - whole * u[a] * u[b]
            at.hessian[a, b] = found
        at.hessian[a, a] += row.shape[at.members[a]]


@compiled_for_kernels()
def find_mode(row: Row, at: Support, here: Space) -> None:
    """Write the mode of t, from the mode that is there, with the Hessian; the means are those at the mode."""
    size, shapes = at.size[0], 0.0
    for a in range(size):
        shapes += row.shape[at.members[a]]
    for step in range(STEPS + 1):
        total = 0.0
        for a in range(size):
            here.loadings[a] = math.exp(at.mode[a])
            total += here.loadings[a]
        fill_means(at.members, here.loadings, size, row.parts, here.means)
        fill_weights(row, here)
        whole = (shapes - 1.0) / (total * total)
        found = False
        if row.variance == QUADRATIC:
            _exact_curvatures(row.dispersion, row.counts, here.means, here.other)
            _fill_hessian(row, at, here, here.other, whole)
            found = factorise(at.hessian, size, at.factor)
        if not found:
            _fill_hessian(row, at, here, here.curvatures, whole)
            if not factorise(at.hessian, size, at.factor):
                _fill_hessian(row, at, here, here.curvatures, 0.0)
                factorise(at.hessian, size, at.factor)
        length = 0.0
        for a in range(size):
            k = at.members[a]
            slope = product(row.parts[k], here.weights) - row.exposure[k] - row.rate - (shapes - 1.0) / total
            left = here.loadings[a] * slope + row.shape[k]
            for b in range(a):
                left -= at.factor[a, b] * here.gradient[b]
            here.gradient[a] = left / at.factor[a, a]
            length += here.gradient[a] * here.gradient[a]
        if length < CLOSE or step == STEPS:
            return
        solve_upper(at.factor, size, here.gradient, here.gradient)
        largest = 0.0
        for a in range(size):
            largest = max(largest, abs(here.gradient[a]))
        short = min(1.0, LONGEST / largest)
        for a in range(size):
            at.mode[a] += short * here.gradient[a]


@compiled_for_kernels()
def log_determinant(factor: Array, size: int) -> float:
    """Return log |L|."""
    found = 0.0
    for a in range(size):
        found += math.log(factor[a, a])
    return found


@compiled_for_kernels()
def put_last(at: Support, place: int, there: Support) -> None:
    """Exchange a member of a support with the last one, in all that it holds; `there` is overwritten."""
    last = at.size[0] - 1
    for values in (at.logs, at.mode):
        values[place], values[last] = values[last], values[place]
    at.members[place], at.members[last] = at.members[last], at.members[place]
    for a in range(last + 1):
        for b in range(a + 1):
            c = last if a == place else (place if a == last else a)
            d = last if b == place else (place if b == last else b)
            there.hessian[a, b] = at.hessian[max(c, d), min(c, d)]
    for a in range(last + 1):
        for b in range(a + 1):
            at.hessian[a, b] = there.hessian[a, b]
    _factorise_surely(at, last + 1)


@compiled_for_kernels()
def copy_support(at: Support, size: int, to: Support) -> None:
    """Copy the first members of a support."""
    to.size[0] = size
    for a in range(size):
        to.members[a], to.logs[a], to.mode[a] = at.members[a], at.logs[a], at.mode[a]
        for b in range(a + 1):
            to.hessian[a, b], to.factor[a, b] = at.hessian[a, b], at.factor[a, b]


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


ROUNDS = 100  # of EM
SMALL = 0.5  # loss of likelihood, in nats, below which a component of the first fit is left out
FAILED = 4  # attempts to leave out a component, after which no more are made


@compiled_for_kernels()
def _expect(row: Row, here: Space) -> None:
    """Write, for each entry, what EM multiplies a loading by, and what it divides by if the variance is quadratic."""
    fill_weights(row, here)
    if row.variance == QUADRATIC:
        for j in range(len(row.counts)):
            ratio = (1.0 + row.dispersion[j] * row.counts[j]) / (1.0 + row.dispersion[j] * here.means[j])
            here.weights[j] = row.counts[j] / here.means[j]
            here.curvatures[j] = ratio


@compiled_for_kernels()
def _fit_all(row: Row, u: Array, here: Space) -> None:
    """Write loadings of all components after some rounds of EM."""
    rank, members = len(u), np.arange(len(u))
    u[:] = 1.0 / (row.rate * rank)
    for _ in range(ROUNDS):
        fill_means(members, u, rank, row.parts, here.means)
        _expect(row, here)
        for k in range(rank):
            spent = product(row.parts[k], here.curvatures) if row.variance == QUADRATIC else row.exposure[k]
            u[k] *= product(row.parts[k], here.weights) / spent if spent > 0.0 else 0.0


@compiled_for_kernels()
def _choose(row: Row, u: Array, at: Support, here: Space) -> None:
    """Write the support of the components without which the likelihood would fall, at most as many as there is room."""
    rank, members = len(u), np.arange(len(u))
    fill_means(members, u, rank, row.parts, here.means)
    best, whole, total = log_likelihood(row, here), here.softened, u.sum()
    whole[:] = here.means
    losses = np.zeros(rank)
    for k in range(rank):
        scale = total / max(total - u[k], 1e-9 * total)
        for j in range(len(whole)):
            here.means[j] = max(scale * (whole[j] - u[k] * row.parts[k, j]), 1e-100)
        losses[k] = best - log_likelihood(row, here)
    at.size[0] = 0
    for k in np.argsort(-losses)[: len(at.members)]:
        a = at.size[0]
        if a == 0 or (losses[k] > SMALL and u[k] > 0.0):
            at.members[a], at.mode[a] = k, math.log(max(u[k], 1e-3))
            at.size[0] += 1


@compiled_for_kernels()
def _cheapest(row: Row, at: Support, tried: Array, here: Space) -> int:
    """Return the member without which the density is estimated to rise most, or fall least; −1 if none is left.

    The likelihood falls by half the square of a loading over its variance, 1 / 2 (H⁻¹)_kk in log u.
    """
    size, place, best = at.size[0], -1, NEVER
    shapes = total = 0.0
    for a in range(size):
        shapes += row.shape[at.members[a]]
        total += math.exp(at.mode[a])
    for a in range(size):
        variance = 0.0  # column a of L⁻¹, squared
        for b in range(a, size):
            left = 1.0 if b == a else 0.0
            for c in range(a, b):
                left -= at.factor[b, c] * here.solved[c]
            here.solved[b] = left / at.factor[b, b]
            variance += here.solved[b] * here.solved[b]
        k = at.members[a]
        s = row.shape[k]
        prior = row.odds[k] - math.lgamma(s) + s * at.mode[a] - s * math.log(total)
        prior += math.lgamma(shapes) - math.lgamma(max(shapes - s, 1e-3))
        score = -prior - 0.5 / variance
        if not tried[k] and score > best:
            place, best = a, score
    return place


@compiled_for_kernels()
def refit(row: Row, loadings: Array, at: Support, to: Support, here: Space) -> None:
    """Write loadings of the row: those of EM, pruned backwards, at the mode of the log density."""
    _fit_all(row, loadings, here)
    _choose(row, loadings, at, here)
    find_mode(row, at, here)
    at.logs[:] = at.mode
    joint = log_density(row, at, here)
    tried, failed = np.zeros(len(loadings), np.bool_), 0
    while at.size[0] > 1 and failed < FAILED:
        place = _cheapest(row, at, tried, here)
        if place < 0:
            break
        tried[at.members[place]] = True
        put_last(at, place, to)
        copy_support(at, at.size[0] - 1, to)
        find_mode(row, to, here)
        to.logs[:] = to.mode
        without = log_density(row, to, here)
        if without > joint:
            at, to, joint, failed = to, at, without, 0
            tried[:] = False
        else:
            failed += 1
    loadings[:] = 0.0
    for a in range(at.size[0]):
        loadings[at.members[a]] = math.exp(at.logs[a])


MOST = 40  # components that may be present in a row at once
SINGLE = 2  # moves of one loading for each move of all


@compiled_for_kernels()
def _count(at: Support, share: float, present: Array) -> None:
    for a in range(at.size[0]):
        present[at.members[a]] += share


@compiled_for_kernels()
def _row(matrix: Any, model: Model, i: int) -> tuple[Row, Array]:
    """Return the row of this number and the features of its entries: those of counts, or all observed ones if needed.

    Entries are filled up to whole vectors.
    """
    indptr, indices, values = matrix
    rank, m = model.components.shape
    step, row_counts, total = VECTOR_BYTES // 8, np.zeros(m), 0.0
    for p in range(indptr[i], indptr[i + 1]):
        row_counts[indices[p]] = values[p]
        total += values[p]
    chosen = np.flatnonzero(row_counts > 0.0)
    if model.variance == QUADRATIC:
        chosen = np.flatnonzero(~model.missing[i]) if len(model.missing) else np.arange(m)
    entries = max((len(chosen) + step - 1) // step, 1) * step
    counts, spreads, parts = np.zeros(entries), np.ones(entries), np.zeros((rank, entries))
    for p in range(len(chosen)):
        counts[p], spreads[p] = row_counts[chosen[p]], model.dispersion[chosen[p]]
        for k in range(rank):
            parts[k, p] = model.components[k, chosen[p]]
    own = model.exposure[i if len(model.exposure) > 1 else 0].copy()
    rate = 1.0 / max(total, 1.0)
    return Row(counts, parts, own, model.shape, model.odds, rate, model.variance, spreads), chosen


@compiled_for_kernels()
def _fill_support(loadings: Array, at: Support) -> None:
    """Write the support of loadings: the largest, if there is no room for all."""
    at.size[0] = 0
    order = np.argsort(-loadings)
    for k in order[: len(at.members)]:
        if loadings[k] > 0.0 and math.log(loadings[k]) > NOTHING:
            a = at.size[0]
            at.members[a], at.logs[a], at.mode[a] = k, math.log(loadings[k]), math.log(loadings[k])
            at.size[0] += 1


@compiled_for_kernels()
def _fill_loadings(at: Support, loadings: Array) -> None:
    """Write the loadings of a support, 0 for what is absent."""
    loadings[:] = 0.0
    for a in range(at.size[0]):
        loadings[at.members[a]] = math.exp(at.logs[a])


@compiled_for_kernels()
def _draw_row(state: Array, row: Row, moves: int, afresh: bool, loadings: Array, present: Array, here: Space) -> None:
    """Draw the loadings of a row, 0 for what is absent, and add the shares of moves in which each is present."""
    cap = min(len(loadings), MOST)
    at, to, z = new_support(cap), new_support(cap), np.empty(cap)
    _fill_support(loadings, at)
    if not at.size[0]:  # none at all is no state
        best = 1.0 / (row.rate * len(loadings))
        at.members[0], at.logs[0], at.mode[0], at.size[0] = 0, math.log(best), math.log(best), 1
    find_mode(row, at, here)
    if afresh:
        at.logs[:] = at.mode
    share = 1.0 / (moves * (1 + SINGLE))
    for _ in range(moves):
        if move_all(state, row, at, to, z, here):
            at, to = to, at
        if draw_again(state, row, at, to, z, here):
            at, to = to, at
        _count(at, share, present)
        for _ in range(SINGLE):
            if move_one(state, row, at, to, here):
                changed = at.size[0] != to.size[0] or at.members[at.size[0] - 1] != to.members[at.size[0] - 1]
                at, to = to, at
                if changed:
                    find_mode(row, at, here)
            _count(at, share, present)
    _fill_loadings(at, loadings)


@compiled_on_disk(nogil=True)
def _draw_rows(
    matrix: Any,
    model: Model,
    seed: Any,
    moves: int,
    afresh: bool,
    start: int,
    stop: int,
    loadings: Array,
    present: Array,
) -> None:
    rank, state = len(model.components), np.empty(1, np.uint64)
    for i in range(start, stop):
        row, _ = _row(matrix, model, i)
        state[0] = stream(seed, i)
        here = new_space(len(row.counts), min(rank, MOST), rank)
        _draw_row(state, row, moves, afresh, loadings[i], present[i], here)


@compiled_on_disk(nogil=True)
def _refit_rows(matrix: Any, model: Model, start: int, stop: int, loadings: Array) -> None:
    rank = len(model.components)
    cap = min(rank, MOST)
    for i in range(start, stop):
        row, _ = _row(matrix, model, i)
        here, at, to = new_space(len(row.counts), cap, rank), new_support(cap), new_support(cap)
        refit(row, loadings[i], at, to, here)


@compiled_for_kernels()
def _put_extra(row: Row, model: Model, i: int, chosen: Array, extra: Array) -> None:
    """Put what extra components were in a draw, (E, m), in the place of the last ones."""
    known = len(row.parts) - len(extra)
    for k in range(len(extra)):
        row.exposure[known + k] = 0.0
        for j in range(extra.shape[1]):
            if not len(model.missing) or not model.missing[i, j]:
                row.exposure[known + k] += extra[k, j] * model.factors[j]
        for p in range(len(chosen)):
            row.parts[known + k, p] = extra[k, chosen[p]]


@compiled_on_disk(nogil=True)
def _judge_rows(
    matrix: Any,
    model: Model,
    drawn: Any,
    extra: Array,
    start: int,
    stop: int,
    likelihoods: Array,
    joints: Array,
    modes: Array,
) -> None:
    indptr, indices, values = drawn
    cap = rank = len(model.components)
    for i in range(start, stop):
        row, chosen = _row(matrix, model, i)
        here, at, loadings = new_space(len(row.counts), cap, rank), new_support(cap), np.zeros((len(extra), rank))
        for k in range(rank):
            for p in range(indptr[i * rank + k], indptr[i * rank + k + 1]):
                loadings[indices[p], k] = values[p]
        for d in range(len(extra)):
            _put_extra(row, model, i, chosen, extra[d])
            _fill_support(loadings[d], at)
            joints[d, i] = log_density(row, at, here)
            likelihoods[d, i] = log_likelihood(row, here)
            for a in range(at.size[0]):
                likelihoods[d, i] -= row.exposure[at.members[a]] * math.exp(at.logs[a])
        best = int(np.argmax(joints[:, i]))
        _put_extra(row, model, i, chosen, extra[best])
        _fill_support(loadings[best], at)
        find_mode(row, at, here)
        at.logs[:] = at.mode
        modes[i] = max(joints[best, i], log_density(row, at, here))


def draw_presence(
    matrix: Any,
    model: Model,
    seed: int,
    moves: int,
    afresh: bool,
    loadings: Array,
    present: Array,
    threads: int | None = None,
) -> None:
    """Draw loadings of known components, in place, and add the share of the moves in which each is present.

    Parameters
    ----------
    matrix : csr_array (n, m)
        Counts.
    model : Model
        Components, entries, prior and noise.
    seed : int
        Seed of this round.
    moves : int
        Moves of all loadings.
    loadings, present : ndarray (n, K)
        Loadings, which are replaced, and sums of shares.
    threads : int, optional
        Blocks of rows to work on at once; draws do not depend on it.
    """
    n, rank = loadings.shape
    work = 200 * moves * n * rank * model.components.shape[1]
    rows = matrix.indptr, matrix.indices, matrix.data

    def draw(first: int, last: int) -> None:
        _draw_rows(rows, model, np.uint64(seed), moves, afresh, first, last, loadings, present)

    over_rows(n, work, draw, threads)


def refit_presence(matrix: Any, model: Model, threads: int | None = None) -> Array:
    """Return loadings (n, K) of a refit of each row, pruned backwards as long as the log density rises."""
    n, rank = matrix.shape[0], len(model.components)
    work, loadings = 2000 * n * rank * model.components.shape[1], np.zeros((n, rank))
    rows = matrix.indptr, matrix.indices, matrix.data
    over_rows(n, work, lambda first, last: _refit_rows(rows, model, first, last, loadings), threads)
    return loadings


def judge_presence(
    matrix: Any, model: Model, drawn: Any, extra: Array, threads: int | None = None
) -> tuple[Array, Array, Array]:
    """Return the log-likelihood and the log density of draws, (draws, n), and that at the best one's mode, (n,).

    The mode is that of the loadings in the support of the draw. All are up to constants of the row.

    Parameters
    ----------
    matrix, model
        As for `draw_presence`.
    drawn : csc_array (draws, n K)
        Loadings.
    extra : ndarray (draws, E, m)
        What the last components were in each draw.
    """
    draws, n = len(extra), matrix.shape[0]
    work, rows = 20 * draws * n * model.components.shape[1], (matrix.indptr, matrix.indices, matrix.data)
    likelihoods, joints, modes = np.zeros((draws, n)), np.zeros((draws, n)), np.zeros(n)
    stored = drawn.indptr, drawn.indices, drawn.data

    def judge(first: int, last: int) -> None:
        _judge_rows(rows, model, stored, extra, first, last, likelihoods, joints, modes)

    over_rows(n, work, judge, threads)
    return likelihoods, joints, modes
