"""Counts and observed entries in the form of the programs, and sums of the rates λ = θβ over entries.

Counts are dense, or triplets of their nonzero entries. Sums over observed entries are those over all entries, which
need no entry by itself, less those over the missing ones, or sums over the observed ones, whichever are fewer.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from scipy import sparse


class Triplets(NamedTuple):
    """Counts as their nonzero entries: ``values[c]`` at ``(rows[c], columns[c])``, and zero elsewhere.

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


def size_of(counts: Any, size: tuple[int, int] | None) -> tuple[int, int]:
    """Return a given size (n, m), or that of counts that have one: triplets, and counts to be drawn, do not."""
    if size is not None:
        return size
    if counts is None or isinstance(counts, Triplets):
        raise ValueError("size must be given, as (n, m), to counts that are drawn or triplets: give size=(n, m)")
    return tuple(counts.shape)


def as_observation(counts: Any) -> jax.Array | Triplets:
    """Return counts in a form that `PoissonProduct` can observe.

    Parameters
    ----------
    counts : scipy sparse matrix or array, dense array (n, m), `bayesnmf.Counts` or Triplets

    Returns
    -------
    Triplets or jax.Array
        `Triplets` for sparse counts, a floating array of shape (n, m) for dense ones.
    """
    if isinstance(counts, Triplets) or sparse.issparse(counts):
        return as_triplets(counts)
    return as_triplets(counts.matrix) if hasattr(counts, "matrix") else jnp.asarray(counts, dtype=float)


def as_triplets(counts: Any) -> Triplets:
    """Return the nonzero entries of concrete counts, dense or sparse."""
    if isinstance(counts, Triplets):
        return counts
    counts = getattr(counts, "matrix", counts)
    matrix: Any = counts if sparse.issparse(counts) else np.asarray(counts)
    matrix = sparse.csr_array(matrix, copy=True)
    matrix.sum_duplicates()
    entries = matrix.tocoo()
    seen = entries.data != 0
    rows, columns = (jnp.asarray(index[seen]) for index in entries.coords)
    return Triplets(rows, columns, jnp.asarray(entries.data[seen], dtype=float))


def rates_at(entries: Triplets, loadings: jax.Array, components: jax.Array) -> jax.Array:
    """Return the terms θ_ik β_kj of the rate at each nonzero entry, shape (..., nnz, K)."""
    return loadings[..., entries.rows, :] * jnp.swapaxes(components[..., :, entries.columns], -1, -2)


def total_rate(loadings: jax.Array, components: jax.Array) -> jax.Array:
    """Return Σ_ij λ_ij, in O((n + m) K)."""
    return jnp.sum(loadings.sum(-2) * components.sum(-1), -1)


def row_totals(counts: Any, n: int) -> jax.Array:
    """Return the totals of the rows of a dense matrix or of `Triplets`, (n,)."""
    return jnp.zeros(n).at[counts.rows].add(counts.values) if isinstance(counts, Triplets) else counts.sum(-1)


class Observed(NamedTuple):
    """Which entries were observed: sums over these are ``whole`` × those over all, plus ``entries.values`` × `entries`.

    So `entries` are the missing ones with values −1 and ``whole`` = 1, or the observed ones with values 1 and ``whole``
    = 0, whichever are fewer.
    """

    whole: Any
    entries: Triplets

    def total_rate(self, loadings: jax.Array, components: jax.Array) -> jax.Array:
        """Return Σ λ_ij over the observed entries, (...)."""
        rates = rates_at(self.entries, loadings, components).sum(-1)
        return self.whole * total_rate(loadings, components) + (self.entries.values * rates).sum(-1)

    def row_rates(self, loadings: jax.Array, components: jax.Array) -> jax.Array:
        """Return Σ_j λ_ij over the observed entries of each row, (n,)."""
        rates = self.entries.values * rates_at(self.entries, loadings, components).sum(-1)
        return jnp.asarray(self.whole * (loadings @ components.sum(-1))).at[self.entries.rows].add(rates)


def total_exposed(
    loadings: jax.Array, components: jax.Array, observed: Observed | None, row_totals: jax.Array | None = None
) -> jax.Array:
    """Return what Σ X log λ − Σ log X! loses: Σ λ over observed entries, or Σ λ + Σ N log Σ_j λ_ij given row totals."""
    if observed is None:
        return total_rate(loadings, components)
    if row_totals is None:
        return observed.total_rate(loadings, components)
    least = jnp.finfo(loadings.dtype).tiny  # what is left may be nothing but rounding
    rates = jnp.where(row_totals > 0, jnp.maximum(observed.row_rates(loadings, components), least), 1)
    return total_rate(loadings, components) + row_totals @ jnp.log(rates)
