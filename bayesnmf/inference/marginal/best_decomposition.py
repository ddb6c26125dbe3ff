"""Best latent decomposition: the S of greatest log p(S), sought among S_ikj = X_ij μ_ik ν_kj / Σ_c μ_ic ν_cj.

[K] 10-16, mathematics.md section 4. The updates of [K] 16, μ ← μ ∇⁺/∇⁻ and ν ← ν ∇⁺/∇⁻, carry no guarantee. Here
the ratios are raised to a power that grows while log p(S) rises and is halved when it would fall, and no fall is
accepted. S is never stored: time O(nnz K) a pass, memory O((n + m) K). log p(S) has many local maxima, and the start
decides more than the algorithm.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import digamma

from bayesnmf.data.counts import Counts
from bayesnmf.inference.ascent.course import WINDOW, Course
from bayesnmf.inference.marginal.allocation_model import log_p_totals
from bayesnmf.inference.status import Status
from bayesnmf.kernels.cpu.allocation import Totals, expected_allocations
from bayesnmf.kernels.cpu.decomposition import Gradients, decomposition_gradients
from bayesnmf.priors import Dirichlet, Distribution, ScaledDirichlet, ScaledProportions

Array = NDArray[Any]
GROWTH, LEAST_POWER = 1.5, 1e-8
# The longest step of a logarithm: exp of it neither overflows nor, of an entry of size 1, underflows.
LONGEST = 50.0
WORDS = "log p(S) settled to {tol:g} relative", "all {max_iter} iterations done"


@dataclass(frozen=True)
class AllocationModel:
    """Counts and the priors with which the factors of the Dirichlet-Gamma model are integrated out.

    Attributes
    ----------
    counts : Counts
        float64, whole numbers or not.
    loadings_prior : ScaledDirichlet
    components_prior : Dirichlet
    threads : int or None
        Row blocks worked on at once.
    """

    counts: Counts
    loadings_prior: ScaledDirichlet
    components_prior: Dirichlet
    threads: int | None = None


class Point(NamedTuple):
    """Multipliers μ (n, K) and ν (K, m), and what log p(S) is and how it rises there.

    Attributes
    ----------
    loadings, components : ndarray
        The multipliers.
    totals : Totals
        S_ik+ (n, K) and S_+kj (K, m).
    gradients : Gradients
        In the logarithms of the multipliers.
    log_p : float
        log p(S), in nats.
    """

    loadings: Array
    components: Array
    totals: Totals
    gradients: Gradients
    log_p: float


class Decomposition(NamedTuple):
    """Where the ascent ended, log p(S) at the start and after every update, and why it stopped."""

    point: Point
    trace: list[float]
    status: Status


def visit(model: AllocationModel, loadings: Array, components: Array) -> Point:
    """Take the allocation step at the multipliers, log p(S) and its gradients ([K] 7-9, 14, 15)."""
    matrix = model.counts.matrix
    totals = expected_allocations(matrix, loadings, components, model.threads)
    rows = digamma(np.asarray(model.loadings_prior.concentration) + totals.loadings)
    columns = np.asarray(model.components_prior.concentration) + totals.components
    by_cell, by_component = np.asarray(digamma(columns)).T, np.asarray(digamma(columns.sum(axis=1)))
    of_columns = _parts(by_cell) + _parts(-by_component)[:, None, :]
    gradients = decomposition_gradients(matrix, loadings, components, _parts(rows), of_columns, model.threads)
    marginal = log_p_totals(totals.loadings, totals.components, model.loadings_prior, model.components_prior)
    return Point(loadings, components, totals, gradients, marginal - gradients.log_factorials)


def _parts(values: Array) -> Array:
    """Positive and negative part, stacked."""
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
    start : tuple of ndarray (n, K) and (K, m)
        Nonnegative multipliers; a 0 stays 0.
    max_iter : int
        Most updates of both sides.
    tol : float
        Stop when log p(S) has changed by less than `tol` times its size in five updates; 0 does not stop there.
    progress : callable, optional
        Is told the update and log p(S).

    Returns
    -------
    Decomposition
        With multipliers in the gauge of `canonical`; log p(S) never falls along the trace.
    """
    course = Course(max_iter, tol, WINDOW, progress=progress, words=WORDS)
    here = visit(model, *canonical(*start))
    power = 1.0
    with course:
        while course.reach(here.log_p):
            new, power = _rise(model, here, power)
            if new is None:
                course.end(True, "no update raises log p(S)")
                break
            here, power = new, power * GROWTH
    return Decomposition(here, course.trace, course.status)


def _rise(model: AllocationModel, here: Point, power: float) -> tuple[Point | None, float]:
    """Return the first update, of falling powers, at which log p(S) is not lower, and its power."""
    up_rows, down_rows, up_columns, down_columns, _ = here.gradients
    rows, columns = _log_ratio(up_rows, down_rows), _log_ratio(up_columns, down_columns)
    while power > LEAST_POWER:
        loadings = here.loadings * np.exp(np.clip(power * rows, -LONGEST, LONGEST))
        components = here.components * np.exp(np.clip(power * columns, -LONGEST, LONGEST))
        new = visit(model, *canonical(loadings, components))
        if new.log_p >= here.log_p:
            return new, power
        power /= 2
    return None, power


def _log_ratio(up: Array, down: Array) -> Array:
    """Log ∇⁺/∇⁻; 0 where a multiplier without counts has neither."""
    ratio = np.divide(up, down, out=np.ones_like(up), where=(up > 0) & (down > 0))
    return np.log(ratio)


def canonical(loadings: Array, components: Array) -> tuple[Array, Array]:
    """Return multipliers of the same S whose rows sum to 1 on both sides.

    S does not change when a row of μ, a column of ν, or a component in both is rescaled. Columns of ν are scaled to
    the maximum 1, components to the sum 1 in ν, then rows of μ. A row, column or component of zeros becomes even; a
    dead component keeps its zeros on one side.
    """
    peak = components.max(axis=0)
    components = np.where(peak > 0, components / np.where(peak > 0, peak, 1.0), 1.0)
    sums = components.sum(axis=1)
    loadings = loadings * sums
    components = _rows_on_simplex(components, sums)
    return _rows_on_simplex(loadings, loadings.sum(axis=1)), components


def modes(model: AllocationModel, totals: Totals) -> tuple[ScaledProportions, Array]:
    """Return loadings, as proportions and scale, and components of greatest density given S ([K] 11).

    Modes where they exist, θ* ∝ α − 1 + S_ik+, β* ∝ η − 1 + S_+kj and s* = (a + N_i − 1)/(b + 1) without a negative
    entry; in other rows those of the log (softmax) basis, which are the conditional means.
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
