"""Replicated counts, one draw and some rows at a time, as a sparse matrix.

A replicate of many rows and features holds about as many counts as the data, however many cells there are. So where
counts are few, each is drawn by itself: how many a sample has of each component, then the feature of each, which is
the same distribution ([P] 16-17, [GP] D.1).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from bayesnmf.kernels.cpu import cell_rates
from bayesnmf.posterior import replicate
from bayesnmf.results import Fit
from bayesnmf.specification import MODELS

Array = NDArray[Any]

BLOCK_CELLS, BLOCK_COUNTS = 4_000_000, 2_000_000
COSTLIER = 4  # a count drawn by itself takes about as long as so many cells of a dense replicate


class Rates(NamedTuple):
    """One draw: loadings on the scale of the counts (n, K), components (K, m), and their running sums where needed."""

    loadings: Array
    components: Array
    running: Array | None


def few_counts(fit: Fit) -> bool:
    """Whether to draw every count by itself."""
    return COSTLIER * fit.counts.total < fit.counts.shape[0] * fit.counts.shape[1]


def rates_of(fit: Fit, loadings: Array, components: Array) -> Rates:
    """Make a draw ready to be replicated from."""
    return Rates(loadings, components, np.cumsum(components, axis=1) if few_counts(fit) else None)


def row_blocks(fit: Fit) -> Iterator[tuple[slice, Fit]]:
    """Yield rows and a fit of their counts (the posterior stays that of all rows), so many as bound the memory."""
    n, m = fit.counts.shape
    step = int(BLOCK_COUNTS * n / max(fit.counts.total, 1.0)) if few_counts(fit) else BLOCK_CELLS // m
    step = max(1, step)
    for start in range(0, n, step):
        rows = slice(start, min(start + step, n))
        yield rows, replace(fit, counts=fit.counts.rows(rows))


def replicate_block(block: Fit, rates: Rates, rows: slice, rng: np.random.Generator) -> csr_array:
    """Draw counts of some rows; `block` is a fit of their counts."""
    loadings = rates.loadings[rows]
    if rates.running is None:
        return csr_array(replicate(block, loadings @ rates.components, rng).astype(np.float64))
    numbers = _numbers(block, loadings * rates.running[:, -1], rng)
    places, features = [], []
    for k, running in enumerate(rates.running):
        uniform = rng.random(numbers[:, k].sum()) * running[-1]
        places.append(np.repeat(np.arange(len(loadings)), numbers[:, k]))
        features.append(np.minimum(np.searchsorted(running, uniform, side="right"), len(running) - 1))
    where = (np.concatenate(places), np.concatenate(features))
    drawn = csr_array((np.ones(len(where[0])), where), shape=block.counts.shape)
    drawn.sum_duplicates()
    return drawn


def _numbers(block: Fit, expected: Array, rng: np.random.Generator) -> Array:
    """Draw how many counts each sample has of each component, (rows, K)."""
    if not MODELS[block.model].given_totals:
        return rng.poisson(expected)
    sums = expected.sum(axis=1, keepdims=True)
    shares = np.divide(expected, sums, out=np.full_like(expected, 1 / expected.shape[1]), where=sums > 0)
    return rng.multinomial(np.rint(block.counts.row_totals).astype(np.int64), shares)


def misfits(matrix: csr_array, loadings: Array, components: Array) -> tuple[Array, Array]:
    """Freeman–Tukey misfit Σ (√x − √λ)² of every row and of every feature, in O(nnz K)."""
    rates = cell_rates(matrix, loadings, np.asfortranarray(components))
    nonzero = (np.sqrt(matrix.data) - np.sqrt(rates)) ** 2 - rates
    rows = np.repeat(np.arange(matrix.shape[0]), np.diff(matrix.indptr))
    of_rows = np.bincount(rows, nonzero, matrix.shape[0]) + loadings @ components.sum(axis=1)
    of_features = np.bincount(matrix.indices, nonzero, matrix.shape[1]) + loadings.sum(axis=0) @ components
    return of_rows, of_features
