"""Draw the counts of a row from its means θβ, and prepare the draws of a whole matrix.

A row with fewer expected counts than features is drawn count by count: first the number of counts of each component,
then a feature for each count from an alias table (Walker 1977; Vose 1991), which gives the same distribution
([P] 16-17, [GP] D.1). Other rows are drawn entry by entry. Counts that cluster (`dispersed_draws`) are drawn cluster by
cluster in the same way; given the total of a row, from an urn. Every row has its own random stream, and blocks of rows
do not depend on the number of threads; so the results do not either.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from bayesnmf.kernels.cpu.allocation import row_blocks
from bayesnmf.kernels.cpu.compiling import compiled_for_kernels, compiled_on_disk
from bayesnmf.kernels.cpu.dispersed_draws import (
    LINEAR,
    PLAIN,
    POISSON,
    QUADRATIC,
    Noise,
    add_from_rates,
    dispersed_count,
    draw_from_urn,
    grow_clusters,
)
from bayesnmf.kernels.cpu.poisson_draws import poisson
from bayesnmf.kernels.cpu.sampling import add_many, add_multinomial
from bayesnmf.kernels.cpu.streams import uniform
from bayesnmf.kernels.cpu.threads import SERIAL_WORK, piece_count
from bayesnmf.types import Array

BLOCKS = 32
WORK = 10  # cost of one drawn count, in multiply-adds


@compiled_on_disk(nogil=True)
def _fill_alias_tables(V: Array, stay: Array, other: Array) -> None:
    """Make an alias table of every row of V (K, m): feature j stays j with probability stay_j, else becomes other_j."""
    m = V.shape[1]
    small, large = np.empty(m, dtype=np.int64), np.empty(m, dtype=np.int64)
    for k in range(V.shape[0]):
        weight = V[k].sum()
        scale = m / weight if weight > 0.0 else 0.0  # with weight 0, all features are equally likely
        smalls = larges = 0
        for j in range(m):
            stay[k, j] = V[k, j] * scale
            other[k, j] = j
            if stay[k, j] < 1.0:
                small[smalls] = j
                smalls += 1
            else:
                large[larges] = j
                larges += 1
        while smalls > 0 and larges > 0:
            smalls -= 1
            j, donor = small[smalls], large[larges - 1]
            other[k, j] = donor
            stay[k, donor] -= 1.0 - stay[k, j]
            if stay[k, donor] < 1.0:
                larges -= 1
                small[smalls] = donor
                smalls += 1
        for left in range(smalls):  # these are 1 up to rounding, as are those still in `large`
            stay[k, small[left]] = 1.0


@compiled_for_kernels()
def _draw_component_totals(state: Array, expected: Array, total: float, numbers: Array, scratch: Array) -> None:
    """Draw the row's number of counts of each component: Poisson, or multinomial if `total` is not negative."""
    if total < 0:
        for k in range(len(expected)):
            numbers[k] = poisson(state, expected[k])
        return
    cumulative = np.cumsum(expected)
    if not cumulative[-1] > 0.0:  # then every component, or feature, is equally likely
        cumulative = np.arange(1.0, len(expected) + 1.0)
    numbers[:] = 0.0
    add_multinomial(state, int(total), cumulative, numbers, scratch)


@compiled_for_kernels()
def _draw_counts(state: Array, numbers: Array, stay: Array, other: Array, row: Array, touched: Array) -> int:
    """Add single counts to the zeros of `row` (m,); list the nonzero entries in `touched` and return their number."""
    m = len(row)
    nonzeros = 0
    for k in range(len(numbers)):
        for _ in range(int(numbers[k])):
            place = uniform(state) * m
            j = int(place)
            j = j if place - j < stay[k, j] else other[k, j]
            touched[nonzeros] = j  # without branches, as they could not be predicted
            nonzeros += 1 if row[j] == 0.0 else 0
            row[j] += 1.0
    return nonzeros


@compiled_for_kernels()
def _draw_entries(state: Array, u: Array, Vt: Array, total: float, row: Array, touched: Array) -> int:
    """Draw every entry of `row`, which holds zeros; list the nonzero entries in `touched` and return their number."""
    cumulative = np.empty(len(row) if total >= 0 else 0)
    passed = 0.0
    for j in range(len(row)):
        mean = 0.0
        for k in range(len(u)):
            mean += u[k] * Vt[j, k]
        passed += mean
        if total < 0:
            row[j] = poisson(state, mean)
        else:
            cumulative[j] = passed
    if total >= 0:
        add_many(
            state, int(total), cumulative if passed > 0.0 else np.arange(1.0, len(row) + 1.0), row, np.zeros(len(row))
        )
    nonzeros = 0
    for j in range(len(row)):
        if row[j] != 0.0:
            touched[nonzeros] = j
            nonzeros += 1
    return nonzeros


