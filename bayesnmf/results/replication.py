"""Draw replicated counts from the posterior predictive distribution."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import repeat
from typing import Any

import numpy as np

from bayesnmf.checks import check_available, check_count, check_names, check_size
from bayesnmf.data.checks import check_complete, check_drawable
from bayesnmf.noise.abilities import Noise, distribution_of
from bayesnmf.priors.specification import MODELS
from bayesnmf.results.batches import iterate_factors
from bayesnmf.results.checks import check_distribution
from bayesnmf.results.draws import LIMIT, MORE, iterate_noises, restrict_rows
from bayesnmf.results.estimates import TakeRows
from bayesnmf.results.record import FitRecord, effective_loadings, factors_of_means
from bayesnmf.types import Array


def sample_posterior_predictive(
    fit: FitRecord, draws: int = 100, seed: int = 0, rows: Iterable[Any] | None = None
) -> Array:
    """Return replicated counts (draws, rows, m), whole numbers, with one set for each posterior draw.

    Counts have the noise of the fit, with the dispersion of each draw where it is drawn; under dirichlet_poisson they
    are multinomial, or Dirichlet-multinomial, with the given row totals, rounded to whole numbers. A point estimate
    gives counts at its point, without the uncertainty of the parameters. Draws of gibbs and nuts are evenly spaced
    among all chains.
    """
    check_distribution(fit, "replicated counts")
    if MODELS[fit.model].given_totals:
        check_complete(fit.counts, "replicating counts given their totals")
    positions = check_names(rows, fit.row_names, "rows")
    check_count(seed, "seed", minimum=0)
    draws = check_count(draws, "draws")
    n, m = selected_size(fit, positions, None)
    check_size(8 * draws * n * m, LIMIT, "replicated counts", "choose some with rows=, or fewer draws=")
    part = restrict_rows(fit, positions)
    rng = replication_rng(seed)
    out = np.empty((draws, n, m), np.int64)
    drawn = zip(draws_to_replicate(part, draws, seed), iterate_noises(part, draws), strict=False)
    for index, ((take, components, factors), noise) in enumerate(drawn):
        loadings = effective_loadings(part, *take(slice(0, n)), components)
        left, right = factors_of_means(part, loadings, components, factors)
        out[index] = replicate(part, left @ right, rng, noise=noise)
    return out


Replicating = tuple[TakeRows, Array, Array | None]  # what takes rows of loadings, components, factors of batches


def draws_to_replicate(fit: FitRecord, draws: int, seed: int) -> Iterator[Replicating]:
    """Return what `iterate_by_rows` yields, `draws` in all: draws, or the same point repeated, with factors."""
    of_batches = iterate_factors(fit, draws, seed)
    if fit.estimate.kind == "point":
        return repeat((*next(fit.estimate.iterate_by_rows(fit, 1, seed)), next(of_batches)), draws)
    if (held := fit.estimate.held) is not None:
        check_available(draws, held[0] * held[1], "draws", "" if fit.intervals is None else MORE)
    drawn = zip(fit.estimate.iterate_by_rows(fit, draws, seed), of_batches, strict=False)
    return ((*sides, factors) for sides, factors in drawn)


def number_to_replicate(fit: FitRecord, most: int) -> int:
    """Return the number of replicates to make by default: `most`, but not more than there are draws of a posterior."""
    return most if fit.estimate.kind == "point" else fit.estimate.length(most)


def selected_size(fit: FitRecord, rows: Array | None, features: Array | None) -> tuple[int, int]:
    """Return the number of rows and features of a selection; None selects all."""
    n, m = fit.counts.shape
    return n if rows is None else len(rows), m if features is None else len(features)


def replication_rng(seed: int) -> np.random.Generator:
    """Return a generator that is independent of the draws from q with the same seed."""
    return np.random.default_rng([seed, 1])


def replicate(
    fit: FitRecord,
    means: Array,
    rng: np.random.Generator,
    features: Array | None = None,
    noise: Noise | None = None,
) -> Array:
    """Draw counts of all or some features with given means; of given totals, the other features take the rest.

    The noise is that of a draw, if it has a dispersion of its own, and by default that of the fit.
    """
    check_drawable(means, "fit smaller counts")
    own = distribution_of(noise or fit.noise).of_features(features)
    if not MODELS[fit.model].given_totals:
        return own.draw(means, rng)
    totals = fit.counts.row_totals[:, None]
    shares = np.divide(means, totals, out=np.zeros(means.shape), where=totals > 0)
    sums = shares.sum(axis=1, keepdims=True)
    if means.shape[1] == fit.counts.shape[1]:
        shares = np.divide(shares, sums, out=shares, where=sums > 0)
    else:
        shares = np.hstack([shares, np.maximum(1 - sums, 0)])
    whole = np.rint(totals[:, 0]).astype(np.int64)
    return own.draw_given_totals(whole, shares, rng)[:, : means.shape[1]]
