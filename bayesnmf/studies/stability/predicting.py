"""Score modes by held-out counts.

Every count is kept for training with some probability, and the rest is held out. Each mode is fitted to the training
counts from its best fit to all counts. This start hands on the region of the mode, which is intended: the question is
how well this mode predicts, not whether the training counts alone would lead to it. If the new fit leaves the mode all
the same, its smallest matched cosine with the mode shows it. Its noise is that of the mode, as thinned counts have it.

The score is that of single counts: Σ_ij h_ij log p_ij / Σ_ij h_ij for held-out counts h, where p_ij is the posterior
mean of the probability λ_ij / Σ_j λ_ij that a count of row i has feature j, mixed with 10⁻⁶ of the overall frequencies
as in `bayesnmf.select`. For point estimates both scores are equal. With a posterior, `select` averages the probability
of whole rows; here it is that of single counts, since only then do predictions of several modes mix (`stacking`).

Standard errors are those of ratios of sums over rows (`ratio_of_sums`). Differences are paired by row.
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
from bayesnmf.studies.stability.running import Runs, seed_of
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
