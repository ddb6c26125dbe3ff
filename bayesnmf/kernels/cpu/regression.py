"""Poisson regression of every row on given components, by coordinate descent ([C] 29-31).

The components at the nonzeros of a row are gathered once, transposed, into `gathered` (K, whole vectors of entries), so
that every coordinate reads contiguous numbers. After the last nonzero the first one is repeated with a count of 0, so
that no loop has a remainder. Settling rows (`settling.py`) reads them in the same way.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import types
from numba.core import cgutils
from scipy.sparse import csr_array

from bayesnmf.kernels.cpu.allocation import Spread, spread_of_entry, spreads_of_row
from bayesnmf.kernels.cpu.compiling import FAST, compiled_for_kernels, compiled_on_disk
from bayesnmf.kernels.cpu.factors import is_padded, padded_copy, room_for_row, sum_rows, whole_vectors
from bayesnmf.kernels.cpu.rising import cluster_derivatives, cluster_entries
from bayesnmf.kernels.cpu.threads import over_rows
from bayesnmf.kernels.cpu.vectors import LONG, VECTOR_BYTES, Vectors, instruction
from bayesnmf.types import Array

AT_ONCE = 4  # vectors summed in parallel; the number of lanes of either dtype is a multiple of this


def _as_arrays(context: Any, builder: Any, kinds: Any, values: Any) -> list[Any]:
    return [context.make_array(kind)(context, builder, value=value) for kind, value in zip(kinds, values, strict=True)]


def _width(builder: Any, array: Any) -> Any:
    return cgutils.unpack_tuple(builder, array.shape, 2)[1]


@instruction
def gather_entries(
    typing: Any, first: Any, number: Any, at: Any, entries: Any, indices: Any, values: Any, V: Any, counts: Any,
    gathered: Any,
) -> Any:  # fmt: skip
    """Write at most one vector of nonzeros, from position `first`, to `counts` and `gathered` from column `at` on.

    V (m, K) is padded to whole vectors; `gathered` has as many rows as V has columns, of `entries` numbers.
    """
    arrays = (indices, values, V, counts, gathered)

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        first, number, at, length, *given = arguments
        indices_, values_, V_, counts_, gathered_ = _as_arrays(context, builder, arrays, given)
        on = Vectors(context, builder, V.dtype)
        mask = on.first_lanes(number)
        same = on.splat(builder.load(builder.gep(indices_.data, [first])))
        where = on.load_masked(indices_, first, mask, same)
        on.store(on.counts(values_, values.dtype, first, mask), counts_, at)
        width = _width(builder, V_)
        rows = []
        for q in range(on.lanes):
            place = on.lane(where, q)
            place = builder.sext(place, LONG) if indices.dtype.bitwidth < 64 else place
            rows.append(builder.mul(place, width))
        with cgutils.for_range_slice(builder, LONG(0), width, LONG(on.lanes), LONG) as (k, _):
            block = on.transpose([on.load(V_, builder.add(row, k)) for row in rows])
            for q, vector in enumerate(block):
                on.store(vector, gathered_, builder.add(builder.mul(builder.add(k, LONG(q)), length), at))
        return context.get_dummy_value()

    return types.void(*(types.int64,) * 4, *arrays), generate


@instruction
def mix_entries(typing: Any, entries: Any, rank: Any, b: Any, gathered: Any, least: Any, mean: Any) -> Any:
    """Write max(Σ_k b_k gathered_k, least) to `mean`, for a number of entries that is a multiple of a vector."""
    arrays = (b, gathered, mean)

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        entries, rank, *given = arguments
        b_, gathered_, mean_ = _as_arrays(context, builder, arrays, [given[0], given[1], given[3]])
        on = Vectors(context, builder, gathered.dtype)
        floor = on.splat(given[2])
        slots = [cgutils.alloca_once(builder, on.type) for _ in range(AT_ONCE)]

        def mix(at: Any, many: int) -> None:
            for slot in slots[:many]:
                builder.store(on.constant(0.0), slot)
            places = [builder.add(at, LONG(q * on.lanes)) for q in range(many)]
            with cgutils.for_range(builder, rank, intp=LONG) as loop:
                coefficient = on.splat(builder.load(builder.gep(b_.data, [loop.index])))
                row = builder.mul(loop.index, entries)
                for slot, place in zip(slots, places, strict=False):
                    vector = on.load(gathered_, builder.add(row, place))
                    builder.store(on.multiply_add(coefficient, vector, builder.load(slot)), slot)
            for slot, place in zip(slots, places, strict=False):
                total = builder.load(slot)
                on.store(builder.select(builder.fcmp_ordered("<", total, floor), floor, total), mean_, place)

        # Several vectors in parallel: with one alone, each addition would wait for the one before it.
        step = LONG(AT_ONCE * on.lanes)
        whole = builder.mul(builder.sdiv(entries, step), step)
        with cgutils.for_range_slice(builder, LONG(0), whole, step, LONG) as (at, _):
            mix(at, AT_ONCE)
        with cgutils.for_range_slice(builder, whole, entries, LONG(on.lanes), LONG) as (at, _):
            mix(at, 1)
        return context.get_dummy_value()

    return types.void(types.int64, types.int64, b, gathered, least, mean), generate


@instruction
def divide_entries(typing: Any, entries: Any, counts: Any, least: Any, mean: Any) -> Any:
    """Replace the means by counts / mean, or by 0 where mean ≤ `least`; return whether a count is lost that way."""
    arrays = (counts, mean)

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        entries, counts_, least, mean_ = arguments
        counts_, mean_ = _as_arrays(context, builder, arrays, [counts_, mean_])
        on = Vectors(context, builder, mean.dtype)
        floor, nothing = on.splat(least), on.constant(0.0)
        slot = cgutils.alloca_once(builder, on.type)
        builder.store(nothing, slot)
        with cgutils.for_range_slice(builder, LONG(0), entries, LONG(on.lanes), LONG) as (at, _):
            count, value = on.load(counts_, at), on.load(mean_, at)
            low = builder.fcmp_ordered("<=", value, floor)
            builder.store(builder.fadd(builder.load(slot), builder.select(low, count, nothing)), slot)
            on.store(builder.select(low, nothing, builder.fdiv(count, value)), mean_, at)
        return builder.fcmp_ordered(">", on.total(builder.load(slot)), on.real(0.0))

    return types.boolean(types.int64, counts, least, mean), generate


@instruction
def expected_counts(typing: Any, entries: Any, rows: Any, gathered: Any, ratio: Any, out: Any) -> Any:
    """Write Σ gathered_k ratio for every row k. With ratio = counts / mean, that is the expected count per unit of b_k.

    The number of rows is that of whole vectors.
    """
    arrays = (gathered, ratio, out)

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        entries, rows, *given = arguments
        gathered_, ratio_, out_ = _as_arrays(context, builder, arrays, given)
        on = Vectors(context, builder, gathered.dtype)
        slots = [cgutils.alloca_once(builder, on.type) for _ in range(AT_ONCE)]
        with cgutils.for_range_slice(builder, LONG(0), rows, LONG(AT_ONCE), LONG) as (k, _):
            for slot in slots:
                builder.store(on.constant(0.0), slot)
            begins = [builder.mul(builder.add(k, LONG(q)), entries) for q in range(AT_ONCE)]
            with cgutils.for_range_slice(builder, LONG(0), entries, LONG(on.lanes), LONG) as (at, _):
                weight = on.load(ratio_, at)
                for slot, begin in zip(slots, begins, strict=True):
                    vector = on.load(gathered_, builder.add(begin, at))
                    builder.store(on.multiply_add(vector, weight, builder.load(slot)), slot)
            sums = on.sums([builder.load(slot) for slot in slots] * (on.lanes // AT_ONCE))
            for q in range(AT_ONCE):
                builder.store(on.lane(sums, q), builder.gep(out_.data, [builder.add(k, LONG(q))]))
        return context.get_dummy_value()

    return types.void(types.int64, types.int64, *arrays), generate


@instruction
def derivatives(
    typing: Any, entries: Any, before: Any, change: Any, k: Any, counts: Any, gathered: Any, least: Any, mean: Any
) -> Any:
    """Move the means by change × gathered_before, then return Σ x w and Σ x w² with w = gathered_k / mean.

    The pass that computes the derivatives of one coordinate also applies the step of the coordinate before it.
    """
    arrays = (counts, gathered, mean)

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        entries, before, change, k, counts, gathered_, least, mean = arguments
        counts_, gathered_, mean_ = _as_arrays(context, builder, arrays, [counts, gathered_, mean])
        on = Vectors(context, builder, gathered.dtype)
        moved, row = builder.mul(before, entries), builder.mul(k, entries)
        change, floor = on.splat(change), on.splat(least)
        slots = [cgutils.alloca_once(builder, on.type) for _ in range(2)]
        for slot in slots:
            builder.store(on.constant(0.0), slot)
        with cgutils.for_range_slice(builder, LONG(0), entries, LONG(on.lanes), LONG) as (at, _):
            new = on.multiply_add(change, on.load(gathered_, builder.add(moved, at)), on.load(mean_, at))
            new = builder.select(builder.fcmp_ordered("<", new, floor), floor, new)
            on.store(new, mean_, at)
            weight = builder.fdiv(on.load(gathered_, builder.add(row, at)), new)
            ratio = builder.fmul(on.load(counts_, at), weight)
            builder.store(builder.fadd(builder.load(slots[0]), ratio), slots[0])
            builder.store(on.multiply_add(ratio, weight, builder.load(slots[1])), slots[1])
        both = [on.total(builder.load(slot)) for slot in slots]
        return context.make_tuple(builder, signature.return_type, both)

    dtype = gathered.dtype
    result = types.UniTuple(dtype, 2)
    return result(types.int64, types.int64, change, types.int64, counts, gathered, least, mean), generate


# Means are kept above this, the product of two parameters at their least value of 1e-15.
LEAST_RATE = 1e-30


@compiled_for_kernels(fastmath=FAST)
def _newton(first: float, second: float, linear: float, less: float, b: float, floor: float) -> float:
    """Return the coefficient of one coordinate after a full, feasible Newton step, given Σ x w and Σ x w²."""
    gradient = linear - first - less / b
    curvature = second + less / (b * b)
    if curvature > 0:
        return max(b - gradient / curvature, floor)
    return floor if gradient > 0 else b


@compiled_on_disk(nogil=True, fastmath=FAST)
def _regress(
    indptr: Array, indices: Array, values: Array, V: Array, exposure: Array, less: Array, rate: Array,
    sweeps: int, newton_steps: int, floor: float, spread: Any, start: int, stop: int, gathered: Array, vectors: Array,
    spreads: Any, out: Array,
) -> None:  # fmt: skip
    """Make one EM step of each row ([C] 38), so that no coefficient is stuck at 0, then sweeps over coordinates."""
    step, rank = VECTOR_BYTES // V.itemsize, exposure.shape[1]
    nothing, least = V.dtype.type(0), V.dtype.type(LEAST_RATE)
    mean, counts, expected = vectors[0], vectors[1], vectors[2]
    a, c, d = min(len(exposure) - 1, 1), min(len(less) - 1, 1), min(len(rate) - 1, 1)
    for i in range(start, stop):
        first, number = indptr[i], indptr[i + 1] - indptr[i]
        entries = (number + step - 1) & -step  # whole vectors
        for p in range(0, entries, step):
            gather_entries(first + p, min(step, number - p), p, entries, indices, values, V, counts, gathered)
        if spread is not None:
            for p in range(number):
                spreads[p] = spread_of_entry(spread[0][i], spreads_of_row(spread[1], i), indices[first + p])
        b, exposed, plus, by = out[i], exposure[i * a], less[i * c], rate[i * d]
        mix_entries(entries, rank, b, gathered, least, mean)
        if spreads is None:
            divide_entries(entries, counts, nothing, mean)
        else:
            cluster_entries(entries, counts, spreads, nothing, mean)
        expected_counts(entries, V.shape[1], gathered, mean, expected)
        for k in range(rank):
            below = by[k] + exposed[k]
            if below > 0:
                b[k] = (plus[k] + b[k] * expected[k]) / below
            b[k] = max(b[k], floor)
        mix_entries(entries, rank, b, gathered, least, mean)
        before, change = 0, nothing  # the step that the means do not yet include
        for _ in range(sweeps):
            for k in range(rank):
                for _ in range(newton_steps):
                    old = b[k]
                    if spreads is None:
                        once, twice = derivatives(entries, before, change, k, counts, gathered, least, mean)
                    else:
                        given = counts, spreads, gathered, least, mean
                        once, twice = cluster_derivatives(entries, before, change, k, *given)
                    b[k] = _newton(once, twice, exposed[k] + by[k], plus[k], old, floor)
                    before, change = k, b[k] - old
                    if abs(change) < 0.5 * old:
                        break


def poisson_regression(
    matrix: csr_array, loadings: Array, components: Array, prior: tuple[Array, Array], sweeps: int = 4,
    newton_steps: int = 1, floor: float = 1e-15, threads: int | None = None, *, reuse: bool = False,
    spread: Spread | None = None, exposure: Array | None = None,
) -> Array:  # fmt: skip
    """Improve the loadings of every row, with components fixed: one EM step, then sweeps of coordinate descent.

    Each row is a separate convex problem, min_b Σ_j (λ_j − x_j log λ_j) − Σ_k ((c_k − 1) log b_k − d_k b_k) with
    λ = b · components. A coordinate moves to max(floor, b_k − g_k / q_k), where g and q are the first and second
    derivative, and the means are updated at once ([C] 29-31). A sweep is not monotone: the caller checks the objective.

    Parameters
    ----------
    matrix : csr_array of shape (n, m)
        Counts; to update the components instead, pass the transpose and exchange the two factors.
    loadings, components : ndarray of shape (n, K) and (K, m)
        Loadings to start from, and fixed components.
    prior : pair of ndarray, (n or 1, K)
        c − 1 ≥ 0 and d ≥ 0 of the Gamma(c, d) priors on the loadings; zeros for a flat prior.
    sweeps : int
        Number of sweeps over all K coordinates of a row.
    newton_steps : int
        Largest number of steps of one coordinate at a time; steps are repeated only while they change it by half or
        more.
    floor : float
        Smallest value of a loading.
    reuse : bool
        Whether the result may overwrite the loadings; it does if they are `padded`.
    spread : tuple, optional
        Spreads of rows and features, where counts cluster: L takes the place of x log λ.
    exposure : ndarray (n, K), optional
        Sums of the components over the observed features of each row, if some are missing.

    Returns
    -------
    ndarray of shape (n, K)
    """
    V = whole_vectors(components.T)
    out = loadings if reuse and is_padded(loadings) else padded_copy(loadings)
    whole, sums = whole_vectors(out), sum_rows(components.T)[None] if exposure is None else exposure
    less, rate, exposed = (np.ascontiguousarray(value, dtype=V.dtype) for value in (*prior, sums))
    work = matrix.nnz * out.shape[1] * (sweeps * newton_steps + 1)
    given = matrix.indptr, matrix.indices, matrix.data, V, exposed, less, rate, sweeps, newton_steps, floor, spread
    room = room_for_row(matrix.indptr, V, spread is not None)
    over_rows(matrix.indptr, work, lambda first, last: _regress(*given, first, last, *room(), whole), threads)
    return out
