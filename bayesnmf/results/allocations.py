"""Expected allocations of a fit: the part of every count that each component produced."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

from bayesnmf.checks import check_names, check_size
from bayesnmf.kernels.cpu.dense import entry_allocations
from bayesnmf.results.draws import restrict_rows
from bayesnmf.results.record import FitRecord, iterate_draws
from bayesnmf.types import Array

LIMIT = 2 * 2**30
MOST_DRAWS = 200


def allocations(fit: FitRecord, rows: Iterable[Any] | None = None) -> Array:
    """Return expected allocations (rows, K, m): X_ij φ_ikj with the shares φ_i:j of the components ([P] 16-17, [K] 5).

    Parameters
    ----------
    fit : Fit
    rows : iterable of names, optional
        Names of the rows, in the order wanted; all rows by default.

    Returns
    -------
    ndarray of shape (rows, K, m)
        Allocations, in counts: at the multipliers under bld, at the modes under map, at exp E log (the optimal φ of
        the augmented elbo) under vi and svi, and the mean over up to 200 draws, evenly spaced among all chains, under
        gibbs and nuts.

    Raises
    ------
    ValueError
        The fit has no row with a given name, or the array would take more than 2 GiB.
    """
    positions = check_names(rows, fit.row_names, "rows")
    n = fit.counts.shape[0] if positions is None else len(positions)
    size = 8 * n * fit.rank * fit.counts.shape[1]
    check_size(size, LIMIT, "the allocations", "choose some rows with rows=")
    part = restrict_rows(fit, positions)
    matrix = part.counts.matrix
    entries = np.zeros((len(matrix.indices), fit.rank))
    taken = 0
    for loadings, components in _factors(part):
        entries += entry_allocations(matrix, loadings, components)
        taken += 1
    out = np.zeros((n, fit.rank, fit.counts.shape[1]))
    row_of_entry = np.repeat(np.arange(n), np.diff(matrix.indptr))
    out[row_of_entry, :, matrix.indices] = entries / taken
    return out


def _factors(fit: FitRecord) -> Iterator[tuple[Array, Array]]:
    """Yield pairs of loadings and components; counts are allocated in proportion to their products."""
    q: Any = fit.estimate
    if fit.multipliers is not None:
        yield fit.multipliers
    elif q.kind == "mean field":
        log_loadings = q.loadings.expected_log()
        loadings = np.exp(log_loadings - log_loadings.max(axis=1, keepdims=True))
        if q.components is None:
            yield loadings, fit.components
        else:
            log_components = q.components.expected_log()
            yield loadings, np.exp(log_components - log_components.max(axis=0))
    else:
        yield from iterate_draws(fit, MOST_DRAWS, 0, shares=True)
