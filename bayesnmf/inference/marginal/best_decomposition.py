"""Best latent decomposition: the S with the highest log p(S) among S_ikj = X_ij μ_ik ν_kj / Σ_c μ_ic ν_cj.

[K] 10-16, mathematics.md section 4. The updates of [K] 16, μ ← μ ∇⁺/∇⁻ and ν ← ν ∇⁺/∇⁻, may lower log p(S). Here the
ratios are raised to a power that grows while log p(S) rises and is halved when it would fall, and an update that lowers
it is never accepted. S is never stored: a pass takes time O(nnz K) and memory O((n + m) K). log p(S) has many local
maxima, and the start matters more than the algorithm.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from scipy.special import digamma

from bayesnmf.data.counts import Counts
from bayesnmf.inference.ascent.course import WINDOW, Course
from bayesnmf.inference.marginal.allocation_model import log_p_totals
from bayesnmf.inference.status import Status
from bayesnmf.kernels.cpu.allocation import Totals, expected_allocations
from bayesnmf.kernels.cpu.decomposition import Gradients, decomposition_gradients
from bayesnmf.priors import Dirichlet, Distribution, ScaledDirichlet, ScaledProportions
from bayesnmf.types import Array

GROWTH, LEAST_POWER = 1.5, 1e-8
# Largest step of a logarithm, so that an entry of size 1 neither overflows nor underflows.
LONGEST = 50.0
WORDS = "log p(S) settled to {tol:g} relative", "all {max_iter} iterations done"


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
