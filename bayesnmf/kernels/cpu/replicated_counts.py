"""Draw counts from the means θβ as a sparse matrix: the same counts of which `replication` keeps statistics alone."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from bayesnmf.kernels.cpu.compiling import compiled_on_disk
from bayesnmf.kernels.cpu.dispersed_draws import PLAIN, Noise
from bayesnmf.kernels.cpu.drawn_rows import draw_row, prepare_draws
from bayesnmf.kernels.cpu.streams import stream
from bayesnmf.kernels.cpu.threads import in_blocks, threads_or_default

Array = NDArray[Any]


@compiled_on_disk(nogil=True)
def _draw_rows(
    U: Array, Vt: Array, sums: Array, totals: Array, tables: tuple[Array, Array], noise: Any, seed: Any, first: int,
    last: int, ends: Array, indices: Array, values: Array,
) -> None:  # fmt: skip
    """Draw rows, and write their nonzero cells before `ends` (n,); without room, write their numbers there."""
    m, rank = Vt.shape
    state = np.empty(1, dtype=np.uint64)
    row, touched = np.zeros(m), np.empty(m + 1, dtype=np.int64)  # one spare element, for cells not new
    numbers, scratch = np.empty(rank), np.zeros(rank)
    for i in range(first, last):
        state[0] = stream(seed, i)
        cells = draw_row(state, i, U, Vt, sums, totals, tables, noise, numbers, scratch, row, touched)
        if len(indices) == 0:
            ends[i] = cells
        else:
            places, end = np.sort(touched[:cells]), ends[i]
            for q in range(cells):
                indices[end - cells + q] = places[q]
                values[end - cells + q] = row[places[q]]
        row[touched[:cells]] = 0.0


def replicated_counts(
    loadings: Array, components: Array, totals: Array | None, seed: int, threads: int | None = None,
    noise: Noise = PLAIN,
) -> csr_array:  # fmt: skip
    """Draw counts with means loadings @ components, or shares of them given row totals, as a canonical matrix (n, m).

    Rows are drawn twice, first to see how many cells are not 0; their streams give the same counts both times.

    Parameters
    ----------
    loadings, components : ndarray of shape (n, K) and (K, m)
        Nonnegative factors, in float64.
    totals : ndarray of shape (n,) or None
        Row totals, whole numbers in float64, if counts are multinomial, or Dirichlet-multinomial with linear variance.
    seed : int
        Seed of this draw, below 2**64. The same seed gives the same counts with any number of threads.
    noise : Noise
        How counts vary; by default as Poisson counts, or multinomial ones.
    """
    n, m = len(loadings), components.shape[1]
    made = prepare_draws(loadings, components, totals, noise)
    ends = np.zeros(n, np.int64)

    def draw_into(indices: Array, values: Array) -> None:
        def draw(_: int, first: int, last: int) -> None:
            _draw_rows(*made.inputs, np.uint64(seed), first, last, ends, indices, values)

        in_blocks(made.bounds, draw, threads_or_default(threads, made.work), made.cuts)

    draw_into(np.empty(0, np.int32), np.empty(0))
    np.cumsum(ends, out=ends)
    cells = int(ends[-1]) if n else 0
    indices, values = np.empty(cells, np.int32), np.empty(cells)
    if cells:
        draw_into(indices, values)
    return csr_array((values, indices, np.concatenate([[0], ends])), shape=(n, m))