@compiled_for_kernels()
def _draw_dispersed_entries(
    state: Array, u: Array, Vt: Array, total: float, noise: tuple[int, float, Array], row: Array, touched: Array
) -> int:
    """Do what `_draw_entries` does, with a noise other than Poisson."""
    kind, own, features = noise
    means = np.zeros(len(row))
    for j in range(len(row)):
        for k in range(len(u)):
            means[j] += u[k] * Vt[j, k]
    if total >= 0:
        add_from_rates(state, int(total), means, own, row)
    nonzeros = 0
    for j in range(len(row)):
        if total < 0:
            row[j] = dispersed_count(state, kind, means[j], own * features[j])
        if row[j] != 0.0:
            touched[nonzeros] = j
            nonzeros += 1
    return nonzeros


@compiled_for_kernels()
def draw_row(
    state: Array, i: int, U: Array, Vt: Array, sums: Array, totals: Array, tables: tuple[Array, Array],
    noise: tuple[int, Array, Array, Array], numbers: Array, scratch: Array, row: Array, touched: Array,
) -> int:  # fmt: skip
    """Draw the counts of row `i` into the zeros of `row`; list nonzero entries in `touched` and return their number."""
    kind, rows, features, exposures = noise
    total = totals[i] if len(totals) > 0 else -1.0
    expected = U[i] * sums
    if kind == LINEAR and total < 0:
        expected *= exposures[i]  # of clusters
    if kind != QUADRATIC and (total if total >= 0 else expected.sum()) < len(row):
        if kind == LINEAR and total >= 0:
            return draw_from_urn(state, int(total), expected, rows[i], tables, row, touched)
        _draw_component_totals(state, expected, total, numbers, scratch)
        nonzeros = _draw_counts(state, numbers, tables[0], tables[1], row, touched)
        if kind == LINEAR:
            grow_clusters(state, row, touched[:nonzeros], rows[i], features)
        return nonzeros
    if kind == POISSON:
        return _draw_entries(state, U[i], Vt, total, row, touched)
    return _draw_dispersed_entries(state, U[i], Vt, total, (kind, rows[i], features), row, touched)


class Prepared(NamedTuple):
    """What draws of counts from θβ need, whatever becomes of them.

    Attributes
    ----------
    inputs : tuple
        Loadings (n, K), transposed components (m, K), sums of components (K,), row totals (n,) or none, alias tables,
        and the noise with the exposures of clusters (n,). Sums and tables are those of clusters if counts come in them.
    bounds, cuts : ndarray
        Bounds of the blocks of rows that are drawn side by side, and of shorter pieces.
    work : int
        Number of multiply-adds, about.
    """

    inputs: tuple[Array, Array, Array, Array, tuple[Array, Array], tuple[int, Array, Array, Array]]
    bounds: Array
    cuts: Array
    work: int


def prepare_draws(loadings: Array, components: Array, totals: Array | None, noise: Noise = PLAIN) -> Prepared:
    """Return what draws of counts need; rows are drawn entry by entry or by components, whichever takes fewer steps."""
    U, Vt, V = np.ascontiguousarray(loadings), np.ascontiguousarray(components.T), np.ascontiguousarray(components)
    exposures = np.ones(len(U))
    if noise.kind == LINEAR and totals is None:
        if noise.by_feature:
            V = V * (np.log1p(noise.features) / noise.features)
        else:
            exposures = np.log1p(noise.rows) / noise.rows
    sums = V.sum(axis=1)
    tables = np.empty(V.shape), np.empty(V.shape, dtype=np.int32)
    _fill_alias_tables(V, *tables)
    steps = np.minimum((U @ sums) * exposures if totals is None else totals, len(Vt))
    if noise.kind == QUADRATIC:
        steps = np.full(len(U), float(len(Vt)))
    work = WORK * len(sums) * steps.sum()
    until = np.concatenate([[0.0], np.cumsum(steps)])
    bounds, cuts = row_blocks(until, BLOCKS if work > SERIAL_WORK else 1), row_blocks(until, piece_count(work))
    given = np.empty(0) if totals is None else totals
    return Prepared((U, Vt, sums, given, tables, (*noise[:3], exposures)), bounds, cuts, int(work))
