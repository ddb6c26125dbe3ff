"""The marginal probability of an allocation, with loadings, components and scales integrated out in closed form.

If the components' rows sum to 1, the probability of the allocations depends on loadings and components only through the
totals A_ik = S_ik+ and B_kj = S_+kj. Each side then integrates to the ratio of the normalising constants of its prior
and its conditional ([K] 7-9 for the Dirichlet-Gamma model; the other two models by the same argument).

The best latent decomposition is the S with the highest log p(S) among S_ikj = X_ij μ_ik ν_kj / Σ_c μ_ic ν_cj.

[K] 10-16, mathematics.md section 4. The updates of [K] 16, μ ← μ ∇⁺/∇⁻ and ν ← ν ∇⁺/∇⁻, may lower log p(S). Here the
ratios are raised to a power that grows while log p(S) rises and is halved when it would fall, and an update that lowers
it is never accepted. S is never stored: a pass takes time O(nnz K) and memory O((n + m) K). log p(S) has many local
maxima, and the start matters more than the algorithm.

The evidence log p(X) is computed by enumeration or by sequential Monte Carlo. Enumeration sums the marginal of an
allocation, p(X) = Σ_S p(S), over all S that add up to X ([K] 7-9). Sequential Monte Carlo uses p(X) = Σ_z p(z) / Π X!,
a sum over the components z of all single counts (tokens); each token has a probability given the tokens before it
(mathematics.md section 4).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from itertools import combinations, product
from threading import Event
from typing import Any, NamedTuple

import numpy as np
from scipy.special import digamma, gammaln, logsumexp

from bayesnmf.data.counts import Counts
from bayesnmf.inference.ascent.course import WINDOW, Course
from bayesnmf.inference.status import Status
from bayesnmf.kernels.cpu.allocation import Totals, expected_allocations
from bayesnmf.kernels.cpu.decomposition import Gradients, decomposition_gradients
from bayesnmf.kernels.cpu.urn import Particles, Urn, filter_row
from bayesnmf.priors import Dirichlet, Distribution, ScaledDirichlet, ScaledProportions
from bayesnmf.types import Array

GROWTH, LEAST_POWER = 1.5, 1e-8
# Largest step of a logarithm, so that an entry of size 1 neither overflows nor underflows.
LONGEST = 50.0
WORDS = "log p(S) settled to {tol:g} relative", "all {max_iter} iterations done"
MOST_DIGITS = 30  # numbers of allocations with more digits are not computed exactly


def log_p_totals(
    loadings_total: Array, components_total: Array, loadings_prior: Any, components_prior: Dirichlet
) -> float:
    """Return log p(S) + Σ log S!, the part of the marginal of an allocation that depends only on its totals.

    Parameters
    ----------
    loadings_total, components_total : ndarray of shape (n, K) and (K, m)
        Totals A and B, whole numbers or not, with the same sum for every component.
    loadings_prior : Gamma, Dirichlet or ScaledDirichlet
        Prior of the loadings; the flat Gamma(1, 0) has density 1.
    components_prior : Dirichlet
        Prior of the components.

    Returns
    -------
    float
        Logarithm, in nats, on the Poisson scale.
    """
    loadings_total = np.asarray(loadings_total, np.float64)
    components_total = np.asarray(components_total, np.float64)
    found = components_prior.log_marginal(components_total) + loadings_prior.log_marginal(loadings_total)
    # Loadings on the simplex have row sums 1, so the Poisson density of every sample contains the factor exp(−1).
    return found - (len(loadings_total) if loadings_prior.support == "simplex" else 0)


def log_p_allocation(S: Array, loadings_prior: Any, components_prior: Dirichlet) -> float:
    """Return log p(S) with loadings and components integrated out, on the Poisson scale, in nats ([K] 7-9).

    Parameters
    ----------
    S : ndarray of shape (n, K, m)
        Allocations, nonnegative, whole numbers or not.
    loadings_prior : Gamma, Dirichlet or ScaledDirichlet
        Prior of the loadings, with parameters broadcastable to (n, K).
    components_prior : Dirichlet
        Prior of the components, with parameters broadcastable to (K, m).
    """
    totals = log_p_totals(S.sum(axis=2), S.sum(axis=0), loadings_prior, components_prior)
    return totals - float(gammaln(S + 1.0).sum())


def urn_of(loadings_prior: Any, components_prior: Dirichlet, rank: int, m: int) -> Urn:
    """Return the Pólya urn of the model: ratios of the marginals of two allocations that differ in one token.

    For Dirichlet and scaled Dirichlet loadings, factors shared by all components of a row are left out
    (`log_p_beside_urn`). For Gamma loadings, a token has weight (shape + A) / (rate + 1).
    """
    eta = np.atleast_2d(np.asarray(components_prior.urn_terms()[0], np.float64))
    shape, weight = loadings_prior.urn_terms()
    sums = np.ascontiguousarray(np.broadcast_to(eta, (rank, m)).sum(axis=1))
    return Urn(_rows(shape, rank), _rows(weight, rank), _rows(eta.T, rank), sums)


def log_p_beside_urn(loadings_prior: Any, row_totals: Array, rank: int) -> float:
    """Return the log of the factor of the tokens' probability that the urn leaves out, a function of row totals."""
    found = loadings_prior.log_beside_urn(row_totals, rank)
    return found - (len(row_totals) if loadings_prior.support == "simplex" else 0)  # as in `log_p_totals`


