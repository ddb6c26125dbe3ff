"""Score modes by held-out counts, and stack their predictions: weights with which their mean predicts best.

Every count is kept for training with some probability, and the rest is held out. Each mode is fitted to the training
counts from its best fit to all counts. This start hands on the region of the mode, which is intended: the question is
how well this mode predicts, not whether the training counts alone would lead to it. If the new fit leaves the mode all
the same, its smallest matched cosine with the mode shows it. Its noise is that of the mode, as thinned counts have it.

The score is that of single counts: Σ_ij h_ij log p_ij / Σ_ij h_ij for held-out counts h, where p_ij is the posterior
mean of the probability λ_ij / Σ_j λ_ij that a count of row i has feature j, mixed with 10⁻⁶ of the overall frequencies
as in `bayesnmf.select`. For point estimates both scores are equal. With a posterior, `select` averages the probability
of whole rows; here it is that of single counts, since only then do predictions of several modes mix.

Standard errors are those of ratios of sums over rows (`ratio_of_sums`). Differences are paired by row.

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

from dataclasses import replace
from itertools import takewhile
from typing import Any, NamedTuple

import numpy as np

from bayesnmf.assessment.bounds import elbo_marginal
from bayesnmf.assessment.scoring import MIXED, SCORE_DRAWS, Ratio, background, entry_probabilities, ratio_of_sums
from bayesnmf.checks import check_size
from bayesnmf.data.counts import Counts
from bayesnmf.data.splitting import split_counts
from bayesnmf.fitting.fitted import Fit
from bayesnmf.fitting.job import ProgressReport
from bayesnmf.fitting.many import fit_side_by_side
from bayesnmf.priors.specification import on_simplex
from bayesnmf.results.record import iterate_means
from bayesnmf.studies.stability.runs import Runs, seed_of
from bayesnmf.types import Array

MARGINAL_DRAWS = 20  # of elbo_marginal: its standard error is far below the distances of modes
SAME_RATE = 1e-5  # relative difference of rates that are equal but for rounding, in float32 too
REFIT, HALVES = 2**31, 1  # seeds beside those of starts
LARGEST, CURE = 8 * 2**30, "a larger keep, or fewer modes to score, as in scored=2"  # bytes


class Predictions(NamedTuple):
    """Held-out counts, and the probabilities that modes give to them.

    Attributes
    ----------
    held_out : Counts
    probabilities : ndarray (modes, nonzeros)
        Probability of each nonzero held-out count under each mode.
    refits : list of Fit
        Fit of each mode to the training counts.
    """

    held_out: Counts
    probabilities: Array
    refits: list[Fit]


def predict_held_out(
    runs: Runs, fits: list[Fit], keep: float, report: ProgressReport
) -> tuple[Predictions | None, bool]:
    """Fit each mode to training counts, and predict the held-out counts.

    Returns
    -------
    predictions : Predictions or None
        Predictions of the modes before the first whose fit Ctrl-C has stopped; None if there are none.
    interrupted : bool
    """
    split = split_counts(runs.counts, keep, 0.0, np.random.default_rng([runs.seed, 0]))
    check_size(8 * (len(fits) + 4) * split.thinned.nnz, LARGEST, "predictions of all held-out counts", CURE)
    held_out = split.thinned.at_hand()
    frequencies, given = background(split.train), {"counts": split.train, "seed": seed_of(runs.seed, REFIT)}
    options: Any = runs.options

    def predict(mode: int, tick: ProgressReport) -> tuple[Fit, Array]:
        from_here = replace(options, start=fits[mode], priors=fits[mode].priors, restarts=1)
        refit = runs.fit(tick, options=from_here, noise=fits[mode].noise.thinned(keep), **given)
        return refit, probabilities_of(refit, held_out, frequencies, runs.seed)

    found, interrupted = fit_side_by_side(predict, len(fits), runs.jobs, (report, "held-out counts"))
    # The best modes, without a gap: weights of others alone would mean little.
    ready = [found[mode] for mode in takewhile(found.__contains__, range(len(fits)))]
    if not ready or not held_out.nnz:
        return None, interrupted
    predictions = Predictions(held_out, np.stack([one for _, one in ready]), [refit for refit, _ in ready])
    return predictions, interrupted


def probabilities_of(fit: Fit, held_out: Counts, frequencies: Array, seed: int) -> Array:
    """Return the posterior mean of the probability of each nonzero held-out count, mixed with overall frequencies.

    It is exact for a point, and for a mean field with components on the simplex if the loadings of a row share one
    rate: shares and components are then independent under q, so that the mean of their product is the product of their
    means. Otherwise it is a mean over draws.
    """
    matrix, rows = held_out.matrix, rows_of(held_out)
    if _is_product_of_means(fit):
        factors = [(fit.loadings.astype(np.float64), fit.exposed_components.astype(np.float64))]
    else:
        factors = iterate_means(fit, SCORE_DRAWS, seed)  # type: ignore[assignment]
    total, used = np.zeros(matrix.nnz), 0
    for loadings, components in factors:
        total += entry_probabilities(matrix, rows, loadings, components, held_out.mask)
        used += 1
    return (1 - MIXED) * total / used + MIXED * frequencies[matrix.indices]


def _is_product_of_means(fit: Fit) -> bool:
    """Return whether the mean of λ_ij / Σ_j λ_ij is that of the posterior means of both sides."""
    if fit.estimate.kind == "point" or fit.batch is not None:
        return fit.batch is None
    if fit.estimate.kind != "mean field" or not on_simplex(fit.priors.components):
        return False
    if fit.counts.feature_weights is not None or fit.counts.mask is not None:
        return False
    q: Any = fit.posterior.loadings
    if q.support == "simplex" or q.support == "scaled simplex":
        return True
    rate = np.asarray(q.parameters.get("rate", np.nan))
    return rate.ndim < 1 or bool(np.all(np.abs(rate - rate[..., :1]) <= SAME_RATE * rate[..., :1]))


def rows_of(counts: Counts) -> Array:
    """Return the row of each nonzero count."""
    return np.repeat(np.arange(counts.shape[0]), np.diff(counts.matrix.indptr))


def per_count(counts: Counts, logs: Array) -> Ratio:
    """Return the mean of a quantity of each nonzero count, over all counts, and its standard error over rows.

    Parameters
    ----------
    logs : ndarray (nonzeros,)
        Log-probabilities, or differences of them.
    """
    sums = np.bincount(rows_of(counts), weights=counts.matrix.data * logs, minlength=counts.shape[0])
    return ratio_of_sums(sums, counts.row_totals)


def halves_of(counts: Counts, seed: int) -> tuple[Array, Array]:
    """Split held-out counts at random in halves; return both, (nonzeros,) each, with zeros kept in place."""
    whole = counts.matrix.data.astype(np.float64)
    rng = np.random.default_rng([seed, HALVES])
    first = rng.binomial(whole.astype(np.int64), 0.5).astype(np.float64)
    return first, whole - first


def scores_of(predictions: Predictions) -> dict[str, list[float]]:
    """Return columns of the table: scores with standard errors, and differences from the first mode."""
    logs = np.log(predictions.probabilities)
    scores = [per_count(predictions.held_out, each) for each in logs]
    gaps = [per_count(predictions.held_out, each - logs[0]) for each in logs]
    return {
        "held_out": [each.value for each in scores],
        "held_out_se": [each.se for each in scores],
        "difference": [each.value for each in gaps],
        "difference_se": [each.se for each in gaps],
    }


def bounds_of(fits: list[Fit], seed: int) -> dict[str, list[float]]:
    """Return columns of the table: estimates of `elbo_marginal` with standard errors; none for points."""
    if not fits or fits[0].estimate.kind != "mean field":
        return {}
    bounds = [elbo_marginal(each, MARGINAL_DRAWS, seed) for each in fits]
    return {"elbo_marginal": [each.mean for each in bounds], "elbo_marginal_se": [each.se for each in bounds]}


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
