"""Least-squares estimates of the shares of components in samples, which have no bias at any depth, and no bounds."""

from __future__ import annotations

import numpy as np

from bayesnmf.data.checks import check_complete
from bayesnmf.data.counts import Counts
from bayesnmf.data.suspicions import warn_of_data
from bayesnmf.priors.values import component_sums, rows_to_shares
from bayesnmf.results.record import FitRecord
from bayesnmf.types import Array

FAR = 3.0  # standard errors of a mean
SMALL = 0.05  # what components that are slightly wrong add


def unbiased_shares(fit: FitRecord) -> Array:
    """Return least-squares estimates of the shares of all samples given the components, (n, K), without bounds.

    With factors of batches, each batch has the components times its factors, and shares are those of a batch with
    factors of 1. Samples without counts have NaN.
    """
    counts = check_complete(fit.counts, "least squares")
    profiles = profiles_of(fit.exposed_components)
    found = np.empty(fit.loadings.shape)
    if fit.batch is None:
        found[:], totals = _products(counts, weights_of_features(profiles, counts)), counts.row_totals[:, None]
    else:
        for batch, factors in enumerate(fit.batch.mean):
            rows = np.flatnonzero(counts.batch.codes == batch)
            found[rows] = _products(counts.rows(rows), weights_of_features(profiles * factors, counts))
        totals = np.where(counts.row_totals > 0, found.sum(axis=1), 0.0)[:, None]
    return np.divide(found, totals, out=np.full_like(found, np.nan), where=totals > 0)


def profiles_of(exposed: Array) -> Array:
    """Return exposed components (K, m) as shares of features."""
    return rows_to_shares(exposed, component_sums(exposed)).astype(np.float64)


def weights_of_features(profiles: Array, counts: Counts) -> Array:
    """Return the weights (m, K) with which sums of the counts of a sample estimate its counts of each component.

    They are D⁻¹ Fᵀ (F D⁻¹ Fᵀ)⁻¹, where F are the profiles and D the counts of the features in all samples.
    """
    totals = counts.feature_totals
    scaled = np.divide(profiles, totals, out=np.zeros_like(profiles), where=totals > 0)
    return np.asarray((np.linalg.pinv(scaled @ profiles.T, hermitian=True) @ scaled).T)


def _products(counts: Counts, weights: Array) -> Array:
    return np.concatenate([np.asarray(part.matrix @ weights, np.float64) for _, part in counts.parts()])


def warn_of_shares(shares: Array, groups: list[str], members: list[Array], components: list[str]) -> None:
    """Warn if the mean share of a component in a group is outside [0, 1] by more than chance and `SMALL`.

    Single samples often are, by chance alone; the mean of a group only if the components do not describe its samples.
    """
    found = []
    for name, rows in zip(groups, members, strict=True):
        if len(rows) > 1:
            mean = shares[rows].mean(axis=0)
            beyond = np.maximum(-mean, mean - 1) - SMALL
            beyond -= FAR * shares[rows].std(axis=0, ddof=1) / np.sqrt(len(rows))
            found += [(float(beyond[k]), f"{mean[k]:.2f} of {components[k]} in group {name!r}")
                      for k in np.flatnonzero(beyond > 0)]  # fmt: skip
    if found:
        warn_of_data(
            f"mean shares leave [0, 1] in {len(found)} of {shares.shape[1] * len(groups)} pairs of group and component "
            f"({max(found)[1]}): the components do not describe these samples, and differences are cut at 1; fit "
            "these samples too or with more components, or compare them alone, with population=False"
        )
