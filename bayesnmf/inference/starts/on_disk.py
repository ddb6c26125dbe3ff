"""States to start from, for counts on disk: random, a singular value decomposition, or given.

They are those of counts in memory: the same random numbers in the same order, and the same decomposition except for
rounding. The decomposition takes six passes over the counts, one for each power iteration, one for the projected rows
and one for the allocations.
"""

from __future__ import annotations

from copy import deepcopy
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from bayesnmf.inference.allocating import allocate
from bayesnmf.inference.blocked.passes import pass_over_rows, totals_of
from bayesnmf.inference.blocked.tasks import Pass, Where
from bayesnmf.inference.side import Side, empty_side
from bayesnmf.inference.sides import Problem, State, exposure_of_components, update_components, update_loadings
from bayesnmf.inference.starts.from_data import FLOOR, OVERSAMPLING, POWER_ITERATIONS
from bayesnmf.inference.starts.states import Given, given_side, is_bare, shared_out
from bayesnmf.inference.summaries import skip_rows
from bayesnmf.kernels.cpu.allocation import Totals, expected_allocations
from bayesnmf.priors import Distribution, ScaledProportions

Array = NDArray[Any]


def state_on_disk(problem: Problem, word: str, rank: int, rng: np.random.Generator) -> State:
    """Return the start with this name: "svd" or "random"."""
    return (data_state_on_disk if word == "svd" else random_state_on_disk)(problem, rank, rng)


def random_state_on_disk(problem: Problem, rank: int, rng: np.random.Generator) -> State:
    """Return the state of the conditionals given random totals (`bayesnmf.inference.starts.states.random_state`)."""

    def share_out(part: Problem, _: Any, at: Where) -> tuple[Side, None, float]:
        total = shared_out(part.counts.row_totals, np.ones(rank), rng).astype(problem.counts.dtype, copy=False)
        return Side(total, total, None, 0.0), None, 0.0

    def work(part: Problem, here: State, _: Where) -> tuple[Side, None, float]:
        return _loadings_of(part, here.loadings.matrix), None, 0.0

    _, totals = pass_over_rows(problem, None, share_out, Pass(pure=False, reads=False))
    total = shared_out(problem.counts.feature_totals, np.ones(rank), rng).astype(problem.counts.dtype, copy=False)
    _, loadings = pass_over_rows(problem, State(totals, empty_side()), work, Pass(reads=False))
    return _with_components(problem, loadings, total.T)


def data_state_on_disk(problem: Problem, rank: int, rng: np.random.Generator) -> State:
    """Return the state of the conditionals given the allocations at the NNDSVD factors (`data_state`)."""
    svd = _truncated_svd(problem, rank, rng)
    at_rows = deepcopy(rng)  # random entries of the loadings are drawn twice: for their means, and for themselves
    chosen = _choose_parts(problem, svd, rank, rng)
    components = np.maximum(chosen.components, FLOOR * chosen.components.mean(axis=1)[:, None])
    components = components.astype(problem.counts.dtype)

    def work(part: Problem, here: State, _: Where) -> tuple[Side, Totals, float]:
        drawn = at_rows.exponential(size=(part.counts.shape[0], rank)) if svd.is_short else None
        rows = _rows_of(svd, here.loadings.matrix, chosen, drawn)
        loadings = np.maximum(rows, FLOOR * chosen.means).astype(problem.counts.dtype)
        totals = expected_allocations(part.counts.matrix, loadings, components, threads=1)
        return _loadings_of(part, totals.loadings), totals, 0.0

    found, loadings = pass_over_rows(problem, State(svd.rows, empty_side()), work, Pass(pure=not svd.is_short))
    return _with_components(problem, loadings, totals_of(problem, found))


def given_state_on_disk(problem: Problem, loadings: Given, components: Given) -> State:
    """Return the state with given factors or distributions (`bayesnmf.inference.starts.states.given_state`)."""

    def work(part: Problem, _: Any, at: Where) -> tuple[Side, None, float]:
        return given_side(part, "loadings", _rows_given(loadings, at.rows)), None, 0.0

    _, written = pass_over_rows(problem, None, work, Pass(pure=False, reads=False))  # given rows are sent nowhere
    if isinstance(loadings, Distribution):
        skip_rows(problem.loadings_summary, problem.loadings_prior, written.shape[1], again=False)
    state = State(written, given_side(problem, "components", components))
    bare = is_bare(problem.loadings_summary, loadings), is_bare(problem.components_summary, components)
    if not any(bare):
        return state
    totals = allocate(problem, state, None)
    if bare[0]:
        state = update_loadings(problem, state, totals.loadings)
    return update_components(problem, state, totals.components) if bare[1] else state


def _rows_given(given: Given, rows: slice) -> Given:
    if isinstance(given, Distribution):
        return given.rows(rows)
    return ScaledProportions(*(part[rows] for part in given)) if isinstance(given, ScaledProportions) else given[rows]


