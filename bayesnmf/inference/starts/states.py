"""Make states to start from: from random totals, from a decomposition of the data, or from given factors.

Positive factors from the data are the nonnegative parts of a truncated singular value decomposition. This is NNDSVD
(Boutsidis & Gallopoulos 2008, *SVD based initialization: a head start for nonnegative matrix factorization*) of the
square roots of the counts, which have nearly constant variance. Subspace iteration from random vectors (Halko,
Martinsson & Tropp 2011, alg. 4.4) cannot fail on small, empty or degenerate counts. It takes a pass over the counts for
each power iteration, and one for the projected rows.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from scipy.sparse import csr_array

from bayesnmf.data.counts import Counts
from bayesnmf.inference.alignment import assign_components, cosine
from bayesnmf.inference.ascent.coordinate_ascent import Extrapolated, Steps, ascend
from bayesnmf.inference.ascent.course import Schedule
from bayesnmf.inference.ascent.poisson_regression import FLOOR as LEAST
from bayesnmf.inference.ascent.poisson_regression import regression_steps
from bayesnmf.inference.blocked.passes import Pass, pass_over_rows, totals_of
from bayesnmf.inference.problem import Problem, State
from bayesnmf.inference.side import Draw, MeanField, Mode, Side, Summary, empty_side, twin_of
from bayesnmf.inference.sides import (
    Where,
    allocate,
    allocate_at_means,
    exposure_of_components,
    update_components,
    update_loadings,
    with_rates_at,
)
from bayesnmf.inference.status import INTERRUPTED
from bayesnmf.kernels.cpu.allocation import Totals
from bayesnmf.kernels.cpu.threads import one_blas_thread
from bayesnmf.priors import Dirichlet, Distribution, Gamma, ScaledProportions, matrix
from bayesnmf.priors.pair import favoured
from bayesnmf.priors.values import as_scaled_proportions, rows_of_value, rows_to_shares
from bayesnmf.types import Array

Given = Array | ScaledProportions | Distribution
REST = 0.01  # share of a start from favoured features that goes to other components and features
RANK_ONE = 10  # iterations that fit rows and features to counts with missing entries
FLOOR = 1.0  # smallest entry, in factor means: small values change only after very many updates, and zeros never
POWER_ITERATIONS, OVERSAMPLING = 4, 10
NOTHING = np.empty((0, 0))
# Largest work of an iteration, in multiply-adds, that is little: a hundred then take some tenths of a second. An update
# of a parameter counts as much as 20 nonzeros.
LITTLE, PARAMETER_WORK = 4e5, 20


def is_little_work(counts: Counts, rank: int) -> bool:
    """Return whether iterations on these counts take little time, and their states little memory."""
    return bool((counts.nnz + PARAMETER_WORK * sum(counts.shape)) * rank <= LITTLE)


class Descent(NamedTuple):
    """A descent on the likelihood alone: its iterations, the sweeps of each, and whether they are extrapolated."""

    iterations: int
    sweeps: int
    extrapolated: bool


# The quick one takes 0.4 of the time, and fits from there end 0.0007 ± 0.0006 of the bound lower, with held-out
# scores level (benchmarks/README.md). Where counts are few, it fits them too closely; there is time for the slow one.
SLOW, QUICK = Descent(50, 3, False), Descent(30, 1, True)


def descent_for(counts: Counts, rank: int) -> Descent:
    """Return the descent of a start from these counts."""
    return SLOW if is_little_work(counts, rank) else QUICK


def random_state(problem: Problem, rank: int, rng: np.random.Generator) -> State:
    """Return the state of the conditionals given random totals: counts of rows and features times Dirichlet draws."""
    dtype = problem.counts.dtype

    def share_out(part: Problem, _: Any, __: Where) -> tuple[Side, None, float]:
        total = shared_out(part.counts.row_totals, np.ones(rank), rng).astype(dtype, copy=False)
        return Side(total, total, None, 0.0), None, 0.0

    def work(part: Problem, here: State, _: Where) -> tuple[Side, None, float]:
        return loadings_of_totals(part, here.loadings.matrix), None, 0.0

    _, totals = pass_over_rows(problem, None, share_out, Pass(pure=False, reads=False))
    total = shared_out(problem.counts.feature_totals, np.ones(rank), rng).astype(dtype, copy=False)
    _, loadings = pass_over_rows(problem, State(totals, empty_side()), work, Pass(reads=False))
    return with_components(problem, loadings, total.T)


def shared_out(totals: Array, concentration: Array, rng: np.random.Generator) -> Array:
    """Share out totals (n,) among components at random; return what each receives, (n, K)."""
    shares = rng.dirichlet(concentration, size=len(totals))
    shares *= totals[:, None]
    return shares


def loadings_of_totals(part: Problem, total: Array) -> Side:
    """Return the loadings given their totals, which may be overwritten.

    The exposure is that of components whose expected counts sum to 1.
    """
    one = part.counts.row_factor.astype(total.dtype)
    return part.loadings_summary.summarise(part.loadings_prior, total, one, None, reuse=True)


def with_components(problem: Problem, loadings: Side, total: Array) -> State:
    """Return the state of loadings that a pass has made and of components given their totals, (K, m)."""
    skip_rows(problem.loadings_summary, problem.loadings_prior, len(total), again=False)
    given = problem.components_prior, total, exposure_of_components(problem, loadings), None
    return State(loadings, problem.components_summary.summarise(*given, reuse=True))


def state_of_totals(problem: Problem, loadings_total: Array, components_total: Array) -> State:
    """Return the state of the conditionals given totals (n, K) and (K, m), which may be overwritten."""
    return with_components(problem, loadings_of_totals(problem, loadings_total), components_total)


def given_state(problem: Problem, loadings: Given, components: Given) -> State:
    """Return the state with given factors or distributions.

    A mean field needs a distribution. For a given factor, q is therefore the conditional given the expected allocations
    and the exposure at the given factors; the exposure of the components is computed at the new q of the loadings.
    """

    def work(part: Problem, _: Any, at: Where) -> tuple[Side, None, float]:
        return given_side(part, "loadings", _rows_of(loadings, at.rows)), None, 0.0

    _, side = pass_over_rows(problem, None, work, Pass(pure=False, reads=False))  # given rows are sent nowhere
    state = State(side, given_side(problem, "components", components))
    if isinstance(loadings, Distribution):
        skip_rows(problem.loadings_summary, problem.loadings_prior, len(state.components.geometric), again=False)
    bare = is_bare(problem.loadings_summary, loadings), is_bare(problem.components_summary, components)
    if not any(bare):
        return state
    problem = with_rates_at(problem, state)
    totals = allocate(problem, state, None)
    if bare[0]:
        state = update_loadings(problem, state, totals.loadings)
    return update_components(problem, state, totals.components) if bare[1] else state


def _rows_of(given: Given, rows: slice) -> Given:
    return given.rows(rows) if isinstance(given, Distribution) else rows_of_value(given, rows)


def is_bare(summary: Any, given: Given) -> bool:
    """Return whether a mean field is asked for and a factor is given."""
    return isinstance(summary, MeanField) and not isinstance(given, Distribution)


def given_side(problem: Problem, name: str, given: Given) -> Side:
    """Return the side of a given factor or distribution."""
    prior = getattr(problem, f"{name}_prior")
    summary = getattr(problem, f"{name}_summary")
    dtype = problem.counts.dtype
    if isinstance(given, Distribution):
        return summary.of(prior, given.mapped(lambda value: value.astype(dtype, copy=False)))
    if prior.support == "scaled simplex" and not isinstance(given, ScaledProportions):
        given = as_scaled_proportions(given)
    if isinstance(given, ScaledProportions):
        given = ScaledProportions(given.proportions.astype(dtype), given.scale.astype(dtype))
    else:
        given = given.astype(dtype, order="F" if name == "components" else "C")
    if is_bare(summary, given):
        return Side(given, matrix(given), None, 0.0)
    return summary.at(prior, given)


type Begin = Callable[[Problem, int, np.random.Generator], State]


def state_from_word(problem: Problem, word: str, rank: int, rng: np.random.Generator, show: Any = None) -> State:
    """Return the start with this name: "svd", "descent", "random" or "random_descent".

    If priors of components favour features, such as seeds, all of them are replaced by a start that has these features.
    """
    if problem.counts.to_start_from is not problem.counts:  # as rates would be those of a start that is not there yet
        begun = state_from_word(replace(problem, counts=problem.counts.to_start_from), word, rank, rng, show)
        return _with_shifts_of(problem, begun)
    weights = favoured(problem.components_prior)
    if len(weights):
        return favoured_state(problem, weights, rng)
    begin = random_state if word.startswith("random") else data_state
    return _descended_state(problem, begin, rank, rng, show) if word.endswith("descent") else begin(problem, rank, rng)


def _with_shifts_of(problem: Problem, state: State) -> State:
    """Return a state whose loadings, where they are in files, know their part of the likelihood of these counts."""
    over: Any = getattr(state.loadings, "over", None)
    if over is None or not state.loadings.reader.layout.shifted:  # without, these counts have the same totals
        return state
    shift = problem.over_rows(state, lambda part, here, _: here.loadings.shift(part.counts), reads=False)
    return state._replace(loadings=state.loadings.with_sums(over._replace(shift=shift)))


def data_state(problem: Problem, rank: int, rng: np.random.Generator) -> State:
    """Return the state of the conditionals given the allocations at the NNDSVD factors.

    Priors and summaries do not affect these factors. Components beyond the rank of the counts are random.
    """
    filled = replace(problem, counts=completed(problem.counts))
    return _state_at(problem, *positive_factors(filled, rank, rng))


def _descended_state(problem: Problem, begin: Begin, rank: int, rng: np.random.Generator, show: Any) -> State:
    """Return the state of the conditionals given the allocations at factors from a short descent without priors.

    With small concentrations, each row soon keeps its first components, and these are still poor. Coordinate descent on
    the likelihood alone ([C] alg. 1) first finds better components.
    """
    if show is not None:
        show(0)  # passes over the counts come before its first iteration
    flat = flat_problem(problem.counts)
    descent = descent_for(problem.counts, rank)
    schedule = Schedule("alternating", sweeps=descent.sweeps, max_iter=descent.iterations)
    # Means of rank one in missing entries serve to begin with; held for longer they would be taken for counts, and a
    # large count that is missing would lead to components that lack its feature.
    begun = begin(replace(flat, counts=completed(flat.counts)), rank, rng)
    steps = regression_steps(flat, schedule, "scd")
    if descent.extrapolated:
        steps = Extrapolated(steps, LEAST)
    fitted = state_after_steps(flat, begun, schedule, steps, show)
    return _state_at(problem, fitted.loadings, fitted.components.geometric)


def favoured_state(problem: Problem, weights: Array, rng: np.random.Generator) -> State:
    """Return a start of components whose priors favour features, with these weights (K, m), and of random others.

    A favoured component begins with the counts of the rows where its features are more frequent than on average, each
    row weighted by what it has beyond; such a row begins with the favoured components in these proportions. A little of
    every row is shared out at random, since components that favour the same features would else stay the same.
    """
    filled = replace(problem, counts=completed(problem.counts))
    named, unnamed = np.flatnonzero(weights.any(axis=1)), np.flatnonzero(~weights.any(axis=1))
    marked = (weights[named] > 0).astype(np.float64)
    shares = marked @ filled.counts.feature_totals / max(filled.counts.total, 1.0)

    def work(part: Problem, _: Any, __: Where) -> tuple[Side, None, Array]:
        totals, found = part.counts.row_totals[:, None], part.counts.matrix @ marked.T
        beyond = np.maximum(found / np.maximum(totals * shares, np.finfo(float).tiny) - 1, 0.0)
        drawn = rng.dirichlet(np.ones(len(weights)), len(totals))
        loadings = REST * drawn
        loadings[:, named] += beyond
        loadings[:, unnamed] += drawn[:, unnamed] / drawn[:, unnamed].sum(axis=1, keepdims=True)
        loadings *= totals
        return Side(loadings, loadings, None, 0.0), None, np.asarray(part.counts.matrix.T @ beyond)

    found, loadings = pass_over_rows(filled, None, work, Pass(pure=False))
    overall = filled.counts.feature_totals / max(filled.counts.total, 1.0)
    components = np.zeros(weights.shape)
    components[named] = rows_to_shares(found.more.T, found.more.sum(axis=0))
    if len(unnamed):
        components[unnamed] = len(unnamed) * shared_out(overall, np.ones(len(unnamed)), rng).T
    return _state_at(filled, loadings, components + REST * (overall + 1 / len(overall)))


def flat_problem(counts: Counts) -> Problem:
    """Return the problem whose objective is the log-likelihood of these counts; its factors include exposures."""
    return Problem(counts.with_exposure(None, None), Gamma(1.0, 0.0), Dirichlet(1.0), Mode(), Mode(estimated=True))


def completed(counts: Counts) -> Counts:
    """Return counts for a start, with missing entries filled by means of rank one, or with zeros if they are most."""
    mask = counts.mask
    return counts.completed(means_of_rank_one(counts) if mask is not None and mask.of_missing else None)


def means_of_rank_one(counts: Counts) -> tuple[Array, Array]:
    """Return factors (n,) and (m,) whose products are the means of the counts given their totals, without the mask."""
    mask: Any = counts.mask
    rows, features = np.ones((counts.shape[0], 1)), np.ones((counts.shape[1], 1))
    for _ in range(RANK_ONE):
        seen = features.sum() - mask.sums_by_row(features)
        rows = np.divide(counts.row_totals[:, None], seen, out=np.zeros_like(rows), where=seen > 0)
        seen = rows.sum() - mask.sums_by_feature(rows)
        features = np.divide(counts.feature_totals[:, None], seen, out=np.zeros_like(features), where=seen > 0)
    return rows[:, 0], features[:, 0]


def _state_at(problem: Problem, loadings: Side, components: Array) -> State:
    """Return the state of the conditionals given the allocations at factors, with known components in their places."""
    dtype = problem.counts.dtype
    order, components = _with_known(problem, components.astype(dtype))

    def work(part: Problem, here: State, at: Where) -> tuple[Side, Totals, float]:
        rows = here.loadings.matrix.astype(dtype)
        totals = allocate_at_means(part.counts, rows if order is None else rows[:, order], components, at.threads)
        return loadings_of_totals(part, totals.loadings), totals, 0.0

    found, loadings = pass_over_rows(problem, State(loadings, empty_side()), work)
    return with_components(problem, loadings, totals_of(problem, found))


def _with_known(problem: Problem, components: Array) -> tuple[Array | None, Array]:
    """Return components with each known one in place of the one most like it, and the order of the loadings then.

    The others are then what is left. The known one gets the sum of the other, as the loadings stay.
    """
    known, at = problem.components_prior.given_rows
    if not len(at):
        return None, components
    known = known * problem.counts.feature_factor
    alike = np.zeros((len(components), len(components)))
    alike[:, at] = cosine(components, known)
    order = assign_components(alike)
    components = components[order]
    components[at] = rows_to_shares(known, known.sum(axis=1)) * components[at].sum(axis=1, keepdims=True)
    return order, np.maximum(components, np.finfo(components.dtype).tiny)


def state_after_steps(problem: Problem, state: State, schedule: Schedule, steps: Steps, show: Any = None) -> State:
    """Return the state after the iterations that prepare a start.

    Raises
    ------
    KeyboardInterrupt
        Ctrl-C was pressed; an unfinished start is not kept.
    """
    ascent = ascend(problem, state, schedule, show, steps)
    if ascent.status.reason == INTERRUPTED:
        raise KeyboardInterrupt
    return ascent.state


def skip_rows(summary: Summary, prior: Distribution, rank: int, *, again: bool) -> None:
    """Advance the random generator of draws as if all loadings had been drawn.

    With `again`, parameters that belong to rows were drawn before, given older loadings.
    """
    if isinstance(summary, Draw):
        ones, one = np.ones((1, rank)), np.ones((1, 1))
        summary.summarise(prior.rows(slice(0, 1)), ones, one, Side(ones, ones, None, 0.0) if again else None)


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
        # Random entries of the loadings are drawn twice: for their means, and for themselves.
        at_rows = twin_of(rng) if svd.is_short else rng
        chosen = _choose_parts(problem, svd, rng)

        def work(part: Problem, here: State, _: Where) -> tuple[Side, None, float]:
            drawn = at_rows.exponential(size=(part.counts.shape[0], rank)) if svd.is_short else None
            rows = np.maximum(_projected_rows(svd, here.loadings.matrix, chosen, drawn), FLOOR * chosen.means)
            return Side(rows, rows, None, 0.0), None, 0.0

        kind = Pass(pure=not svd.is_short, reads=False)
        _, loadings = pass_over_rows(problem, State(svd.rows, empty_side()), work, kind)
    return loadings, np.maximum(chosen.components, FLOOR * chosen.components.mean(axis=1)[:, None])


def decompose(problem: Problem, rank: int, rng: np.random.Generator) -> Decomposition:
    """Return the leading `rank` singular triplets, or all if there are fewer."""
    n, m = problem.counts.shape
    basis = rng.standard_normal((m, min(rank + OVERSAMPLING, n, m)))

    def roots(part: Problem) -> csr_array:
        given = part.counts.matrix
        return csr_array((np.sqrt(given.data, dtype=np.float64), given.indices, given.indptr), shape=given.shape)

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


def _projected_rows(svd: Decomposition, rows: Array, chosen: Parts, drawn: Array | None) -> Array:
    """Return the loadings of some rows: the chosen parts, or random entries."""
    left = rows @ svd.to_left
    found = np.empty((len(left), len(chosen.weights))) if drawn is None else chosen.level * drawn
    known = np.flatnonzero(chosen.weights)
    found[:, known] = chosen.weights[known] * np.maximum(chosen.signs[known] * left[:, known], 0)
    return found
