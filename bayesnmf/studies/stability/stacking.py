"""Stack the predictions of modes: weights with which their mean predicts best.

Runs that do not reach one another's mode cannot be pooled by the number of runs that found each, which says nothing
about predictions. Yao, Vehtari & Gelman (2022, *Stacking for non-mixing Bayesian computations*, JMLR 23:79) choose
weights by predictive performance instead: for held-out counts h and probabilities p_g of mode g,

    maximise  f(w) = Σ_ij h_ij log Σ_g w_g p_g(ij) / H,   w_g ≥ 0,  Σ_g w_g = 1,  H = Σ_ij h_ij.

f is concave. With r_g = Σ_ij (h_ij / H) p_g(ij) / Σ_c w_c p_c(ij), w is optimal if and only if every r_g ≤ 1, and for
any w the best value is at most f(w) + max_g r_g − 1: this `gap` certifies the weights.

Here the maximum is found by Newton's method with quadratic problems over w ≥ 0, as Kim, Carbonetto, Stephens & Anitescu
(2020, *A fast algorithm for maximum likelihood estimation of mixture proportions*) do: f(w) − Σ w has its maximum on
the simplex by itself, so that only w ≥ 0 is left as a constraint.

Weights are judged on counts to which they were not fitted: the held-out counts are split at random in halves, and
weights and the best single mode of each half are scored on the other half.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from bayesnmf.assessment.scoring import Ratio
from bayesnmf.studies.stability.predicting import Predictions, halves_of, per_count
from bayesnmf.types import Array

TOL = 1e-10  # gap, in nats for each count, at which the weights are optimal
MAX_STEPS, HALVINGS = 200, 40
RIDGE = 1e-12  # makes the curvature definite if two modes predict alike


class Weights(NamedTuple):
    """Stacking weights, (modes,), the value f of the maximum, and the gap within which it is the largest value."""

    weights: Array
    value: float
    gap: float


class Stacking(NamedTuple):
    """Stacked predictions of the modes.

    Attributes
    ----------
    weights : ndarray (modes,)
        Weights that predict all held-out counts best.
    gap : float
        Most by which other weights could predict these counts better, in nats for each count.
    score, score_se : float
        Score of the stack, in nats for each count, and its standard error over rows: weights from one half of the
        held-out counts are scored on the other half, and the other way round.
    single, single_se : float
        Score of the single mode that is best on the other half, in the same way.
    difference, difference_se : float
        Score of the stack minus that of the single mode, paired by row.
    """

    weights: Array
    gap: float
    score: float
    score_se: float
    single: float
    single_se: float
    difference: float
    difference_se: float


def stacking_weights(probabilities: Array, counts: Array) -> Weights:
    """Return the weights with which the mean of several predictions has the highest log-probability.

    Parameters
    ----------
    probabilities : ndarray (modes, entries)
        Probabilities above 0.
    counts : ndarray (entries,)
        Held-out counts.
    """
    modes, total = len(probabilities), counts.sum()
    if not total:
        return Weights(np.full(modes, 1 / modes), np.nan, np.nan)
    used = counts > 0
    shares, largest = counts[used] / total, probabilities[:, used].max(axis=0)
    scaled = probabilities[:, used] / largest  # f changes by a constant; nothing underflows
    offset = float(shares @ np.log(largest))
    weights = np.full(modes, 1 / modes)
    gap = _gap(scaled, shares, weights)
    for _ in range(MAX_STEPS):
        if gap <= TOL:
            break
        target = _newton_target(scaled, shares, weights)
        new = _line_search(scaled, shares, weights, target)
        if new is None:  # no gain that rounding leaves visible: the step may still come closer to the optimum
            new = target / target.sum()
            if not _gap(scaled, shares, new) < gap:
                break
        weights, gap = new, _gap(scaled, shares, new)
    weights = weights / weights.sum()
    return Weights(weights, offset + float(shares @ np.log(weights @ scaled)), _gap(scaled, shares, weights))


def _gap(scaled: Array, shares: Array, weights: Array) -> float:
    """Return max_g r_g − 1 at weights divided by their sum; infinite if a count is impossible under them."""
    mixture = weights @ scaled
    if not np.all(mixture > 0):
        return np.inf
    return max(float((scaled @ (shares / mixture)).max() * weights.sum()) - 1, 0.0)


def _newton_target(scaled: Array, shares: Array, weights: Array) -> Array:
    """Return the maximum over w ≥ 0 of the quadratic approximation of f(w) − Σ w at the current weights."""
    from scipy.linalg import solve_triangular
    from scipy.optimize import nnls

    mixture = weights @ scaled
    ratios, scores = scaled @ (shares / mixture), scaled * (np.sqrt(shares) / mixture)
    curvature = scores @ scores.T
    curvature[np.diag_indices_from(curvature)] += RIDGE * np.trace(curvature)
    root = np.linalg.cholesky(curvature)
    linear = curvature @ weights + ratios - 1
    return np.asarray(nnls(root.T, solve_triangular(root, linear, lower=True))[0])


def _line_search(scaled: Array, shares: Array, weights: Array, target: Array) -> Array | None:
    """Return the longest of halved steps to a target that raises f(w) − Σ w; None if none does."""

    def value(at: Array) -> float:
        mixture = at @ scaled
        return float(shares @ np.log(mixture) - at.sum()) if mixture.min() > 0 else -np.inf

    now = value(weights)
    for halving in range(HALVINGS):
        new = weights + 0.5**halving * (target - weights)
        if value(new) > now:
            return new
    return None


def stack(predictions: Predictions, seed: int) -> Stacking:
    """Return the stacking weights of modes, and the score of the stack on counts that did not choose its weights."""
    probabilities, held_out = predictions.probabilities, predictions.held_out
    whole = stacking_weights(probabilities, held_out.matrix.data.astype(np.float64))
    halves = halves_of(held_out, seed)
    logs = np.zeros((2, held_out.nnz))  # sums over the halves, for each nonzero, of counts × log-probability
    for chosen_on, scored_on in (halves, halves[::-1]):
        weights = stacking_weights(probabilities, chosen_on).weights
        best = int(np.argmax(np.log(probabilities) @ chosen_on))
        logs[0] += scored_on * np.log(weights @ probabilities)
        logs[1] += scored_on * np.log(probabilities[best])
    stacked, single, gain = (_of_sums(predictions, each) for each in (logs[0], logs[1], logs[0] - logs[1]))
    return Stacking(whole.weights, whole.gap, *stacked, *single, *gain)


def _of_sums(predictions: Predictions, sums: Array) -> Ratio:
    """Return the mean for each count of sums over the counts of each nonzero, and its standard error."""
    return per_count(predictions.held_out, sums / predictions.held_out.matrix.data)