def _loadings_of(part: Problem, total: Array) -> Side:
    """Return the loadings given their totals, at the exposure of components whose expected counts sum to 1."""
    one = part.counts.row_factor.astype(total.dtype)
    return part.loadings_summary.carry(part.loadings_prior, total, one, None, reuse=True)


def _with_components(problem: Problem, loadings: Side, total: Array) -> State:
    skip_rows(problem.loadings_summary, problem.loadings_prior, len(total), again=False)
    given = problem.components_prior, total, exposure_of_components(problem, loadings), None
    return State(loadings, problem.components_summary.carry(*given, reuse=True))


class Decomposition(NamedTuple):
    """The leading singular triplets of the square roots of the counts.

    Attributes
    ----------
    rows : Side
        The matrix times the basis, (n, r), in files; times `to_left` it has the left singular vectors.
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


def _truncated_svd(problem: Problem, rank: int, rng: np.random.Generator) -> Decomposition:
    """Return the leading triplets by subspace iteration (`truncated_svd`), with one pass for each iteration."""
    n, m = problem.counts.shape
    basis = rng.standard_normal((m, min(rank + OVERSAMPLING, n, m)))

    def roots(part: Problem) -> Any:
        return part.counts.matrix.astype(np.float64).sqrt()

    def iterate(part: Problem, _: Any, at: Where) -> tuple[None, Totals, float]:
        matrix = roots(part)
        return None, Totals(np.empty((0, 0)), (matrix.T @ (matrix @ basis)).T, 0.0), 0.0

    def project(part: Problem, _: Any, at: Where) -> tuple[Side, Totals, Array]:
        matrix = roots(part)
        rows = matrix @ basis
        return Side(rows, rows, None, 0.0), Totals(np.empty((0, 0)), np.empty((0, 0)), matrix.sum()), _upper(rows)

    for _ in range(POWER_ITERATIONS):
        found, _ = pass_over_rows(problem, None, iterate, Pass(writes=False))
        assert found.components is not None
        with one_thread():
            basis = np.linalg.qr(found.components)[0]
    found, rows = pass_over_rows(problem, None, project, Pass(plus=lambda one, two: _upper(np.vstack([one, two]))))
    with one_thread():
        _, singular, inner = np.linalg.svd(found.more)
        right = inner[:rank] @ basis.T
    singular, inner = singular[:rank], inner[:rank]
    inverse = np.divide(1.0, singular, out=np.zeros_like(singular), where=singular > 0)
    return Decomposition(rows, inner.T * inverse, singular, right, found.loglik / (n * m), rank)


def one_thread() -> Any:
    """Return a context in which matrix products use one thread, so that their rounding is the same everywhere."""
    from threadpoolctl import threadpool_limits

    return threadpool_limits(1)


def _product(rows: Array, others: Array) -> Array:
    with one_thread():
        return rows @ others


def _upper(rows: Array) -> Array:
    """Return the triangular factor R of the rows, which has their singular values and right singular vectors."""
    with one_thread():
        return np.linalg.qr(rows, mode="r")


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


def _choose_parts(problem: Problem, svd: Decomposition, rank: int, rng: np.random.Generator) -> Parts:
    """Choose the larger of both nonnegative parts of each singular pair (`positive_factors`)."""
    n, m = problem.counts.shape

    def measure(part: Problem, here: State, _: Where) -> tuple[None, None, Array]:
        left = _product(here.loadings.matrix, svd.to_left)
        drawn = rng.exponential(size=(len(left), rank)).sum(axis=0) if svd.is_short else 0.0
        found = np.zeros((5, rank))
        for place, side in enumerate((np.maximum(left, 0), np.maximum(-left, 0))):
            found[place, : left.shape[1]], found[2 + place, : left.shape[1]] = (side**2).sum(axis=0), side.sum(axis=0)
        found[4] = drawn
        return None, None, found

    found, _ = pass_over_rows(
        problem, State(svd.rows, empty_side()), measure, Pass(writes=False, pure=not svd.is_short, reads=False)
    )
    squares, sums, drawn = found.more[:2], found.more[2:4], found.more[4]
    level = np.sqrt(svd.mean / rank) or 1.0
    if not svd.is_short:
        _skip_exponentials(rng, n * rank)  # what comes next is drawn as for counts in memory
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


def _skip_exponentials(rng: np.random.Generator, number: int) -> None:
    for first in range(0, number, 2**20):
        rng.exponential(size=min(2**20, number - first))


def _rows_of(svd: Decomposition, rows: Array, chosen: Parts, drawn: Array | None) -> Array:
    """Return the loadings of some rows: the chosen parts, or random entries."""
    left = _product(rows, svd.to_left)
    found = np.empty((len(left), len(chosen.weights))) if drawn is None else chosen.level * drawn
    known = np.flatnonzero(chosen.weights)
    found[:, known] = chosen.weights[known] * np.maximum(chosen.signs[known] * left[:, known], 0)
    return found
