"""Moments of a mean field for coordinate ascent, in one pass: expectations, exp E log, and the divergence.

For q = Gamma(s, b) elementwise, E log = ψ(s) − log b; for rows on the simplex, q = Dirichlet(s), E log = ψ(s) − ψ(Σ s).
Both are ψ(s) minus a term that is constant along one axis or both. Let h(s) = s ψ(s) − logΓ(s) − s, in which large
terms cancel. Then the divergences from Gamma(s0, b0) and from Dirichlet(s0) are ::

    Σ h(s) − s0 E log + s b0 / b + const        Σ h(s) − s0 E log − h(Σ s) + const

ψ, h and exp are computed together, in vectors, and in double precision for factors of any dtype.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from bayesnmf.kernels.cpu.compiling import FAST, compiled_for_kernels, compiled_on_disk
from bayesnmf.kernels.cpu.factors import padded_and_whole, rows_in_memory
from bayesnmf.kernels.cpu.special import SHIFT, digamma_and_excess, exponentials, logarithms
from bayesnmf.kernels.cpu.threads import block_count, even_bounds, in_blocks, threads_or_default
from bayesnmf.kernels.cpu.vectors import VECTOR_BYTES
from bayesnmf.types import Array

BLOCK = 2048  # numbers in a block, which stays in the first-level cache
COST = 20  # cost of ψ, h and exp of a number, in multiply-adds
SPARE = VECTOR_BYTES // 8 - 1  # rows behind a block, so that its last vector is whole
NOTHING = np.empty((0, 0))


class Moments(NamedTuple):
    """Moments of a factor, as `mean_field_moments` returns them.

    Attributes
    ----------
    sums : ndarray of shape (K,) or None
        Σ_i s / scale of each component, float64; None if the means also involve a scale that the kernel does not know.
    geometric : ndarray of shape (r, K)
        exp(E log − shift), which is 1 at the largest element of each row.
    shift : ndarray of shape (r, 1)
        Largest E log of each row.
    divergence : float
        Σ h(s) − prior · E log + weight · s, float64.
    """

    sums: Array | None
    geometric: Array
    shift: Array
    divergence: float


@compiled_for_kernels(fastmath=FAST)
def _row_moments(
    s: Array, psi: Array, excess: Array, scale: Array, logs: Array, prior: Array, weights: Array, expected: Array,
    sums: Array,
) -> tuple[float, float]:  # fmt: skip
    """Fill E log of a row and add its means to the sums; return the largest E log and the divergence.

    Scales and priors of length 1 are broadcast.
    """
    top, divergence = -np.inf, 0.0
    a, b = min(len(scale) - 1, 1), min(len(prior) - 1, 1)
    for k in range(len(s)):
        value = psi[k] - logs[k]
        expected[k] = value
        if value > top:
            top = value
        divergence += excess[k] - prior[k * b] * value + weights[k] * s[k]
        sums[k] += s[k] / scale[k * a]
    return top, divergence


@compiled_on_disk(nogil=True, fastmath=FAST)
def _moments(
    shape: Array, scale: Array, log_scale: Array, prior: Array, weight: Array, start: int, stop: int, room: Array,
    sums: Array, geometric: Array, shift: Array,
) -> float:  # fmt: skip
    """Fill the moments of rows `start` to `stop` (excluded), and add to the sums; return their divergence.

    The geometric means are given with their padding, since arrays without are of another type to Numba.
    Without logarithms of the scale, (0, 0), they are taken here, and the weight is divided by the scale.
    Rows are worked on in blocks for which there is room, six matrices with rows to spare for the last vector.
    """
    rank, at_once = len(sums), room.shape[1] - SPARE
    s, psi, excess, expected, logs, weights = room[0], room[1], room[2], room[3], room[4], room[5]
    a, c, d, e = min(len(scale) - 1, 1), min(len(prior) - 1, 1), min(len(weight) - 1, 1), min(weight.shape[1] - 1, 1)
    divergence, own, b, f = 0.0, len(log_scale) == 0, min(len(log_scale) - 1, 1), min(log_scale.shape[1] - 1, 1)
    for first in range(start, stop, at_once):
        rows = min(at_once, stop - first)
        length = (rows * rank + SPARE) & ~SPARE  # whole vectors
        for r in range(rows):
            i = first + r
            for k in range(rank):  # one by one: an array set to an array takes 2 s to compile
                s[r, k], weights[r, k] = shape[i, k], weight[i * d, k * e]
                if own:
                    logs[r, k] = scale[i, k]
                    weights[r, k] /= logs[r, k]
                else:
                    logs[r, k] = log_scale[i * b, k * f]
        digamma_and_excess(length, s, psi, excess)
        if own:
            logarithms(length, logs)
        for r in range(rows):
            i = first + r
            top, part = _row_moments(
                s[r], psi[r], excess[r], scale[i * a], logs[r], prior[i * c], weights[r], expected[r], sums
            )
            shift[i, 0] = top
            divergence += part
            for k in range(rank):
                expected[r, k] -= top
        exponentials(length, expected)
        for r in range(rows):
            for k in range(rank):
                geometric[first + r, k] = expected[r, k]
    return divergence


def mean_field_moments(
    shape: Array, scale: Array, log_scale: Array | None, prior: Array, weight: Array, threads: int | None = None
) -> Moments:
    """Return the moments of a factor with K components in columns.

    Parameters
    ----------
    shape : ndarray of shape (r, K)
        s > 0: shapes of Gammas, or concentrations of Dirichlets.
    scale, log_scale : ndarray, (1 or r, 1 or K)
        b and log b of Gammas; Σ s and ψ(Σ s) of Dirichlets, summed over the axis of the simplex. Where b has full size,
        log_scale may be None: logarithms are then taken in passing, without memory of their own.
    prior : ndarray, (1 or r, 1 or K)
        Prior shape or concentration.
    weight : ndarray, (1 or r, 1 or K)
        b0 / b for Gammas (b0 itself without log_scale), 0 for Dirichlets.
    threads : int, optional
        Number of row blocks to work on at once; it does not change the result.
    """
    rows, rank = shape.shape
    work = COST * shape.size
    blocks = max(min(block_count(work), rows), 1)
    (geometric, filled), sums = padded_and_whole(shape.shape, shape.dtype), np.zeros((blocks, rank))
    shift = np.empty((rows, 1), shape.dtype)
    own = log_scale is None
    given = [
        np.ascontiguousarray(scale, dtype=None if own else np.float64),
        NOTHING if log_scale is None else np.ascontiguousarray(log_scale, dtype=np.float64),
        np.ascontiguousarray(prior, dtype=np.float64),
        np.ascontiguousarray(weight, dtype=np.float64),
    ]
    whole, room = rows_in_memory(shape), (6, max(min(BLOCK // rank, rows), 1) + SPARE, rank)
    if blocks == 1:
        divergence = _moments(whole, *given, 0, rows, np.ones(room), sums[0], filled, shift)
        return Moments(sums[0], geometric, shift, divergence)
    parts = in_blocks(
        even_bounds(rows, blocks),
        lambda block, *ends: _moments(whole, *given, *ends, np.ones(room), sums[block], filled, shift),
        threads_or_default(threads, work),
    )
    return Moments(sums.sum(axis=0), geometric, shift, float(np.sum(parts)))


@compiled_on_disk(nogil=True)
def _digamma_and_excess(x: Array, psi: Array, excess: Array) -> None:
    digamma_and_excess(len(x), x, psi, excess)


def digamma_with_excess(x: Array) -> tuple[Array, Array]:
    """Return ψ(x) and h(x) = x ψ(x) − logΓ(x) − x of an array x > 0, in float64."""
    step = VECTOR_BYTES // 8
    padded = np.ones(-(-x.size // step) * step)
    padded[: x.size] = x.ravel()
    psi, excess = np.empty_like(padded), np.empty_like(padded)
    _digamma_and_excess(padded, psi, excess)
    return psi[: x.size].reshape(x.shape), excess[: x.size].reshape(x.shape)


@compiled_on_disk(nogil=True, error_model="numpy")
def _fill_trigamma(x: Array, out: Array) -> None:
    for p in range(len(x)):
        total, y = 0.0, x[p]
        for _ in range(SHIFT):
            total += 1.0 / (y * y)
            y += 1.0
        r = 1.0 / y
        s = r * r
        series = 1 / 30 - s * (1 / 42 - s * (1 / 30 - s * (5 / 66 - s * (691 / 2730 - s * (7 / 6)))))
        out[p] = total + r + s * (0.5 + r * (1 / 6 - s * series))


def trigamma(x: Array) -> Array:
    """Return ψ′(x) of an array x > 0, in float64: of x + SHIFT by its series, whose last term is below 1e-16."""
    flat = np.ascontiguousarray(x, np.float64)
    out = np.empty_like(flat)
    _fill_trigamma(flat.ravel(), out.ravel())
    return out