def _rows(parameter: Any, rank: int) -> Array:
    """Return a parameter as an array (rows, K), with one row if all rows share it."""
    rows = np.atleast_2d(np.asarray(parameter, np.float64))
    return np.ascontiguousarray(np.broadcast_to(rows, (len(rows), rank)))


@dataclass(frozen=True)
class AllocationModel:
    """Counts and priors of the Dirichlet-Gamma model with both sides integrated out.

    Attributes
    ----------
    counts : Counts
        Counts in float64, whole numbers or not.
    loadings_prior : ScaledDirichlet
    components_prior : Dirichlet
    threads : int or None
        Number of row blocks processed at once.
    """

    counts: Counts
    loadings_prior: ScaledDirichlet
    components_prior: Dirichlet
    threads: int | None = None


class Point(NamedTuple):
    """Multipliers μ (n, K) and ν (K, m), with log p(S) and its gradients.

    Attributes
    ----------
    loadings, components : ndarray
        Multipliers μ and ν.
    totals : Totals
        S_ik+ (n, K) and S_+kj (K, m).
    gradients : Gradients
        Gradients by the logarithms of the multipliers.
    log_p : float
        log p(S), in nats.
    """

    loadings: Array
    components: Array
    totals: Totals
    gradients: Gradients
    log_p: float


class Decomposition(NamedTuple):
    """Last point of the ascent, log p(S) at the start and after every update, and the status at the stop."""

    point: Point
    trace: list[float]
    status: Status


def evaluate_multipliers(model: AllocationModel, loadings: Array, components: Array) -> Point:
    """Return the point at the multipliers, with totals, log p(S) and its gradients ([K] 7-9, 14, 15)."""
    matrix = model.counts.matrix
    totals = expected_allocations(matrix, loadings, components, model.threads)
    rows = digamma(np.asarray(model.loadings_prior.concentration) + totals.loadings)
    columns = np.asarray(model.components_prior.concentration) + totals.components
    by_entry, by_component = np.asarray(digamma(columns)).T, np.asarray(digamma(columns.sum(axis=1)))
    of_columns = _signed_parts(by_entry) + _signed_parts(-by_component)[:, None, :]
    gradients = decomposition_gradients(matrix, loadings, components, _signed_parts(rows), of_columns, model.threads)
    marginal = log_p_totals(totals.loadings, totals.components, model.loadings_prior, model.components_prior)
    return Point(loadings, components, totals, gradients, marginal - gradients.log_factorials)


