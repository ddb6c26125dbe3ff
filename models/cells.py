"""Counts and observed cells in the form of the programs, and sums of the rates λ = θβ over cells.

Counts are dense, or triplets of their nonzero cells. Sums over observed cells are those over all cells, which need no
cell by itself, less those over the missing ones, or sums over the observed ones, whichever are fewer.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from scipy import sparse


class Triplets(NamedTuple):
    """Counts as their nonzero cells: ``values[c]`` at ``(rows[c], columns[c])``, and zero elsewhere.

    It is a pytree, so it can pass through ``jit`` and ``vmap``, and be ``obs`` of ``numpyro.sample``.
    """

    rows: jax.Array
    columns: jax.Array
    values: jax.Array

    # NumPyro checks that the shape of an observation broadcasts to the shape of its distribution; this shape
    # broadcasts to any (n, m).
    @property
    def shape(self) -> tuple[int, ...]:
        """The shape that broadcasts to (n, m)."""
        return (1, 1)

    @property
    def ndim(self) -> int:
        """Number of dimensions, 2 as for a matrix."""
        return 2


def as_observation(counts: Any) -> jax.Array | Triplets:
    """Return counts in a form that `PoissonProduct` can observe.

    Parameters
    ----------
    counts : scipy sparse matrix or array, dense array (n, m), or Triplets

    Returns
    -------
    Triplets or jax.Array
        `Triplets` for sparse counts, a floating array of shape (n, m) for dense ones.
    """
    if isinstance(counts, Triplets) or sparse.issparse(counts):
        return as_triplets(counts)
    return jnp.asarray(counts, dtype=float)


def as_triplets(counts: Any) -> Triplets:
    """Return the nonzero cells of concrete counts, dense or sparse."""
    if isinstance(counts, Triplets):
        return counts
    matrix: Any = counts if sparse.issparse(counts) else np.asarray(counts)
    matrix = sparse.csr_array(matrix, copy=True)
    matrix.sum_duplicates()
    cells = matrix.tocoo()
    seen = cells.data != 0
    rows, columns = (jnp.asarray(index[seen]) for index in cells.coords)
    return Triplets(rows, columns, jnp.asarray(cells.data[seen], dtype=float))


def rates_at(cells: Triplets, loadings: jax.Array, components: jax.Array) -> jax.Array:
    """Return the terms θ_ik β_kj of the rate at each nonzero cell, shape (..., nnz, K)."""
    return loadings[..., cells.rows, :] * jnp.swapaxes(components[..., :, cells.columns], -1, -2)


def total_rate(loadings: jax.Array, components: jax.Array) -> jax.Array:
    """Return Σ_ij λ_ij, in O((n + m) K)."""
    return jnp.sum(loadings.sum(-2) * components.sum(-1), -1)


def row_totals(counts: Any, n: int) -> jax.Array:
    """Return the totals of the rows of a dense matrix or of `Triplets`, (n,)."""
    return jnp.zeros(n).at[counts.rows].add(counts.values) if isinstance(counts, Triplets) else counts.sum(-1)


class Observed(NamedTuple):
    """Which cells were observed: sums over these are ``whole`` × those over all cells, plus ``cells.values`` × `cells`.

    So `cells` are the missing ones with values −1 and ``whole`` = 1, or the observed ones with values 1 and ``whole``
    = 0, whichever are fewer.
    """

    whole: Any
    cells: Triplets

    def total_rate(self, loadings: jax.Array, components: jax.Array) -> jax.Array:
        """Return Σ λ_ij over the observed cells, (...)."""
        rates = rates_at(self.cells, loadings, components).sum(-1)
        return self.whole * total_rate(loadings, components) + (self.cells.values * rates).sum(-1)

    def row_rates(self, loadings: jax.Array, components: jax.Array) -> jax.Array:
        """Return Σ_j λ_ij over the observed cells of each row, (n,)."""
        rates = self.cells.values * rates_at(self.cells, loadings, components).sum(-1)
        return jnp.asarray(self.whole * (loadings @ components.sum(-1))).at[self.cells.rows].add(rates)


def total_exposed(
    loadings: jax.Array, components: jax.Array, observed: Observed | None, row_totals: jax.Array | None = None
) -> jax.Array:
    """Return what Σ X log λ − Σ log X! loses: Σ λ over observed cells, or Σ λ + Σ N log Σ_j λ_ij given row totals."""
    if observed is None:
        return total_rate(loadings, components)
    if row_totals is None:
        return observed.total_rate(loadings, components)
    least = jnp.finfo(loadings.dtype).tiny  # what is left may be nothing but rounding
    rates = jnp.where(row_totals > 0, jnp.maximum(observed.row_rates(loadings, components), least), 1)
    return total_rate(loadings, components) + row_totals @ jnp.log(rates)
