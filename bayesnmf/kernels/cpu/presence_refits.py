"""Refit a row: EM with all components, then without those whose absence makes the log density higher."""

from __future__ import annotations

import math

import numpy as np

from bayesnmf.kernels.cpu.compiling import compiled_for_kernels
from bayesnmf.kernels.cpu.supports import (
    NEVER,
    QUADRATIC,
    Row,
    Space,
    Support,
    copy_support,
    fill_means,
    fill_weights,
    find_mode,
    log_density,
    log_likelihood,
    product,
    put_last,
)
from bayesnmf.types import Array

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
