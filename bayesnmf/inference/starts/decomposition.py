"""Positive factors from the data: the nonnegative parts of a truncated singular value decomposition.

This is NNDSVD (Boutsidis & Gallopoulos 2008, *SVD based initialization: a head start for nonnegative matrix
factorization*) of the square roots of the counts, which have nearly constant variance. Subspace iteration from random
vectors (Halko, Martinsson & Tropp 2011, alg. 4.4) cannot fail on small, empty or degenerate counts. It takes a pass
over the counts for each power iteration, and one for the projected rows.
"""

from __future__ import annotations

from copy import deepcopy
from typing import Any, NamedTuple

import numpy as np

from bayesnmf.inference.blocked.passes import pass_over_rows
from bayesnmf.inference.blocked.tasks import Pass
from bayesnmf.inference.problem import Problem, State
from bayesnmf.inference.side import Side, empty_side
from bayesnmf.inference.sides import Where
from bayesnmf.kernels.cpu.allocation import Totals
from bayesnmf.kernels.cpu.threads import one_blas_thread
from bayesnmf.types import Array

FLOOR = 1.0  # smallest entry, in factor means: small values change only after very many updates, and zeros never
POWER_ITERATIONS, OVERSAMPLING = 4, 10
NOTHING = np.empty((0, 0))


class Decomposition(NamedTuple):
    """The leading singular triplets of the square roots of the counts.

    Attributes
    ----------
    rows : Side
        The matrix times the basis, (n, r); times `to_left` it has the left singular vectors.
    to_left : ndarray (r, K)
    singular : ndarray (K,)
    right : ndarray (K, m)
    mean : float
        Mean of the matrix.
    rank : int
        Number of components that are wanted.
    """

    rows: Side
    to_left: Array
    singular: Array
    right: Array
    mean: float
    rank: int

    @property
    def known(self) -> int:
        """Number of components that the counts determine."""
        return int(np.count_nonzero(self.singular > 1e-10 * self.singular.max(initial=0)))

    @property
    def is_short(self) -> bool:
        """Whether some components are random, since the counts do not determine them."""
        return self.known < self.rank


def positive_factors(problem: Problem, rank: int, rng: np.random.Generator) -> tuple[Side, Array]:
    """Return positive loadings (n, K) and components (K, m) with a product near the square roots of the counts."""
    with one_blas_thread():
        svd = decompose(problem, rank, rng)
        at_rows = deepcopy(rng)  # random entries of the loadings are drawn twice: for their means, and for themselves
        chosen = _choose_parts(problem, svd, rng)

        def work(part: Problem, here: State, _: Where) -> tuple[Side, None, float]:
            drawn = at_rows.exponential(size=(part.counts.shape[0], rank)) if svd.is_short else None
            rows = np.maximum(_rows_of(svd, here.loadings.matrix, chosen, drawn), FLOOR * chosen.means)
            return Side(rows, rows, None, 0.0), None, 0.0

        kind = Pass(pure=not svd.is_short, reads=False)
        _, loadings = pass_over_rows(problem, State(svd.rows, empty_side()), work, kind)
    return loadings, np.maximum(chosen.components, FLOOR * chosen.components.mean(axis=1)[:, None])