def _signed_parts(values: Array) -> Array:
    """Return the positive and the negative part, stacked."""
    return np.stack([np.maximum(values, 0.0), np.maximum(-values, 0.0)])


def best_decomposition(
    model: AllocationModel,
    start: tuple[Array, Array],
    max_iter: int,
    tol: float,
    progress: Callable[[int, float], None] | None = None,
) -> Decomposition:
    """Raise log p(S) from given multipliers until it settles, `max_iter` is reached or Ctrl-C is pressed.

    Parameters
    ----------
    model : AllocationModel
    start : tuple of ndarray (n, K) and (K, m)
        Nonnegative multipliers; a 0 stays 0.
    max_iter : int
        Largest number of updates of both sides.
    tol : float
        Relative change of log p(S) in five updates below which to stop; 0 disables this rule.
    progress : callable, optional
        Function called with the number of the update and log p(S).

    Returns
    -------
    Decomposition
        Multipliers in the gauge of `canonical_multipliers`; log p(S) never falls along the trace.
    """
    course = Course(max_iter, tol, WINDOW, progress=progress, words=WORDS)
    here = evaluate_multipliers(model, *canonical_multipliers(*start))
    power = 1.0
    with course:
        while course.reach(here.log_p):
            new, power = _next_point(model, here, power)
            if new is None:
                course.end(True, "no update raises log p(S)")
                break
            here, power = new, power * GROWTH
    return Decomposition(here, course.trace, course.status)


def _next_point(model: AllocationModel, here: Point, power: float) -> tuple[Point | None, float]:
    """Return the update with the largest tried power at which log p(S) does not fall, and this power."""
    up_rows, down_rows, up_columns, down_columns, _ = here.gradients
    rows, columns = _log_ratio(up_rows, down_rows), _log_ratio(up_columns, down_columns)
    while power > LEAST_POWER:
        loadings = here.loadings * np.exp(np.clip(power * rows, -LONGEST, LONGEST))
        components = here.components * np.exp(np.clip(power * columns, -LONGEST, LONGEST))
        new = evaluate_multipliers(model, *canonical_multipliers(loadings, components))
        if new.log_p >= here.log_p:
            return new, power
        power /= 2
    return None, power


def _log_ratio(up: Array, down: Array) -> Array:
    """Return log ∇⁺/∇⁻; 0 for multipliers without counts, for which both are 0."""
    ratio = np.divide(up, down, out=np.ones_like(up), where=(up > 0) & (down > 0))
    return np.log(ratio)


def canonical_multipliers(loadings: Array, components: Array) -> tuple[Array, Array]:
    """Return multipliers of the same S with row sums 1 on both sides.

    S does not change when a row of μ, a column of ν, or a component in both is rescaled. Columns of ν are scaled to
    maximum 1, then components to sum 1 in ν, then rows of μ to sum 1. A row, column or component of zeros gets equal
    entries; an empty component keeps its zeros on one side.
    """
    peak = components.max(axis=0)
    components = np.where(peak > 0, components / np.where(peak > 0, peak, 1.0), 1.0)
    sums = components.sum(axis=1)
    loadings = loadings * sums
    components = _rows_on_simplex(components, sums)
    return _rows_on_simplex(loadings, loadings.sum(axis=1)), components


def conditional_modes(model: AllocationModel, totals: Totals) -> tuple[ScaledProportions, Array]:
    """Return the modes of loadings, as proportions and scale, and components given S ([K] 11).

    They are θ* ∝ α − 1 + S_ik+, β* ∝ η − 1 + S_+kj and s* = (a + N_i − 1)/(b + 1) in rows where no entry is negative.
    Other rows get the mode in the log (softmax) basis, which is the conditional mean.
    """
    row_totals = totals.loadings.sum(axis=1, keepdims=True)
    proportions = _mode_or_mean(model.loadings_prior.proportions, totals.loadings)
    scale = _mode_or_mean(model.loadings_prior.scale, row_totals)
    return ScaledProportions(proportions, scale), _mode_or_mean(model.components_prior, totals.components)


