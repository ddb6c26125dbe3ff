"""Make a start from the data: the nonnegative parts of a truncated singular value decomposition.

This is NNDSVD (Boutsidis & Gallopoulos 2008, *SVD based initialization: a head start for nonnegative matrix
factorization*) of the square roots of the counts, which have nearly constant variance. Subspace iteration from random
vectors (Halko, Martinsson & Tropp 2011, alg. 4.4) cannot fail on small, empty or degenerate counts.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from bayesnmf.data.counts import Counts
from bayesnmf.data.rated import RatedCounts
from bayesnmf.inference.alignment import assign_components, cosine
from bayesnmf.inference.allocating import allocate_at_means
from bayesnmf.inference.ascent.coordinate_ascent import Schedule, Steps, ascend
from bayesnmf.inference.ascent.poisson_regression import regression_steps
from bayesnmf.inference.sides import Problem, State
from bayesnmf.inference.starts.states import random_state, state_from_totals
from bayesnmf.inference.status import INTERRUPTED
from bayesnmf.inference.summaries import Mode
from bayesnmf.options.algorithms import ALGORITHMS
from bayesnmf.priors import Dirichlet, Gamma
from bayesnmf.priors.simplex import rows_to_shares

Array = NDArray[Any]
type Begin = Callable[[Problem, int, np.random.Generator], State]
FLOOR = 1.0  # smallest entry, in factor means: small values change only after very many updates, and zeros never
POWER_ITERATIONS, OVERSAMPLING = 4, 10
DESCENT = 50  # iterations without priors
RANK_ONE = 10  # iterations that fit rows and features to counts with missing cells


def state_from_word(problem: Problem, word: str, rank: int, rng: np.random.Generator) -> State:
    """Return the start with this name: "svd", "descent", "random" or "random_descent"."""
    if isinstance(problem.counts, RatedCounts):  # rates would be those of a start that there is not yet
        problem = replace(problem, counts=problem.counts.plain)
    begin = random_state if word.startswith("random") else data_state
    return _descended_state(problem, begin, rank, rng) if word.endswith("descent") else begin(problem, rank, rng)


def data_state(problem: Problem, rank: int, rng: np.random.Generator) -> State:
    """Return the state of the conditionals given the allocations at the NNDSVD factors.

    Priors and summaries do not affect these factors. Components beyond the rank of the counts are random.
    """
    factors = positive_factors(completed(problem.counts).matrix.astype(np.float64).sqrt(), rank, rng)
    return _state_at(problem, *factors, threads=1)


def _descended_state(problem: Problem, begin: Begin, rank: int, rng: np.random.Generator) -> State:
    """Return the state of the conditionals given the allocations at factors from a short descent without priors.

    With small concentrations, each row soon keeps its first components, and these are still poor. Coordinate descent on
    the likelihood alone ([C] alg. 1) first finds better components.
    """
    flat = flat_problem(completed(problem.counts))
    schedule = Schedule("alternating", sweeps=ALGORITHMS["scd"].sweeps, max_iter=DESCENT)
    fitted = state_after_steps(flat, begin(flat, rank, rng), schedule, regression_steps(flat, schedule, "scd"))
    return _state_at(problem, fitted.loadings.geometric, fitted.components.geometric, None)


def flat_problem(counts: Counts) -> Problem:
    """Return the problem whose objective is the log-likelihood of these counts; its factors include exposures."""
    return Problem(
        counts.with_mask(None).with_exposure(None, None), Gamma(1.0, 0.0), Dirichlet(1.0), Mode(), Mode(estimated=True)
    )


def completed(counts: Counts) -> Counts:
    """Return counts for a start, with missing cells filled by means of rank one, or with zeros if they are most."""
    mask = counts.mask
    if mask is None or not mask.of_missing:
        return counts.with_mask(None)
    cells = mask.missing.tocoo()
    rows, features = means_of_rank_one(counts)
    filled = csr_array((rows[cells.row] * features[cells.col], cells.coords), shape=counts.shape)
    return counts.with_mask(None).with_matrix(csr_array(counts.matrix + filled.astype(counts.dtype)))


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


def _state_at(problem: Problem, loadings: Array, components: Array, threads: int | None) -> State:
    """Return the state of the conditionals given the allocations at factors, with known components in their places."""
    dtype = problem.counts.dtype
    loadings, components = _with_known(problem, loadings.astype(dtype), components.astype(dtype))
    totals = allocate_at_means(problem.counts, loadings, components, threads)
    return state_from_totals(problem, totals.loadings, totals.components)


def _with_known(problem: Problem, loadings: Array, components: Array) -> tuple[Array, Array]:
    """Return factors with each known component in place of the one most like it, so that the others are what is left.

    The known one gets the sum of the other, as the loadings stay.
    """
    constants = problem.components_prior.constants
    if "known" not in constants:
        return loadings, components
    at, known = constants["at"], constants["known"] * problem.counts.feature_factor
    alike = np.zeros((len(components), len(components)))
    alike[:, at] = cosine(components, known)
    order = assign_components(alike)
    loadings, components = loadings[:, order], components[order]
    components[at] = rows_to_shares(known, known.sum(axis=1)) * components[at].sum(axis=1, keepdims=True)
    return loadings, np.maximum(components, np.finfo(components.dtype).tiny)


def state_after_steps(problem: Problem, state: State, schedule: Schedule, steps: Steps) -> State:
    """Return the state after the iterations that prepare a start.

    Raises
    ------
    KeyboardInterrupt
        Ctrl-C was pressed; an unfinished start is not kept.
    """
    ascent = ascend(problem, state, schedule, steps)
    if ascent.status.reason == INTERRUPTED:
        raise KeyboardInterrupt
    return ascent.state


def positive_factors(matrix: csr_array, rank: int, rng: np.random.Generator) -> tuple[Array, Array]:
    """Return positive loadings (n, K) and components (K, m) with a product near a nonnegative matrix."""
    left, singular, right = truncated_svd(matrix, rank, rng)
    n, m = matrix.shape
    level = np.sqrt(matrix.mean() / rank) or 1.0
    loadings, components = level * rng.exponential(size=(n, rank)), level * rng.exponential(size=(rank, m))
    for k in range(np.count_nonzero(singular > 1e-10 * singular.max(initial=0))):
        pairs = [(np.maximum(s * left[:, k], 0), np.maximum(s * right[k], 0)) for s in (1, -1)]
        sizes = [np.linalg.norm(one) * np.linalg.norm(two) for one, two in pairs]
        chosen = int(np.argmax(sizes))
        loading, component = pairs[chosen]
        if sizes[chosen] > 0:
            weight = np.sqrt(singular[k] * sizes[chosen])
            loadings[:, k] = weight / np.linalg.norm(loading) * loading
            components[k] = weight / np.linalg.norm(component) * component
    floors = FLOOR * loadings.mean(axis=0), FLOOR * components.mean(axis=1)[:, None]
    return np.maximum(loadings, floors[0]), np.maximum(components, floors[1])


def truncated_svd(matrix: csr_array, rank: int, rng: np.random.Generator) -> tuple[Array, Array, Array]:
    """Return the leading `rank` singular triplets, or all if there are fewer: (n, r), (r,), (r, m)."""
    n, m = matrix.shape
    transposed = matrix.T.tocsr()
    basis = rng.standard_normal((m, min(rank + OVERSAMPLING, n, m)))
    for _ in range(POWER_ITERATIONS):
        basis = np.linalg.qr(matrix @ basis)[0]
        basis = np.linalg.qr(transposed @ basis)[0]
    left, singular, inner = np.linalg.svd(matrix @ basis, full_matrices=False)
    return left[:, :rank], singular[:rank], (inner @ basis.T)[:rank]