def decompose(problem: Problem, rank: int, rng: np.random.Generator) -> Decomposition:
    """Return the leading `rank` singular triplets, or all if there are fewer."""
    n, m = problem.counts.shape
    basis = rng.standard_normal((m, min(rank + OVERSAMPLING, n, m)))

    def roots(part: Problem) -> Any:
        return part.counts.matrix.astype(np.float64).sqrt()

    def iterate(part: Problem, _: Any, __: Where) -> tuple[None, Totals, float]:
        matrix = roots(part)
        return None, Totals(NOTHING, (matrix.T @ (matrix @ basis)).T, 0.0), 0.0

    def project(part: Problem, _: Any, __: Where) -> tuple[Side, Totals, Array]:
        matrix = roots(part)
        rows = matrix @ basis
        return Side(rows, rows, None, 0.0), Totals(NOTHING, NOTHING, matrix.sum()), np.linalg.qr(rows, mode="r")

    for _ in range(POWER_ITERATIONS):
        found, _ = pass_over_rows(problem, None, iterate, Pass(writes=False))
        assert found.components is not None
        basis = np.linalg.qr(found.components)[0]
    found, rows = pass_over_rows(problem, None, project, Pass(plus=_upper_of_both))
    _, singular, inner = np.linalg.svd(found.more)
    right = inner[:rank] @ basis.T
    singular, inner = singular[:rank], inner[:rank]
    inverse = np.divide(1.0, singular, out=np.zeros_like(singular), where=singular > 0)
    return Decomposition(rows, inner.T * inverse, singular, right, found.loglik / (n * m), rank)


def _upper_of_both(one: Array, two: Array) -> Array:
    """Return the triangular factor R of all rows, which has their singular values and right singular vectors."""
    return np.linalg.qr(np.vstack([one, two]), mode="r")


class Parts(NamedTuple):
    """The nonnegative parts that become factors.

    Attributes
    ----------
    signs, weights : ndarray (K,)
        Sign of the chosen part of each left vector, and its factor; weight 0 for random components.
    means : ndarray (K,)
        Means of the columns of the loadings.
    level : float
        Level of random entries.
    components : ndarray (K, m)
    """

    signs: Array
    weights: Array
    means: Array
    level: float
    components: Array


def _choose_parts(problem: Problem, svd: Decomposition, rng: np.random.Generator) -> Parts:
    """Choose the larger of both nonnegative parts of each singular pair."""
    (n, m), rank = problem.counts.shape, svd.rank

    def measure(part: Problem, here: State, _: Where) -> tuple[None, None, Array]:
        left = here.loadings.matrix @ svd.to_left
        drawn = rng.exponential(size=(len(left), rank)).sum(axis=0) if svd.is_short else 0.0
        found = np.zeros((5, rank))
        for place, side in enumerate((np.maximum(left, 0), np.maximum(-left, 0))):
            found[place, : left.shape[1]], found[2 + place, : left.shape[1]] = (side**2).sum(axis=0), side.sum(axis=0)
        found[4] = drawn
        return None, None, found

    kind = Pass(writes=False, pure=not svd.is_short, reads=False)
    found, _ = pass_over_rows(problem, State(svd.rows, empty_side()), measure, kind)
    squares, sums, drawn = found.more[:2], found.more[2:4], found.more[4]
    level = np.sqrt(svd.mean / rank) or 1.0
    components = level * rng.exponential(size=(rank, m))
    signs, weights, means = np.ones(rank), np.zeros(rank), level * drawn / n
    for k in range(svd.known):
        rights = [np.maximum(sign * svd.right[k], 0) for sign in (1, -1)]
        sizes = [np.sqrt(squares[place, k]) * np.linalg.norm(right) for place, right in enumerate(rights)]
        chosen = int(np.argmax(sizes))
        if sizes[chosen] > 0:
            weight = np.sqrt(svd.singular[k] * sizes[chosen])
            signs[k], weights[k] = (1, -1)[chosen], weight / np.sqrt(squares[chosen, k])
            means[k] = weights[k] * sums[chosen, k] / n
            components[k] = weight / np.linalg.norm(rights[chosen]) * rights[chosen]
    return Parts(signs, weights, means, float(level), components)


def _rows_of(svd: Decomposition, rows: Array, chosen: Parts, drawn: Array | None) -> Array:
    """Return the loadings of some rows: the chosen parts, or random entries."""
    left = rows @ svd.to_left
    found = np.empty((len(left), len(chosen.weights))) if drawn is None else chosen.level * drawn
    known = np.flatnonzero(chosen.weights)
    found[:, known] = chosen.weights[known] * np.maximum(chosen.signs[known] * left[:, known], 0)
    return found