def _mode_or_mean(prior: Distribution, total: Array) -> Array:
    shape = np.asarray(prior.parameters[prior.counted])
    inside = (shape - 1 + total >= 0).all(axis=1, keepdims=True)
    return np.where(inside, prior.mode(total, np.ones((1, 1))), prior.conditional(total, np.ones((1, 1))).mean())


def _rows_on_simplex(rows: Array, sums: Array) -> Array:
    scaled = np.divide(rows, sums[:, None], out=np.full_like(rows, 1 / rows.shape[1]), where=sums[:, None] > 0)
    return np.asarray(scaled, order="C")


def digits_of_allocations(counts: Counts, rank: int) -> float:
    """Return a lower bound of log10 of the number of allocations, which may have millions of digits."""
    others = max(rank - 1, 1)  # C(x + r, r) ≥ (1 + x/r)^r with r = K − 1
    return others * float(np.log10(1 + counts.matrix.data / others).sum()) if rank > 1 else 0.0


def count_allocations(counts: Counts, rank: int) -> float:
    """Return the number of integer S with Σ_k S_ikj = X_ij, or a lower bound if there are more than 1e30."""
    digits = digits_of_allocations(counts, rank)
    if digits > MOST_DIGITS:
        return 10.0 ** min(digits, 300)
    return math.prod(math.comb(int(x) + rank - 1, rank - 1) for x in counts.matrix.data)


def enumerated_log_evidence(
    counts: Counts, rank: int, loadings_prior: Distribution, components_prior: Dirichlet
) -> float:
    """Return the exact log p(X), from the sum of p(S) over all allocations; feasible only for tiny X."""
    n, m = counts.shape
    rows, columns = counts.matrix.nonzero()
    splits = [_ways_to_split(int(x), rank) for x in counts.matrix.data]
    log_terms = []
    for choice in product(*splits):
        split = np.reshape(choice, (-1, rank))  # one row for every nonzero, and no row if there are no counts
        loadings_total, components_total = np.zeros((n, rank)), np.zeros((m, rank))
        np.add.at(loadings_total, rows, split)
        np.add.at(components_total, columns, split)
        log_p = log_p_totals(loadings_total, components_total.T, loadings_prior, components_prior)
        log_terms.append(log_p - gammaln(split + 1.0).sum())
    return float(logsumexp(log_terms))


def _ways_to_split(count: int, rank: int) -> Array:
    """Return all ways to write a count as an ordered sum of `rank` whole numbers, (ways, rank), by stars and bars."""
    bars = np.array(list(combinations(range(count + rank - 1), rank - 1)), dtype=np.float64)
    return np.diff(bars, axis=1, prepend=-1, append=count + rank - 1) - 1


def estimated_log_evidence(
    counts: Counts, rank: int, priors: tuple[Distribution, Dirichlet], particles: int, seed: np.random.SeedSequence,
    stop: Event,
) -> float | None:  # fmt: skip
    """Return the log of an unbiased estimate of p(X), by one pass of sequential Monte Carlo; None if stopped.

    Parameters
    ----------
    priors : tuple
        Priors of loadings and components.
    particles : int
        Number of particles. The variance of p̂(X)/p(X) is inversely proportional to it.
    seed : SeedSequence
        Seed of all rows.
    stop : Event
        Event that stops the pass; it is checked before every row, and within long rows.
    """
    n, m = counts.shape
    urn = urn_of(*priors, rank, m)
    state = Particles(np.zeros((m, particles, rank)), np.tile(urn.sums, (particles, 1)), np.ones(particles))
    log_p = log_p_beside_urn(priors[0], counts.row_totals, rank) - counts.log_factorial

    def check_stop() -> None:
        if stop.is_set():
            raise KeyboardInterrupt

    try:
        for row, row_seed in enumerate(seed.generate_state(n, np.uint64)):
            check_stop()
            log_p += filter_row(counts.matrix, row, urn, state, row_seed, check_stop)
    except KeyboardInterrupt:
        return None
    return log_p
