"""Moves along directions in which the means of the counts do not change: shears and scales of components.

For two components k ≠ l, the shear b_k ← b_k + τ b_l, t_l ← t_l − τ t_k leaves every mean Σ_k t_ik b_kj as it is, and
its Jacobian is 1. The scale b_k ← e^v b_k, t_k ← e^−v t_k does, too. τ and v are drawn from their densities under the
prior, by slice sampling: generalised Gibbs steps along an orbit (Liu & Sabatti 2000). No counts are touched.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from bayesnmf.kernels.cpu.compiling import FAST, compiled_for_kernels, compiled_on_disk
from bayesnmf.kernels.cpu.draws import stream, uniform
from bayesnmf.kernels.cpu.special import logarithms
from bayesnmf.kernels.cpu.threads import block_count, even_bounds, heed, in_blocks, piece_count, threads_or_default
from bayesnmf.kernels.cpu.vectors import VECTOR_BYTES
from bayesnmf.types import Array

LEAST = 1e-300
WIDEST, DOUBLINGS = 700.0, 100  # largest logarithm of a scale, whose exponential is finite; most doublings of a slice
COST = 10  # cost of an entry in a shear, in multiply-adds
SHRINKINGS = 200  # most shrinkings of a slice; the current value, which is always inside, is kept after these


@compiled_for_kernels()
def _sum_of_logs(weight: Array, value: Array, other: Array, tau: float, buffer: Array) -> float:
    """Return Σ weight · log(value + τ other); a single weight is broadcast, and nothing is computed if it is 0."""
    if len(weight) == 1 and weight[0] == 0.0:
        return 0.0
    length, each = len(value), int(len(weight) > 1)
    for i in range(length):
        buffer[i] = max(value[i] + tau * other[i], LEAST)
    for i in range(length, len(buffer)):
        buffer[i] = 1.0
    logarithms(len(buffer), buffer)
    total = 0.0
    for i in range(length):
        total += weight[i * each] * buffer[i]
    return total


@compiled_for_kernels(fastmath=FAST)
def _weighted_sum(weight: Array, value: Array) -> float:
    total, each = 0.0, int(len(weight) > 1)
    for i in range(len(value)):
        total += weight[i * each] * value[i]
    return total


@compiled_for_kernels()
def _range(t_k: Array, t_l: Array, b_k: Array, b_l: Array) -> tuple[float, float]:
    """Return the open interval of the shears that keep all entries positive."""
    low, high = -math.inf, math.inf
    for j in range(len(b_k)):
        low = max(low, -b_k[j] / b_l[j])
    for i in range(len(t_k)):
        high = min(high, t_l[i] / t_k[i])
    return low, high


@compiled_for_kernels()
def _shear(
    state: Array, t_k: Array, t_l: Array, b_k: Array, b_l: Array, less_t: Array, less_b: Array, power: float,
    sum_k: float, sum_l: float, slope: float, space_b: Array, space_t: Array,
) -> float:  # fmt: skip
    """Draw τ from its density."""
    low, high = _range(t_k, t_l, b_k, b_l)
    level = math.log(uniform(state)) + _sum_of_logs(less_b, b_k, b_l, 0.0, space_b)
    level += _sum_of_logs(less_t, t_l, t_k, 0.0, space_t) + power * math.log(sum_k)
    for _ in range(SHRINKINGS):
        tau = low + uniform(state) * (high - low)
        if not low < tau < high:
            return 0.0
        value = _sum_of_logs(less_b, b_k, b_l, tau, space_b) + _sum_of_logs(less_t, t_l, t_k, -tau, space_t)
        value += slope * tau + (power * math.log(sum_k + tau * sum_l) if power > 0.0 else 0.0)
        if value > level:
            return tau
        if tau < 0.0:
            low = tau
        else:
            high = tau
    return 0.0


@compiled_for_kernels(inline="always")
def _shears(
    state: Array, t: Array, b: Array, less_t: Array, less_b: Array, rate_t: Array, rate_b: Array, power: Array,
    sums: Array, free: Array, first: int, last: int,
) -> None:  # fmt: skip
    """Make the shears from `first` to `last` (excluded); `sums` are those of the components, or 1."""
    step = VECTOR_BYTES // 8
    space_b = np.empty((b.shape[1] + step - 1) // step * step)
    space_t = np.empty((t.shape[1] + step - 1) // step * step)
    tied = len(power) > 0
    a, c, d, e = int(len(less_t) > 1), int(len(less_b) > 1), int(len(rate_t) > 1), int(len(rate_b) > 1)
    for move in range(first, last):
        at = move % len(free)
        k = free[at]
        place = int(uniform(state) * (len(free) - 1))
        other = free[place + 1 if place >= at else place]
        slope = sums[other] * _weighted_sum(rate_t[other * d], t[k]) - _weighted_sum(rate_b[k * e], b[other])
        if tied:
            slope -= sums[other] * _weighted_sum(rate_t[k * d], t[k])
        tau = _shear(
            state, t[k], t[other], b[k], b[other], less_t[other * a], less_b[k * c], power[k] if tied else 0.0,
            sums[k], sums[other], slope, space_b, space_t,
        )  # fmt: skip
        for j in range(b.shape[1]):
            b[k, j] = max(b[k, j] + tau * b[other, j], LEAST)
        for i in range(t.shape[1]):
            t[other, i] = max(t[other, i] - tau * t[k, i], LEAST)
        if tied:
            sums[k] += tau * sums[other]


@compiled_on_disk(nogil=True)
def _shear_states(
    seed: Any, streams: Array, t: Array, b: Array, less_t: Array, less_b: Array, rate_t: Array, rate_b: Array,
    power: Array, sums: Array, free: Array, first: int, last: int, start: int, stop: int,
) -> None:  # fmt: skip
    a, c, d, e = int(len(less_t) > 1), int(len(less_b) > 1), int(len(rate_t) > 1), int(len(rate_b) > 1)
    for s in range(start, stop):
        if first == 0:
            streams[s] = stream(seed, s)
            for k in range(sums.shape[1]):
                sums[s, k] = b[s, k].sum() if power.shape[1] > 0 else 1.0
        _shears(
            streams[s : s + 1], t[s], b[s], less_t[s * a], less_b[s * c], rate_t[s * d], rate_b[s * e], power[s],
            sums[s], free, first, last,
        )  # fmt: skip


def shear_components(
    loadings: Array, components: Array, shapes: tuple[Array, Array], rates: tuple[Array, Array],
    power: Array | None, free: Array, seed: int, rounds: int = 1, threads: int | None = 1,
) -> None:  # fmt: skip
    """Shear every free component k by another free one, l, chosen at random, in place, in each of S states.

    Parameters
    ----------
    loadings, components : ndarray of shape (S, K, n) and (S, K, m)
        Positive factors t and b, in C order.
    shapes, rates : pair of ndarray, (1 or S, 1 or K, 1 or n) and (1 or S, 1 or K, 1 or m)
        Shapes and rates of the Gamma priors of both. With `power`, the rate of t_ik is this one times Σ_j b_kj.
    power : ndarray (S, K) or None
        Powers of Σ_j b_kj in the density: Σ_i of the shapes of t, if b are components on the simplex times their sums.
    free : ndarray of int
        Components that may move.
    seed : int
        Seed below 2**64.
    rounds : int
        Number of shears of each component.
    threads : int, optional
        Number of blocks of states to work on at once.
    """
    if len(free) < 2:
        return
    parts = [np.ascontiguousarray(each, dtype=np.float64) for each in (*shapes, *rates)]
    given = parts[0] - 1, parts[1] - 1, parts[2], parts[3], np.empty((len(loadings), 0)) if power is None else power
    states, moves = len(loadings), rounds * len(free)
    threads = threads_or_default(threads, rounds * loadings.size)
    work = COST * moves * (loadings.shape[2] + components.shape[2])  # of one state
    bounds = even_bounds(states, min(block_count(work * states), states))
    streams, sums = np.empty(states, np.uint64), np.empty((states, loadings.shape[1]))
    at_once = max(moves // piece_count(work * int(np.diff(bounds).max())), 1)
    for begun in range(0, moves, at_once):

        def shear(_: int, *of_states: int, begun: int = begun) -> None:
            part = begun, min(begun + at_once, moves)
            _shear_states(np.uint64(seed), streams, loadings, components, *given, sums, free, *part, *of_states)

        in_blocks(bounds, shear, threads)
        heed()


@compiled_for_kernels()
def _gain_of_scale(v: float, power: float, up: float, down: float) -> float:
    """Return the log density at v minus that at 0, −∞ where it is out of range; no large terms cancel near 0."""
    if not abs(v) < WIDEST:
        return -math.inf
    gain = power * v - up * math.expm1(v) - down * math.expm1(-v)
    return gain if gain == gain else -math.inf


@compiled_for_kernels()
def _log_scale(seed: Any, number: int, power: float, up: float, down: float) -> float:
    """Draw v from the density exp(power v − up e^v − down e^−v) by slice sampling from 0; it is log-concave.

    The interval doubles on a random side until both ends are outside the slice (Neal 2003, section 4.2; a unimodal
    density needs no test of acceptance), since the slice may be 1e8 times as wide as the curvature at 0 says.
    """
    state = np.empty(1, dtype=np.uint64)
    state[0] = stream(seed, number)
    level = math.log(uniform(state))
    width = 3.0 / math.sqrt(max(up + down, 1e-12))
    low = -uniform(state) * width
    high = low + width
    for _ in range(DOUBLINGS):
        if _gain_of_scale(low, power, up, down) <= level and _gain_of_scale(high, power, up, down) <= level:
            break
        if uniform(state) < 0.5:
            low -= high - low
        else:
            high += high - low
    for _ in range(SHRINKINGS):
        v = low + uniform(state) * (high - low)
        if _gain_of_scale(v, power, up, down) > level:
            return v
        if v < 0.0:
            low = v
        else:
            high = v
    return 0.0


@compiled_on_disk(nogil=True)
def _log_scales(seed: Any, power: Array, up: Array, down: Array, out: Array) -> None:
    for k in range(len(out)):
        out[k] = _log_scale(seed, k, power[k], up[k], down[k])


def log_scales(power: Array, up: Array, down: Array, seed: int) -> Array:
    """Draw one v for each component, (K,), from the density exp(power v − up e^v − down e^−v), given v = 0 before.

    Parameters
    ----------
    power, up, down : ndarray (K,)
        Σ_j shapes − Σ_i shapes, Σ_j rate · b_kj and Σ_i rate · t_ik.
    seed : int
        Seed below 2**64.
    """
    out = np.empty(len(power))
    _log_scales(np.uint64(seed), *(np.ascontiguousarray(each, np.float64) for each in (power, up, down)), out)
    return out
