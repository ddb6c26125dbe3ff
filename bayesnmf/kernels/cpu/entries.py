"""Draw one entry of a factor at a time, given the counts and all other entries, with allocations summed out.

Let a row have counts x_j, entries b_k and means λ_j = Σ_k b_k w_kj. Given the others, u = log b_k has log density ::

    f(u) = Σ_j x_j log(λ_j + (e^u − b_k) w_kj) + shape · u − linear · e^u + power · log(Z_k + e^u − b_k)

up to a constant. The last term is there for components on the simplex, whose sum Z_k ties the rows together; they are
then drawn in order. Each entry is drawn by independence Metropolis. The proposal is a Gamma with nearly the mode and
the curvature of f, mixed 9 : 1 with one that has heavier tails on both sides. It must not depend on the current entry,
so the search for the mode starts from a place that does not depend on it either.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from scipy.sparse import csr_array

from bayesnmf.kernels.cpu.compiling import FAST, compiled_for_kernels, compiled_on_disk
from bayesnmf.kernels.cpu.draws import gamma_at_least_one, stream, uniform
from bayesnmf.kernels.cpu.factors import whole_vectors
from bayesnmf.kernels.cpu.regression import gather_entries
from bayesnmf.kernels.cpu.special import weighted_logarithms
from bayesnmf.kernels.cpu.threads import (
    block_count,
    even_bounds,
    in_blocks,
    piece_count,
    row_blocks,
    threads_or_default,
)
from bayesnmf.kernels.cpu.vectors import VECTOR_BYTES
from bayesnmf.types import Array

LEAST = 1e-300  # of entries and means: logarithms of these are finite
HEAVY, HEAVY_RATE = 0.1, 0.7  # share of the proposal with heavier tails, and its rate in units of shape / mode
STEPS, CLOSE = 30, 0.3  # most steps to the mode, and their length, in standard deviations, that is short enough
# Without a check of divisors, which would keep LLVM from making vectors of these loops (6 times as long).
VECTORS: Any = {"nogil": True, "fastmath": FAST, "error_model": "numpy"}
WORK = 12  # cost of one count, in multiply-adds


@compiled_for_kernels(**VECTORS)
def _slopes(x: float, counts: Array, base: Array, w: Array) -> tuple[float, float]:
    """Return Σ x_j w / λ and Σ x_j w² / λ² with λ = base + x w."""
    first = second = 0.0
    for p in range(len(counts)):
        ratio = w[p] / (base[p] + x * w[p])
        part = counts[p] * ratio
        first += part
        second += part * ratio
    return first, second


@compiled_for_kernels(**VECTORS)
def _fill_base(b: float, counts: Array, trust: Array, means: Array, w: Array, base: Array) -> tuple[float, float]:
    """Write the means without this entry; return what gives a guess.

    The guess is the entry that fits the counts by least squares with the weights `trust`.
    """
    fitted = squares = 0.0
    for p in range(len(counts)):
        base[p] = max(means[p] - b * w[p], LEAST)
        part = trust[p] * w[p]
        fitted += part * (counts[p] - base[p]) + w[p]
        squares += part * w[p]
    return fitted, squares


@compiled_for_kernels(**VECTORS)
def _fill_trust(counts: Array, trust: Array) -> float:
    """Write the weights of the counts in a guess; return the sum of the counts."""
    total = 0.0
    for p in range(len(counts)):
        trust[p] = 1.0 / (counts[p] + 1.0)
        total += counts[p]
    return total


@compiled_for_kernels(**VECTORS)
def _fill_means(b: Array, gathered: Array, means: Array) -> None:
    for p in range(len(means)):
        means[p] = 0.0
    for k in range(len(b)):
        for p in range(len(means)):
            means[p] += b[k] * gathered[k, p]
    for p in range(len(means)):
        means[p] = max(means[p], LEAST)


@compiled_for_kernels(fastmath=FAST)
def _mode(
    total: float, guess: float, counts: Array, base: Array, w: Array, shape: float, linear: float, power: float,
    rest: float,
) -> tuple[float, float]:  # fmt: skip
    """Return nearly the mode of f, as an entry, and −f″ there; neither depends on the current entry.

    A step goes to the mode of the log density of a Gamma that has the slope and the curvature of f.
    """
    low, high = shape / linear, (shape + total + power) / linear
    x = min(max(guess, low), high)
    like = shape
    for _ in range(STEPS):
        first, second = _slopes(x, counts, base, w)
        share = x / (rest + x)
        like = shape + x * x * second + power * share * share
        rate = linear - first + x * second - power * (1.0 - share) / (rest + x)
        if like > rate * x:  # the slope of f
            low = x
        else:
            high = x
        new = like / rate if rate > 0.0 else 0.0
        if not low <= new <= high:
            new = math.sqrt(low) * math.sqrt(high)
        moved = (new - x) / x
        x = new
        if moved * moved * like <= CLOSE * CLOSE:
            break
    return x, like


@compiled_for_kernels(fastmath=FAST)
def log_gamma_draw(state: Array, shape: float) -> float:
    """Draw the logarithm of a Gamma(shape, 1), which is finite for any shape."""
    if shape >= 1.0:
        return math.log(gamma_at_least_one(state, shape))
    return math.log(gamma_at_least_one(state, shape + 1.0)) + math.log(uniform(state)) / shape


@compiled_for_kernels(fastmath=FAST)
def _log_proposal_ratio(old: float, new: float, mode: float, h: float, shape: float) -> float:
    """Return the log density of the proposal at `old` minus that at `new`, both in u."""
    rate = HEAVY_RATE * shape
    share = math.log(HEAVY / (1.0 - HEAVY)) + shape * math.log(rate) - math.lgamma(shape)
    share -= h * math.log(h) - math.lgamma(h)
    found = 0.0
    for sign, u in ((1.0, old - mode), (-1.0, new - mode)):
        size = math.exp(u)
        near, heavy = h * (u - size), share + shape * u - rate * size
        top = max(near, heavy)
        found += sign * (top + math.log1p(math.exp(min(near, heavy) - top)))
    return found


@compiled_for_kernels(**VECTORS)
def _fill_ratios(x: float, means: Array, base: Array, w: Array, ratios: Array) -> None:
    for p in range(len(means)):
        ratios[p] = max((base[p] + x * w[p]) / means[p], LEAST)


@compiled_for_kernels(**VECTORS)
def _accept(x: float, base: Array, w: Array, means: Array) -> None:
    for p in range(len(means)):
        means[p] = base[p] + x * w[p]


@compiled_for_kernels(fastmath=FAST)
def _draw_entry(
    state: Array, b: float, total: float, counts: Array, trust: Array, means: Array, w: Array, shape: float,
    linear: float, power: float, whole: float, base: Array, ratios: Array,
) -> float:  # fmt: skip
    """Return the next value of an entry b, and update the means."""
    fitted, squares = _fill_base(b, counts, trust, means, w, base)
    rest = max(whole - b, LEAST)
    if total == 0.0 and power == 0.0:
        x = max(math.exp(log_gamma_draw(state, shape) - math.log(linear)), LEAST)
        _accept(x, base, w, means)
        return x
    guess = (fitted - linear) / squares if squares > 0.0 else 0.0
    at, h = _mode(total, guess, counts, base, w, shape, linear, power, rest)
    mode = math.log(at)
    if uniform(state) < HEAVY:
        new = mode + log_gamma_draw(state, shape) - math.log(HEAVY_RATE * shape)
    else:
        new = mode + log_gamma_draw(state, h) - math.log(h)
    x, u = max(math.exp(min(new, 700.0)), LEAST), math.log(b)
    _fill_ratios(x, means, base, w, ratios)
    gain = weighted_logarithms(len(ratios), counts, ratios) + shape * (new - u) - linear * (x - b)
    if power > 0.0:
        gain += power * math.log((rest + x) / (rest + b))
    gain += _log_proposal_ratio(u, new, mode, h, shape)
    if math.log(uniform(state)) < gain:
        _accept(x, base, w, means)
        return x
    return b


@compiled_on_disk(nogil=True, fastmath=FAST)
def _draw_rows(
    indptr: Array, indices: Array, values: Array, V: Array, shape: Array, linear: Array, power: Array, free: Array,
    seed: Any, origin: int, start: int, stop: int, whole: Array, out: Array,
) -> None:  # fmt: skip
    step, rows = VECTOR_BYTES // 8, out.shape[1]
    longest = 0
    for at in range(min(stop - start, rows)):
        i = (start + at) % rows
        longest = max(longest, indptr[i + 1] - indptr[i])
    longest = max((longest + step - 1) // step, 1) * step
    space, counts = np.empty(V.shape[2] * longest), np.zeros(longest)
    means, base, ratios, trust = np.empty(longest), np.empty(longest), np.empty(longest), np.empty(longest)
    state = np.empty(1, dtype=np.uint64)
    rank = len(free)
    a, b, c = int(shape.shape[0] > 1), int(shape.shape[1] > 1), int(shape.shape[2] > 1)
    d, e, f = int(linear.shape[0] > 1), int(linear.shape[1] > 1), int(linear.shape[2] > 1)
    for at in range(start, stop):
        s, i = at // rows, at % rows
        first, last = indptr[i], indptr[i + 1]
        entries = max((last - first + step - 1) // step, 1) * step
        gathered = space[: V.shape[2] * entries].reshape((V.shape[2], entries))
        for p in range(0, last - first, step):
            number = min(step, last - first - p)
            gather_entries(first + p, number, p, entries, indices, values, V[s], counts, gathered)
        total = _fill_trust(counts[: last - first], trust)
        for p in range(last - first, entries):  # entries beyond the last one have no counts and no means
            counts[p] = trust[p] = 0.0
            for k in range(rank):
                gathered[k, p] = 0.0
        _fill_means(out[s, i, :rank], gathered, means[:entries])
        state[0] = stream(seed, origin + at)
        for k in range(rank):
            if free[k]:
                old = out[s, i, k]
                new = _draw_entry(
                    state, old, total, counts[:entries], trust[:entries], means[:entries], gathered[k],
                    shape[s * a, i * b, k * c], linear[s * d, i * e, k * f], power[s, k], whole[s, k], base[:entries],
                    ratios[:entries],
                )  # fmt: skip
                out[s, i, k] = new
                whole[s, k] += new - old


def _stacked(values: Array) -> Array:
    """Return an array of one state with an axis of states before."""
    return values if values.ndim == 3 else np.atleast_2d(values)[None]


def draw_entries(
    matrix: csr_array, factor: Array, other: Array, terms: tuple[Array, Array], seed: int,
    tied: tuple[Array, Array] | None = None, free: Array | None = None, threads: int | None = None, first_row: int = 0,
) -> None:  # fmt: skip
    """Draw every entry of a factor once, in place, given the counts and the other factor, for one state or several.

    Parameters
    ----------
    matrix : csr_array of shape (r, s)
        Counts; to draw components, pass the transpose and exchange the factors.
    factor : ndarray of shape (r, K) or (S, r, K)
        Entries, positive, float64, in C order; of S independent states.
    other : ndarray of shape (s, K) or (S, s, K)
        The other factor, nonnegative; the means are ``factor @ other.T``.
    terms : pair of ndarray, (1 or r, 1 or K) or (1 or S, 1 or r, 1 or K)
        Shapes, and the linear coefficients: rates of the prior plus exposures.
    seed : int
        Seed of this sweep, below 2**64. The draws do not depend on `threads`.
    tied : pair of ndarray (K,) or (S, K), optional
        Powers, and the sums Z of the entries over rows, which are updated in place. Rows are then drawn in order.
    free : ndarray (K,) of bool, optional
        Which components to draw; by default all.
    threads : int, optional
        Number of blocks, of states or else of rows, to work on at once.
    first_row : int
        Place of the first row in a larger factor, of whose draw this one is a part.
    """
    rank, states = factor.shape[-1], _stacked(factor)
    shape, linear = (np.ascontiguousarray(_stacked(each), dtype=np.float64) for each in terms)
    empty = np.zeros((len(states), rank)), np.ones((len(states), rank))
    power, whole = empty if tied is None else (np.atleast_2d(tied[0]), tied[1].reshape(len(states), rank))
    drawn = np.ones(rank, bool) if free is None else free
    others = whole_vectors(other.reshape(-1, rank)).reshape(len(states), other.shape[-2], -1)
    given = matrix.indptr, matrix.indices, matrix.data, others, shape, linear, power, drawn
    rows, work = states.shape[1], WORK * matrix.nnz * rank * len(states)
    cuts = row_blocks(matrix.indptr, piece_count(work / len(states)))
    if len(states) == 1:
        threads = 1 if tied is not None else threads_or_default(threads, work)
        bounds = np.array([0, rows]) if tied is not None else row_blocks(matrix.indptr, block_count(work))
    else:
        threads = threads_or_default(threads, work)
        bounds = even_bounds(len(states), min(block_count(work), len(states))) * rows
        cuts = (np.arange(len(states))[:, None] * rows + cuts[:-1]).ravel()

    def draw(_: int, first: int, last: int) -> None:
        _draw_rows(*given, np.uint64(seed), first_row, first, last, whole if tied is not None else whole.copy(), states)

    in_blocks(bounds, draw, threads, cuts)
