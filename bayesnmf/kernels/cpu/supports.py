"""What a row says of a set of known components: the mode of their loadings, and what adding one more would gain.

A row has counts x_j with means λ_j = Σ_{k∈S} u_k β_kj, where S is the support: the components that are present. The
prior of u given S is Gamma(a_k, b) with the scale-free prior 1/b of the rate summed out, and a Gamma(1, r) prior of the
total τ = Σ u_k, so that the shares are Dirichlet(a). In t = log u the log density is, with odds o_k of presence, ::

    Σ_j ℓ(x_j, λ_j) + Σ_S (o_k − logΓ(a_k) + a_k t_k − r u_k) + logΓ(A) + (1 − A) log τ + log r,    A = Σ_S a_k

ℓ is x log λ − λ for Poisson counts, L − e λ for counts in clusters (`rising.py`), and for counts of quadratic variance
x log λ − (x + 1/α) log(1 + αλ), for which all observed entries are needed, not just the nonzeros.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from bayesnmf.kernels.cpu.compiling import FAST, compiled_for_kernels
from bayesnmf.kernels.cpu.rising import rising_sums
from bayesnmf.kernels.cpu.special import weighted_logarithms
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
